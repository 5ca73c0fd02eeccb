"""Comparing methods: counts by hand, intervals, equal compute, and the list of prompts."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from mmspec.cogen.comparison import Run, compared, contradicted, held_out_prompts, interval, matching_grid, summary
from mmspec.embedded.lexicon import embedded_lexicon
from mmspec.types import Claim, ClaimKind, Verdict
from mmspec.verify.claims import ClaimExtractor


def run(**changes: Any) -> Run:
    """A run of zeros but for what is said."""
    zeros: dict[str, Any] = {field.name: 0 for field in fields(Run)}
    return Run(**(zeros | {"method": "cogen", "prompt": "p", "text": "", "claims": (), "total_s": 1.0} | changes))


def judged(*verdicts: str) -> tuple[tuple[str, str, str], ...]:
    """Claims about things, with these verdicts."""
    return tuple(("prop", f"thing {k}", verdict) for k, verdict in enumerate(verdicts))


def test_prompts_are_sixty_and_every_one_can_be_contradicted() -> None:
    """All different, and the extractor finds a place and at least one thing or weather in each."""
    prompts = held_out_prompts()
    assert len(prompts) == len(set(prompts)) >= 60
    extractor = ClaimExtractor(embedded_lexicon(), name_unknown=False)
    for prompt in prompts:
        claims = extractor.extract(prompt, source="prompt")
        assert any(claim.kind is ClaimKind.PLACE for claim in claims), prompt
        assert len(claims) >= 2, prompt


def test_what_prompt_and_text_both_say_counts_once() -> None:
    """The same phrase twice is one claim."""
    rain = Claim("in the rain", ClaimKind.WEATHER, "prompt", (0, 4))
    said = Claim("in the rain", ClaimKind.WEATHER, "text", (3, 7))
    car = Claim("a car", ClaimKind.PROP, "text", (9, 12))
    found = contradicted([rain, said, car], [Verdict.FAILED, Verdict.FAILED, Verdict.HELD])
    assert found == (("weather", "in the rain", "failed"), ("prop", "a car", "held"))


def test_summary_counts_by_hand() -> None:
    """Two pairs with 2 and 0 contradictions of 3 and 1 judged claims."""
    runs = [run(claims=judged("failed", "failed", "held", "unjudged"), verify_s=0.1), run(claims=judged("held"))]
    figures = summary(runs)
    assert figures["contradictions_per_pair"] == 1.0
    assert figures["claims_per_pair"] == 2.0
    assert figures["contradicted_share"] == 0.5
    assert figures["contradicted_share_prop"] == 0.5
    assert figures["verify_share"] == pytest.approx(0.05)


def test_ratios_are_of_the_same_prompts_and_seeds() -> None:
    """A run without a twin is left out; means of contradictions, median of the times."""
    ours = [run(prompt=p, claims=judged("failed"), total_s=2.0) for p in "abc"]
    theirs = [run(prompt=p, claims=judged("failed", "failed"), total_s=1.0) for p in "ab"] + [run(prompt="c", seed=9)]
    figures = compared(ours, theirs)
    assert figures["num_pairs"] == 2
    assert figures["contradictions_ratio"] == 0.5
    assert figures["wall_time_ratio"] == 2.0
    assert figures["contradictions_ratio_low"] == figures["contradictions_ratio_high"] == 0.5


def test_interval_resamples_prompts_not_runs() -> None:
    """Ten copies of two prompts say no more than two prompts: the interval spans both."""
    runs = [run(prompt=p, total_s=s) for p, s in (("a", 0.0), ("b", 1.0)) for _ in range(10)]
    low, high = interval(runs, lambda some: sum(r.total_s for r in some) / len(some))
    assert (low, high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("steps", "passes", "alone", "grid"),
    [(76, 130, 35, (5, 2)), (8, 30, 30, (1, 1)), (9, 10, 30, (1, 2)), (0, 0, 0, (1, 1))],
)
def test_matching_grid_never_spends_less(steps: int, passes: int, alone: int, grid: tuple[int, int]) -> None:
    """At least the denoising steps and at least the texts of what it is matched with."""
    cost = run(num_draft_steps=steps, num_text_passes=passes)
    texts, pictures = matching_grid(cost, num_steps=8, passes_per_text=alone)
    assert (texts, pictures) == grid
    assert texts * pictures * 8 >= steps
    assert texts * alone >= passes or alone == 0
