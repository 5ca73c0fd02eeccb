"""What a run looks like without a terminal: plain lines, or the result's path alone when quiet.

`live.LiveTerminal` is the one for a real terminal.
"""

import abc
import sys
from pathlib import Path
from typing import TextIO

from mmspec.report.sink import Sink
from mmspec.types import (
    ClaimScore,
    Done,
    Event,
    Loaded,
    Pruned,
    Regrown,
    Repaired,
    Result,
    RoundStarted,
    TextGrown,
    Verdict,
)

_LINE_CHARS = 100
_INSTANT_S = 0.05  # parts that are there sooner hold no model
_SENTENCE_ENDS = tuple(".!?…\n。\uff01\uff1f")


class Terminal(Sink):
    """A sink that speaks before and after the run, too."""

    @abc.abstractmethod
    def start(self, title: str) -> None:
        """Say what is about to run."""

    @abc.abstractmethod
    def written(self, folder: Path) -> None:
        """Say where the result is; called after `close`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Leave the terminal as it was found; called once, whatever became of the run."""


class QuietTerminal(Terminal):
    """Prints the path of the result folder and nothing else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def start(self, title: str) -> None:
        """Say nothing."""

    def handle(self, event: Event) -> None:
        """Say nothing."""

    def close(self) -> None:
        """Say nothing."""

    def written(self, folder: Path) -> None:
        """Print the path."""
        print(folder, file=self._stream, flush=True)


class LineTerminal(Terminal):
    """One line for each thing that happened; a branch's text whenever it ends a sentence or something else happens."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pending: dict[str, str] = {}

    def start(self, title: str) -> None:
        """Print the title."""
        self._print(title)

    def handle(self, event: Event) -> None:
        """Print what happened."""
        if isinstance(event, TextGrown):
            self._grow(event.branch_id, event.chunk)
            return
        line = describe(event)
        if line:
            self._flush_text()
            self._print(line)
        if isinstance(event, Done):
            self._flush_text()
            for summary in summary_of(event.result):
                self._print(summary)

    def close(self) -> None:
        """Print the text that is still waiting."""
        self._flush_text()

    def written(self, folder: Path) -> None:
        """Print the path of every file a person opens."""
        for path in sorted(path for path in folder.iterdir() if path.is_file()):
            self._print(str(path))

    def _grow(self, branch_id: str, chunk: str) -> None:
        text = self._pending.get(branch_id, "") + chunk
        self._pending[branch_id] = text
        if text.rstrip(" ").endswith(_SENTENCE_ENDS):
            self._flush_text(branch_id)
        elif len(text) > _LINE_CHARS and " " in text.strip():
            line, _, rest = text.rpartition(" ")
            self._pending[branch_id] = line
            self._flush_text(branch_id)
            self._pending[branch_id] = rest

    def _flush_text(self, *branch_ids: str) -> None:
        for branch_id in branch_ids or tuple(self._pending):
            words = self._pending.pop(branch_id).split()
            if words:
                self._print(f"  {branch_id} | {' '.join(words)}")

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


def describe(event: Event) -> str | None:
    """One line on an event, None for those that are too many to read or have a form of their own."""
    match event:
        case Loaded() if event.seconds_s < _INSTANT_S:
            return None
        case Loaded():
            return f"loaded {event.part} in {event.seconds_s:.1f} s"
        case RoundStarted():
            return f"round {event.round}: {len(event.branch_ids)} live ({', '.join(event.branch_ids)})"
        case Pruned(draft_index=None):
            return f"pruned {event.branch_id}: {event.reason}"
        case Pruned():
            return f"pruned {event.branch_id}/{event.draft_index}: {event.reason}"
        case Regrown():
            return f"regrown {event.branch_id} from {event.parent_id}"
        case Repaired():
            return f"repaired {event.branch_id}/{event.draft_index}: {event.claim} (noise {event.level:.2f})"
        case _:
            return None


def summary_of(result: Result) -> list[str]:
    """The lines that end a run: text, verdict and figures."""
    lines = [f"text: {result.text}"]
    if result.claims:
        lines.append(verdict_of(result.claims, verified=result.verified))
    seconds = {
        name: value for name, value in result.metrics.items() if name.endswith("_s") and not name.endswith("per_s")
    }
    figures = {name: value for name, value in result.metrics.items() if name not in seconds and value != ""}
    if seconds:
        lines.append(f"seconds: {', '.join(f'{name[:-2]} {value:.2f}' for name, value in seconds.items())}")
    if figures:
        lines.append(f"figures: {', '.join(f'{name} {_number(value)}' for name, value in figures.items())}")
    if result.partial:
        lines.append("interrupted: this is what was verified so far")
    return lines


def verdict_of(claims: tuple[ClaimScore, ...], *, verified: bool) -> str:
    """How many claims held, and which were contradicted by what."""
    counts = [
        f"{number} {verdict.value}" for verdict in Verdict if (number := sum(s.verdict is verdict for s in claims))
    ]
    failed = [
        f"{score.claim.phrase} (looks like {score.looks_like})" if score.looks_like else score.claim.phrase
        for score in claims
        if score.verdict is Verdict.FAILED
    ]
    line = f"{'verified' if verified else 'not verified'}: of {len(claims)} claims {', '.join(counts)}"
    return f"{line}; contradicted: {', '.join(dict.fromkeys(failed))}" if failed else line


def _number(value: float | int | str) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def terminal(*, quiet: bool) -> Terminal:
    """The terminal that fits standard output."""
    if quiet:
        return QuietTerminal(sys.stdout)
    if sys.stdout.isatty():
        from mmspec.report.live import LiveTerminal

        return LiveTerminal()
    return LineTerminal(sys.stdout)
