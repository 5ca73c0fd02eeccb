"""Which sequence of a cache stores what, and what is given up when ids run out."""

from __future__ import annotations

import gc

import pytest

from mmspec.errors import ModelError
from mmspec.text.sequences import Sequences


class Notes:
    """A cache that notes its commands."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, int, int, int]] = []

    def copy(self, source: int, target: int, length: int) -> None:
        """See `Memory.copy`."""
        self.commands.append(("copy", source, target, length))

    def cut(self, number: int, length: int) -> None:
        """See `Memory.cut`."""
        self.commands.append(("cut", number, number, length))


def test_a_fork_shares_the_first_tokens() -> None:
    """Nothing is computed or moved for it."""
    notes = Notes()
    sequences = Sequences(notes, 3)
    first = sequences.take()
    sequences.cut(first, 5)
    fork = sequences.fork(first, 4)
    assert (first.length, fork.length) == (5, 4) and first.id != fork.id
    assert ("copy", first.id, fork.id, 4) in notes.commands


def test_what_nobody_holds_is_free_again() -> None:
    """The garbage collector gives ids back."""
    notes = Notes()
    sequences = Sequences(notes, 1)
    number = sequences.take().id
    gc.collect()
    sequences.begin()
    assert ("cut", number, number, 0) in notes.commands
    assert sequences.take().id == number


def test_the_one_used_longest_ago_is_given_up() -> None:
    """But none that this pass has touched; and its id is not given back twice."""
    sequences = Sequences(Notes(), 3)
    held = [sequences.take() for _ in range(3)]
    sequences.begin()
    sequences.touch(held[0])
    newest = sequences.take()
    assert held[1].number is None and held[0].number is not None and held[2].number is not None
    # An id that was given up is not returned a second time when its old holder goes.
    del held[1]
    gc.collect()
    sequences.begin()
    other = sequences.take()
    assert other.id != newest.id


def test_a_pass_that_needs_more_than_there_are_is_refused() -> None:
    """In one line, and nothing is given up."""
    sequences = Sequences(Notes(), 2)
    held = [sequences.take(), sequences.take()]
    with pytest.raises(ModelError, match="more than the 2 sequences"):
        sequences.take()
    assert all(sequence.number is not None for sequence in held)
