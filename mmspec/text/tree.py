"""The token tree: building, merging, pruning, attention mask and position ids.

Knows structure only; knows no model and no probability rule. Nodes of equal token under different parents
stay apart, repeated proposals of one child are kept as trials: both matter for exactness (SpecInfer,
arXiv 2305.09781, section 4; mask construction as in its figure 4).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mmspec.errors import InputError
from mmspec.text.types import TokenTree, Trial


class TreeBuilder:
    """Grows a `TokenTree` from its root, node by node."""

    def __init__(self, root_token: int) -> None:
        self._tokens = [root_token]
        self._parents = [-1]
        self._trials: list[list[Trial]] = [[]]
        self._log_confidence = [0.0]
        self._children: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, parent: int, trial: Trial, log_confidence: float) -> int:
        """Records a trial at `parent` and gives the child it names, new or met before.

        `log_confidence` is of the whole path, in nats; it is capped by the parent's, so that it never
        increases along a path (a child probability that rounds to 1 would otherwise tie or win).
        """
        self._trials[parent].append(trial)
        capped = min(log_confidence, self._log_confidence[parent])
        node = self._children.get((parent, trial.token))
        if node is None:
            node = len(self._tokens)
            self._children[(parent, trial.token)] = node
            self._tokens.append(trial.token)
            self._parents.append(parent)
            self._trials.append([])
            self._log_confidence.append(capped)
        elif capped > self._log_confidence[node]:
            self._log_confidence[node] = capped
        return node

    def log_confidence(self, node: int) -> float:
        """The path confidence of a node, in nats."""
        return self._log_confidence[node]

    def best(self, num_nodes: int) -> set[int]:
        """The nodes that `prune` would keep of the tree as it stands. What is added later displaces some of them, but
        never brings back another: it is no more confident than its parent, and its index is higher.
        """
        order = sorted(range(len(self)), key=lambda node: (-self._log_confidence[node], node))
        return set(order[:num_nodes])

    def build(self) -> TokenTree:
        """The tree as it stands."""
        return TokenTree(
            tokens=tuple(self._tokens),
            parents=tuple(self._parents),
            trials=tuple(tuple(trials) for trials in self._trials),
            log_confidence=tuple(self._log_confidence),
        )


def root_only(token: int) -> TokenTree:
    """The tree of plain decoding: a root and nothing below it.

    >>> len(root_only(7))
    1
    """
    return TokenTree(tokens=(token,), parents=(-1,), trials=((),), log_confidence=(0.0,))


def chain(tokens: Sequence[int]) -> TokenTree:
    """A tree without branches, from its root's token on.

    >>> chain([5, 6, 7]).parents
    (-1, 0, 1)
    """
    builder = TreeBuilder(tokens[0])
    for node, token in enumerate(tokens[1:]):
        builder.add(node, Trial(token), 0.0)
    return builder.build()


def merge(trees: Sequence[TokenTree]) -> TokenTree:
    """One tree of all proposals, keyed by (parent node, token).

    At each node the trials of the first tree come first, in their order, then those of the next: every
    trial keeps its own q. Raises `InputError` where the roots differ.
    """
    roots = {tree.tokens[0] for tree in trees}
    if len(roots) != 1:
        raise InputError(f"trees of different roots {sorted(roots)} do not merge: expected one sequence")
    builder = TreeBuilder(trees[0].tokens[0])
    for tree in trees:
        place = [0]
        # A child is created by its first trial, so visiting trials parent by parent keeps parents first.
        child_of = {(p, t): i for i, (p, t) in enumerate(zip(tree.parents, tree.tokens, strict=True))}
        place += [-1] * (len(tree) - 1)
        for node in range(len(tree)):
            for trial in tree.trials[node]:
                child = child_of[(node, trial.token)]
                place[child] = builder.add(place[node], trial, tree.log_confidence[child])
    return builder.build()


def prune(tree: TokenTree, budget: int) -> TokenTree:
    """The `budget` nodes (root included) of highest path confidence; ties go to the lower index.

    Ancestor-closed, because confidence never increases along a path and a parent's index is lower.
    Only trees of point-mass trials may be pruned by value: dropping a token that was sampled because of
    what it is would change the distribution of the text. Raises `InputError` for a sampled tree.
    """
    if len(tree) <= budget:
        return tree
    if any(trial.q is not None for trials in tree.trials for trial in trials):
        raise InputError("a tree of sampled tokens cannot be pruned by confidence: bound it while it grows")
    order = sorted(range(len(tree)), key=lambda node: (-tree.log_confidence[node], node))
    kept = sorted(order[: max(1, budget)])
    place = {node: index for index, node in enumerate(kept)}
    return TokenTree(
        tokens=tuple(tree.tokens[node] for node in kept),
        parents=tuple(-1 if node == 0 else place[tree.parents[node]] for node in kept),
        trials=tuple(
            tuple(trial for trial in tree.trials[node] if tree.children[node][trial.token] in place) for node in kept
        ),
        log_confidence=tuple(tree.log_confidence[node] for node in kept),
    )


def ancestor_mask(tree: TokenTree) -> Tensor:
    """Who sees whom among the nodes: `[n, n]` bool, True where column is the row itself or its ancestor."""
    seen: list[list[int]] = []
    for node, parent in enumerate(tree.parents):
        seen.append([*(seen[parent] if node else ()), node])
    mask = torch.zeros(len(tree), len(tree), dtype=torch.bool)
    rows = torch.tensor([node for node, columns in enumerate(seen) for _ in columns])
    mask[rows, torch.tensor([column for columns in seen for column in columns])] = True
    return mask


def position_ids(tree: TokenTree, root_position: int) -> Tensor:
    """Position of every node, `[n]` int64: the root's plus the depth (not the flat index)."""
    return torch.tensor(tree.depths, dtype=torch.int64) + root_position


def path_tokens(tree: TokenTree, node: int) -> tuple[int, ...]:
    """Tokens from below the root down to `node`."""
    tokens: list[int] = []
    while node > 0:
        tokens.append(tree.tokens[node])
        node = tree.parents[node]
    return tuple(reversed(tokens))
