"""Tree shapes: fixed, confident, planned, and the one that stops when it does not pay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import pytest
import torch

from mmspec.errors import InputError
from mmspec.seeding import generator
from mmspec.text.drafters.base import DraftRequest
from mmspec.text.drafters.grow import Children, Parents, grow_trees
from mmspec.text.growth import ConfidentGrowth, FixedGrowth, Frontier, PayingGrowth, RoundRecord
from mmspec.text.planned import PlannedGrowth, plan_tree
from mmspec.text.sampling import Greedy, Processors
from mmspec.text.tree import path_tokens, prune
from mmspec.text.types import SamplingParams, TokenTree, Trial


def test_fixed_growth_gives_its_widths_within_the_room() -> None:
    """<2, 3>: two children of the root, three of each, as long as there is room."""
    growth = FixedGrowth(tree_widths=[2, 3], tree_budget=8)
    frontier = [Frontier(1, -0.1, (0,)), Frontier(2, -0.2, (1,))]
    assert growth.widths(0, [Frontier(0, 0.0, ())], 7) == [2]
    assert growth.widths(1, frontier, 5) == [3, 2]


def test_confident_growth_follows_the_best_paths() -> None:
    """The two best of three get children; the one below the least confidence does not."""
    growth = ConfidentGrowth(tree_depth=3, tree_width=2, tree_budget=9, min_confidence=0.1)
    frontier = [Frontier(1, math.log(0.05), (0,)), Frontier(2, math.log(0.5), (1,)), Frontier(3, math.log(0.3), (2,))]
    assert growth.widths(1, frontier, 9) == [0, 2, 2]
    assert growth.widths(1, frontier, 3) == [0, 2, 1]


def test_plan_without_useful_draft_is_plain_decoding() -> None:
    """Acceptance 0: one node."""
    plan = plan_tree([0.0, 0.0], draft_s=0.1, verify_s={1: 1.0, 16: 1.1}, max_depth=5, max_nodes=16)
    assert (plan.num_nodes, plan.depth, plan.children) == (1, 0, {})


def test_plan_with_free_passes_is_a_chain_for_a_sure_draft() -> None:
    """Rank 0 always accepted and nothing costs: the deepest chain, m tokens from m nodes."""
    plan = plan_tree([1.0, 0.0], draft_s=0.0, verify_s={1: 1.0, 8: 1.0}, max_depth=6, max_nodes=8)
    assert plan.depth == 6
    assert plan.expected_length == pytest.approx(7.0)
    assert plan.children[(0, 0)] == 1


def all_shapes(num_nodes: int, num_ranks: int) -> set[frozenset[tuple[int, ...]]]:
    """Every tree of rank paths with this many nodes besides the root."""

    @cache
    def grow(size: int) -> frozenset[frozenset[tuple[int, ...]]]:
        if size == 0:
            return frozenset({frozenset()})
        shapes = set()
        for shape in grow(size - 1):
            for path in [(), *shape]:
                for rank in range(num_ranks):
                    child = (*path, rank)
                    if child not in shape and (rank == 0 or (*path, rank - 1) in shape):
                        shapes.add(shape | {child})
        return frozenset(shapes)

    return set(grow(num_nodes))


@pytest.mark.parametrize("acceptance", [(0.5, 0.2, 0.1), (0.3, 0.3, 0.3), (0.8, 0.1, 0.05)])
@pytest.mark.parametrize("num_nodes", [2, 4, 6])
def test_plan_equals_the_best_of_all_shapes(acceptance: tuple[float, ...], num_nodes: int) -> None:
    """Dynamic programming against enumeration, for a fixed number of nodes."""
    best = max(
        1.0 + sum(math.prod(acceptance[rank] for rank in path) for path in shape)
        for size in range(num_nodes)
        for shape in all_shapes(size, 3)
    )
    plan = plan_tree(acceptance, draft_s=0.0, verify_s={1: 1.0, 9: 1.0}, max_depth=9, max_nodes=num_nodes)
    assert plan.expected_length == pytest.approx(best)
    assert 1 + sum(plan.children.values()) == plan.num_nodes


def test_planned_growth_gives_the_planned_children() -> None:
    """Children by path of ranks, whatever the nodes' numbers are."""
    growth = PlannedGrowth(acceptance=[0.6, 0.2], draft_s=0.0, verify_s={1: 1.0, 8: 1.0}, tree_depth=4, tree_budget=6)
    total = 1
    frontier = [Frontier(0, 0.0, ())]
    for depth in range(growth.max_depth):
        widths = growth.widths(depth, frontier, 99)
        total += sum(widths)
        frontier = [
            Frontier(0, 0.0, (*entry.ranks, rank))
            for entry, width in zip(frontier, widths, strict=True)
            for rank in range(width)
        ]
    assert total == growth.budget


