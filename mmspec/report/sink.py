"""Where events go."""

import abc

from mmspec.types import Event


class Sink(abc.ABC):
    """Takes in the events of one run, in order."""

    @abc.abstractmethod
    def handle(self, event: Event) -> None:
        """Take in the next event; nothing follows `Done`."""
