"""Where the wall time of a run goes, by name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Clock"]


class Clock:
    """Adds up seconds by name ("text", "image", "verify"); runs from its making on.

    Each name is to be measured from one thread at a time.
    """

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._spent_s: dict[str, float] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the time spent inside to `name`."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._spent_s[name] = self._spent_s.get(name, 0.0) + time.perf_counter() - begun

    @property
    def total_s(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self._started

    def seconds(self, name: str) -> float:
        """Seconds measured under `name` so far."""
        return self._spent_s.get(name, 0.0)

    def metrics(self) -> dict[str, float]:
        """`<name>_s` for every name, and `total_s`."""
        return {f"{name}_s": seconds for name, seconds in sorted(self._spent_s.items())} | {"total_s": self.total_s}
