"""Structure of token trees: mask, positions, merging, pruning."""

from __future__ import annotations

import random

import pytest
import torch

from mmspec.errors import InputError
from mmspec.text.tree import TreeBuilder, ancestor_mask, merge, path_tokens, position_ids, prune, root_only
from mmspec.text.types import TokenTree, Trial


def random_tree(seed: int, *, num_nodes: int = 20, num_tokens: int = 5, sampled: bool = False) -> TokenTree:
    """A random tree; repeated draws at a node make trials without new nodes."""
    source = random.Random(seed)
    builder = TreeBuilder(0)
    for _ in range(num_nodes):
        parent = source.randrange(len(builder))
        q = torch.full((num_tokens,), 1 / num_tokens) if sampled else None
        builder.add(parent, Trial(source.randrange(num_tokens), q), builder.log_confidence(parent) - source.random())
    return builder.build()


def test_mask_and_positions_of_a_small_tree() -> None:
    """Hand-computed: root 0 with children 1 and 2, node 3 below 2."""
    builder = TreeBuilder(9)
    builder.add(0, Trial(1), -1.0)
    two = builder.add(0, Trial(2), -1.0)
    builder.add(two, Trial(1), -2.0)
    tree = builder.build()
    expected = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]
    assert ancestor_mask(tree).int().tolist() == expected
    assert position_ids(tree, 7).tolist() == [7, 8, 8, 9]
    assert path_tokens(tree, 3) == (2, 1)


@pytest.mark.parametrize("seed", range(20))
def test_mask_equals_walking_up(seed: int) -> None:
    """Every row of the mask is the node and its ancestors, found one by one."""
    tree = random_tree(seed)
    mask = ancestor_mask(tree)
    for node in range(len(tree)):
        seen = {node}
        while node > 0:
            node = tree.parents[node]
            seen.add(node)
        row = mask[max(seen)].nonzero().squeeze(1).tolist()
        assert set(row) == seen


@pytest.mark.parametrize("seed", range(20))
def test_merged_tree_keeps_every_trial(seed: int) -> None:
    """Merging keeps paths, and at each node the trials of each tree in their order, repeats included."""
    trees = [random_tree(seed * 3 + index) for index in range(3)]
    merged = merge(trees)

    def trials_by_path(tree: TokenTree) -> dict[tuple[int, ...], list[int]]:
        return {path_tokens(tree, node): [t.token for t in tree.trials[node]] for node in range(len(tree))}

    expected: dict[tuple[int, ...], list[int]] = {}
    for tree in trees:
        for path, tokens in trials_by_path(tree).items():
            expected.setdefault(path, []).extend(tokens)
    assert trials_by_path(merged) == expected


def test_equal_tokens_under_different_parents_stay_apart() -> None:
    """A merge keyed by token and depth would join them and let a path switch branch."""
    left, right = TreeBuilder(0), TreeBuilder(0)
    left.add(left.add(0, Trial(1), -1.0), Trial(3), -1.0)
    right.add(right.add(0, Trial(2), -1.0), Trial(3), -1.0)
    merged = merge([left.build(), right.build()])
    assert sorted(path_tokens(merged, node) for node in range(len(merged))) == [(), (1,), (1, 3), (2,), (2, 3)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("budget", [1, 2, 5, 9])
def test_pruned_tree_is_ancestor_closed_and_keeps_the_best(seed: int, budget: int) -> None:
    """The kept nodes are the best by (confidence, index), their parents are kept, trials have children."""
    tree = random_tree(seed)
    pruned = prune(tree, budget)
    order = sorted(range(len(tree)), key=lambda node: (-tree.log_confidence[node], node))[:budget]
    assert {path_tokens(pruned, node) for node in range(len(pruned))} == {path_tokens(tree, node) for node in order}


def test_parent_and_child_of_equal_confidence_keep_the_parent() -> None:
    """A child whose probability rounds to 1 ties with its parent: the lower index stays."""
    builder = TreeBuilder(0)
    first = builder.add(0, Trial(1), -0.5)
    builder.add(first, Trial(2), -0.5)
    assert prune(builder.build(), 2).tokens == (0, 1)


def test_confidence_never_increases_along_a_path() -> None:
    """A drafter that claims more for a child than for its parent is capped."""
    builder = TreeBuilder(0)
    child = builder.add(builder.add(0, Trial(1), -2.0), Trial(2), -0.1)
    assert builder.log_confidence(child) == -2.0


def test_sampled_tree_is_not_pruned_by_value() -> None:
    """Dropping sampled tokens for what they are would change the distribution."""
    with pytest.raises(InputError, match="sampled"):
        prune(random_tree(0, sampled=True), 2)


@pytest.mark.parametrize(
    ("tokens", "parents", "trials"),
    [
        ((1, 2), (-1, 1), ((), ())),
        ((1, 2, 2), (-1, 0, 0), ((), (), ())),
        ((1,), (-1,), ((Trial(4),),)),
        ((1, 2), (-1,), ((), ())),
        ((), (), ()),
    ],
)
def test_malformed_tree_is_refused(tokens: tuple[int, ...], parents: tuple[int, ...], trials: tuple[()]) -> None:
    """A late parent, twin siblings, a trial without a child, unequal lengths, no root."""
    with pytest.raises(InputError):
        TokenTree(tokens, parents, trials, tuple(0.0 for _ in tokens))


def test_trees_of_different_roots_do_not_merge() -> None:
    """They belong to different sequences."""
    with pytest.raises(InputError, match="roots"):
        merge([root_only(1), root_only(2)])
