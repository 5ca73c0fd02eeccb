"""Which tree to grow: how many children each frontier node gets, level by level.

Knows depths, confidences and budgets; knows no model and no token. The decision is made before the
children are drawn, so it is legal for sampled trees too.
"""

from __future__ import annotations

import abc
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from mmspec.errors import InputError


@dataclass(frozen=True)
class Frontier:
    """A node that may get children: its path confidence in nats, and on the path to it from the root the
    rank of each node among its siblings.
    """

    node: int
    log_confidence: float
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class RoundRecord:
    """What one round cost and gave, for one sequence of `num_states` in the pass.

    `draft_s` and `verify_s` are of the whole pass. `ranks` are the places that accepted tokens had among
    the trials of their nodes, from the root down; `num_trials` how many trials each visited node had.
    """

    num_states: int
    num_nodes: int
    depth: int
    num_committed: int
    draft_s: float
    verify_s: float
    ranks: tuple[int, ...]
    num_trials: tuple[int, ...]


class Growth(abc.ABC):
    """Bounds and shapes a tree.

    `budget` is the number of nodes that are verified, `pool` of those that may be drawn first where the
    tree can be pruned afterwards; both count the root.
    """

    max_depth: int
    budget: int
    pool: int
    timed: bool = False
    """Whether trees depend on measured times: then a rule whose texts depend on trees is not reproducible."""

    def record(self, record: RoundRecord) -> None:  # noqa: B027 - most shapes learn nothing from a round
        """Takes note of what a round gave."""

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


class PayingGrowth(Growth):
    """Another growth, for as long as drafting is faster than plain decoding: the mode `auto`.

    Seconds per token of drafted and of plain passes are averaged, apart for every doubling of the number
    of sequences in a pass. What is slower is tried again once in `probe_every` passes only, which bounds
    what a useless drafter costs. Below `min_acceptance` (share of rounds that accept a token) nothing is
    drafted whatever the times say.
    """

    timed = True

    def __init__(self, *, growth: Growth, probe_every: int, min_acceptance: float) -> None:
        if probe_every < 2 or not 0 <= min_acceptance <= 1:
            raise InputError(
                f"probe_every={probe_every}, min_acceptance={min_acceptance}: expected at least 2 and a share in [0, 1]"
            )
        self._growth = growth
        self._probe_every = probe_every
        self._min_acceptance = min_acceptance
        self._averages: dict[tuple[int, bool], _Average] = {}
        self._bucket = 0
        self._num_rounds = 0
        self._pass: list[RoundRecord] = []
        self.budget, self.pool = growth.budget, growth.pool

    @property
    def max_depth(self) -> int:  # type: ignore[override]  # decided anew every round
        """The growth's own, or 0 while plain decoding is faster."""
        return self._growth.max_depth if self._drafts_next() else 0

    def _drafts_next(self) -> bool:
        drafted = self._averages.get((self._bucket, True), _Average())
        plain = self._averages.get((self._bucket, False), _Average())
        if drafted.num < WARM_UP_ROUNDS:
            return True
        if plain.num < WARM_UP_ROUNDS:
            return False
        pays = drafted.seconds_per_token < plain.seconds_per_token and drafted.acceptance >= self._min_acceptance
        return pays != (self._num_rounds % self._probe_every == 0)

    @override
    def record(self, record: RoundRecord) -> None:
        self._growth.record(record)
        self._pass.append(record)
        if len(self._pass) < record.num_states:
            return
        self._bucket = record.num_states.bit_length()
        self._num_rounds += 1
        drafted = any(own.num_nodes > 1 for own in self._pass)
        self._averages.setdefault((self._bucket, drafted), _Average()).add(self._pass)
        self._pass = []

    @override
    def widths(self, depth: int, frontier: Sequence[Frontier], room: int) -> list[int]:
        return self._growth.widths(depth, frontier, room)


WARM_UP_ROUNDS = 3
"""Rounds of each kind before they are compared; the first passes of a process are slow."""
AVERAGE_OVER = 16
"""Rounds that a moving average remembers."""


class _Average:
    """Moving averages of rounds of one kind; a round that was held up counts as twice the average at most."""

    def __init__(self) -> None:
        self.num = 0
        self._seconds = 0.0
        self._tokens = 0.0
        self.acceptance = 0.0

    @property
    def seconds_per_token(self) -> float:
        return self._seconds / self._tokens

    def add(self, records: Sequence[RoundRecord]) -> None:
        """Takes in one target pass: the records of all its sequences."""
        seconds = records[0].draft_s + records[0].verify_s
        if self.num:
            seconds = min(seconds, 2 * self._seconds)
        self.num += 1
        weight = 1 / min(self.num, AVERAGE_OVER)
        self._seconds += weight * (seconds - self._seconds)
        self._tokens += weight * (statistics.fmean(own.num_committed for own in records) - self._tokens)
        self.acceptance += weight * (statistics.fmean(own.num_committed > 1 for own in records) - self.acceptance)


def check_bounds(tree_depth: int, tree_budget: int) -> None:
    """Raises `InputError` for a tree without depth or without room for one child."""
    if tree_depth < 1:
        raise InputError(f"tree_depth={tree_depth} is too small: expected at least 1")
    if tree_budget < 2:
        raise InputError(f"tree_budget={tree_budget} is too small: expected the root and at least one child")
