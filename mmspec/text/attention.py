"""Attention of token trees over cached keys and values, for one sequence or for several side by side.

Knows slots, trees and masks; knows no weights. What a node gets does not depend on the sequences beside it: queries and
slots are read in whole blocks. Legend: `m` nodes of a pass, `n` nodes of one sequence, `s` sequences, `h` key-value
heads, `g` queries per key-value head, `l` slots read.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from mmspec.text.kv_cache import Buffer, rounded
from mmspec.text.tree import ancestor_mask
from mmspec.text.types import TokenTree


@dataclass(frozen=True, eq=False)
class Part(abc.ABC):
    """A share of a pass; `nodes` says which of its nodes."""

    nodes: slice | Tensor

    @abc.abstractmethod
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`q` `[n, h * g, head_dim]`, `k` and `v` `[n, h, head_dim]` of the part's nodes: gives `[n, d]`.

        Keys and values are written to the slots of the nodes first.
        """


@dataclass(frozen=True, eq=False)
class Prompt(Part):
    """The tokens of a prompt, the first of their sequence, each of which sees those before it."""

    buffer: Buffer

    @override
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        end, num_heads, dim = k.shape
        keys, values = self.buffer.slots[layer]
        keys[:, :end], values[:, :end] = k.transpose(0, 1), v.transpose(0, 1)
        expanded = (num_heads, q.shape[1] // num_heads, end, dim)
        attended = functional.scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            keys[:, None, :end].expand(expanded).reshape(1, -1, end, dim),
            values[:, None, :end].expand(expanded).reshape(1, -1, end, dim),
            is_causal=True,
        )
        return attended[0].transpose(0, 1).reshape(end, -1)


@dataclass(frozen=True, eq=False)
class Alone(Part):
    """One tree behind the first `start` slots of a buffer; `mask` as `tree_mask` gives it."""

    buffer: Buffer
    start: int
    mask: Tensor

    @override
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self.buffer.slots[layer]
        n, h, dim = k.shape
        keys[:, self.start : self.start + n], values[:, self.start : self.start + n] = (
            k.transpose(0, 1),
            v.transpose(0, 1),
        )
        read = self.mask.shape[1]
        grouped = q.view(n, h, -1, dim).transpose(0, 1).reshape(1, h, -1, dim)
        attended = _attend(grouped, keys[None, :, :read], values[None, :, :read], self.mask[None, None])
        return attended.view(h, n, -1, dim).transpose(0, 1).reshape(n, -1)


@dataclass(frozen=True, eq=False)
class Together(Part):
    """Trees of several sequences on one shelf.

    Node i is query `queries[i]` of `num_queries` for each place of the shelf, and slot `slots[i]` of place `places[i]`;
    `mask` is `[s, 1, rounded(g * num_queries), l]`.
    """

    shelf: Tensor
    places: Tensor
    slots: Tensor
    queries: Tensor
    num_queries: int
    mask: Tensor

    @override
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self.shelf[layer]
        keys[self.places, :, self.slots], values[self.places, :, self.slots] = k, v
        (num_places, h, _, dim), read = keys.shape, self.mask.shape[3]
        asked = q.new_zeros(num_places * self.num_queries, *q.shape[1:]).index_copy_(0, self.queries, q)
        grouped = asked.view(num_places, self.num_queries, h, -1, dim).transpose(1, 2).reshape(num_places, h, -1, dim)
        attended = _attend(grouped, keys[:, :, :read], values[:, :, :read], self.mask)
        by_query = attended.view(num_places, h, self.num_queries, -1, dim).transpose(1, 2)
        return by_query.reshape(num_places * self.num_queries, -1)[self.queries]


def _attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """`queries` `[s, h, g * n, head_dim]`, padded to whole blocks and back: gives the same shape, contiguous."""
    num = queries.shape[2]
    padded = functional.pad(queries, (0, 0, 0, mask.shape[2] - num))
    return functional.scaled_dot_product_attention(padded, keys, values, attn_mask=mask)[:, :, :num].contiguous()


def tree_mask(tree: TokenTree, start: int, num_slots: int, group: int, dtype: torch.dtype) -> Tensor:
    """Additive `[rounded(g * n), num_slots]`, rows in the order (node, query of its head): what a tree behind `start`
    slots sees. Padding sees everything.
    """
    seen = torch.full((len(tree), num_slots), -torch.inf, dtype=dtype)
    seen[:, :start] = 0.0
    seen[:, start : start + len(tree)].masked_fill_(ancestor_mask(tree), 0.0)
    rows = seen.repeat_interleave(group, dim=0)
    return functional.pad(rows, (0, 0, 0, rounded(len(rows)) - len(rows)))


def alone(buffer: Buffer, tree: TokenTree, nodes: slice, *, start: int, group: int) -> Alone:
    """The part of one tree behind the first `start` slots."""
    mask = tree_mask(tree, start, rounded(start + len(tree)), group, buffer.slots.dtype)
    return Alone(nodes, buffer, start, mask)


def together(
    buffers: Sequence[Buffer], trees: Sequence[TokenTree], nodes: Sequence[slice], *, starts: Sequence[int], group: int
) -> Together:
    """The part of trees whose buffers lie on one shelf."""
    shelf = buffers[0].shelf
    assert shelf is not None, "side_by_side put them there"
    most = max(map(len, trees))
    read = rounded(max(start + len(tree) for start, tree in zip(starts, trees, strict=True)))
    mask = torch.zeros(shelf.shape[2], 1, rounded(group * most), read, dtype=shelf.dtype)
    places: list[int] = []
    slots: list[int] = []
    queries: list[int] = []
    chosen: list[int] = []
    for buffer, tree, start, own in zip(buffers, trees, starts, nodes, strict=True):
        rows = tree_mask(tree, start, read, group, shelf.dtype)
        mask[buffer.place, 0, : len(rows)] = rows
        places += [buffer.place] * len(tree)
        slots += range(start, start + len(tree))
        queries += range(buffer.place * most, buffer.place * most + len(tree))
        chosen += range(own.start, own.stop)
    return Together(
        torch.tensor(chosen), shelf, torch.tensor(places), torch.tensor(slots), torch.tensor(queries), most, mask
    )
