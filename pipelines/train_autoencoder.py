"""Train the embedded autoencoder: paint scenes, then reconstruct them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from mmspec.embedded.autoencoder import Autoencoder
from mmspec.embedded.pipeline import load_pipeline
from mmspec.embedded.training.autoencoder import AutoencoderTask
from mmspec.embedded.training.loop import LoopSettings, train
from mmspec.embedded.training.record import write_origin
from mmspec.embedded.training.scenes import data_version, paint_scenes
from mmspec.embedded.training.schedule import Schedule
from mmspec.pipeline import Job
from mmspec.weights import resolve

__all__ = ["TrainAutoencoder"]

_SIZE = 128


class TrainAutoencoder(Job):
    """Files: `scenes/`, `scenes_held_out/`, `autoencoder/` (checkpoint, log, curve, sheets, `export/`).

    With a `workspace` they go there instead of the run's own folder, and what is there already is continued.
    With `start_from`, a pipeline folder, the encoder of its autoencoder is frozen and the decoder trained further:
    latents keep their meaning for the transformer.
    """

    def __init__(
        self,
        *,
        workspace: str | None,
        start_from: str | None,
        num_scenes: int,
        num_held_out: int,
        num_workers: int,
        scenes_seed: int,
        held_out_seed: int,
        latent_channels: int,
        channels: list[int],
        fine_channels: int,
        batch_size: int,
        learning_rate: float,
        latent_noise: float,
        seed: int,
        schedule: Schedule,
        loop: LoopSettings,
    ) -> None:
        self._workspace = workspace
        self._start_from = start_from
        self._sets = {"scenes": (scenes_seed, num_scenes), "scenes_held_out": (held_out_seed, num_held_out)}
        self._num_workers = num_workers
        self._model: dict[str, Any] = {
            "latent_channels": latent_channels,
            "channels": tuple(channels),
            "fine_channels": fine_channels,
        }
        self._training: dict[str, Any] = {
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "latent_noise": latent_noise,
            "seed": seed,
        }
        self._schedule = schedule
        self._loop = loop

    def run(self, folder: Path) -> None:
        """See `Job.run`."""
        place = Path(self._workspace) if self._workspace else folder
        pictures, held_out = (
            paint_scenes(place / name, seed=seed, num_scenes=length, size=_SIZE, num_workers=self._num_workers)
            for name, (seed, length) in self._sets.items()
        )
        torch.manual_seed(self._training["seed"])  # initial weights
        model = Autoencoder(**self._model)
        if self._start_from:
            model.freeze_encoder(load_pipeline(resolve(self._start_from), dtype=torch.float32).vae)
        task = AutoencoderTask(
            model,
            pictures=pictures,
            held_out=held_out.batch(torch.arange(min(256, len(held_out)))),
            **self._training,
            device=self._loop.device,
        )
        figures = train(task, self._schedule, self._loop, folder=place / "autoencoder")
        origin = {
            "sets": self._sets,
            "data_version": data_version(),
            "model": self._model,
            "start_from": self._start_from,
            "training": self._training,
            "held_out": figures,
        }
        write_origin(place / "autoencoder" / "export", origin)
