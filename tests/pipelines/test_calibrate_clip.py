"""Calibrating a model that is not trained further, at tiny size."""

from __future__ import annotations

import json
from pathlib import Path

from mmspec.embedded.saving import save_pipeline
from mmspec.image.tiny import tiny_drafter, tiny_models
from mmspec.verify.calibration import Calibration
from mmspec.verify.tiny import save_tiny
from mmspec.weights import check_folder, write_checksums
from pipelines.calibrate_clip import CalibrateClip


def test_calibration_is_all_that_changes(tmp_path: Path) -> None:
    """A copy of the model with a calibration for the drafter's levels, where it came from, and checksums that fit."""
    models = tiny_models(0)
    save_pipeline(tmp_path / "diffusion", models.vae, models.transformer)
    save_tiny(tmp_path / "model", 0)
    Calibration({}).write(tmp_path / "model" / "calibration.json")
    write_checksums(tmp_path / "model")
    CalibrateClip(
        workspace=None,
        drafter=tiny_drafter(0),
        autoencoder=str(tmp_path / "diffusion"),
        clip=str(tmp_path / "model"),
        num_scenes=24,
        num_rounds=2,
        num_workers=1,
        num_steps=2,
        picture_size=32,
        scenes_seed=6,
        seed=0,
    ).run(tmp_path)
    weights = "open_clip_model.safetensors"
    assert (tmp_path / "clip" / weights).read_bytes() == (tmp_path / "model" / weights).read_bytes()
    curves = Calibration.read(tmp_path / "clip" / "calibration.json").curves
    assert {point.level for point in curves["place"].points} == {0.0, 0.5}
    calibration = json.loads((tmp_path / "clip" / "origin.json").read_text())["calibration"]
    assert calibration["scenes"] == [6, 24]
    assert calibration["num_pictures"] == 4 * 24
    assert calibration["measured"].keys() >= {"place", "prop"}
    check_folder(tmp_path / "clip", remedy="")
