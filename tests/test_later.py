"""Parts that load beside a running pipeline."""

from __future__ import annotations

import sys
import threading

import pytest

from mmspec.later import arrived, load_later


def test_part_is_waited_for() -> None:
    """Whoever asks before the part is there gets it once it is; the second part is made after the first."""
    gate, order = threading.Event(), []

    def first() -> str:
        gate.wait()
        order.append("first")
        return "drafter"

    parts = load_later({"images": first, "scorer": lambda: order.append("second")})
    assert order == []
    gate.set()
    assert arrived(parts["images"]) == "drafter"
    assert parts["scorer"].get() is None
    assert order == ["first", "second"]


def test_error_reaches_whoever_asks_and_nobody_else() -> None:
    """A part that cannot be made raises at every `get`, and the next one is made all the same."""

    def broken() -> None:
        raise ValueError("no weights")

    parts = load_later({"images": broken, "scorer": lambda: 3})
    assert parts["scorer"].get() == 3
    for _ in range(2):
        with pytest.raises(ValueError, match="no weights"):
            parts["images"].get()


def test_loaded_part_passes_as_it_is() -> None:
    """What is no `Later` has arrived already."""
    assert arrived(4) == 4


def test_switch_interval_is_given_back() -> None:
    """The interpreter's own setting holds again when everything has been made."""
    before = sys.getswitchinterval()
    load_later({"images": lambda: None})["images"].get()
    for thread in threading.enumerate():
        if thread.name == "mmspec-load":
            thread.join()
    assert sys.getswitchinterval() == before
