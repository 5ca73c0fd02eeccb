"""The live parts that a run works with, and the border at which their failures become one clear error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmspec.errors import MmspecError, ModelError
from mmspec.later import Later, arrived

if TYPE_CHECKING:
    from mmspec.cogen.copy import Copy
    from mmspec.image.drafter import ImageDrafter
    from mmspec.text.decode import TextDecoder
    from mmspec.verify.claims import ClaimExtractor

__all__ = ["Parts", "stage"]


@dataclass(frozen=True, eq=False)
class Parts:
    """What grows a tree: a text decoder, an image drafter (which may still be loading), and what reads claims."""

    text: TextDecoder
    drafter: ImageDrafter | Later[ImageDrafter]
    extractor: ClaimExtractor

    @property
    def images(self) -> ImageDrafter:
        """The image drafter, waited for where it is still loading."""
        return arrived(self.drafter)

    def prepare(self, copy: Copy) -> None:
        """Read what every text of this copy begins with: part of loading."""
        with stage("text prefill"):
            self.text.prepare(copy.template)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Turn whatever a model raises inside into a `ModelError` that names the stage; our own errors pass."""
    try:
        yield
    except MmspecError:
        raise
    except Exception as error:
        raise ModelError(f"{name} failed: {type(error).__name__}: {error}") from error
