"""The engine for GGUF files: llama.cpp computes the passes, the trees are ours.

Knows a cache of cells in which sequences overlap (`Context`); knows no library and no sampling. A tree is as many
sequences as it has leaves: they share the text's cells, and a node belongs to every leaf below it, so that one batch
verifies all paths. Legend: `n` nodes, `v` vocabulary, `d` hidden size.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from typing_extensions import override

from mmspec.errors import ModelError
from mmspec.text.engine import EngineState, TextEngine, Verified, committed_ids
from mmspec.text.sequences import Memory, Sequences, Stored
from mmspec.text.types import TokenTree

MAX_BEGINNINGS = 8
"""Beginnings of prompts that are kept, the ones used last."""


@dataclass(frozen=True)
class Cell:
    """One token of a batch: where it stands, and in which sequences."""

    token: int
    position: int
    sequences: tuple[int, ...]


class Context(Memory, Protocol):
    """A model with a cache of `num_cells` tokens for up to `num_sequences` sequences."""

    vocab_size: int
    hidden_size: int
    max_length: int
    num_cells: int
    num_sequences: int

    @property
    def prompt_rows(self) -> int:
        """Tokens of a prompt to take at once."""

    def weights(self) -> tuple[Tensor, Tensor]:
        """Input embeddings and output projection, both `[v, d]`; hidden states are computed from now on."""

    def decode(self, cells: Sequence[Cell], *, outputs: bool) -> bool:
        """One pass; False where the cache has no room, and nothing was stored."""

    def logits(self, num: int) -> Tensor:
        """Logits `[n, v]` of the last pass, which had `outputs`."""

    def hidden(self, num: int) -> Tensor:
        """Normalised last hidden states `[n, d]` of the last pass; zeros where nobody wants them."""


class GgufEngine(TextEngine):
    """A model of llama.cpp.

    Hidden states are computed from when a drafter has asked for the model's own weights on, which only those do that
    read hidden states; until then they are zero, and prompts are several times as fast. A node's numbers are those of
    its path, up to rounding that depends on the size of the pass.
    """

    pass_rows = 4

    def __init__(self, context: Context) -> None:
        self._context = context
        self.vocab_size, self.hidden_size = context.vocab_size, context.hidden_size
        self.max_context = min(context.max_length, context.num_cells)
        self._sequences = Sequences(context, context.num_sequences)
        self._beginnings: dict[tuple[int, ...], tuple[Stored, Tensor]] = {}
        self._lock = threading.Lock()
        self._weights: tuple[Tensor, Tensor] | None = None

    @override
    def embeddings(self) -> Tensor:
        return self._own_weights()[0]

    @override
    def output_weights(self) -> Tensor:
        return self._own_weights()[1]

    def _own_weights(self) -> tuple[Tensor, Tensor]:
        with self._lock:
            if self._weights is None:
                self._weights = self._context.weights()
                self._beginnings.clear()  # they have no hidden states
            return self._weights

    @override
    def prefill(self, prompts: Sequence[Sequence[int]], *, num_shared: int = 0) -> list[tuple[EngineState, Tensor]]:
        self.check_prompts(prompts)
        with self._lock:
            states = []
            for ids in prompts:
                self._sequences.begin()
                states.append(self._prefill(tuple(ids), min(num_shared, len(ids) - 1)))
            return states

    @override
    def remember(self, ids: Sequence[int]) -> None:
        if ids:
            with self._lock:
                self._sequences.begin()
                self._beginning(tuple(ids))

    def _prefill(self, ids: tuple[int, ...], num_shared: int) -> tuple[EngineState, Tensor]:
        """The shared beginning is always a pass of its own, kept or not: so a text never depends on what came before."""
        if not num_shared:
            stored, before = self._sequences.take(), torch.zeros(0, self.hidden_size)
        else:
            beginning, before = self._beginning(ids[:num_shared])
            stored = self._sequences.fork(beginning, num_shared)
        hidden = self._run(stored, ids[num_shared:-1])
        return EngineState(ids, stored), torch.cat([before, hidden])

    def _beginning(self, ids: tuple[int, ...]) -> tuple[Stored, Tensor]:
        kept = self._beginnings.pop(ids, None)
        if kept is None or kept[0].number is None:
            stored = self._sequences.take()
            kept = stored, self._run(stored, ids)
        self._sequences.touch(kept[0])
        self._beginnings[ids] = kept  # the last in order is the one used last
        while len(self._beginnings) > MAX_BEGINNINGS:
            self._beginnings.pop(next(iter(self._beginnings)))
        return kept

    def _run(self, stored: Stored, ids: Sequence[int]) -> Tensor:
        """Stores tokens behind a sequence; gives their hidden states `[n, d]`."""
        hidden = [torch.zeros(0, self.hidden_size)]
        for start in range(0, len(ids), self._context.prompt_rows):
            part = ids[start : start + self._context.prompt_rows]
            cells = [Cell(token, stored.length + place, (stored.id,)) for place, token in enumerate(part)]
            self._decode(cells, outputs=False)
            stored.length += len(part)
            hidden.append(self._context.hidden(len(part)))
        return torch.cat(hidden)

    def _decode(self, cells: Sequence[Cell], *, outputs: bool) -> None:
        while not self._context.decode(cells, outputs=outputs):
            if not self._sequences.give_up():
                raise ModelError(f"all texts together do not fit the {self._context.num_cells} cells of the cache")

    @override
    def verify(self, states: Sequence[EngineState], trees: Sequence[TokenTree]) -> list[Verified]:
        with self._lock:
            verified: list[Verified] = []
            self._sequences.begin()
            owned: list[Stored] = []
            for state in states:
                owned.append(self._own(state, owned))
            for first, last in _passes(trees, self._context.num_sequences // 4):
                verified += self._verify(owned[first:last], trees[first:last])
            return verified

    def _verify(self, owned: Sequence[Stored], trees: Sequence[TokenTree]) -> list[Verified]:
        grown = [self._grow(own, tree) for own, tree in zip(owned, trees, strict=True)]
        cells = [cell for each in grown for cell in each.cells]
        self._decode(cells, outputs=True)
        sizes = [len(tree) for tree in trees]
        logits, hidden = self._context.logits(len(cells)).split(sizes), self._context.hidden(len(cells)).split(sizes)
        return [Verified(*each) for each in zip(trees, logits, hidden, grown, strict=True)]

    def _own(self, state: EngineState, taken: Sequence[Stored]) -> Stored:
        """A sequence of this state, which stores all of it but the last token; not one of those `taken`."""
        stored, length = state.cache, state.num_cached
        if stored.number is None:
            anew = self._sequences.take()
            self._run(anew, state.ids[:length])
            return anew
        self._sequences.touch(stored)
        if stored.length != length or stored in taken:
            return self._sequences.fork(stored, length)
        self._sequences.cut(stored, length)  # a tree that was never committed may lie behind it
        return stored

    def _grow(self, own: Stored, tree: TokenTree) -> _Grown:
        leaves: list[Stored] = []
        below: list[list[Stored]] = [[] for _ in tree.tokens]
        for node in range(len(tree) - 1, -1, -1):  # children come behind their parents
            if not below[node]:
                leaves.append(self._sequences.fork(own, own.length) if leaves else own)
                below[node].append(leaves[-1])
            if node:
                below[tree.parents[node]] += below[node]
        cells = [
            Cell(token, own.length + depth, tuple(leaf.id for leaf in under))
            for token, depth, under in zip(tree.tokens, tree.depths, below, strict=True)
        ]
        return _Grown(own.length, own, [under[0] for under in below], cells)

    @override
    def commit(
        self,
        states: Sequence[EngineState],
        verified: Sequence[Verified],
        paths: Sequence[Sequence[int]],
        next_tokens: Sequence[int],
    ) -> list[EngineState]:
        with self._lock:
            committed = []
            for state, seen, path, token in zip(states, verified, paths, next_tokens, strict=True):
                stored = self._commit(seen.cache, path)
                committed.append(EngineState(committed_ids(state, seen.tree, path, token), stored))
            return committed

    def _commit(self, grown: _Grown, path: Sequence[int]) -> Stored:
        """The sequence of a leaf below the path becomes the text's own; the others go."""
        own, chosen = grown.own, grown.leaf_below[path[-1]]
        assert own.length == grown.start, "a pass is committed before the next one writes behind its sequence"
        if chosen is not own:
            self._sequences.cut(own, grown.start)
        self._sequences.cut(chosen, grown.start + len(path))
        grown.leaf_below.clear()
        return chosen


@dataclass(eq=False)
class _Grown:
    """A tree behind the `start` tokens of the text's own sequence, and for every node the sequence of a leaf below it."""

    start: int
    own: Stored
    leaf_below: list[Stored]
    cells: list[Cell]


def _passes(trees: Sequence[TokenTree], most: int) -> Iterator[tuple[int, int]]:
    """Runs of trees of at most `most` nodes together, or of one that has more."""
    first, num_nodes = 0, 0
    for place, tree in enumerate(trees):
        if num_nodes and num_nodes + len(tree) > most:
            yield first, place
            first, num_nodes = place, 0
        num_nodes += len(tree)
    yield first, len(trees)
