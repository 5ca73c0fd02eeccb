"""Level-by-level growth of trees from a model's scores, shared by the drafters that hold a model.

Knows scores and growth; knows no model: it asks for the scores of new nodes, level by level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from mmspec.text.drafters.base import DraftRequest, bounded
from mmspec.text.growth import Frontier, Growth
from mmspec.text.tree import TreeBuilder, path_tokens
from mmspec.text.types import TokenTree

ScoreLevel = Callable[[Sequence[TokenTree], Sequence[Sequence[int]]], Sequence[Sequence[Tensor]]]
"""From trees and the nodes wanted in each to draft logits `[v]` of these nodes."""


def grow_trees(
    requests: Sequence[DraftRequest], growth: Growth, *, source: str, first: Sequence[Tensor], score: ScoreLevel
) -> list[TokenTree]:
    """Trees of several sequences, all at the same depth at a time; `first[i]` are the root's logits `[v]`.

    Only nodes that get children are scored.
    """
    builders = [TreeBuilder(request.ids[-1]) for request in requests]
    frontiers: list[list[Frontier]] = [[Frontier(0, 0.0, ())] for _ in requests]
    for depth in range(max(request.max_depth for request in requests)):
        parents = [
            _parents(request, growth, builder, frontier, depth)
            for request, builder, frontier in zip(requests, builders, frontiers, strict=True)
        ]
        if not any(parents):
            break
        nodes = [[entry.node for entry, _ in own] for own in parents]
        logits = [[row] for row in first] if depth == 0 else score([builder.build() for builder in builders], nodes)
        frontiers = [
            _draw(request, builder, own, rows, depth, source)
            for request, builder, own, rows in zip(requests, builders, parents, logits, strict=True)
        ]
    return [
        bounded(builder.build(), min(growth.budget, request.max_nodes))
        for builder, request in zip(builders, requests, strict=True)
    ]


def _parents(
    request: DraftRequest, growth: Growth, builder: TreeBuilder, frontier: Sequence[Frontier], depth: int
) -> list[tuple[Frontier, int]]:
    """The frontier nodes that get children, and how many."""
    if depth >= request.max_depth:
        return []
    # Sampled tokens cannot be pruned afterwards, so they are bounded by the budget itself.
    prunable = request.acceptance.deterministic
    limit = growth.pool if prunable else min(growth.budget, request.max_nodes)
    widths = growth.widths(depth, frontier, max(0, limit - len(builder)))
    return [(entry, width) for entry, width in zip(frontier, widths, strict=True) if width > 0]


def _draw(
    request: DraftRequest,
    builder: TreeBuilder,
    parents: Sequence[tuple[Frontier, int]],
    logits: Sequence[Tensor],
    depth: int,
    source: str,
) -> list[Frontier]:
    """Draws the children of one level and gives them as the next frontier."""
    tree = builder.build()
    prompt, text = request.ids[: request.num_prompt], request.ids[request.num_prompt :]
    grown: list[Frontier] = []
    for (entry, width), row in zip(parents, logits, strict=False):
        scores = request.processors(row, prompt, (*text, *path_tokens(tree, entry.node)))
        drawn = request.acceptance.draw(
            scores, width, position=request.num_text + depth, key=f"{source}/{len(request.ids)}/{entry.node}"
        )
        for rank, (trial, confidence) in enumerate(drawn):
            log_confidence = entry.log_confidence + math.log(max(confidence, 1e-30))
            num_before = len(builder)
            node = builder.add(entry.node, replace(trial, source=source), log_confidence)
            # Nothing follows the end of a text.
            if node == num_before and trial.token not in request.processors.end_ids:
                grown.append(Frontier(node, builder.log_confidence(node), (*entry.ranks, rank)))
    return grown
