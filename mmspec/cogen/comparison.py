"""Ways of making pairs, compared: what each run cost and contradicted, and how sure the differences are.

A contradiction is an attribute that prompt or text asserts and an independent judge denies. Intervals are bootstrapped
over prompts (Efron 1979), because the seeds of one prompt are not independent. Knows runs as numbers; knows no model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy

from mmspec.types import Claim, Verdict

__all__ = ["Run", "compared", "contradicted", "held_out_prompts", "interval", "matching_grid", "summary", "write"]

_NUM_RESAMPLES = 2000


@dataclass(frozen=True)
class Run:
    """One pair of one method. `claims` are (kind, phrase, what the judge says) of everything that is asserted.

    Seconds are wall time from the request on, with every model loaded. `num_draft_steps` are denoising steps of single
    pictures, `num_target_calls` passes of the target model, `num_text_passes` the same counted once per branch in it.
    """

    method: str
    prompt: str
    seed: int
    text: str
    claims: tuple[tuple[str, str, str], ...]
    verified: bool
    total_s: float
    first_text_s: float
    first_preview_s: float
    verify_s: float
    hidden_share: float
    num_draft_steps: int
    num_target_calls: int
    num_text_passes: int
    num_tokens: int
    num_branches: int
    num_pruned: int
    num_pruned_drafts: int

    @property
    def num_judged(self) -> int:
        """Claims that the judge has a word for."""
        return sum(verdict != Verdict.UNJUDGED.value for _, _, verdict in self.claims)

    @property
    def num_contradicted(self) -> int:
        """Claims that it denies."""
        return sum(verdict == Verdict.FAILED.value for _, _, verdict in self.claims)


def held_out_prompts() -> list[str]:
    """The prompts that the package brings for this, in the order of the file."""
    text = resources.files("mmspec.cogen").joinpath("data/held_out_prompts.txt").read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def contradicted(claims: Iterable[Claim], verdicts: Iterable[Verdict]) -> tuple[tuple[str, str, str], ...]:
    """What is asserted, each phrase once (prompt and text may say the same), with the judge's word on it."""
    found = {(claim.kind.value, claim.phrase): verdict.value for claim, verdict in zip(claims, verdicts, strict=True)}
    return tuple((kind, phrase, verdict) for (kind, phrase), verdict in found.items())


def matching_grid(cost: Run, *, num_steps: int, passes_per_text: int) -> tuple[int, int]:
    """Texts and pictures per text whose complete pairs cost at least what `cost` did, and least of those.

    >>> from dataclasses import fields
    >>> zero = {field.name: 0 for field in fields(Run)} | {"claims": ()}
    >>> matching_grid(Run(**zero | {"num_draft_steps": 76, "num_text_passes": 130}), num_steps=8, passes_per_text=35)
    (5, 2)
    """
    num_texts = max(1, math.ceil(cost.num_text_passes / max(1, passes_per_text)))
    num_pictures = max(1, math.ceil(cost.num_draft_steps / num_steps))
    grids = [(texts, math.ceil(num_pictures / texts)) for texts in range(num_texts, num_texts + 2)]
    return min(grids, key=lambda grid: (grid[0] * grid[1], grid[0]))


def summary(runs: Sequence[Run]) -> dict[str, float]:
    """Figures of one method; names carry their unit, `_low` and `_high` bound a 95 % interval."""
    low, high = interval(runs, lambda some: mean(run.num_contradicted for run in some))
    judged = sum(run.num_judged for run in runs)
    figures = {
        "num_pairs": len(runs),
        "contradictions_per_pair": mean(run.num_contradicted for run in runs),
        "contradictions_per_pair_low": low,
        "contradictions_per_pair_high": high,
        "claims_per_pair": judged / len(runs),
        "contradicted_share": sum(run.num_contradicted for run in runs) / max(1, judged),
        "verified_share": mean(run.verified for run in runs),
        "total_s": median(run.total_s for run in runs),
        "first_text_s": median(run.first_text_s for run in runs),
        "first_preview_s": median(run.first_preview_s for run in runs),
        "verify_share": sum(run.verify_s for run in runs) / sum(run.total_s for run in runs),
        "hidden_share": median(run.hidden_share for run in runs),
    }
    counts = ("draft_steps", "target_calls", "text_passes", "tokens", "branches", "pruned", "pruned_drafts")
    figures |= {f"num_{name}": mean(getattr(run, f"num_{name}") for run in runs) for name in counts}
    for kind in sorted({kind for run in runs for kind, _, _ in run.claims}):
        verdicts = [v for run in runs for other, _, v in run.claims if other == kind and v != Verdict.UNJUDGED.value]
        if verdicts:
            figures[f"contradicted_share_{kind}"] = mean(v == Verdict.FAILED.value for v in verdicts)
    return figures


