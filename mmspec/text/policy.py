"""How far a request trusts its drafter: when it is told off, when it goes on alone, how long it waits.

Knows counts of accepted tokens and the clock; knows no model. The text never depends on any of this where the rule
of acceptance does not look at drafts (greedy, shared noise); under rejection sampling its distribution does not.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from mmspec.errors import InputError, ModelError
from mmspec.text.types import TextMetrics

__all__ = ["DraftPolicy", "Watch", "acceptance"]

T = TypeVar("T")

RECENT_ROUNDS = 8
"""Drafted rounds that a request is judged by; before that many it is not judged."""


@dataclass(frozen=True)
class DraftPolicy:
    """`policy=relaxed|standard|strict`, the half that is about drafts.

    A round rejects when it proposed tokens and none was accepted. Over a share of `alert_rejection` the request
    alerts, and its trees are then only one level deeper than what was accepted lately. Under an acceptance of
    `acceptance_floor` the target goes on alone. A drafter that takes longer than `timeout_s` for one proposal
    counts as hanging: it is left behind, and asked no more. Raises `InputError` for values out of range.
    """

    alert_rejection: float = 1.0
    acceptance_floor: float = 0.0
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("alert_rejection", "acceptance_floor"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"policy.drafts.{name}={getattr(self, name)}: expected a share in [0, 1]")
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise InputError(f"policy.drafts.timeout_s={self.timeout_s}: expected more than 0, or null for no limit")

    def depth(self, metrics: TextMetrics, recent: tuple[int, ...], max_depth: int) -> int:
        """How deep the next tree may be, 0 for none. `recent` holds accepted tokens of the last drafted rounds."""
        if len(recent) < RECENT_ROUNDS:
            return max_depth
        if acceptance(metrics) < self.acceptance_floor:
            return 0
        if 1.0 - acceptance(metrics) > self.alert_rejection:
            return min(max_depth, max(recent) + 1)
        return max_depth

    def alert(self, metrics: TextMetrics, recent: tuple[int, ...]) -> str | None:
        """What a person should hear about a request, once."""
        if len(recent) < RECENT_ROUNDS:
            return None
        if acceptance(metrics) < self.acceptance_floor:
            return f"target alone: drafts were accepted less often than {self.acceptance_floor:.0%}"
        if 1.0 - acceptance(metrics) > self.alert_rejection:
            return f"more than {self.alert_rejection:.0%} of the drafts were rejected: trees follow what is accepted"
        return None


def acceptance(metrics: TextMetrics) -> float:
    """Share of the drafted rounds that accepted a token.

    >>> acceptance(TextMetrics(proposed=(4, 2), accepted=(3, 1)))
    0.75
    """
    return metrics.accepted[0] / metrics.proposed[0] if metrics.proposed and metrics.proposed[0] else 1.0


@dataclass(eq=False)
class Watch:
    """Runs calls of a drafter in a thread beside, and gives up on one that takes too long."""

    timeout_s: float | None
    _worker: _Worker | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def call(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises; a `ModelError` if it hangs, at once where it has not come back since."""
        if self.timeout_s is None:
            return work()
        with self._lock:
            if self._worker is None:
                self._worker = _Worker()
            worker = self._worker
        if worker.hangs:
            raise ModelError("drafter hangs: it has not come back from an earlier proposal")
        return worker.run(work, self.timeout_s)


class _Worker:
    """One daemon thread that does one thing after the other."""

    def __init__(self) -> None:
        self.hangs = False
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True, name="mmspec-draft").start()

    def _work(self) -> None:
        while True:
            self._jobs.get()()

    def run(self, work: Callable[[], T], timeout_s: float) -> T:
        outcome: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
        num_threads = torch.get_num_threads()

        def job() -> None:
            # How many threads torch computes with is a setting of the thread that asks.
            torch.set_num_threads(num_threads)
            try:
                outcome.put((work(), None))
            except BaseException as error:  # handed over to the caller's thread, whatever it is
                outcome.put((None, error))

        self._jobs.put(job)
        try:
            value, error = outcome.get(timeout=timeout_s)
        except queue.Empty:
            self.hangs = True
            raise ModelError(f"drafter hangs: no proposal within {timeout_s:g} s") from None
        if error is not None:
            raise error
        return value  # type: ignore[return-value]  # None only where `work` returns None
