"""Parts that are still loading when a pipeline begins: whoever needs one waits for it.

Knows threads and the clock; knows no model.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

__all__ = ["Later", "arrived", "load_later"]

T = TypeVar("T")

_SWITCH_S = 0.0002  # importing holds the interpreter; at the usual 5 ms a model beside it would stand still


class Later(Generic[T]):
    """A part that is made in another thread."""

    def __init__(self) -> None:
        self._future: Future[T] = Future()
        self.seconds_s = 0.0

    def get(self) -> T:
        """The part, as soon as it is there. Raises whatever making it raised."""
        return self._future.result()

    def make(self, maker: Callable[[], T]) -> None:
        """Make the part here and now, for everybody who waits; an error is theirs."""
        started = time.perf_counter()
        try:
            part = maker()
        except BaseException as error:  # whatever it is, it belongs to who asks for the part
            self._future.set_exception(error)
            return
        self.seconds_s = time.perf_counter() - started
        self._future.set_result(part)


def arrived(part: T | Later[T]) -> T:
    """The part itself, waited for where it is still loading."""
    return part.get() if isinstance(part, Later) else part


def load_later(makers: Mapping[str, Callable[[], Any]]) -> dict[str, Later[Any]]:
    """Start making these parts, one after the other, in one thread beside this one."""
    parts: dict[str, Later[Any]] = {name: Later() for name in makers}

    def work() -> None:
        with _short_switches():
            for name, maker in makers.items():
                parts[name].make(maker)

    threading.Thread(target=work, daemon=True, name="mmspec-load").start()
    return parts


@contextmanager
def _short_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
