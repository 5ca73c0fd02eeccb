"""Verdicts from margins: thresholds, the abstain band, calibration by noise level, dependent claims."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from mmspec.errors import InputError
from mmspec.types import Claim, ClaimKind, Preview, Verdict
from mmspec.verify.calibration import Calibration, Curve, Point
from mmspec.verify.scorer import ContrastScorer, Thresholds

THRESHOLDS = Thresholds(held=0.6, failed=0.2, widening=0.2, min_auc=0.7)
DRAGON = Claim("a dragon", ClaimKind.PROP, "prompt", (0, 1), ("a castle", "a robot"))
RED = Claim("a red dragon", ClaimKind.COLOUR, "prompt", (0, 1), ("a blue dragon",), parent="a dragon")


class _Table(ContrastScorer):
    """Similarities by phrase, the same for every picture (a model cannot be told what to see)."""

    def __init__(self, table: dict[str, float], calibration: Calibration | None = None) -> None:
        super().__init__(thresholds=THRESHOLDS, calibration=calibration, num_cells=2)
        self._table = table

    def similarities(self, pixels: Sequence[Tensor], phrases: Sequence[str]) -> Tensor:
        return torch.tensor([[self._table[phrase] for phrase in phrases]]).repeat(len(pixels), 1)


def _preview(noise_level: float = 0.0) -> Preview:
    return Preview(torch.zeros(3, 8, 8), noise_level)


def test_probability_is_the_softmax_over_opponents() -> None:
    """By hand: similarities 2, 1, 0 give e^2 / (e^2 + e + 1)."""
    scorer = _Table({"a dragon": 2.0, "a castle": 1.0, "a robot": 0.0})
    score = scorer.score([_preview()], [DRAGON])[0][0]
    assert score.probability == pytest.approx(math.e**2 / (math.e**2 + math.e + 1), abs=1e-6)
    assert score.verdict is Verdict.HELD
    assert score.looks_like is None


def test_best_opponent_is_named() -> None:
    """A claim that loses says to whom."""
    score = _Table({"a dragon": -3.0, "a castle": 2.0, "a robot": 0.0}).score([_preview()], [DRAGON])[0][0]
    assert score.verdict is Verdict.FAILED
    assert score.looks_like == "a castle"


def test_band_is_wider_under_noise() -> None:
    """The same probability that decides on a finished picture leaves a noisy one open."""
    assert THRESHOLDS.verdict(0.65, noise_level=0.0) is Verdict.HELD
    assert THRESHOLDS.verdict(0.65, noise_level=1.0) is Verdict.UNSURE
    assert THRESHOLDS.verdict(0.1, noise_level=0.0) is Verdict.FAILED
    assert THRESHOLDS.verdict(0.1, noise_level=1.0) is Verdict.UNSURE
    assert THRESHOLDS.verdict(0.4, noise_level=0.0) is Verdict.UNSURE


def test_calibration_is_that_of_the_noise_level() -> None:
    """By hand: slope 2 and offset 1 at no noise, slope 0 and offset 0 at full noise, half way slope 1, offset 0.5."""
    curve = Curve((Point(0.0, 2.0, 1.0, 0.9), Point(1.0, 0.0, 0.0, 0.9)))
    scorer = _Table({"a dragon": 1.0, "a castle": 0.0, "a robot": -100.0}, Calibration({"prop": curve}))
    for level, logit in ((0.0, 3.0), (0.5, 1.5), (1.0, 0.0)):
        score = scorer.score([_preview(level)], [DRAGON])[0][0]
        assert score.probability == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-6)


def test_kind_near_chance_is_unjudged() -> None:
    """Below the least AUC at this noise level nothing is judged; nor is a kind without a curve, nor a weak phrase."""
    curve = Curve((Point(0.0, 1.0, 0.0, 0.95), Point(1.0, 1.0, 0.0, 0.5)))
    table = {"a dragon": 5.0, "a castle": 0.0, "a robot": 0.0, "a red dragon": 5.0, "a blue dragon": 0.0}
    scorer = _Table(table, Calibration({"prop": curve}))
    assert scorer.score([_preview(0.0)], [DRAGON])[0][0].verdict is Verdict.HELD
    assert scorer.score([_preview(0.9)], [DRAGON])[0][0].verdict is Verdict.UNJUDGED
    assert scorer.score([_preview(0.0)], [RED])[0][0].verdict is Verdict.UNJUDGED
    weak = _Table(table, Calibration({"prop": curve}, weak=frozenset({"a dragon"})))
    assert weak.score([_preview(0.0)], [DRAGON])[0][0].verdict is Verdict.UNJUDGED


@pytest.mark.parametrize(
    ("similarity", "parent", "child"),
    [
        (5.0, Verdict.HELD, Verdict.FAILED),
        (0.1, Verdict.UNSURE, Verdict.UNSURE),
        (-5.0, Verdict.FAILED, Verdict.UNJUDGED),
    ],
)
def test_attribute_depends_on_its_thing(similarity: float, parent: Verdict, child: Verdict) -> None:
    """No dragon seen: whether it is red is not judged; a doubtful dragon: its colour is not held against it."""
    table = {"a dragon": similarity, "a castle": 0.0, "a robot": 0.0, "a red dragon": -9.0, "a blue dragon": 0.0}
    for claims in ([DRAGON, RED], [RED, DRAGON]):
        verdicts = {score.claim: score.verdict for score in _Table(table).score([_preview()], claims)[0]}
        assert verdicts == {DRAGON: parent, RED: child}


@pytest.mark.parametrize(("held", "failed"), [(0.2, 0.6), (1.2, 0.1), (0.5, -0.1)])
def test_contradictory_thresholds_are_refused(held: float, failed: float) -> None:
    """The message names both values."""
    with pytest.raises(InputError, match=f"failed={failed}, held={held}"):
        Thresholds(held=held, failed=failed, widening=0.0, min_auc=0.5)
