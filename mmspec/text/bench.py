"""Speed of ways to decode, side by side: a row per method and number of concurrent requests.

Knows how to time and what to report; a method is a function from prompts to numbers of tokens.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

Method = Callable[[Sequence[str]], tuple[int, int]]
"""From prompts, all requested at once, to (tokens written, target passes)."""


WARM_UP = 8
"""Requests at once that a warm-up holds at most."""


@dataclass(frozen=True)
class Row:
    """Median, least and largest tokens/s of the repeats; `mean_accepted_length` is per sequence and pass."""

    method: str
    num_concurrent: int
    tokens_per_s: float
    lowest: float
    highest: float
    requests_per_s: float
    mean_accepted_length: float


def measure(name: str, method: Method, prompts: Sequence[str], *, num_concurrent: int, repeats: int) -> Row:
    """Times `method`, after one warm-up on the first `WARM_UP` prompts; the prompts are used in turn."""
    batches = [
        [prompts[(start + offset) % len(prompts)] for offset in range(num_concurrent)]
        for start in range(0, repeats * num_concurrent, num_concurrent)
    ]
    method(batches[0][:WARM_UP])
    rates, requests, tokens, passes = [], [], 0, 0
    for batch in batches:
        begun = time.perf_counter()
        num_tokens, num_passes = method(batch)
        seconds = time.perf_counter() - begun
        rates.append(num_tokens / seconds)
        requests.append(len(batch) / seconds)
        tokens, passes = tokens + num_tokens, passes + num_passes
    return Row(
        name,
        num_concurrent,
        statistics.median(rates),
        min(rates),
        max(rates),
        statistics.median(requests),
        tokens / passes if passes else 0.0,
    )


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "processor": platform.processor() or platform.machine(),
        "num_cores": os.cpu_count(),
        "torch": torch.__version__,
        "num_threads": torch.get_num_threads(),
        "load_average": os.getloadavg()[0],
    }


def as_results(rows: Iterable[Row]) -> dict[str, Any]:
    """The layout of every benchmark's results.json."""
    return {
        "machine": machine(),
        "rows": [
            {
                "method": row.method,
                "num_concurrent": row.num_concurrent,
                "figures": {
                    "tokens_per_s": row.tokens_per_s,
                    "tokens_per_s_lowest": row.lowest,
                    "tokens_per_s_highest": row.highest,
                    "requests_per_s": row.requests_per_s,
                    "mean_accepted_length": row.mean_accepted_length,
                },
            }
            for row in rows
        ],
    }


def as_table(rows: Sequence[Row]) -> str:
    """A Markdown table; `times` is against the first row, whose requests come one after another."""
    lines = [
        "| method | requests at once | tokens/s (lowest to highest) | requests/s | times | tokens per pass |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.method} | {row.num_concurrent} | {row.tokens_per_s:.1f} ({row.lowest:.1f} to {row.highest:.1f}) "
        f"| {row.requests_per_s:.2f} | {row.tokens_per_s / rows[0].tokens_per_s:.2f} "
        f"| {f'{row.mean_accepted_length:.2f}' if row.mean_accepted_length else '-'} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def write(rows: Sequence[Row], folder: Path) -> None:
    """results.json, table.md and plot.png below `folder`."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    (folder / "results.json").write_text(json.dumps(as_results(rows), indent=2) + "\n", encoding="utf-8")
    (folder / "table.md").write_text(as_table(rows), encoding="utf-8")
    figure, axes = plt.subplots(figsize=(8, 0.4 * len(rows) + 1.2), layout="constrained")
    names = [f"{row.method} x{row.num_concurrent}" for row in reversed(rows)]
    axes.barh(names, [row.tokens_per_s for row in reversed(rows)])
    axes.set_xlabel("tokens/s")
    figure.savefig(folder / "plot.png", dpi=120)
    plt.close(figure)
