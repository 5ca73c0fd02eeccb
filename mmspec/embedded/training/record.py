"""What a training run leaves behind besides weights: its log, its curve and its origin."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Log", "table", "write_origin"]


class Log:
    """Means of the figures between two flushes, as lines of `log.jsonl`, and a curve of the loss."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "log.jsonl"
        self._sums: dict[str, float] = {}
        self._count = 0
        self._step = 0
        self._last: dict[str, float] = {}

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """Take up the figures of one step."""
        for name, value in figures.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._count += 1
        self._step = step

    def flush(self, elapsed_s: float) -> None:
        """Write the means since the last flush; does nothing without a step in between."""
        if not self._count:
            return
        self._last = {name: total / self._count for name, total in self._sums.items()}
        self._append({"step": self._step, "elapsed_s": round(elapsed_s, 1), **self._last})
        self._sums, self._count = {}, 0

    def evaluation(self, step: int, figures: Mapping[str, float]) -> None:
        """Write held-out figures."""
        self._append({"step": step, "held_out": dict(figures)})

    def summary(self) -> str:
        """The last means, for a person."""
        return ", ".join(f"{name} {value:.4f}" for name, value in self._last.items())

    def curve(self) -> None:
        """Draw `curve.png` from everything logged so far."""
        from matplotlib.figure import Figure

        rows = [json.loads(line) for line in self._path.read_text().splitlines()]
        rows = [row for row in rows if "loss" in row]
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        axes.plot([row["step"] for row in rows], [row["loss"] for row in rows])
        axes.set(xlabel="step", ylabel="loss", title=self._folder.name)
        axes.grid(alpha=0.3)
        figure.savefig(self._folder / "curve.png")

    def _append(self, row: Mapping[str, object]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def write_origin(folder: Path, origin: Mapping[str, object]) -> None:
    """Write `origin.json` beside exported weights: conf, seed, data version and whatever made them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "origin.json").write_text(json.dumps(dict(origin), indent=2, sort_keys=True) + "\n")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of a `results.json` for a person, in Markdown: one table for all rows with the same first figure.

    >>> print(table([{"method": "a", "figures": {"auc": 0.5}}]), end="")
    | what | auc |
    |---|---|
    | a | 0.5 |
    """
    lines: list[str] = []
    for first in dict.fromkeys(next(iter(row["figures"])) for row in rows):
        chosen = [row for row in rows if first in row["figures"]]
        names = list(dict.fromkeys(name for row in chosen for name in row["figures"]))
        lines += ["", "| what | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for row in chosen:
            cells = [f"{row['figures'][name]:.4g}" if name in row["figures"] else "" for name in names]
            lines.append(f"| {row['method']} | " + " | ".join(cells) + " |")
    return "\n".join(lines[1:]) + "\n"
