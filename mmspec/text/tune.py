"""Measures what a tree is planned from: acceptance by rank, time of a drafted level, times of target passes.

Knows how to measure; the planning is `mmspec.text.planned`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from mmspec.errors import InputError
from mmspec.text.engine import TextEngine
from mmspec.text.growth import FixedGrowth, RoundRecord
from mmspec.text.tree import chain


class RecordingGrowth(FixedGrowth):
    """A fixed tree that keeps what its rounds gave."""

    def __init__(self, *, tree_widths: Sequence[int], tree_budget: int) -> None:
        super().__init__(tree_widths=tree_widths, tree_budget=tree_budget)
        self.records: list[RoundRecord] = []

    @override
    def record(self, record: RoundRecord) -> None:
        self.records.append(record)


@dataclass(frozen=True)
class Measurements:
    """`acceptance[k]`: share of visited nodes whose child of rank k was accepted; times in seconds."""

    acceptance: tuple[float, ...]
    draft_s: float
    verify_s: dict[int, float]


def summarise(records: Sequence[RoundRecord], verify_s: dict[int, float]) -> Measurements:
    """Acceptance and drafting time of recorded rounds. Raises `InputError` where nothing was drafted."""
    drafted = [record for record in records if record.depth > 0]
    if not drafted:
        raise InputError("no round drafted a token: there is nothing to plan a tree from")
    num_ranks = max(max(record.num_trials) for record in drafted)
    hits, tries = [0] * num_ranks, 0
    for record in drafted:
        for place, num_trials in enumerate(record.num_trials):
            if num_trials == 0:
                continue
            tries += 1
            if place < len(record.ranks):
                hits[record.ranks[place]] += 1
    level_s = statistics.median(record.draft_s / record.depth for record in drafted)
    return Measurements(tuple(hit / tries for hit in hits), level_s, verify_s)


def time_passes(engine: TextEngine, ids: Sequence[int], *, sizes: Sequence[int], repeats: int) -> dict[int, float]:
    """Median seconds of a target pass behind `ids` by its number of nodes; the first of each is warm-up."""
    ((state, _),) = engine.prefill([ids])
    times = {}
    for size in sizes:
        tree = chain([ids[-1]] * size)
        taken = []
        for _ in range(repeats + 1):
            begun = time.perf_counter()
            engine.verify([state], [tree])
            taken.append(time.perf_counter() - begun)
        times[size] = statistics.median(taken[1:])
    return times
