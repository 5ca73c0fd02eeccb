"""From margins to probabilities: logistic calibration per kind of claim and per noise level, and how good it is.

Knows margins and labels; knows neither pictures nor words. A picture that is still noisy shifts and flattens
margins, so one curve for all noise levels would rank wrongly (TTSnap, arXiv 2511.22242).
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["area_under_curve"]


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
