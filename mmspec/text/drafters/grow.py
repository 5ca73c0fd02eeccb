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
    """Trees of several sequences, all at the same depth at a time; `first[i]` are the root's logits `[v]`."""
    builders = [TreeBuilder(request.ids[-1]) for request in requests]
    frontiers = [[Frontier(0, 0.0, 0)] for _ in requests]
    logits: Sequence[Sequence[Tensor]] = [[row] for row in first]
    for depth in range(growth.max_depth):
        for place, request in enumerate(requests):
            frontiers[place] = (
                _grow_level(request, growth, builders[place], frontiers[place], logits[place], depth, source)
                if depth < request.max_depth
                else []
            )
        wanted = [[entry.node for entry in frontier] for frontier in frontiers]
        if depth + 1 == growth.max_depth or not any(wanted):
            break
        logits = score([builder.build() for builder in builders], wanted)
    return [
        bounded(builder.build(), min(growth.budget, request.max_nodes))
        for builder, request in zip(builders, requests, strict=True)
    ]


def _grow_level(
    request: DraftRequest,
    growth: Growth,
    builder: TreeBuilder,
    frontier: Sequence[Frontier],
    logits: Sequence[Tensor],
    depth: int,
    source: str,
) -> list[Frontier]:
    # Sampled tokens cannot be pruned afterwards, so they are bounded by the budget itself.
    prunable = request.acceptance.deterministic
    limit = growth.pool if prunable else min(growth.budget, request.max_nodes)
    widths = growth.widths(depth, frontier, max(0, limit - len(builder)))
    tree = builder.build()
    grown: list[Frontier] = []
    for entry, row, width in zip(frontier, logits, widths, strict=True):
        if width == 0:
            continue
        prompt, text = request.ids[: request.num_prompt], request.ids[request.num_prompt :]
        scores = request.processors(row, prompt, (*text, *path_tokens(tree, entry.node)))
        drawn = request.acceptance.draw(
            scores, width, position=request.num_text + depth, key=f"{source}/{len(request.ids)}/{entry.node}"
        )
        for rank, (trial, confidence) in enumerate(drawn):
            log_confidence = entry.log_confidence + math.log(max(confidence, 1e-30))
            num_before = len(builder)
            node = builder.add(entry.node, replace(trial, source=source), log_confidence)
            if node == num_before:
                grown.append(Frontier(node, builder.log_confidence(node), rank))
    return grown
