"""Fit a verifier's calibration to the pictures of a drafter: no weight is trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch

from mmspec.embedded.pipeline import load_pipeline
from mmspec.embedded.training.clip_calibration import calibrate_folder
from mmspec.embedded.training.previews import draw_previews, joined, reconstruct, redraw
from mmspec.embedded.training.record import table, write_origin
from mmspec.embedded.training.scenes import data_version, paint_scenes
from mmspec.image.drafter import ImageDrafter
from mmspec.pipeline import Job
from mmspec.weights import resolve, write_checksums
from mmspec.weights.checksums import CHECKSUMS_NAME

__all__ = ["CalibrateClip"]


class CalibrateClip(Job):
    """Files: `scenes_held_out/`, `clip/` (the model as it ships, newly calibrated), `results.json`, `table.md`.

    One half of the scenes is fitted on and the other measured: reconstructed, redrawn by the drafter from up to half of
    the noise, and `num_rounds` times as the drafter previews them at a noise level of its schedule.
    """

    def __init__(
        self,
        *,
        workspace: str | None,
        drafter: ImageDrafter,
        autoencoder: str,
        clip: str,
        num_scenes: int,
        num_rounds: int,
        num_workers: int,
        num_steps: int,
        picture_size: int,
        scenes_seed: int,
        seed: int,
    ) -> None:
        self._workspace = workspace
        self._drafter = drafter
        self._autoencoder = load_pipeline(resolve(autoencoder), dtype=torch.float32).vae
        self._clip = resolve(clip)
        self._num_scenes = num_scenes
        self._num_rounds = num_rounds
        self._num_workers = num_workers
        self._num_steps = num_steps
        self._size = picture_size
        self._scenes_seed = scenes_seed
        self._seed = seed

    def run(self, folder: Path) -> None:
        """See `Job.run`."""
        scenes = paint_scenes(
            (Path(self._workspace) if self._workspace else folder) / "scenes_held_out",
            seed=self._scenes_seed,
            num_scenes=self._num_scenes,
            size=self._size,
            num_workers=self._num_workers,
        )
        known = (self._drafter, self._autoencoder, scenes, torch.arange(len(scenes)))
        size, num_steps, seed = self._size, self._num_steps, self._seed
        pictures = joined(
            [
                reconstruct(*known[1:], size=size),
                redraw(*known, num_steps=num_steps, max_level=0.5, size=size, seed=seed),
                *(
                    draw_previews(*known, num_steps=num_steps, size=size, seed=seed + number)
                    for number in range(self._num_rounds)
                ),
            ]
        )
        export = folder / "clip"
        shutil.copytree(self._clip, export, ignore=shutil.ignore_patterns(CHECKSUMS_NAME))  # written anew below
        figures = calibrate_folder(export, pictures, seed=seed)
        fitted = {
            "scenes": [self._scenes_seed, self._num_scenes],
            "data_version": data_version(),
            "num_pictures": len(pictures),
            "num_steps": num_steps,
            "seed": seed,
            "measured": figures,
        }
        write_origin(export, _origin(export) | {"calibration": fitted})
        write_checksums(export)
        rows = [{"method": kind, "figures": row} for kind, row in figures.items()]
        (folder / "results.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
        (folder / "table.md").write_text(table(rows), encoding="utf-8")


def _origin(folder: Path) -> dict[str, object]:
    """What made the model in `folder`, where that is recorded."""
    path = folder / "origin.json"
    origin: dict[str, object] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return origin
