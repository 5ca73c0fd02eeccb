"""The benchmark of the embedded models, on tiny random ones."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from mmspec.embedded.judge import Judge
from mmspec.embedded.saving import save_pipeline
from mmspec.image.tiny import tiny_drafter, tiny_models
from mmspec.verify.tiny import TinyScorer
from pipelines.bench_models import BenchModels

LATE = "previews from 40 % of the steps on, place"


def test_every_figure_and_sheet_is_written(tmp_path: Path) -> None:
    """Judge, drawings in every mode, verifier on every kind of picture."""
    models = tiny_models(0)
    save_pipeline(tmp_path / "diffusion", models.vae, models.transformer)
    torch.manual_seed(0)
    Judge(channels=(8, 8, 16)).save(tmp_path / "judge")
    BenchModels(
        scorer=TinyScorer(seed=0, held=0.6, failed=0.1, widening=0.1),
        drafter=tiny_drafter(0),
        judge=str(tmp_path / "judge"),
        autoencoder=str(tmp_path / "diffusion"),
        modes={"full": 3, "draft": 1},
        num_prompts=10,
        num_scenes=12,
        num_steps=2,
        picture_size=32,
        prompts_seed=4,
        scenes_seed=5,
        num_workers=1,
    ).run(tmp_path)
    rows = {row["method"]: row["figures"] for row in json.loads((tmp_path / "results.json").read_text())["rows"]}
    assert rows["autoencoder"].keys() == {"psnr_64_db", "psnr_128_db"}
    assert 0 <= rows["judge, redrawn"]["noun"] <= 1
    assert rows["drawn, full (3 steps), single"]["n"] == 4
    assert rows["drawn, draft (1 steps), pair"]["n"] == 3
    assert rows["drawn, full (3 steps)"]["step_ms"] > 0
    for name in ("paintings, place", "redrawn, prop", "previews at noise level 0.500, place", LATE):
        assert 0 <= rows[name]["auc"] <= 1
        assert 0 <= rows[name]["ece"] <= 1
    table = (tmp_path / "table.md").read_text()
    assert all(method in table for method in rows)
    for name in ("drawn_full.png", "drawn_draft.png", "growing.png", "autoencoder.png"):
        assert (tmp_path / name).stat().st_size > 1000
