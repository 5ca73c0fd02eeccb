"""Planted mismatches: one attribute wrong, and the counting of what is caught."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import pytest
import torch
from typing_extensions import override

from mmspec.embedded.captions import caption
from mmspec.embedded.lexicon import embedded_lexicon
from mmspec.embedded.training.planted import SWAPS, PlantedPairs, caught, planted_pairs
from mmspec.embedded.training.previews import KnownPreviews
from mmspec.embedded.training.scenes import scene_at
from mmspec.types import Claim, ClaimScore, Preview, Verdict
from mmspec.verify.claims import ClaimExtractor
from mmspec.verify.scorer import Scorer

EXTRACTOR = ClaimExtractor(embedded_lexicon(), name_unknown=False)
SEED, NUM = 5, 60


class Oracle(Scorer):
    """Knows every scene by the first pixel of its picture, and what its caption claims."""

    @override
    def score(self, previews: Sequence[Preview], claims: Sequence[Claim]) -> list[tuple[ClaimScore, ...]]:
        return [tuple(self._judged(preview, claim) for claim in claims) for preview in previews]

    @override
    def explain(self, preview: Preview, scores: Sequence[ClaimScore]) -> tuple[ClaimScore, ...]:
        raise NotImplementedError

    def _judged(self, preview: Preview, claim: Claim) -> ClaimScore:
        index = round(float(preview.pixels[0, 0, 0]) * 255)
        text = caption(scene_at(SEED, index), numpy.random.default_rng([SEED, index, 1]), complete=True)
        true = {other.phrase for other in EXTRACTOR.extract(text, source="text")}
        if claim.phrase in true:
            return ClaimScore(claim, 0.9, Verdict.HELD)
        return ClaimScore(claim, 0.05, Verdict.FAILED)


def numbered() -> KnownPreviews:
    """Pictures that hold their own number."""
    pixels = torch.arange(NUM, dtype=torch.uint8)[:, None, None, None].expand(NUM, 3, 2, 2)
    return KnownPreviews(SEED, torch.arange(NUM), torch.zeros(NUM), pixels)


def test_every_planted_text_differs_from_its_picture_and_the_true_one_does_not() -> None:
    """An oracle prunes all wrong texts (but for positions that two things share) and no true one."""
    pairs = planted_pairs(Oracle(), EXTRACTOR, numbered(), num=NUM)
    assert not pairs.true_fails.any()
    assert {kind for kind in SWAPS if kind in pairs.kinds} == set(SWAPS)
    wrong = {kind for kind, fails in zip(pairs.kinds, pairs.wrong_fails.tolist(), strict=True) if not fails}
    assert wrong <= {"count", "position", "colour"}
    assert float(pairs.wrong_fails.float().mean()) > 0.9


def test_caught_is_measured_where_one_true_text_in_twenty_falls() -> None:
    """By hand: 20 true texts at 0.5 to 0.97, five wrong ones of which four lie below the lowest but one."""
    true = torch.linspace(0.5, 0.975, 20)
    pairs = PlantedPairs(
        ("place",) * 3 + ("prop",) * 17,
        torch.tensor([0.1, 0.2, 0.9, *[0.3] * 17]),
        true,
        torch.tensor([True, False, False, *[True] * 17]),
        torch.tensor([True] + [False] * 19),
    )
    figures = caught(pairs)
    assert figures["place"]["caught"] == pytest.approx(2 / 3)
    assert figures["place"]["pruned"] == pytest.approx(1 / 3)
    assert figures["prop"]["caught"] == 1.0
    assert figures["all"]["falsely_pruned"] == pytest.approx(0.05)
    assert "colour" not in figures
