"""The benchmark of co-generation on stand-ins: it runs, it resumes, and its baselines are paid as much."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mmspec.cogen.copy import Copy
from mmspec.cogen.policy import Strictness
from mmspec.cogen.prune import Threshold
from mmspec.cogen.schedule import Interleaved
from mmspec.embedded.judge import Judge
from mmspec.text.prompt import PromptTemplate
from pipelines.bench_cogen import BenchCoGeneration
from tests.cogen.stand_ins import StandIns, stand_in_parts

TREE = {
    "num_branches": 2,
    "num_drafts": 2,
    "num_steps": 4,
    "draft_steps": 3,
    "steps_per_round": 1,
    "segment_tokens": 8,
    "segment_marks": ".",
    "repair_level": 0.5,
}


@pytest.fixture(autouse=True)
def _small_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Judge, "load", classmethod(lambda cls, _: cls(channels=(8, 8, 8)).eval()))


def bench(parts: StandIns, **changes: Any) -> BenchCoGeneration:
    """Two prompts, one seed."""
    settings: dict[str, Any] = {
        "prune": Threshold(0.2),
        "policy": Strictness(0.0, False, 2),
        "copy": Copy(PromptTemplate("{prompt}"), {}),
        "schedule": Interleaved(),
        "tree": TREE,
        "max_explained": 1,
        "judge": "builtin:judge",
        "autoencoder": "builtin:diffusion",
        "workspace": None,
        "limit": 2,
        "seeds": [0],
        "max_tokens": 20,
        "num_planted": 0,
        "scenes_seed": 1,
        "num_workers": 1,
    }
    return BenchCoGeneration(
        text=parts.text, images=parts.images, extractor=parts.extractor, scorer=parts.scorer, **(settings | changes)
    )


def test_every_method_answers_every_prompt(tmp_path: Path) -> None:
    """Four methods and three comparisons in the results; best of n has spent at least as much as ours."""
    bench(stand_in_parts()).run(tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    figures = {row["method"]: row["figures"] for row in results["rows"]}
    assert set(figures) == {
        "sequential", "cogen", "best_of_n", "late", "cogen / sequential", "cogen / best_of_n", "cogen / late",
    }  # fmt: skip
    assert all(figures[name]["num_pairs"] == 2 for name in figures)
    assert figures["cogen / best_of_n"]["draft_steps_ratio"] <= 1.0
    assert figures["sequential"]["verify_share"] == 0.0
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert "contradictions_ratio" in (tmp_path / "table.md").read_text()


def test_what_is_in_the_workspace_is_not_run_again(tmp_path: Path) -> None:
    """A second run over more prompts makes the new ones alone; a third makes none."""
    workspace = str(tmp_path / "work")
    for name in "abc":
        (tmp_path / name).mkdir()
    bench(stand_in_parts(), workspace=workspace, limit=1).run(tmp_path / "a")
    before = (tmp_path / "work" / "runs.jsonl").read_text()
    bench(stand_in_parts(), workspace=workspace).run(tmp_path / "b")
    after = (tmp_path / "work" / "runs.jsonl").read_text()
    assert after.startswith(before)
    assert len(after.splitlines()) == 2 * len(before.splitlines()) == 8
    idle = stand_in_parts()
    bench(idle, workspace=workspace).run(tmp_path / "c")
    assert idle.text.calls == []
    assert (tmp_path / "b" / "table.md").read_text() == (tmp_path / "c" / "table.md").read_text()
