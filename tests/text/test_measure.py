"""Benchmark rows, measurements for planning, and the jobs around them on tiny models."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hydra.utils import instantiate

from mmspec.api import compose, plain
from mmspec.cogen.copy import Copy
from mmspec.errors import InputError, WeightsError
from mmspec.text.bench import as_table, measure
from mmspec.text.drafters.small_lm import SmallLMDrafter
from mmspec.text.growth import FixedGrowth, RoundRecord
from mmspec.text.llama_cpp import LlamaCpp
from mmspec.text.planned import PlannedGrowth
from mmspec.text.prompt import CompletionTemplate
from mmspec.text.tiny import TinyModels
from mmspec.text.tune import summarise
from pipelines.bench_text import BenchText
from pipelines.tune import Tune


def test_acceptance_by_rank_counts_visited_nodes() -> None:
    """Hand-computed: 3 visited nodes with trials; rank 0 accepted once, rank 1 once, one miss."""
    records = [
        RoundRecord(1, 5, 2, 3, 0.2, 1.0, (0, 1), (2, 2, 0)),
        RoundRecord(1, 5, 2, 1, 0.4, 1.0, (), (2,)),
        RoundRecord(1, 1, 0, 1, 0.0, 1.0, (), (0,)),
    ]
    measured = summarise(records, {1: 1.0})
    assert measured.acceptance == pytest.approx((1 / 3, 1 / 3))
    assert measured.draft_s == pytest.approx(0.15)
    with pytest.raises(InputError, match="nothing to plan"):
        summarise(records[2:], {1: 1.0})


def test_measured_row_counts_every_batch() -> None:
    """Warm-up is not counted; prompts are used in turn."""
    seen: list[list[str]] = []

    def method(prompts: list[str]) -> tuple[int, int]:
        seen.append(list(prompts))
        return 10, 5

    row = measure("x", method, ["a", "b", "c"], num_concurrent=2, repeats=3)
    assert seen == [["a", "b"], ["a", "b"], ["c", "a"], ["b", "c"]]
    assert row.mean_accepted_length == 2.0
    assert row.lowest <= row.tokens_per_s <= row.highest
    assert "| x | 2 |" in as_table([row])


def test_tuning_writes_a_tree_that_can_be_used(tmp_path: Path) -> None:
    """The written file builds the planned growth."""
    Tune(
        models=TinyModels(seed=0),
        drafter=SmallLMDrafter(),
        copy=Copy(CompletionTemplate("{prompt}"), {"temperature": 0.8}),
        prompts=["rain"],
        max_tokens=12,
        start_widths=[3, 2],
        sizes=[1, 8],
        repeats=2,
        tree_depth=4,
        tree_budget=8,
        seed=0,
    ).run(tmp_path)
    fields = yaml.safe_load((tmp_path / "tuned.yaml").read_text(encoding="utf-8"))
    assert fields.pop("_target_") == "mmspec.text.planned.PlannedGrowth"
    assert PlannedGrowth(**fields).budget <= 8


def test_benchmark_writes_table_json_and_plot(tmp_path: Path, language_models: Any) -> None:
    """Baselines with and without an assistant, then all our modes at two loads, built as the conf builds them."""
    models = language_models("llama", engine="llama", draft_seed=7)
    node = plain(compose(["pipeline=bench_text", "tree=tiny"]))["pipeline"]
    bench = BenchText(
        models=models,
        drafters={"small_lm": SmallLMDrafter()},
        growths=instantiate(node["growths"], _convert_="all"),
        template=CompletionTemplate("{prompt}"),
        prompts=["rain", "fog"],
        max_tokens=6,
        repeats=1,
        concurrency=[1, 3],
        baseline_dtypes=["float32"],
        gguf=None,
    )
    bench.run(tmp_path)
    rows = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["rows"]
    baselines = ["transformers float32", "transformers float32 prompt lookup", "transformers float32 assisted"]
    ours = ["autoregressive", "linear, small_lm", "tree, small_lm", "auto, small_lm"]
    assert [(row["method"], row["num_concurrent"]) for row in rows] == [
        *((name, 1) for name in baselines),
        *((f"mmspec {mode}", number) for number in (1, 3) for mode in ours),
    ]
    assert (tmp_path / "plot.png").stat().st_size > 1000
    table = (tmp_path / "table.md").read_text(encoding="utf-8").splitlines()
    assert len(table) == 2 + len(rows)
    assert "| 1.00 |" in table[2]


def test_llama_cpp_is_a_row_where_it_is_installed(
    tmp_path: Path, language_models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package is compiled on installation, so a stand-in of its interface takes its place here."""

    class Llama:
        def __init__(self, path: str, *, n_ctx: int, n_threads: int, n_threads_batch: int, verbose: bool) -> None:
            if Path(path).read_bytes() != b"GGUF":
                raise ValueError(f"Failed to load model from file: {path}")
            assert (n_ctx, n_threads, verbose) == (128, n_threads_batch, False)

        def generate(self, tokens: list[int], *, temp: float, repeat_penalty: float) -> Iterator[int]:
            assert (temp, repeat_penalty) == (0.0, 1.0)
            return count(tokens[-1])

    module = ModuleType("llama_cpp")
    module.__spec__ = ModuleSpec("llama_cpp", None)
    module.Llama = Llama  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "llama_cpp", module)
    with pytest.raises(WeightsError, match=r"0 \*\.gguf files"):
        LlamaCpp(tmp_path, num_threads=1, context=128)
    (tmp_path / "model.gguf").write_bytes(b"GG")
    with pytest.raises(WeightsError, match="cannot read"):
        LlamaCpp(tmp_path, num_threads=1, context=128)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert LlamaCpp(tmp_path, num_threads=1, context=128).write([4, 7], 3) == [7, 8, 9]
    models = language_models("llama", engine="llama")
    monkeypatch.setattr("pipelines.bench_text.on_llama_cpp", lambda _: models)
    bench = BenchText(
        models=models,
        drafters={},
        growths={"chain": FixedGrowth(tree_widths=[1], tree_budget=2)},
        template=CompletionTemplate("{prompt}"),
        prompts=["rain"],
        max_tokens=6,
        repeats=1,
        concurrency=[1],
        baseline_dtypes=[],
        gguf=str(tmp_path),
    )
    bench.run(tmp_path)
    rows = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["rows"]
    names = ["llama.cpp, same GGUF", "mmspec autoregressive", "mmspec (llama.cpp) autoregressive"]
    assert [row["method"] for row in rows] == names
