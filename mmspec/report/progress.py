"""How far a batch is: a bar in a terminal, a line for each row elsewhere, nothing but the folder when quiet."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

__all__ = ["Progress", "clock", "topic_of", "verdict_of_row"]

_TOPIC_CHARS = 60


class Progress:
    """Says what became of each row, and when the last one will be there."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self._bar = Bar(
            BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"),
            console=self._console, disable=quiet or not self._console.is_terminal,
        )  # fmt: skip
        self._total = self._before = self._done = 0

    def begin(self, folder: Path, *, total: int, done: int) -> None:
        """Say how many rows there are, and how many were done before."""
        self._total, self._before, self._done = total, done, done
        self._started_s = time.perf_counter()
        there = f", {done} there already" if done else ""
        self._say(f"{total} prompt{'s' if total != 1 else ''}{there}: {folder}")
        self._task = self._bar.add_task("", total=total, completed=done, left="")
        if done < total:
            self._bar.start()

    def row(self, outcome: Mapping[str, Any]) -> None:
        """Say what became of a row: its line of `results.jsonl`."""
        self._done += 1
        left = self._left()
        self._bar.update(self._task, completed=self._done, left=left)
        took = f"{outcome['seconds_s']:.1f} s"
        line = f"{self._done}/{self._total}  {verdict_of_row(outcome)}  {took}  {topic_of(outcome)}"
        self._say(line if self._bar.live.is_started or not left else f"{line}  ({left})")

    def close(self) -> None:
        """Leave the terminal as it was found."""
        self._bar.stop()

    def written(self, folder: Path, outcomes: Sequence[Mapping[str, Any]]) -> None:
        """Say which rows failed, on standard error, and where everything is."""
        failed = [outcome for outcome in outcomes if outcome["status"] == "failed"]
        for outcome in failed:
            sys.stderr.write(f"line {outcome['line']} failed: {outcome['error']} ({topic_of(outcome)})\n")
        if self._quiet:
            sys.stdout.write(f"{folder}\n")
        else:
            for name in ("results.jsonl", "index.html"):
                self._say(str(folder / name))

    def _left(self) -> str:
        """When the rest will be there, at the pace of the rows so far, loading included."""
        num_left = self._total - self._done
        if not num_left:
            return ""
        pace_s = (time.perf_counter() - self._started_s) / (self._done - self._before)
        return f"{clock(num_left * pace_s)} left"

    def _say(self, line: str) -> None:
        if not self._quiet:
            self._console.print(line, markup=False)


def verdict_of_row(outcome: Mapping[str, Any]) -> str:
    """A row's fate in a few words, with the reason where it failed."""
    if outcome["status"] == "failed":
        return f"failed: {outcome['error']}"
    return "verified" if outcome["verified"] else "not verified"


def topic_of(outcome: Mapping[str, Any]) -> str:
    """What a row asks for, on one line, cut where it is long."""
    words = " ".join((outcome["prompt"] or outcome["text"] or outcome["image"]).split())
    return words if len(words) <= _TOPIC_CHARS else words[: _TOPIC_CHARS - 2].rstrip() + " …"


def clock(seconds_s: float) -> str:
    """A duration for a person: `42 s`, `3 min 20 s`, `2 h 05 min`."""
    seconds = round(seconds_s)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02} min"
