"""Schedules weave jobs together without changing them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from mmspec.cogen.schedule import Interleaved, Schedule, Threaded, hidden_share
from mmspec.types import Event, TextGrown

SCHEDULES = [Interleaved(), Threaded(threads_per_job=1)]


def job(name: str, num_items: int, *, delay_s: float = 0.0) -> Iterator[Event]:
    """A job of some items."""
    for number in range(num_items):
        time.sleep(delay_s)
        yield TextGrown(name, str(number), 1)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: type(schedule).__name__)
def test_every_item_comes_once_and_in_its_jobs_order(schedule: Schedule) -> None:
    """Three jobs of unequal length, one of them empty."""
    merged = list(schedule.merge([job("a", 5), job("b", 2), job("c", 0)]))
    for name, count in (("a", 5), ("b", 2), ("c", 0)):
        chunks = [event.chunk for event in merged if isinstance(event, TextGrown) and event.branch_id == name]
        assert chunks == [str(number) for number in range(count)]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: type(schedule).__name__)
def test_error_of_a_job_reaches_the_caller(schedule: Schedule) -> None:
    """Its type and message survive the thread."""

    def failing() -> Iterator[Event]:
        yield TextGrown("a", "0", 1)
        raise ValueError("in the job")

    with pytest.raises(ValueError, match="in the job"):
        list(schedule.merge([failing(), job("b", 3)]))


def test_closing_ends_the_threads() -> None:
    """A consumer that stops early leaves no thread behind."""
    merged = Threaded(threads_per_job=1).merge([job("a", 10_000, delay_s=0.001), job("b", 10_000, delay_s=0.001)])
    next(merged)
    merged.close()  # type: ignore[attr-defined]  # it is a generator
    assert not [thread for thread in threading.enumerate() if thread.name == "mmspec-job"]


def test_threads_run_side_by_side() -> None:
    """Two jobs that wait 0.1 s each take clearly less than 0.2 s together."""
    begun = time.perf_counter()
    list(Threaded(threads_per_job=1).merge([job("a", 1, delay_s=0.1), job("b", 1, delay_s=0.1)]))
    assert time.perf_counter() - begun < 0.18


def test_hidden_share_without_a_second_job_is_zero() -> None:
    """Nothing can be hidden behind nothing."""
    assert hidden_share(3.0, 0.0, 3.0) == 0.0