def test_nothing_is_drafted_below_a_node_that_is_pruned_anyway() -> None:
    """The tree is the one of drawing everything and pruning, with fewer nodes drawn from."""
    source = generator(0, "test")
    confidences: dict[tuple[int, ...], list[float]] = {}
    growth = ConfidentGrowth(tree_depth=4, tree_width=3, tree_budget=30, min_confidence=0.0)
    processors = Processors(SamplingParams(), end_ids=[])

    def tree(max_nodes: int) -> tuple[TokenTree, int]:
        num_drawn = 0

        def draw(depth: int, trees: Sequence[TokenTree], parents: Sequence[Parents]) -> list[list[Children]]:
            nonlocal num_drawn
            num_drawn += len(parents[0])
            paths = [path_tokens(trees[0], entry.node) for entry, _ in parents[0]]
            for path in paths:
                confidences.setdefault(path, torch.rand(3, generator=source).tolist())
            drawn = [
                [(Trial(token), chance) for token, chance in enumerate(confidences[path])][:width]
                for path, (_, width) in zip(paths, parents[0], strict=True)
            ]
            return [drawn]

        request = DraftRequest((9,), 1, None, Greedy(), processors, max_nodes, 4)
        (grown,) = grow_trees([request], growth, source="test", draw=draw)
        return grown, num_drawn

    whole, num_whole = tree(30)
    for max_nodes in (2, 4, 9):
        small, num_small = tree(max_nodes)
        expected = prune(whole, max_nodes)
        assert (small.tokens, small.parents) == (expected.tokens, expected.parents)
        assert num_small < num_whole


def record(num_nodes: int, num_committed: int, seconds_s: float, num_states: int = 1) -> RoundRecord:
    """A round of one sequence among `num_states`."""
    return RoundRecord(num_states, num_nodes, 1, num_committed, 0.0, seconds_s, (), ())


@pytest.mark.parametrize(("drafted_s", "committed", "pays"), [(1.5, 2, True), (1.5, 1, False)])
def test_paying_growth_chooses_the_faster_mode(drafted_s: float, committed: int, pays: bool) -> None:
    """Two tokens in 1.5 s beat one in 1 s; one in 1.5 s does not: then nearly every round is plain."""
    inner = FixedGrowth(tree_widths=[1], tree_budget=2)
    growth = PayingGrowth(growth=inner, probe_every=40, min_acceptance=0.0)
    modes = []
    for _ in range(400):
        drafts = growth.max_depth > 0
        modes.append(drafts)
        growth.record(record(2, committed, drafted_s) if drafts else record(1, 1, 1.0))
    share = sum(modes[10:]) / len(modes[10:])
    assert share > 0.95 if pays else share < 0.05


@pytest.mark.parametrize("num_states", [1, 8, 40, 128])
def test_useless_draft_costs_less_than_five_percent(num_states: int) -> None:
    """Drafted passes of twice the time that accept nothing: 3 to warm up and one in 40, however many sequences."""
    growth = PayingGrowth(growth=FixedGrowth(tree_widths=[1], tree_budget=2), probe_every=40, min_acceptance=0.0)
    total = 0.0
    for _ in range(1000):
        drafts = growth.max_depth > 0
        total += 2.0 if drafts else 1.0
        for _ in range(num_states):
            growth.record(record(2, 1, 2.0, num_states) if drafts else record(1, 1, 1.0, num_states))
    assert total < 1050


def test_paying_is_judged_by_all_sequences_of_a_pass() -> None:
    """One sequence in four accepts a token in passes of 1.2 times the cost: that pays, though most accept nothing."""
    growth = PayingGrowth(growth=FixedGrowth(tree_widths=[1], tree_budget=2), probe_every=40, min_acceptance=0.0)
    num_drafted = 0
    for _ in range(400):
        drafts = growth.max_depth > 0
        num_drafted += drafts
        for place in range(4):
            growth.record(record(2, 1 + (place == 0), 1.2, 4) if drafts else record(1, 1, 1.0, 4))
    assert num_drafted > 380


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedGrowth(tree_widths=[], tree_budget=4),
        lambda: FixedGrowth(tree_widths=[0], tree_budget=4),
        lambda: ConfidentGrowth(tree_depth=2, tree_width=2, tree_budget=1, min_confidence=0.1),
        lambda: ConfidentGrowth(tree_depth=2, tree_width=0, tree_budget=4, min_confidence=0.1),
        lambda: plan_tree([0.9, 0.9], draft_s=0, verify_s={1: 1.0}, max_depth=2, max_nodes=4),
        lambda: plan_tree([0.9], draft_s=0, verify_s={}, max_depth=2, max_nodes=4),
    ],
)
def test_shape_that_cannot_be_is_refused(make: object) -> None:
    """No depth, no width, no budget, impossible measurements."""
    with pytest.raises(InputError):
        make()  # type: ignore[operator]
