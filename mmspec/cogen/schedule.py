"""How the text job and the image job of a round share the machine.

A job is an iterator that does a piece of work per item. Every schedule yields the same items of each job in
the same order; only how the jobs are woven together, and how long that takes, differs. So the choice can
never change a result.
"""

from __future__ import annotations

import abc
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from typing_extensions import override

from mmspec.errors import InputError
from mmspec.types import Event

__all__ = ["Interleaved", "Schedule", "Threaded", "hidden_share"]


class Schedule(abc.ABC):
    """Runs jobs to their end and yields their events as they come."""

    @abc.abstractmethod
    def merge(self, jobs: Sequence[Iterator[Event]]) -> Iterator[Event]:
        """All events of all jobs. An error of a job is raised here; closing the iterator stops the jobs."""


class Interleaved(Schedule):
    """One item of each job in turn, in the caller's thread."""

    @override
    def merge(self, jobs: Sequence[Iterator[Event]]) -> Iterator[Event]:
        running = list(jobs)
        while running:
            for job in list(running):
                try:
                    event = next(job)
                except StopIteration:
                    running.remove(job)
                    continue
                yield event


@dataclass(frozen=True, eq=False)
class _End:
    """A job is over, by `error` if there is one."""

    error: BaseException | None


class Threaded(Schedule):
    """Each job in a thread of its own, side by side: torch releases the interpreter lock while it computes.

    Each thread computes with `threads_per_job` threads of torch's own, so that the jobs together do not ask for
    more cores than there are: waiting threads of OpenMP spin, and would slow the working ones down many times.
    `merge` returns, also on error, only when every thread has ended.
    """

    def __init__(self, *, threads_per_job: int) -> None:
        if threads_per_job < 1:
            raise InputError(f"schedule.threads_per_job={threads_per_job}: expected at least 1")
        self._threads_per_job = threads_per_job

    @override
    def merge(self, jobs: Sequence[Iterator[Event]]) -> Iterator[Event]:
        events: queue.SimpleQueue[Event | _End] = queue.SimpleQueue()
        stop = threading.Event()

        def work(job: Iterator[Event]) -> None:
            torch.set_num_threads(self._threads_per_job)
            try:
                for event in job:
                    events.put(event)
                    if stop.is_set():
                        break
            except BaseException as error:  # handed over to the caller's thread, whatever it is
                events.put(_End(error))
            else:
                events.put(_End(None))

        num_threads = torch.get_num_threads()
        threads = [threading.Thread(target=work, args=(job,), daemon=True, name="mmspec-job") for job in jobs]
        try:
            for thread in threads:
                thread.start()
            num_running = len(threads)
            while num_running:
                event = events.get()
                if not isinstance(event, _End):
                    yield event
                    continue
                num_running -= 1
                if event.error is not None:
                    raise event.error
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            torch.set_num_threads(num_threads)


def hidden_share(text_s: float, image_s: float, wall_s: float) -> float:
    """The share of the shorter job's time that passed while the longer one ran, in [0, 1].

    >>> hidden_share(4.0, 2.0, 4.5)
    0.75
    """
    shorter_s = min(text_s, image_s)
    if shorter_s <= 0.0:
        return 0.0
    return min(1.0, max(0.0, (text_s + image_s - wall_s) / shorter_s))
