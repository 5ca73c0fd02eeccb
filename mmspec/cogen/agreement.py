"""How well a text and a picture agree, and whose fault it is where they do not.

Faults have a direction: a claim of the prompt (or of a text that came with the request) that a draft
contradicts is the draft's fault; a claim of our own text that every draft contradicts, and that nobody asked for, is
the text's. An unsure or
unjudged claim is nobody's fault. Knows scores; knows no model.
"""

from __future__ import annotations

from collections.abc import Sequence

from mmspec.types import Claim, ClaimKind, ClaimScore, Verdict

__all__ = [
    "agreement",
    "asked_for",
    "best_draft",
    "coverage",
    "describe",
    "draft_faults",
    "missing_claims",
    "text_faults",
]

ASKED_WEIGHT = 2.0
"""What the user asked for counts this much more than what our own text adds."""


def agreement(scores: Sequence[ClaimScore]) -> float:
    """Weighted mean probability of the judged claims, in [0, 1]; 0.5 where nothing was judged."""
    judged = [score for score in scores if score.verdict is not Verdict.UNJUDGED]
    weights = [score.claim.weight * (ASKED_WEIGHT if score.claim.asked else 1.0) for score in judged]
    if not sum(weights):
        return 0.5
    return sum(weight * score.probability for weight, score in zip(weights, judged, strict=True)) / sum(weights)


def coverage(scores: Sequence[ClaimScore]) -> float:
    """The share of what is asked for that the text speaks of too, in [0, 1]; 1 where nothing is."""
    asked = {score.claim.phrase.casefold() for score in scores if score.claim.asked}
    said = {score.claim.phrase.casefold() for score in scores if not score.claim.asked}
    return len(asked & said) / len(asked) if asked else 1.0


def best_draft(scores: Sequence[Sequence[ClaimScore]]) -> int:
    """Position of the draft that contradicts the fewest claims asked for, then with the highest agreement."""
    return min(range(len(scores)), key=lambda k: (len(draft_faults(scores[k])), -agreement(scores[k]), k))


def asked_for(claim: Claim, scores: Sequence[ClaimScore]) -> bool:
    """Whether `claim` repeats one of the asked claims in `scores`, or names its thing by the last word.

    Where a mechanical eye is asked for, "the eye" of the text is that one.
    """
    asked = [score.claim.phrase.casefold() for score in scores if score.claim.asked]
    phrase = claim.phrase.casefold()
    noun = phrase.removeprefix("an ").removeprefix("a ")
    shortened = claim.kind is ClaimKind.PROP and any(other.endswith(f" {noun}") for other in asked)
    return phrase in asked or shortened


def draft_faults(scores: Sequence[ClaimScore]) -> tuple[ClaimScore, ...]:
    """What is asked for and this draft contradicts."""
    return tuple(score for score in scores if score.claim.asked and score.verdict is Verdict.FAILED)


def text_faults(scores: Sequence[Sequence[ClaimScore]]) -> tuple[ClaimScore, ...]:
    """The text's own claims that every draft of the branch contradicts, as the best draft scored them.

    `scores[k]` are the scores of draft `k`, all of the same claims in the same order.
    """
    per_claim = zip(*scores, strict=True)
    return tuple(
        max(seen, key=lambda score: score.probability)
        for seen in per_claim
        if not seen[0].claim.asked
        and not asked_for(seen[0].claim, scores[0])
        and all(score.verdict is Verdict.FAILED for score in seen)
    )


def missing_claims(scores: Sequence[Sequence[ClaimScore]]) -> tuple[ClaimScore, ...]:
    """What is asked for and every draft of the branch contradicts, as the best draft scored it."""
    return tuple(
        max(seen, key=lambda score: score.probability)
        for seen in zip(*scores, strict=True)
        if seen[0].claim.asked and all(score.verdict is Verdict.FAILED for score in seen)
    )


def describe(fault: ClaimScore) -> str:
    """One fault in words: the claim, its probability and what is seen instead.

    >>> from mmspec.types import ClaimKind
    >>> claim = Claim("a mechanical eye", ClaimKind.PROP, "prompt", (0, 16))
    >>> describe(ClaimScore(claim, 0.03, Verdict.FAILED, looks_like="glasses"))
    'prompt asks for "a mechanical eye" (0.03), looks like "glasses"'
    """
    verb = {"prompt": "prompt asks for", "given": "given text says"}.get(fault.claim.source, "text says")
    instead = f', looks like "{fault.looks_like}"' if fault.looks_like else ""
    return f'{verb} "{fault.claim.phrase}" ({fault.probability:.2f}){instead}'
