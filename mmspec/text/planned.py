"""The tree with the most accepted tokens per second, found by dynamic programming from measurements.

Knows the chance that the k-th child of a node is the first accepted one, and how long passes take; knows
no model. Source: Sequoia, arXiv 2402.12374, section 3.1; like it, assumes that acceptance depends on a
child's rank only. Legend: `a[k]` acceptance of rank k, `m` nodes, `l` levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from typing_extensions import override

from mmspec.errors import InputError
from mmspec.text.growth import Frontier, Growth

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """A tree shape: the number of children below each path of ranks, and what it is expected to give."""

    children: Mapping[Ranks, int]
    num_nodes: int
    depth: int
    expected_length: float
    seconds_per_token: float


def plan_tree(
    acceptance: Sequence[float], *, draft_s: float, verify_s: Mapping[int, float], max_depth: int, max_nodes: int
) -> Plan:
    """The shape that costs the least time per token, plain decoding included.

    `acceptance[k]` in [0, 1]: chance that the child of rank k is the first that is accepted; they sum to at
    most 1. `draft_s` is the time of one level of drafting, `verify_s` of a target pass by its number of
    nodes (interpolated). Raises `InputError` for values outside these ranges.

    >>> plan_tree([0.9], draft_s=0.0, verify_s={1: 1.0, 8: 1.0}, max_depth=3, max_nodes=8).depth
    3
    """
    if not acceptance or min(acceptance) < 0 or sum(acceptance) > 1 + 1e-6:
        raise InputError(f"acceptance={list(acceptance)}: expected shares by rank that sum to at most 1")
    if draft_s < 0 or not verify_s or min(verify_s.values()) <= 0:
        raise InputError(f"draft_s={draft_s}, verify_s={dict(verify_s)}: expected times above 0")
    a = tuple(acceptance)

    @cache
    def siblings(nodes: int, levels: int, rank: int) -> tuple[float, int]:
        """Most accepted tokens from children of `rank` on with `nodes` in all, and how many go to the first."""
        if nodes == 0 or levels == 0 or rank == len(a):
            return 0.0, 0
        return max(
            (
                a[rank] * (1.0 + siblings(own - 1, levels - 1, 0)[0]) + siblings(nodes - own, levels, rank + 1)[0],
                -own,
            )
            for own in range(1, nodes + 1)
        )

    sizes = np.array(sorted(verify_s))
    times = np.array([verify_s[size] for size in sizes.tolist()])
    options = [
        (
            (levels * draft_s + float(np.interp(nodes, sizes, times))) / (1.0 + siblings(nodes - 1, levels, 0)[0]),
            nodes,
            levels,
        )
        for nodes in range(1, max_nodes + 1)
        for levels in range(min(max_depth, nodes - 1) + 1)
    ]
    seconds, nodes, levels = min(options)
    children: dict[Ranks, int] = {}

    def unfold(path: Ranks, count: int, depth: int) -> None:
        rank = 0
        while count > 0 and depth > 0 and rank < len(a):
            own = -siblings(count, depth, rank)[1]
            unfold((*path, rank), own - 1, depth - 1)
            count -= own
            rank += 1
        if rank:
            children[path] = rank

    unfold((), nodes - 1, levels)
    return Plan(children, nodes, levels, 1.0 + siblings(nodes - 1, levels, 0)[0], seconds)


class PlannedGrowth(Growth):
    """The planned shape, every round; what `pipeline=tune` writes down is what this takes."""

    def __init__(
        self,
        *,
        acceptance: Sequence[float],
        draft_s: float,
        verify_s: Mapping[int, float],
        tree_depth: int,
        tree_budget: int,
    ) -> None:
        self.plan = plan_tree(
            acceptance,
            draft_s=draft_s,
            verify_s={int(size): seconds for size, seconds in verify_s.items()},
            max_depth=tree_depth,
            max_nodes=tree_budget,
        )
        self.max_depth = self.plan.depth
        self.budget = self.pool = self.plan.num_nodes

    @override
    def widths(self, depth: int, frontier: Sequence[Frontier], room: int) -> list[int]:
        chosen = []
        for entry in frontier:
            chosen.append(min(self.plan.children.get(entry.ranks, 0), room))
            room -= chosen[-1]
        return chosen
