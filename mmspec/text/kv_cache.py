"""Keys and values of sequences in preallocated memory; sequences of one pass side by side where that pays.

Knows slots and who may write to them; knows no attention. Legend: `s` sequences, `h` key-value heads, `c` capacity in
tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

SPARE_SLOTS = 192
"""Room for text and trees that a buffer gets beyond what is asked for."""

SLOT_BLOCK = 32
"""Attention reads whole blocks of slots, and of queries: below a block the bf16 kernel sums in another order, and a
text would depend on the size of the trees beside it."""

MAX_PARTS = 2
"""Parts of a pass whose attention is computed one after another; where there would be more, buffers move together."""


def rounded(num_slots: int) -> int:
    """Slots rounded up to whole blocks."""
    return -(-num_slots // SLOT_BLOCK) * SLOT_BLOCK


class Buffer:
    """Keys and values of one sequence, `slots` `[layers, 2, h, c, head_dim]`, written in place.

    States share a buffer as long as one of them alone writes behind `length`; the first to commit goes on
    in it, another copies its prefix first. `shelf` `[layers, 2, s, h, c, head_dim]` is where the slots lie beside those
    of others, as number `place`; None where they lie alone.
    """

    def __init__(self, shape: tuple[int, int, int], capacity: int, dtype: torch.dtype) -> None:
        num_layers, num_heads, head_dim = shape
        # Zeros, since masked slots are read: what is there is multiplied by 0.
        self.slots = torch.zeros(num_layers, 2, num_heads, rounded(capacity), head_dim, dtype=dtype)
        self.length = 0
        self.writer: object = None
        self.shelf: Tensor | None = None
        self.place = 0

    @property
    def capacity(self) -> int:
        """How many tokens fit."""
        return self.slots.shape[3]

    def reserve(self, num_slots: int, limit: int) -> None:
        """Grows to hold `num_slots`, of `limit` that there will ever be; doubles, so that growing stays cheap."""
        if num_slots > self.capacity:
            self._move(min(max(num_slots + SPARE_SLOTS, 2 * self.capacity), limit), self.length)

    def copy(self, length: int, capacity: int) -> Buffer:
        """A buffer of its own with the first `length` slots."""
        other = Buffer.__new__(Buffer)
        other.slots, other.length, other.writer = self.slots, length, None
        other._move(capacity + SPARE_SLOTS, length)
        return other

    def _move(self, capacity: int, length: int) -> None:
        old = self.slots
        self.slots = torch.zeros(*old.shape[:3], rounded(capacity), old.shape[4], dtype=old.dtype)
        self.slots[:, :, :, :length] = old[:, :, :, :length]
        self.shelf, self.place = None, 0

    def put(self, shelf: Tensor, place: int) -> None:
        """Moves to a place of a shelf, which holds zeros there."""
        shelf[:, :, place, :, : self.length] = self.slots[:, :, :, : self.length]
        self.slots, self.shelf, self.place = shelf[:, :, place], shelf, place

    def keep(self, length: int, path: Sequence[int]) -> None:
        """Moves the slots of a path of nodes, written behind `length`, to directly behind it."""
        if list(path) != list(range(len(path))):
            # index_select copies before the write, so the ranges may overlap.
            source = torch.tensor(path, dtype=torch.int64) + length
            self.slots[:, :, :, length : length + len(path)] = self.slots.index_select(3, source)
        self.length = length + len(path)


def side_by_side(buffers: Sequence[Buffer], num_slots: Sequence[int]) -> list[list[int]]:
    """Parts of a pass, as places in `buffers`: all buffers of a part lie on one shelf, or it is one buffer alone.

    `num_slots` are those that the pass needs of each. Buffers of about the same size move to a shelf of their own where
    they would make too many parts, or where more than half of their shelf is not in this pass.
    """
    by_size: dict[int, list[int]] = {}
    for index, needed in enumerate(num_slots):
        by_size.setdefault((needed // 256).bit_length(), []).append(index)
    parts = []
    for alike in by_size.values():
        own = _parts(buffers, alike)
        if len(own) > MAX_PARTS:
            _shelve([buffers[index] for index in alike], max(num_slots[index] for index in alike))
            own = [alike]
        parts += own
    return parts


def _parts(buffers: Sequence[Buffer], indices: Sequence[int]) -> list[list[int]]:
    by_shelf: dict[int, list[int]] = {}
    for index in indices:
        shelf = buffers[index].shelf
        by_shelf.setdefault(id(buffers[index]) if shelf is None else id(shelf), []).append(index)
    parts = []
    for own in by_shelf.values():
        shelf = buffers[own[0]].shelf
        full = shelf is None or 2 * len(own) >= shelf.shape[2]
        parts += [own] if full else [[index] for index in own]
    return parts


def _shelve(buffers: Sequence[Buffer], num_slots: int) -> None:
    num_layers, _, num_heads, _, head_dim = buffers[0].slots.shape
    shape = (num_layers, 2, len(buffers), num_heads, rounded(num_slots + SPARE_SLOTS), head_dim)
    shelf = torch.zeros(shape, dtype=buffers[0].slots.dtype)
    for place, buffer in enumerate(buffers):
        buffer.put(shelf, place)