def compared(ours: Sequence[Run], theirs: Sequence[Run]) -> dict[str, float]:
    """Ratios of our runs to theirs on the same prompts and seeds, each with its 95 % interval.

    Contradictions and counts as ratios of means, wall time as the median of the ratios.
    """
    known = {(run.prompt, run.seed): run for run in theirs}
    twins = [(run, known[run.prompt, run.seed]) for run in ours if (run.prompt, run.seed) in known]

    def ratio(name: str) -> Callable[[Sequence[tuple[Run, Run]]], float]:
        def of(some: Sequence[tuple[Run, Run]]) -> float:
            below = mean(getattr(b, name) for _, b in some)
            return mean(getattr(a, name) for a, _ in some) / below if below else math.nan

        return of

    measures: Mapping[str, Callable[[Sequence[tuple[Run, Run]]], float]] = {
        "contradictions_ratio": ratio("num_contradicted"),
        "wall_time_ratio": lambda some: median(a.total_s / b.total_s for a, b in some),
        "draft_steps_ratio": ratio("num_draft_steps"),
        "target_calls_ratio": ratio("num_target_calls"),
        "text_passes_ratio": ratio("num_text_passes"),
    }
    figures: dict[str, float] = {"num_pairs": len(twins)}
    for name, measure in measures.items():
        low, high = interval(twins, measure, prompt_of=lambda twin: twin[0].prompt)
        figures |= {name: measure(twins), f"{name}_low": low, f"{name}_high": high}
    return figures


def interval(
    items: Sequence[object], measure: Callable[..., float], *, prompt_of: Callable[..., str] = lambda run: run.prompt
) -> tuple[float, float]:
    """The 95 % bootstrap interval of `measure` over `items`, resampled prompt by prompt."""
    groups: dict[str, list[object]] = {}
    for item in items:
        groups.setdefault(prompt_of(item), []).append(item)
    pools = list(groups.values())
    rng = numpy.random.default_rng(0)
    draws = rng.integers(len(pools), size=(_NUM_RESAMPLES, len(pools)))
    values = [measure([item for k in draw for item in pools[k]]) for draw in draws]
    low, high = numpy.nanpercentile(values, [2.5, 97.5]) if not all(map(math.isnan, values)) else (math.nan, math.nan)
    return float(low), float(high)


def write(results: Mapping[str, Any], folder: Path) -> None:
    """results.json, table.md and plot.png below `folder`, of a mapping with `machine` and `rows`."""
    rows = results["rows"]
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / "table.md").write_text(_table(rows), encoding="utf-8")
    _plot(rows, folder / "plot.png")


def _table(rows: list[dict[str, Any]]) -> str:
    """One small table for each kind of rows, because they share few figures: figures down, methods across."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        kind = "compared" if " / " in row["method"] else row["method"].partition(",")[0]
        groups.setdefault(
            ("planted",) if kind == "planted" else ("compared",) if kind == "compared" else (), []
        ).append(row)
    lines: list[str] = []
    for group in groups.values():
        names = dict.fromkeys(name for row in group for name in row["figures"])
        lines += ["", "| | " + " | ".join(row["method"] for row in group) + " |", "|---" * (len(group) + 1) + "|"]
        for name in names:
            cells = [f"{row['figures'][name]:.4g}" if name in row["figures"] else "" for row in group]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines[1:]) + "\n"


def _plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Contradictions per pair with their intervals, and wall time, method by method."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    own = [row for row in rows if "contradictions_per_pair" in row["figures"]]
    names = [row["method"] for row in own]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    means = [row["figures"]["contradictions_per_pair"] for row in own]
    below = [m - row["figures"]["contradictions_per_pair_low"] for m, row in zip(means, own, strict=True)]
    above = [row["figures"]["contradictions_per_pair_high"] - m for m, row in zip(means, own, strict=True)]
    left.bar(names, means, yerr=[below, above], capsize=4)
    left.set_ylabel("contradictions per pair")
    right.bar(names, [row["figures"]["total_s"] for row in own])
    right.set_ylabel("median wall time, s")
    figure.savefig(path, dpi=120)
    plt.close(figure)
