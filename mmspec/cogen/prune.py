"""Prune policies: which of several rivals go, given how well each agrees and what it contradicts.

A rival is a text branch among branches, or a draft among the drafts of its branch. Every policy keeps the
same law: only a rival that contradicts a claim may go (an unsure verdict prunes nothing), the best `keep`
stay, and ties are broken by the lowest index. Knows no picture and no text.

Source of successive halving: Jamieson and Talwalkar, arXiv 1502.07943, algorithm 1.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from mmspec.errors import InputError
from mmspec.types import ClaimScore

__all__ = ["Margin", "PrunePolicy", "Rival", "SuccessiveHalving", "Threshold", "TopK"]


@dataclass(frozen=True, eq=False)
class Rival:
    """One candidate for pruning: `agreement` in [0, 1], and the claims it is found to contradict."""

    agreement: float
    faults: tuple[ClaimScore, ...]

    @property
    def surest_fault(self) -> float:
        """The lowest probability of a contradicted claim; 1 where nothing is contradicted."""
        return min((fault.probability for fault in self.faults), default=1.0)


class PrunePolicy(abc.ABC):
    """Decides which rivals go."""

    @abc.abstractmethod
    def condemn(self, ranked: Sequence[Rival], *, round: int) -> list[bool]:
        """Says of each of `ranked`, best first, whether it should go if it has a fault at all."""

    def prune(self, rivals: Sequence[Rival], *, round: int, keep: int) -> list[int]:
        """Indices of `rivals` that go, in rising order.

        Never one without a fault, and never one of the best `keep`. `round` counts from 0.
        """
        order = ranking(rivals)
        condemned = self.condemn([rivals[i] for i in order], round=round)
        going = [i for i, goes in zip(order, condemned, strict=True) if goes and rivals[i].faults]
        return sorted(set(going) - set(order[:keep]))


def ranking(rivals: Sequence[Rival]) -> list[int]:
    """Indices of `rivals`, best first: fewest faults, then highest agreement, then lowest index."""
    return sorted(range(len(rivals)), key=lambda i: (len(rivals[i].faults), -rivals[i].agreement, i))


class Threshold(PrunePolicy):
    """Everything goes whose surest fault has a probability below `max_probability`."""

    def __init__(self, max_probability: float) -> None:
        if not 0.0 < max_probability <= 1.0:
            raise InputError(f"prune.max_probability={max_probability}: expected a number in (0, 1]")
        self.max_probability = max_probability

    @override
    def condemn(self, ranked: Sequence[Rival], *, round: int) -> list[bool]:
        return [rival.surest_fault < self.max_probability for rival in ranked]


class Margin(PrunePolicy):
    """Everything goes whose agreement is more than `margin` below the best one's."""

    def __init__(self, margin: float) -> None:
        if not 0.0 <= margin < 1.0:
            raise InputError(f"prune.margin={margin}: expected a number in [0, 1)")
        self.margin = margin

    @override
    def condemn(self, ranked: Sequence[Rival], *, round: int) -> list[bool]:
        best = max((rival.agreement for rival in ranked), default=0.0)
        return [rival.agreement < best - self.margin for rival in ranked]


class TopK(PrunePolicy):
    """Everything behind the `k` best goes."""

    def __init__(self, k: int) -> None:
        if k < 1:
            raise InputError(f"prune.k={k}: expected at least 1")
        self.k = k

    @override
    def condemn(self, ranked: Sequence[Rival], *, round: int) -> list[bool]:
        return [position >= self.k for position in range(len(ranked))]


class SuccessiveHalving(PrunePolicy):
    """After the first `grace` rounds, the best 1 of `eta` stay in every round (arXiv 1502.07943)."""

    def __init__(self, eta: float, grace: int) -> None:
        if eta <= 1.0:
            raise InputError(f"prune.eta={eta}: expected a number above 1")
        if grace < 0:
            raise InputError(f"prune.grace={grace}: expected at least 0")
        self.eta = eta
        self.grace = grace

    @override
    def condemn(self, ranked: Sequence[Rival], *, round: int) -> list[bool]:
        if round < self.grace:
            return [False] * len(ranked)
        num_kept = math.ceil(len(ranked) / self.eta)
        return [position >= num_kept for position in range(len(ranked))]
