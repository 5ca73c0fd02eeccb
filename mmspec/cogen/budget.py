"""How much work one request may cost: branches x drafts x denoising steps, and what of it is spent.

Knows counts only; knows no model and no branch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from mmspec.errors import InputError
from mmspec.types import Request

__all__ = ["Budget", "StepLedger"]


@dataclass(frozen=True)
class Budget:
    """The bounds of one run.

    `num_branches` text branches live at once, each with `num_drafts` drafts. A picture has `num_steps`
    denoising steps: `steps_per_round` are taken in a round, and after `draft_steps` a draft waits to be
    chosen. A round's text segment has at most `segment_tokens` tokens. Raises `InputError` for a bound
    below one, or more draft steps than steps.
    """

    num_branches: int
    num_drafts: int
    num_steps: int
    draft_steps: int
    steps_per_round: int
    segment_tokens: int

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise InputError(f"{field.name}={getattr(self, field.name)} is too small: expected at least 1")
        if self.draft_steps > self.num_steps:
            raise InputError(f"draft_steps={self.draft_steps} is more than num_steps={self.num_steps}")

    @property
    def max_draft_steps(self) -> int:
        """Denoising steps that all drafts of a run may take together."""
        return self.num_branches * self.num_drafts * self.num_steps

    def for_request(self, request: Request) -> Budget:
        """The budget of a request: for `n` pairs as much to spare as for a single one.

        A given picture stands beside every branch; a given text is the only branch and gets all the drafts.
        Raises `InputError` if a single pair has no branch or draft to choose from: nothing could be pruned.
        """
        more = request.n - 1
        if request.text:
            return replace(self, num_branches=1, num_drafts=self.num_branches * self.num_drafts + more)
        if request.image:
            return replace(self, num_branches=self.num_branches + more, num_drafts=1)
        if self.num_branches * self.num_drafts < 2:
            raise InputError(
                f"num_branches={self.num_branches} x num_drafts={self.num_drafts} leaves nothing to prune: "
                "expected at least two drafts in all (pipeline=sequential makes a single one)"
            )
        return replace(self, num_branches=self.num_branches + more)


class StepLedger:
    """Counts denoising steps against a bound, keeping `num_reserved` of them for the finished pictures."""

    def __init__(self, max_steps: int, *, num_reserved: int) -> None:
        self.max_steps = max_steps
        self.num_reserved = num_reserved
        self.num_spent = 0

    @property
    def num_left(self) -> int:
        """Steps that drafts may still take without touching what is reserved."""
        return max(0, self.max_steps - self.num_reserved - self.num_spent)
