"""Sequence ids of a llama.cpp cache: which are free, which are held, and how many tokens lie under each.

Knows ids, lengths and two commands of the cache; knows no model. A sequence that nobody holds any more gives its id
back; where ids run out, the one that was used longest ago loses what it stores, and its holder computes it anew.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Protocol

from mmspec.errors import ModelError


class Memory(Protocol):
    """The cache's commands."""

    def copy(self, source: int, target: int, length: int) -> None:
        """Let the first `length` positions of `source` be those of `target` too; nothing is computed or moved."""

    def cut(self, number: int, length: int) -> None:
        """Drop all positions of a sequence from `length` on."""


class Stored:
    """The first `length` tokens of a text, stored under an id; `number` is None once they were given up."""

    __slots__ = ("__weakref__", "length", "number")

    def __init__(self, number: int) -> None:
        self.number: int | None = number
        self.length = 0

    @property
    def id(self) -> int:
        """The id, of a sequence that was not given up."""
        assert self.number is not None, "a sequence that was given up is computed anew before it is used"
        return self.number


class Sequences:
    """`num` ids over `memory`. Sequences that were touched since `begin` are never given up."""

    def __init__(self, memory: Memory, num: int) -> None:
        self._memory = memory
        self._num = num
        self._free = list(range(num - 1, -1, -1))
        self._held: dict[int, weakref.ref[Stored]] = {}  # the last in order was used last
        self._returns: dict[int, weakref.finalize[[int], Stored]] = {}
        self._returned: deque[int] = deque()  # filled by the garbage collector, in any thread
        self._busy: set[int] = set()

    def begin(self) -> None:
        """Start of a pass: whatever was returned since the last one is free."""
        self._busy.clear()
        self._sweep()

    def take(self) -> Stored:
        """An empty sequence. Raises `ModelError` where all ids are in use in this very pass."""
        if not self._free:
            self._sweep()
        if not self._free and not self.give_up():
            raise ModelError(
                f"a pass needs more than the {self._num} sequences of llama.cpp: ask for fewer texts at once"
            )
        number = self._free.pop()
        sequence = Stored(number)
        self._held[number] = weakref.ref(sequence)
        self._returns[number] = weakref.finalize(sequence, self._returned.append, number)
        self._returns[number].atexit = False
        self._busy.add(number)
        return sequence

    def fork(self, sequence: Stored, length: int) -> Stored:
        """Another sequence with the same first `length` tokens."""
        fork = self.take()
        self._memory.copy(sequence.id, fork.id, length)
        fork.length = length
        return fork

    def cut(self, sequence: Stored, length: int) -> None:
        """Keep the first `length` tokens."""
        self._memory.cut(sequence.id, length)
        sequence.length = length

    def touch(self, sequence: Stored) -> None:
        """Take note that it is used in this pass."""
        self._held[sequence.id] = self._held.pop(sequence.id)
        self._busy.add(sequence.id)

    def give_up(self) -> bool:
        """Drop what the sequence stores that was used longest ago; False where all are in use."""
        number = next((number for number in self._held if number not in self._busy), None)
        if number is None:
            return False
        sequence = self._held[number]()
        if sequence is not None:
            sequence.number = None
        self._returns[number].detach()
        self._release(number)
        return True

    def _sweep(self) -> None:
        while self._returned:
            self._release(self._returned.popleft())

    def _release(self, number: int) -> None:
        self._memory.cut(number, 0)
        del self._held[number], self._returns[number]
        self._free.append(number)
