"""A run's events, result and trace, without models."""

from dataclasses import dataclass
from typing import Any

import pytest

from mmspec.cogen.trace import TraceRecorder
from mmspec.report import Previews, Provenance
from mmspec.types import Done, Event, Request, Result
from tests.echo import Echo, Voice


@dataclass(frozen=True)
class Run:
    """What the report is made from."""

    events: tuple[Event, ...]
    result: Result
    trace: dict[str, Any]
    previews: Previews


def run_of(request: Request, *, ending: str = "good") -> Run:
    """The run of a request."""
    events = tuple(Echo(voice=Voice(word="echo"), num_branches=3, ending=ending).stream(request))
    recorder, previews = TraceRecorder(), Previews()
    for event in events:
        recorder.record(event)
        previews.handle(event)
    done = events[-1]
    assert isinstance(done, Done)
    return Run(events, done.result, recorder.trace(), previews)


@pytest.fixture
def provenance() -> Provenance:
    """A small configuration."""
    config = {"seed": 7, "lm": {"target_model_path": "wheel:toy"}, "diffusion": {"path": "builtin:toy"}, "quiet": False}
    return Provenance(config=config, overrides=("seed=7",))
