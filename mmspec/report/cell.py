"""One run of a sweep, as the comparison of the sweep shows it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cell"]


@dataclass(frozen=True)
class Cell:
    """One run of a sweep: the values of what was swept, and its result folder or the error instead of one."""

    values: Mapping[str, str]
    folder: Path | None
    error: str = ""
