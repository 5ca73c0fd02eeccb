"""Level-by-level growth of trees, shared by the drafters that hold a model.

Knows growth and trees; knows no model: it asks for the children of a whole level at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from mmspec.text.drafters.base import DraftRequest, bounded
from mmspec.text.growth import Frontier, Growth
from mmspec.text.tree import TreeBuilder, path_tokens
from mmspec.text.types import TokenTree, Trial

Children = Sequence[tuple[Trial, float]]
"""Proposals at a node, in trial order, each with its confidence in [0, 1]."""

Parents = Sequence[tuple[Frontier, int]]
"""Nodes of one tree that get children, and how many."""

DrawLevel = Callable[[int, Sequence[TokenTree], Sequence[Parents]], Sequence[Sequence[Children]]]
"""From a depth, trees and their parents at this depth to the children of every parent."""

ScoreLevel = Callable[[Sequence[TokenTree], Sequence[Sequence[int]]], Sequence[Sequence[Tensor]]]
"""From trees and the nodes wanted in each to draft logits `[v]` of these nodes."""


def grow_trees(requests: Sequence[DraftRequest], growth: Growth, *, source: str, draw: DrawLevel) -> list[TokenTree]:
    """Trees of several sequences, all at the same depth at a time. Only nodes that get children are drawn from."""
    builders = [TreeBuilder(request.ids[-1]) for request in requests]
    frontiers: list[list[Frontier]] = [[Frontier(0, 0.0, ())] for _ in requests]
    for depth in range(max(request.max_depth for request in requests)):
        parents = [
            _parents(request, growth, builder, frontier, depth)
            for request, builder, frontier in zip(requests, builders, frontiers, strict=True)
        ]
        if not any(parents):
            break
        drawn = draw(depth, [builder.build() for builder in builders], parents)
        frontiers = [
            _add(request, builder, own, children, source)
            for request, builder, own, children in zip(requests, builders, parents, drawn, strict=True)
        ]
    return [
        bounded(builder.build(), min(growth.budget, request.max_nodes))
        for builder, request in zip(builders, requests, strict=True)
    ]


def draw_dense(
    requests: Sequence[DraftRequest], *, source: str, first: Sequence[Tensor], score: ScoreLevel
) -> DrawLevel:
    """Children drawn from scores of the whole vocabulary; `first[i]` are the root's logits `[v]`."""

    def draw(depth: int, trees: Sequence[TokenTree], parents: Sequence[Parents]) -> list[list[Children]]:
        nodes = [[entry.node for entry, _ in own] for own in parents]
        logits = [[row] for row in first] if depth == 0 else score(trees, nodes)
        return [
            [
                _children(request, tree, entry.node, width, row, depth, source)
                for (entry, width), row in zip(own, rows, strict=False)
            ]
            for request, tree, own, rows in zip(requests, trees, parents, logits, strict=True)
        ]

    return draw


def _children(
    request: DraftRequest, tree: TokenTree, node: int, width: int, logits: Tensor, depth: int, source: str
) -> Children:
    prompt, text = request.ids[: request.num_prompt], request.ids[request.num_prompt :]
    scores = request.processors(logits, prompt, (*text, *path_tokens(tree, node)))
    return request.acceptance.draw(
        scores, width, position=request.num_text + depth, key=f"{source}/{len(request.ids)}/{node}"
    )


def _parents(
    request: DraftRequest, growth: Growth, builder: TreeBuilder, frontier: Sequence[Frontier], depth: int
) -> list[tuple[Frontier, int]]:
    """The frontier nodes that get children, and how many."""
    if depth >= request.max_depth:
        return []
    limit = min(growth.budget, request.max_nodes)
    # Sampled tokens cannot be pruned afterwards, so they are bounded by the budget itself. Of others more may be drawn,
    # but not below a node that will be pruned in any case.
    if request.acceptance.deterministic:
        best = builder.best(limit)
        frontier = [entry for entry in frontier if entry.node in best]
        limit = growth.pool
    widths = growth.widths(depth, frontier, max(0, limit - len(builder)))
    return [(entry, width) for entry, width in zip(frontier, widths, strict=True) if width > 0]


def _add(
    request: DraftRequest, builder: TreeBuilder, parents: Parents, drawn: Sequence[Children], source: str
) -> list[Frontier]:
    """Puts the children of one level into the tree and gives them as the next frontier."""
    grown: list[Frontier] = []
    for (entry, _), children in zip(parents, drawn, strict=True):
        for rank, (trial, confidence) in enumerate(children):
            log_confidence = entry.log_confidence + math.log(max(confidence, 1e-30))
            num_before = len(builder)
            node = builder.add(entry.node, replace(trial, source=source), log_confidence)
            # Nothing follows the end of a text.
            if node == num_before and trial.token not in request.processors.end_ids:
                grown.append(Frontier(node, builder.log_confidence(node), (*entry.ranks, rank)))
    return grown
