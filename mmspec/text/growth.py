"""Which tree to grow: how many children each frontier node gets, level by level.

Knows depths, confidences and budgets; knows no model and no token. The decision is made before the
children are drawn, so it is legal for sampled trees too.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from mmspec.errors import InputError


@dataclass(frozen=True)
class Frontier:
    """A node that may get children: its path confidence in nats and its rank among its siblings."""

    node: int
    log_confidence: float
    rank: int


class Growth(abc.ABC):
    """Bounds and shapes a tree.

    `budget` is the number of nodes that are verified, `pool` of those that may be drawn first where the
    tree can be pruned afterwards; both count the root.
    """

    max_depth: int
    budget: int
    pool: int

    @abc.abstractmethod
    def widths(self, depth: int, frontier: Sequence[Frontier], room: int) -> list[int]:
        """How many children each frontier node, all at `depth`, gets; the sum is at most `room`."""


class FixedGrowth(Growth):
    """The same number of children for every node of a depth: `<k1, k2, ...>` of SpecInfer."""

    def __init__(self, *, tree_widths: Sequence[int], tree_budget: int) -> None:
        check_bounds(len(tree_widths), tree_budget)
        if any(width < 1 for width in tree_widths):
            raise InputError(f"tree_widths={list(tree_widths)} holds a width below 1")
        self._widths = tuple(tree_widths)
        self.max_depth = len(tree_widths)
        self.budget = self.pool = tree_budget

    @override
    def widths(self, depth: int, frontier: Sequence[Frontier], room: int) -> list[int]:
        chosen = []
        for _ in frontier:
            chosen.append(min(self._widths[depth], room))
            room -= chosen[-1]
        return chosen


class ConfidentGrowth(Growth):
    """Children below the most confident paths only, as in EAGLE-2 (arXiv 2406.16858, section 4.1).

    At every depth the `tree_width` most confident nodes get up to `tree_width` children; a path less
    likely than `min_confidence` gets none, so a sure drafter grows deep and an unsure one stays shallow.
    """

    def __init__(self, *, tree_depth: int, tree_width: int, tree_budget: int, min_confidence: float) -> None:
        check_bounds(tree_depth, tree_budget)
        if tree_width < 1 or not 0 <= min_confidence < 1:
            raise InputError(
                f"tree_width={tree_width}, min_confidence={min_confidence}: expected a width of at "
                "least 1 and a confidence in [0, 1)"
            )
        self._width = tree_width
        self._min_confidence = min_confidence
        self.max_depth = tree_depth
        self.budget = tree_budget
        self.pool = max(tree_budget, 1 + tree_width + (tree_depth - 1) * tree_width**2)

    @override
    def widths(self, depth: int, frontier: Sequence[Frontier], room: int) -> list[int]:
        chosen = [0] * len(frontier)
        order = sorted(range(len(frontier)), key=lambda i: (-frontier[i].log_confidence, frontier[i].node))
        for place in order[: self._width]:
            if math.exp(frontier[place].log_confidence) < self._min_confidence:
                break
            chosen[place] = min(self._width, room)
            room -= chosen[place]
        return chosen


def check_bounds(tree_depth: int, tree_budget: int) -> None:
    """Raises `InputError` for a tree without depth or without room for one child."""
    if tree_depth < 1:
        raise InputError(f"tree_depth={tree_depth} is too small: expected at least 1")
    if tree_budget < 2:
        raise InputError(f"tree_budget={tree_budget} is too small: expected the root and at least one child")
