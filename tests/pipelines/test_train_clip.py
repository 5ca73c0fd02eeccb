"""Training the CLIP as a whole, at tiny size: from paintings to a folder that the verifier loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmspec.embedded.clip import ClipShape
from mmspec.embedded.saving import save_pipeline
from mmspec.embedded.training.clip import LossWeights
from mmspec.embedded.training.loop import LoopSettings
from mmspec.embedded.training.schedule import Schedule
from mmspec.image.tiny import tiny_drafter, tiny_models
from pipelines.train_clip import TrainClip
from tests.verify.folders import write_bert_folder


@pytest.mark.slow
def test_training_leaves_a_calibrated_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps, then a model folder with its calibration, origin and checksums."""
    monkeypatch.setenv("MMSPEC_CACHE", str(tmp_path / "cache"))
    write_bert_folder(tmp_path / "bert")
    monkeypatch.chdir(tmp_path)
    models = tiny_models(0)
    save_pipeline(tmp_path / "diffusion", models.vae, models.transformer)
    job = TrainClip(
        workspace=None,
        drafter=tiny_drafter(0),
        autoencoder=str(tmp_path / "diffusion"),
        text_encoder="./bert",
        start_from=None,
        num_scenes=24,
        num_captions=6,
        num_previews=6,
        num_held_out=24,
        num_workers=1,
        picture_size=32,
        num_steps=2,
        scenes_seed=1,
        held_out_seed=2,
        shape=ClipShape(32, 8, (1, 1, 1, 1), 16, context_length=12),
        weights=LossWeights(),
        preview_share=0.4,
        melted_share=0.5,
        batch_size=4,
        learning_rate=1e-3,
        seed=0,
        schedule=Schedule(duration_s=60, decay_s=10, num_warmup_steps=1),
        loop=LoopSettings(log_steps=1, checkpoint_s=60, export_s=60, num_threads=1, fast_dev_run=True),
    )
    (tmp_path / "run").mkdir()
    job.run(tmp_path / "run")
    export = tmp_path / "run" / "clip" / "export"
    names = {path.name for path in export.iterdir()}
    assert {
        "open_clip_model.safetensors",
        "open_clip_config.json",
        "calibration.json",
        "origin.json",
        "SHA256SUMS",
    } == names
