"""The target's side of speculation: what an engine does, and the engine for any `transformers` causal LM.

`TextEngine` is the one interface; logits of a node are the model's own for that node's path, whatever else
is in the pass. Knows caches, masks and positions; knows no sampling. States are values: a state stays
usable after newer ones were made from it, so forking is free. Legend: `s` states, `n` nodes, `v`
vocabulary, `d` hidden size, `h` key-value heads, `l` cached length.
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from mmspec.errors import InputError, ModelError
from mmspec.text.tree import ancestor_mask, position_ids
from mmspec.text.types import TokenTree

if TYPE_CHECKING:
    from transformers import DynamicCache

UNBOUNDED_CONTEXT = 1 << 20
"""Stands for the context of a model that names none."""


@dataclass(frozen=True, eq=False)
class EngineState:
    """One sequence as the target sees it: keys and values are stored for all of `ids` but the last.

    `ahead` `[1, d]` is the last hidden state of the last one, where the prefill computed it with the others: a tree of
    the root alone is then scored without a pass.
    """

    ids: tuple[int, ...]
    cache: Any
    ahead: Tensor | None = None

    @property
    def num_cached(self) -> int:
        """How many tokens have their keys and values stored."""
        return len(self.ids) - 1


@dataclass(frozen=True, eq=False)
class Verified:
    """What one target pass says about one tree: `logits` `[n, v]` and last `hidden` `[n, d]`, both in the
    model's dtype. `cache` belongs to the engine, for `commit`.
    """

    tree: TokenTree
    logits: Tensor
    hidden: Tensor
    cache: Any


class TextEngine(abc.ABC):
    """A target (or draft) model that scores token trees."""

    vocab_size: int
    hidden_size: int
    max_context: int
    pass_rows: int = 32
    """Nodes of all trees that a pass is meant to hold: above, it takes longer than the nodes are worth. On two cores a
    bf16 pass of 32 rows takes about 1.3 times as long as one of a single row, a pass of 64 rows 2.6 times.
    """

    def share(self, num_states: int) -> int:
        """How many nodes each of the trees in a pass should have at most, root included."""
        return max(self.pass_rows // num_states, self.pass_rows // 8, 1)

    @abc.abstractmethod
    def prefill(self, prompts: Sequence[Sequence[int]], *, num_shared: int = 0) -> list[tuple[EngineState, Tensor]]:
        """States of prompts, and the hidden states `[l, d]` of all their tokens but the last.

        The first `num_shared` tokens are likely to begin other prompts too: an engine may keep what it computed
        for them. Raises `InputError` for an empty prompt or one that leaves no room in the context.
        """

    def remember(self, ids: Sequence[int]) -> None:  # noqa: B027  (an engine may keep nothing)
        """Compute now what `prefill` keeps of a shared beginning; nothing where an engine keeps none."""

    @abc.abstractmethod
    def verify(self, states: Sequence[EngineState], trees: Sequence[TokenTree]) -> list[Verified]:
        """Scores every node of `trees[i]`, whose root is the last token of `states[i]`: one pass for all."""

    @abc.abstractmethod
    def commit(
        self,
        states: Sequence[EngineState],
        verified: Sequence[Verified],
        paths: Sequence[Sequence[int]],
        next_tokens: Sequence[int],
    ) -> list[EngineState]:
        """Keeps the keys and values of a path of nodes (from the root, 0, down) and appends its tokens,
        then `next_tokens[i]`, the new root.
        """

    @abc.abstractmethod
    def embeddings(self) -> Tensor:
        """Input embeddings `[v, d]`, for drafters that share them."""

    @abc.abstractmethod
    def output_weights(self) -> Tensor:
        """Output projection `[v, d]`: its product with a hidden state gives the logits."""

    def room(self, state: EngineState) -> int:
        """How many nodes a tree of this state may have, root included."""
        return self.max_context - state.num_cached

    def check_prompts(self, prompts: Sequence[Sequence[int]]) -> None:
        """Raises `InputError` for a prompt that is empty or does not fit the context."""
        for ids in prompts:
            if not ids:
                raise InputError("prompt has no tokens: expected some text")
            if len(ids) > self.max_context:
                raise InputError(f"prompt has {len(ids)} tokens: the model's context is {self.max_context}")
            if max(ids) >= self.vocab_size or min(ids) < 0:
                raise InputError(f"prompt holds token id {max(ids)}: the model has {self.vocab_size}")


@dataclass(frozen=True, eq=False)
class _Keys:
    """Keys and values `[h, l, head_dim]` per layer."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    def slots(self, index: slice | Tensor) -> _Keys:
        """The same layers at some of the slots."""
        return _Keys(tuple(k[:, index] for k in self.keys), tuple(v[:, index] for v in self.values))

    def followed_by(self, other: _Keys) -> _Keys:
        """The same layers with the other's slots appended."""
        return _Keys(
            tuple(torch.cat(pair, dim=1) for pair in zip(self.keys, other.keys, strict=True)),
            tuple(torch.cat(pair, dim=1) for pair in zip(self.values, other.values, strict=True)),
        )

    @classmethod
    def of_row(cls, cache: Any, row: int) -> _Keys:
        """One row of a `transformers` cache."""
        return cls(tuple(layer.keys[row] for layer in cache.layers), tuple(layer.values[row] for layer in cache.layers))


