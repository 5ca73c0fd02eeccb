"""What the negative prompt forbids: claims that fail where a picture shows them.

A CLIP cannot read "no glasses", so the verifier is asked about the glasses and its answer is turned around.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mmspec.types import Claim, ClaimScore, Verdict

__all__ = ["denied", "forbidden_claims", "negated"]

_OPPOSITE = {Verdict.HELD: Verdict.FAILED, Verdict.FAILED: Verdict.HELD}


def forbidden_claims(claims: Sequence[Claim]) -> dict[Claim, Claim]:
    """The claims "no X" of a negative prompt that makes `claims`, each with the claim that it denies.

    A thing with an attribute is forbidden with it alone: a negative "red robot" does not forbid robots.
    """
    parents = {claim.parent for claim in claims}
    return {
        replace(claim, phrase=negated(claim.phrase), source="prompt", contrasts=(), parent=None): claim
        for claim in claims
        if claim.phrase not in parents
    }


def negated(phrase: str) -> str:
    """What a person reads: the phrase denied.

    >>> negated("a red robot"), negated("glasses"), negated("in the rain")
    ('no red robot', 'no glasses', 'not in the rain')
    """
    first, _, rest = phrase.partition(" ")
    if first in ("a", "an"):
        return f"no {rest}"
    return f"{'not' if first in ('in', 'at', 'under', 'on', 'with') else 'no'} {phrase}"


def denied(score: ClaimScore, claim: Claim) -> ClaimScore:
    """The score of a claim "no X", given that of X: what held fails, and the other way round.

    >>> from mmspec.types import ClaimKind
    >>> glasses = Claim("glasses", ClaimKind.PROP, "prompt", (0, 7))
    >>> no_glasses = Claim("no glasses", ClaimKind.PROP, "prompt", (0, 7))
    >>> denied(ClaimScore(glasses, 0.75, Verdict.HELD), no_glasses).verdict
    <Verdict.FAILED: 'failed'>
    """
    verdict = _OPPOSITE.get(score.verdict, score.verdict)
    seen = score.claim.phrase if verdict is Verdict.FAILED else None
    return replace(score, claim=claim, probability=1.0 - score.probability, verdict=verdict, looks_like=seen)
