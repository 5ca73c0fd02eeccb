"""How strict a run is: what may be called verified, and how many repairs are paid for.

Knows verdicts; knows no branch and no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmspec.errors import InputError
from mmspec.types import ClaimScore, Verdict

__all__ = ["Strictness"]


@dataclass(frozen=True)
class Strictness:
    """`policy=relaxed|standard|strict`, the half that is about pairs of text and picture.

    A pair is verified while the share of its judged claims that miss is at most `max_missed_share`. A
    contradicted claim misses; an unsure one misses too if `unsure_misses`; an unjudged one never does.
    `max_repairs` bounds the redraws of a run. Raises `InputError` for values out of range.
    """

    max_missed_share: float
    unsure_misses: bool
    max_repairs: int

    def __post_init__(self) -> None:
        if not 0.0 <= self.max_missed_share < 1.0:
            raise InputError(f"policy.pairs.max_missed_share={self.max_missed_share}: expected a number in [0, 1)")
        if self.max_repairs < 0:
            raise InputError(f"policy.pairs.max_repairs={self.max_repairs}: expected at least 0")

    def misses(self, score: ClaimScore) -> bool:
        """Whether this claim counts against the pair."""
        return score.verdict is Verdict.FAILED or (self.unsure_misses and score.verdict is Verdict.UNSURE)

    def verified(self, scores: Sequence[ClaimScore]) -> bool:
        """Whether a pair with these scores may be called verified."""
        judged = [score for score in scores if score.verdict is not Verdict.UNJUDGED]
        missed = sum(self.misses(score) for score in judged)
        return missed <= self.max_missed_share * len(judged)
