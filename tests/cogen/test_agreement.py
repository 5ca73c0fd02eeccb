"""Agreement, and whose fault a contradiction is."""

from __future__ import annotations

import pytest

from mmspec.cogen.agreement import agreement, best_draft, coverage, describe, draft_faults, missing_claims, text_faults
from mmspec.types import Claim, ClaimKind, ClaimScore, Verdict

H, F, U, N = Verdict.HELD, Verdict.FAILED, Verdict.UNSURE, Verdict.UNJUDGED


def seen(phrase: str, probability: float, verdict: Verdict, source: str = "prompt") -> ClaimScore:
    """One claim as one draft scored it."""
    return ClaimScore(Claim(phrase, ClaimKind.PROP, source, (0, 1)), probability, verdict)


def test_agreement_weighs_the_prompt_twice() -> None:
    """(2 x 0.9 + 1 x 0.3) / 3; what was not judged does not count."""
    scores = [seen("eye", 0.9, H), seen("cat", 0.3, U, "text"), seen("hope", 0.0, N)]
    assert agreement(scores) == pytest.approx(0.7)


def test_agreement_without_a_judged_claim_is_neutral() -> None:
    """Nothing known is neither good nor bad."""
    assert agreement([seen("hope", 0.0, N)]) == 0.5


def test_prompt_claim_is_the_drafts_fault_and_text_claim_the_texts() -> None:
    """Both drafts miss the cat of the text; only the second misses the eye of the prompt."""
    scores = [
        (seen("eye", 0.9, H), seen("cat", 0.1, F, "text")),
        (seen("eye", 0.1, F), seen("cat", 0.05, F, "text")),
    ]
    assert draft_faults(scores[0]) == ()
    assert [fault.claim.phrase for fault in draft_faults(scores[1])] == ["eye"]
    assert [(fault.claim.phrase, fault.probability) for fault in text_faults(scores)] == [("cat", 0.1)]
    assert missing_claims(scores) == ()
    assert best_draft(scores) == 0


@pytest.mark.parametrize("verdict", [H, U, N])
def test_text_that_one_draft_does_not_contradict_is_not_at_fault(verdict: Verdict) -> None:
    """One draft that holds, or is unsure, is enough."""
    scores = [(seen("cat", 0.1, F, "text"),), (seen("cat", 0.5, verdict, "text"),)]
    assert text_faults(scores) == ()


def test_text_that_repeats_the_prompt_is_not_at_fault() -> None:
    """The prompt asks for the eye: where it is missing, the pictures are to blame."""
    scores = [(seen("eye", 0.1, F), seen("Eye", 0.1, F, "text"))]
    assert text_faults(scores) == ()
    assert [fault.claim.phrase for fault in missing_claims(scores)] == ["eye"]


def test_description_of_a_fault_without_a_look_alike() -> None:
    """The reason names who says what, and how sure the verifier is."""
    assert describe(seen("cat", 0.04, F, "text")) == 'text says "cat" (0.04)'


def test_coverage_is_the_share_of_the_prompts_claims_that_the_text_makes() -> None:
    """The text speaks of the eye but not of the cave; its cat does not count."""
    scores = [seen("eye", 0.9, H), seen("cave", 0.9, H), seen("Eye", 0.9, H, "text"), seen("cat", 0.9, H, "text")]
    assert coverage(scores) == 0.5
    assert coverage(scores[2:]) == 1.0
