"""What a pipeline is: the contract between the command line, the Python API and `pipelines/`.

Knows the order "built once from configuration, then called with live requests"; knows no model, no
configuration library and no file format.
"""

import abc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from mmspec.errors import InputError
from mmspec.types import Done, Event, Request, Result


class Pipeline(abc.ABC):
    """Something that answers one `Request` with a stream of events.

    Built once by configuration; holds models and settings, and nothing of a single request. A subclass
    writes `stream` alone.

    `later` names the parts that its constructor also takes as a `mmspec.later.Later`: the text may begin while
    they are still loading.
    """

    later: ClassVar[tuple[str, ...]] = ()

    def prompt_alone(self, request: Request) -> None:
        """For pipelines that cannot start from a picture or a text: raises `InputError` where one is given."""
        for key in ("image", "text"):
            if getattr(request, key):
                raise InputError(f"{key} is given, but {type(self).__name__} starts from a prompt: use pipeline=cogen")

    @abc.abstractmethod
    def stream(self, request: Request) -> Iterator[Event]:
        """Yield what happens, as it happens; the last event is `Done(result)`, and the only one of its kind.

        Closing the iterator cancels the request: threads that the pipeline started end within one model
        step. Equal requests give equal texts and pixels.
        """

    def __call__(self, request: Request) -> Result:
        """Consume `stream` and return the result of its `Done` event."""
        for event in self.stream(request):
            if isinstance(event, Done):
                return event.result
        raise AssertionError(f"{type(self).__name__}.stream ended without a Done event")


class Job(abc.ABC):
    """Something that runs without a prompt and leaves files: a training or a benchmark."""

    @abc.abstractmethod
    def run(self, folder: Path) -> None:
        """Do the work and write every file below `folder`, which exists and is empty.

        Progress goes to `logging`, one INFO line per stage.
        """


def named(**parts: Any) -> dict[str, Any]:
    """Several parts under names of their own, in their order: how a configuration gives a pipeline a mapping."""
    return parts