class HFEngine(TextEngine):
    """Any decoder-only `transformers` model: Llama, Qwen, GPT-2, GPT-Neo, GPT-J, Gemma and their like.

    Trees of several states make the rows of one batch; each row has its own mask and positions.
    """

    def __init__(self, model: Any) -> None:
        config = model.config.get_text_config()
        self._model = model.eval()
        self._dtype = model.dtype
        self.vocab_size = int(config.vocab_size)
        self.hidden_size = int(config.hidden_size)
        self.max_context = int(getattr(config, "max_position_embeddings", UNBOUNDED_CONTEXT))
        # transformers 5.2x renamed the argument.
        renamed = "cache" in inspect.signature(model.get_decoder().forward).parameters
        self._cache_name = "cache" if renamed else "past_key_values"
        layer_types = set(getattr(config, "layer_types", None) or ())
        if layer_types - {"full_attention", "sliding_attention"}:
            raise ModelError(
                f"{type(model).__name__} has {sorted(layer_types)} layers, whose state cannot be "
                "rolled back to an accepted path: expected attention layers only"
            )
        window = getattr(config, "sliding_window", None)
        self._window = int(window) if window else None
        self._masks_by_layer = "sliding_attention" in layer_types
        # GPT-Neo measures its local window in cache slots, inside the layer, where no mask reaches.
        self._slot_window = int(config.window_size) if hasattr(config, "attention_types") else None

    @override
    def prefill(self, prompts: Sequence[Sequence[int]], *, num_shared: int = 0) -> list[tuple[EngineState, Tensor]]:
        self.check_prompts(prompts)
        return [self._prefill(tuple(ids)) for ids in prompts]

    @torch.inference_mode()
    def _prefill(self, ids: tuple[int, ...]) -> tuple[EngineState, Tensor]:
        num_cached = len(ids) - 1
        # A prompt of one token is run for the shapes of its cache, which then holds no slot of it.
        fed = torch.tensor([ids[: max(1, num_cached)]])
        positions = torch.arange(fed.shape[1])[None]
        mask = positions[:, None, :, None] >= positions[:, None, None, :]
        cache = _empty_cache()
        output = self._model.get_decoder()(
            input_ids=fed,
            position_ids=positions,
            attention_mask=self._masks(mask, positions, positions),
            use_cache=True,
            **{self._cache_name: cache},
        )
        keys = _Keys.of_row(cache, 0).slots(slice(0, num_cached))
        return EngineState(ids, keys), output.last_hidden_state[0, :num_cached]

    @override
    def embeddings(self) -> Tensor:
        return self._model.get_input_embeddings().weight.detach()

    @override
    def output_weights(self) -> Tensor:
        return self._model.get_output_embeddings().weight.detach()

    @override
    def room(self, state: EngineState) -> int:
        room = super().room(state)
        if self._slot_window is None:
            return room
        return min(room, max(1, self._slot_window - state.num_cached))

    @torch.inference_mode()
    @override
    def verify(self, states: Sequence[EngineState], trees: Sequence[TokenTree]) -> list[Verified]:
        if self._slot_window is None:
            return self._verify(states, trees)
        # Padding would shift the slots that the window is measured in: row by row.
        return [self._verify([state], [tree])[0] for state, tree in zip(states, trees, strict=True)]

    def _verify(self, states: Sequence[EngineState], trees: Sequence[TokenTree]) -> list[Verified]:
        num_rows, num_nodes = len(states), max(len(tree) for tree in trees)
        num_cached = max(state.num_cached for state in states)
        ids = torch.zeros(num_rows, num_nodes, dtype=torch.int64)
        positions = torch.zeros(num_rows, num_nodes, dtype=torch.int64)
        key_positions = torch.zeros(num_rows, num_cached + num_nodes, dtype=torch.int64)
        mask = torch.zeros(num_rows, 1, num_nodes, num_cached + num_nodes, dtype=torch.bool)
        for row, (state, tree) in enumerate(zip(states, trees, strict=True)):
            n, length = len(tree), state.num_cached
            ids[row, :n] = torch.tensor(tree.tokens)
            positions[row, :n] = position_ids(tree, length)
            key_positions[row, :length] = torch.arange(length)
            key_positions[row, num_cached : num_cached + n] = positions[row, :n]
            mask[row, 0, :n, :length] = True
            mask[row, 0, :n, num_cached : num_cached + n] = ancestor_mask(tree)
            # A padding row sees itself: a row that sees nothing is NaN in some kernels.
            padding = torch.arange(n, num_nodes)
            mask[row, 0, padding, num_cached + padding] = True
        cache = _padded(states, num_cached)
        output = self._model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=self._masks(mask, positions, key_positions),
            use_cache=True,
            output_hidden_states=True,
            **{self._cache_name: cache},
        )
        return [
            Verified(
                tree=tree,
                logits=output.logits[row, : len(tree)],
                hidden=output.hidden_states[-1][row, : len(tree)],
                cache=_Keys.of_row(cache, row).slots(slice(num_cached, num_cached + len(tree))),
            )
            for row, tree in enumerate(trees)
        ]

    def _masks(self, mask: Tensor, positions: Tensor, key_positions: Tensor) -> Any:
        """What the model takes for a bool mask `[s, 1, n, l]`: additive, and one per kind of layer.

        The window is measured in positions: a tree's slots run ahead of them.
        """
        full = self._additive(mask)
        if self._window is None:
            return full
        near = (positions[:, None, :, None] - key_positions[:, None, None, :]) < self._window
        windowed = self._additive(mask & near)
        if self._masks_by_layer:
            return {"full_attention": full, "sliding_attention": windowed}
        return windowed

    def _additive(self, mask: Tensor) -> Tensor:
        lowest = torch.finfo(self._dtype).min
        return torch.zeros(mask.shape, dtype=self._dtype).masked_fill(~mask, lowest)

    @torch.inference_mode()
    @override
    def commit(
        self,
        states: Sequence[EngineState],
        verified: Sequence[Verified],
        paths: Sequence[Sequence[int]],
        next_tokens: Sequence[int],
    ) -> list[EngineState]:
        return [
            EngineState(
                ids=committed_ids(state, seen.tree, path, token),
                cache=state.cache.followed_by(seen.cache.slots(torch.tensor(path))),
            )
            for state, seen, path, token in zip(states, verified, paths, next_tokens, strict=True)
        ]


def committed_ids(state: EngineState, tree: TokenTree, path: Sequence[int], next_token: int) -> tuple[int, ...]:
    """The sequence after a path of nodes (root first) and the token picked at its end."""
    return (*state.ids, *(tree.tokens[node] for node in path[1:]), next_token)


def _empty_cache() -> DynamicCache:
    from transformers import DynamicCache

    return DynamicCache()


def _padded(states: Sequence[EngineState], num_cached: int) -> DynamicCache:
    """A `transformers` cache whose rows are the states', padded on the right to `num_cached` slots."""
    cache = _empty_cache()
    if num_cached == 0:
        return cache

    def stack(rows: Sequence[Tensor]) -> Tensor:
        return torch.stack([functional.pad(row, (0, 0, 0, num_cached - row.shape[1])) for row in rows])

    for layer in range(len(states[0].cache.keys)):
        keys = stack([state.cache.keys[layer] for state in states])
        values = stack([state.cache.values[layer] for state in states])
        cache.update(keys, values, layer)
    return cache
