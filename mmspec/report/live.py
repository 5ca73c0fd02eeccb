"""A run in a real terminal: the branches grow in a table, the pruned ones struck through with the reason."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from mmspec.report.terminal import Terminal, describe, summary_of
from mmspec.types import (
    ClaimScore,
    Done,
    Event,
    Loaded,
    PreviewReady,
    Pruned,
    Regrown,
    Repaired,
    RoundStarted,
    Scored,
    TextGrown,
    Verdict,
)

_TAIL_CHARS = 300  # of a branch's text
_REFRESHES_PER_S = 8
_MARKS = {Verdict.FAILED: "red", Verdict.UNSURE: "yellow", Verdict.UNJUDGED: "dim"}


@dataclass
class _Row:
    text: str = ""
    picture: str = ""
    claims: str = ""
    reason: str | None = None


class LiveTerminal(Terminal):
    """Redraws a table of branches while they grow; leaves the text, the verdict and the paths."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._live: Live | None = None
        self._rows: dict[str, _Row] = {}
        self._round = 0
        self._num_tokens = 0
        self._started_s = time.perf_counter()

    def start(self, title: str) -> None:
        """Print the title."""
        self._console.print(title, style="bold", markup=False)

    def handle(self, event: Event) -> None:
        """Take the event into the table, or print it if the table is not there yet."""
        match event:
            case Loaded():
                if line := describe(event):
                    self._console.print(line, style="dim", markup=False)
                return
            case Done():
                self.close()
                for line in summary_of(event.result):
                    self._console.print(line, markup=False)
                return
            case RoundStarted():
                self._round = event.round
                for branch_id in event.branch_ids:
                    self._row(branch_id)
            case TextGrown():
                self._row(event.branch_id).text += event.chunk
                self._num_tokens += event.num_tokens
            case PreviewReady():
                self._row(event.branch_id).picture = f"step {event.step}, noise {event.preview.noise_level:.2f}"
            case Scored():
                self._row(event.branch_id).claims = _claims(event.scores)
            case Pruned(draft_index=None):
                self._row(event.branch_id).reason = event.reason
            case Pruned():
                self._row(event.branch_id).picture = f"draft {event.draft_index} pruned: {event.reason}"
            case Regrown():
                self._row(event.branch_id)
            case Repaired():
                self._row(event.branch_id).picture = f"repairing: {event.claim}"
        if self._live is None:
            self._started_s = time.perf_counter()
            self._live = Live(
                console=self._console,
                get_renderable=self._table,
                refresh_per_second=_REFRESHES_PER_S,
                vertical_overflow="ellipsis",
            )
            self._live.start()

    def close(self) -> None:
        """Stop redrawing."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def written(self, folder: Path) -> None:
        """Print the path of every file a person opens."""
        for path in sorted(path for path in folder.iterdir() if path.is_file()):
            self._console.print(str(path), markup=False, soft_wrap=True, style="cyan")

    def _row(self, branch_id: str) -> _Row:
        return self._rows.setdefault(branch_id, _Row())

    def _table(self) -> Group:
        elapsed_s = time.perf_counter() - self._started_s
        live = sum(row.reason is None for row in self._rows.values())
        rate = f"{self._num_tokens / elapsed_s:.1f} tokens/s" if elapsed_s > 0 and self._num_tokens else ""
        head = f"round {self._round}   {live} live, {len(self._rows) - live} pruned   {elapsed_s:.0f} s   {rate}"
        table = Table(box=None, expand=True, show_header=False, padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(ratio=3)
        table.add_column(ratio=1)
        for branch_id, row in self._rows.items():
            words = " ".join(row.text.split())[-_TAIL_CHARS:]
            if row.reason is None:
                table.add_row(
                    f"[bold]{escape(branch_id)}[/]", Text(words), f"{escape(row.picture)}\n{row.claims}".strip()
                )
            else:
                table.add_row(Text(branch_id, "red"), Text(words[-80:], "dim strike"), Text(row.reason, "red"))
        return Group(Text(head, "dim"), table)


def _claims(scores: Sequence[ClaimScore]) -> str:
    """How many claims hold, and each that does not, with its probability."""
    by_phrase = {score.claim.phrase: score for score in scores}.values()  # prompt and text may say the same
    held = sum(score.verdict is Verdict.HELD for score in by_phrase)
    others = [
        f"[{_MARKS[score.verdict]}]{escape(score.claim.phrase)} {score.probability:.2f}[/]"
        for score in by_phrase
        if score.verdict is not Verdict.HELD
    ]
    return ", ".join([f"[green]{held} of {len(by_phrase)} held[/]", *others])
