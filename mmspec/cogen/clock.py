"""Where the wall time of a run goes, by name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from mmspec.types import Span

__all__ = ["Clock"]


class Clock:
    """Adds up seconds by name ("text", "image", "verify"); runs from its making on.

    Each name is to be measured from one thread at a time.
    """

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._spans: list[Span] = []

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the time spent inside to `name`."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._spans.append(Span(name, begun, time.perf_counter()))

    @property
    def total_s(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self._started

    def seconds(self, name: str) -> float:
        """Seconds measured under `name` so far."""
        return sum(span.seconds_s for span in self._spans if span.name == name)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every measured span, in the order in which they ended."""
        return tuple(self._spans)

    def metrics(self) -> dict[str, float]:
        """`<name>_s` for every name, and `total_s`."""
        names = sorted({span.name for span in self._spans})
        return {f"{name}_s": self.seconds(name) for name in names} | {"total_s": self.total_s}
