"""Where the requests of a batch are computed.

Knows how a pipe is loaded and called; knows no file. A new place to compute is one class and one option of the
group `executor`.
"""

import abc
import dataclasses
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmspec.answer import Answer
from mmspec.api import Pipe, build, first_line
from mmspec.configuration import settings_of
from mmspec.errors import MmspecError
from mmspec.pipeline import Pipeline
from mmspec.types import Request

__all__ = ["Executor", "Failure", "Local", "Plan", "Success", "attempt"]


@dataclass(frozen=True)
class Plan:
    """What every worker loads: a resolved configuration, and the overrides that led to it. Plain data."""

    config: Mapping[str, Any]
    overrides: tuple[str, ...]

    def load(self) -> Pipe:
        """Build the pipeline with its models; raises `MmspecError` where they cannot be had."""
        pipeline = build(self.config["pipeline"], on_loaded=lambda _: None)
        assert isinstance(pipeline, Pipeline)
        return Pipe(pipeline, config=self.config, settings=settings_of(self.config), overrides=self.overrides)


@dataclass(frozen=True)
class Success:
    """An answer, without the drafts' latents, and how long it took."""

    answer: Answer
    seconds_s: float


@dataclass(frozen=True)
class Failure:
    """Why there is no answer, in one line; `details` is the traceback of an error that nobody foresaw."""

    error: str
    seconds_s: float
    details: str = ""


class Executor(abc.ABC):
    """Computes the requests of a batch."""

    @abc.abstractmethod
    def run(self, plan: Plan, requests: Sequence[Request]) -> Iterator[tuple[int, Success | Failure]]:
        """Yield the index of each request with what became of it, in any order, each as soon as it is there.

        Raises `MmspecError` where nothing at all can be computed. `KeyboardInterrupt` ends it; what was being
        computed is lost. Closing the iterator gives back what it occupied.
        """


class Local(Executor):
    """One request after the other, in this process."""

    def run(self, plan: Plan, requests: Sequence[Request]) -> Iterator[tuple[int, Success | Failure]]:
        """In order."""
        pipe = plan.load()
        for index, request in enumerate(requests):
            yield index, attempt(pipe, request)


def attempt(pipe: Pipe, request: Request) -> Success | Failure:
    """Answer a request; whatever goes wrong is its own matter and not the other requests'.

    An answer that an interruption cut short is none: raises `KeyboardInterrupt`.
    """
    started = time.perf_counter()
    try:
        answer = pipe(**dataclasses.asdict(request))
    except MmspecError as error:
        return Failure(str(error), time.perf_counter() - started)
    except Exception as error:  # a bug, or no memory: one request of many
        details = traceback.format_exc()
        return Failure(f"{type(error).__name__}: {first_line(error)}", time.perf_counter() - started, details)
    if answer.partial:
        raise KeyboardInterrupt
    return Success(dataclasses.replace(answer, tree=()), time.perf_counter() - started)
