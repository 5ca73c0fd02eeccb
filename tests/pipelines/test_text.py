"""Text alone: what its events add up to, and a draft head from nothing to its use."""

from __future__ import annotations

import json
from pathlib import Path

import mmspec
from mmspec.api import build, compose, plain
from mmspec.pipeline import Job
from mmspec.types import Done, TextGrown

TINY = ["lm=tiny", "drafter=tiny", "tree=tiny"]


def test_events_add_up_to_the_result() -> None:
    """Chunks concatenate to the texts, and their tokens add up to those of the result, whatever the chunk."""
    pipe = mmspec.load("text", overrides=[*TINY, "pipeline.chunk_passes=1"])
    events = list(pipe.stream("neon rain", seed=3, n=2, max_tokens=11))
    grown = [event for event in events if isinstance(event, TextGrown)]
    done = events[-1]
    assert isinstance(done, Done)
    assert len(grown) > 4
    assert sum(event.num_tokens for event in grown) == done.result.metrics["num_tokens"]
    for pair in done.result.pairs:
        assert "".join(event.chunk for event in grown if event.branch_id == pair.branch_id) == pair.text


def test_distilled_head_is_a_drafter(tmp_path: Path) -> None:
    """Texts that the target writes under two templates, a head trained on them, its report, a run that uses it."""
    (tmp_path / "prompts.txt").write_text("\n".join(f"place {number}" for number in range(8)), encoding="utf-8")
    workspace = tmp_path / "head"
    overrides = [
        "pipeline=distill",
        *TINY,
        f"pipeline.prompts={tmp_path / 'prompts.txt'}",
        f"pipeline.workspace={workspace}",
        "pipeline.num_texts=6",
        "pipeline.num_held_out=2",
        "pipeline.batch_size=4",
        "pipeline.max_tokens=12",
        "pipeline.num_heads=4",
        "pipeline.intermediate_size=32",
        "pipeline.num_draft_tokens=64",
        "pipeline.train.num_steps=3",
        "pipeline.train.batch_size=2",
    ]
    job = build(plain(compose(overrides))["pipeline"], on_loaded=lambda _: None)
    assert isinstance(job, Job)
    report = tmp_path / "report"
    report.mkdir()
    job.run(report)
    rows = [json.loads(line) for line in (workspace / "texts.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["copy"] for row in rows] == ["description", "caption", "lore", "signage", "description", "caption"]
    results = json.loads((report / "results.json").read_text(encoding="utf-8"))
    assert results["num_texts"] == 6
    assert results["accepted_length_before"]["greedy"] == 1.0
    assert results["accepted_length_after"]["sampled"] >= 1.0
    plainly = mmspec.load("text", overrides=["lm=tiny", "drafter=none", "tree=tiny"])("neon", seed=1, max_tokens=12)
    headed = mmspec.load("text", overrides=["lm=tiny", "drafter=head", f"drafter.head_path={workspace}", "tree=tiny"])
    assert headed("neon", seed=1, max_tokens=12).text == plainly.text
