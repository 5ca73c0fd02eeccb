"""From margins to probabilities: logistic calibration per kind of claim and per noise level, and how good it is.

Knows margins and labels; knows neither pictures nor words. A picture that is still noisy shifts and flattens
margins, so one curve for all noise levels would rank wrongly (TTSnap, arXiv 2511.22242). Platt's logistic curve
(1999) with two parameters is fitted at a few levels and interpolated between them.
Legend: `n` claims.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mmspec.errors import WeightsError

__all__ = ["Calibration", "Curve", "Point", "area_under_curve", "calibration_error", "fit"]

CALIBRATION_NAME = "calibration.json"


@dataclass(frozen=True)
class Point:
    """The logistic curve at one noise level: probability = sigmoid(`slope` x margin + `offset`).

    `auc` in [0, 1] is how well margins told true claims from false ones there; 0.5 is chance.
    """

    level: float
    slope: float
    offset: float
    auc: float


@dataclass(frozen=True)
class Curve:
    """Points of one kind of claim by rising noise level. Raises `WeightsError` for none, or an order that is not."""

    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        levels = [point.level for point in self.points]
        if not levels or levels != sorted(set(levels)):
            raise WeightsError(f"a calibration curve has the noise levels {levels}: expected rising ones, at least one")

    def at(self, level: float) -> Point:
        """The point at `level`, interpolated; beyond the ends, the last one.

        >>> Curve((Point(0.0, 1.0, 0.0, 1.0), Point(1.0, 3.0, 1.0, 0.5))).at(0.5)
        Point(level=0.5, slope=2.0, offset=0.5, auc=0.75)
        """
        levels = [point.level for point in self.points]
        k = bisect.bisect_left(levels, level)
        if k == 0 or k == len(levels):
            return self.points[min(k, len(levels) - 1)]
        low, high = self.points[k - 1], self.points[k]
        share = (level - low.level) / (high.level - low.level)

        def mix(a: float, b: float) -> float:
            return a + share * (b - a)

        return Point(level, mix(low.slope, high.slope), mix(low.offset, high.offset), mix(low.auc, high.auc))


@dataclass(frozen=True)
class Calibration:
    """One curve for each kind of claim, and the phrases that the model cannot tell, whatever the picture."""

    curves: Mapping[str, Curve]
    weak: frozenset[str] = frozenset()

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Read `calibration.json`; raises `WeightsError` where it is not one."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            curves = {kind: Curve(tuple(Point(*row) for row in rows)) for kind, rows in data["curves"].items()}
            return cls(curves, frozenset(data["weak"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise WeightsError(f"{path} is no calibration of a verifier ({error}): fetch the model again") from error

    def write(self, path: Path) -> None:
        """Write `calibration.json`."""
        curves = {
            kind: [[p.level, round(p.slope, 5), round(p.offset, 5), round(p.auc, 4)] for p in curve.points]
            for kind, curve in self.curves.items()
        }
        text = json.dumps({"curves": curves, "weak": sorted(self.weak)}, indent=1)
        path.write_text(text + "\n", encoding="utf-8")


def fit(margins: Tensor, holds: Tensor, *, level: float) -> Point:
    """The logistic curve of greatest likelihood for claims at one noise level, true and false weighing the same.

    `margins` `[n]` float, `holds` `[n]` bool, both values present. Newton's method in float64 on standardised
    margins with a weak prior (ridge 1e-3), so that classes without overlap stay finite.
    """
    x, y = margins.double(), holds.double()
    centre, spread = x.mean(), x.std().clamp(min=1e-6)
    design = torch.stack([(x - centre) / spread, torch.ones_like(x)], dim=1)
    weight = torch.where(holds, 0.5 / y.sum(), 0.5 / (1 - y).sum())
    beta = torch.zeros(2, dtype=torch.float64)
    ridge = torch.diag(torch.tensor([1e-3, 0.0], dtype=torch.float64))
    for _ in range(50):
        p = torch.sigmoid(design @ beta)
        gradient = design.T @ (weight * (p - y)) + ridge @ beta
        hessian = (design * (weight * p * (1 - p)).unsqueeze(1)).T @ design + ridge
        hessian = hessian + 1e-9 * torch.eye(2, dtype=torch.float64)
        beta = beta - torch.linalg.solve(hessian, gradient)
    slope = beta[0] / spread
    auc = area_under_curve(margins[holds], margins[~holds])
    return Point(level, float(slope), float(beta[1] - slope * centre), auc)


def area_under_curve(positive: Tensor, negative: Tensor) -> float:
    """Area under the ROC curve: how often a positive scores above a negative, ties counting half.

    `positive` `[n]`, `negative` `[m]` float -> a number in [0, 1].

    >>> area_under_curve(torch.tensor([1.0, 3.0]), torch.tensor([0.0, 2.0]))
    0.75
    """
    scores = torch.cat([negative, positive]).double()
    _, inverse, counts = scores.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    ranks = (last - (counts - 1) / 2)[inverse]  # mean rank of equal scores
    n, m = len(positive), len(negative)
    return float((ranks[m:].sum() - n * (n + 1) / 2) / (n * m))


def calibration_error(probabilities: Tensor, holds: Tensor, *, num_bins: int = 10) -> float:
    """Expected calibration error: mean distance between stated and observed frequency over equal bins of [0, 1].

    `probabilities` `[n]` in [0, 1], `holds` `[n]` bool (Naeini et al. 2015).

    >>> calibration_error(torch.tensor([0.9, 0.9, 0.1, 0.1]), torch.tensor([True, True, False, True]))
    0.25
    """
    bins = (probabilities * num_bins).long().clamp(max=num_bins - 1)
    total = 0.0
    for k in range(num_bins):
        inside = bins == k
        if inside.any():
            gap = probabilities[inside].double().mean() - holds[inside].double().mean()
            total += float(gap.abs()) * int(inside.sum())
    return total / len(probabilities)
