"""What a call from Python gives back: the result, with what is needed to look at it and to keep it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmspec.report import Pictures, Provenance, ResultFolder, folder_name
from mmspec.types import Result

__all__ = ["Answer"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer(Result):
    """A `Result` that shows itself: in a notebook, as a page, as a folder of files.

    `trace` is plain data of schema `mmspec.trace/2` (`mmspec.cogen.trace`), `pictures` are the last previews of all
    drafts, RGB, by branch id and draft index, and `provenance` says what it was made with.
    """

    trace: Mapping[str, Any]
    pictures: Pictures
    provenance: Provenance

    def report(self) -> str:
        """The page of the run: one HTML document that needs nothing beside it."""
        from mmspec.report.page import report_page

        return report_page(
            self.trace,
            images=[pair.image for pair in self.pairs],
            pictures=self.pictures,
            provenance=self.provenance,
        )

    def save(self, folder: str | Path | None = None, *, metadata: bool = True) -> Path:
        """Write pictures, texts, page and trace to a new folder, whole or not at all; returns its path.

        Without `folder`, one is named after the prompt below `outputs`. A folder that is there already is left as it
        is, and this one gets a number. `metadata=False` leaves prompt, seed and models out of the pictures. Raises
        `OutputError` where it cannot be written.
        """
        request = self.request
        if folder is None:
            name = folder_name(request.prompt or request.text, seed=request.seed, at=datetime.datetime.now())
            folder = Path("outputs") / name
        place = Path(folder).expanduser().absolute()
        with ResultFolder(place.parent, name=place.name) as made:
            return made.write(
                self, trace=self.trace, pictures=self.pictures, provenance=self.provenance, metadata=metadata
            )

    def _repr_html_(self) -> str:
        from mmspec.report.page import report_card

        return report_card(self.trace, images=[pair.image for pair in self.pairs])
