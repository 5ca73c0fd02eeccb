"""Calibration curves: fitted, interpolated, written, and how their quality is measured."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from mmspec.errors import WeightsError
from mmspec.verify.calibration import Calibration, Curve, Point, area_under_curve, calibration_error, fit


def test_fit_recovers_the_curve_that_made_the_labels() -> None:
    """20,000 labels drawn from a known curve; standard errors are below 0.03, the bound is four of them.

    Classes are weighted alike, so the offset is that of a balanced set: margins are drawn symmetric about it.
    """
    draw = torch.Generator().manual_seed(0)
    margins = 3 * torch.randn(20_000, generator=draw) - 0.5
    holds = torch.rand(20_000, generator=draw) < torch.sigmoid(1.5 * (margins + 0.5))
    point = fit(margins, holds, level=0.3)
    assert point.level == 0.3
    assert point.slope == pytest.approx(1.5, abs=0.12)
    assert point.offset == pytest.approx(0.75, abs=0.12)
    assert calibration_error(torch.sigmoid(point.slope * margins + point.offset), holds) < 0.02


def test_fit_of_separable_classes_is_finite() -> None:
    """Without overlap the likelihood has no maximum; the prior keeps the slope bounded."""
    point = fit(torch.tensor([-2.0, -1.0, 1.0, 2.0]), torch.tensor([False, False, True, True]), level=0.0)
    assert 0 < point.slope < 100
    assert point.offset == pytest.approx(0.0, abs=1e-6)
    assert point.auc == 1.0


def test_auc_is_the_share_of_ordered_pairs() -> None:
    """Compared with counting every pair, ties included."""
    draw = torch.Generator().manual_seed(1)
    positive = torch.randint(0, 6, (40,), generator=draw).float()
    negative = torch.randint(0, 5, (30,), generator=draw).float()
    pairs = [(p > n) + 0.5 * (p == n) for p, n in itertools.product(positive, negative)]
    assert area_under_curve(positive, negative) == pytest.approx(float(sum(pairs)) / len(pairs))


def test_calibration_survives_the_file(tmp_path: Path) -> None:
    """Written and read back, rounding apart."""
    calibration = Calibration(
        {"prop": Curve((Point(0.0, 1.25, -0.5, 0.98), Point(0.5, 1.0, 0.0, 0.9)))}, frozenset({"a kite"})
    )
    calibration.write(tmp_path / "calibration.json")
    assert Calibration.read(tmp_path / "calibration.json") == calibration


@pytest.mark.parametrize(
    "text", ["", "{}", '{"curves": {"prop": []}, "weak": []}', '{"curves": {"prop": [[0, 1]]}, "weak": []}']
)
def test_broken_calibration_file_is_refused(tmp_path: Path, text: str) -> None:
    """One clear error whatever is wrong with it."""
    (tmp_path / "calibration.json").write_text(text)
    with pytest.raises(WeightsError):
        Calibration.read(tmp_path / "calibration.json")
