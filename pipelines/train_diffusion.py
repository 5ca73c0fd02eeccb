"""Train the embedded diffusion transformer: paint scenes, encode pictures and captions, then match velocities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import torch

from mmspec.dtypes import AUTO, dtype_named
from mmspec.embedded.autoencoder import Autoencoder
from mmspec.embedded.pipeline import load_pipeline
from mmspec.embedded.text_encoder import TextEncoder, pad_features
from mmspec.embedded.training.captions import encode_captions
from mmspec.embedded.training.diffusion import DiffusionTask, LatentScenes, encode_scenes
from mmspec.embedded.training.loop import LoopSettings, train
from mmspec.embedded.training.scenes import data_version, paint_scenes
from mmspec.embedded.training.schedule import Schedule
from mmspec.embedded.transformer import DiffusionTransformer
from mmspec.pipeline import Job
from mmspec.weights import resolve

__all__ = ["TrainDiffusion"]

_SIZE = 128


class TrainDiffusion(Job):
    """Files: `scenes*/`, `captions*/`, `latents*.pt`, `diffusion/` (checkpoint, log, curve, sheets, `export/`).

    With a `workspace` they go there instead of the run's own folder, and what is there already is continued.
    With `start_from`, a pipeline folder, its transformer's weights are the first ones; `read_every` may be smaller here.
    """

    def __init__(
        self,
        *,
        workspace: str | None,
        start_from: str | None,
        autoencoder: str,
        text_encoder: str,
        num_scenes: int,
        num_captions: int,
        num_held_out: int,
        num_workers: int,
        scenes_seed: int,
        held_out_seed: int,
        width: int,
        depth: int,
        num_heads: int,
        read_every: int,
        batch_size: int,
        learning_rate: float,
        matrix_learning_rate: float,
        average_decay: float,
        dropout: float,
        prop_weight: float,
        seed: int,
        prompts: list[str],
        schedule: Schedule,
        loop: LoopSettings,
    ) -> None:
        self._workspace = workspace
        self._start_from = start_from
        self._autoencoder = autoencoder
        self._text_encoder = text_encoder
        self._sets = {"": (scenes_seed, num_scenes, num_captions), "_held_out": (held_out_seed, num_held_out, 1)}
        self._num_workers = num_workers
        self._model: dict[str, Any] = {
            "width": width,
            "depth": depth,
            "num_heads": num_heads,
            "read_every": read_every,
        }
        self._training: dict[str, Any] = {
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "matrix_learning_rate": matrix_learning_rate,
            "average_decay": average_decay,
            "dropout": dropout,
            "prop_weight": prop_weight,
            "seed": seed,
        }
        self._prompts = prompts
        self._schedule = schedule
        self._loop = loop

    def run(self, folder: Path) -> None:
        """See `Job.run`."""
        place = Path(self._workspace) if self._workspace else folder
        torch.set_num_threads(self._loop.num_threads)
        autoencoder = load_pipeline(resolve(self._autoencoder), dtype=torch.float32).vae
        encoder = TextEncoder(self._text_encoder, dtype=dtype_named(AUTO))
        scenes, held_out = (
            self._latent_scenes(place, name, autoencoder, encoder, seed=seed, num_scenes=length, num_captions=captions)
            for name, (seed, length, captions) in self._sets.items()
        )
        prompts = pad_features(encoder.encode(self._prompts))
        origin = {
            "sets": self._sets,
            "data_version": data_version(),
            "model": self._model,
            "training": self._training,
            "autoencoder": self._autoencoder,
            "start_from": self._start_from,
        }
        torch.manual_seed(self._training["seed"])  # initial weights
        model = DiffusionTransformer(
            latent_channels=scenes.latents.shape[1], size=scenes.latents.shape[2], **self._model
        )
        if self._start_from:
            model.take_over(load_pipeline(resolve(self._start_from), dtype=torch.float32).transformer)
        task = DiffusionTask(
            model,
            autoencoder,
            scenes=scenes,
            held_out=held_out,
            prompts=prompts,
            origin=origin,
            device=self._loop.device,
            **self._training,
        )
        train(task, self._schedule, self._loop, folder=place / "diffusion")

    def _latent_scenes(
        self,
        place: Path,
        name: str,
        autoencoder: Autoencoder,
        encoder: TextEncoder,
        *,
        seed: int,
        num_scenes: int,
        num_captions: int,
    ) -> LatentScenes:
        painted = paint_scenes(
            place / f"scenes{name}", seed=seed, num_scenes=num_scenes, size=_SIZE, num_workers=self._num_workers
        )
        captions = encode_captions(
            place / f"captions{name}", encoder, seed=seed, num_scenes=num_scenes, num_variants=num_captions
        )
        path = place / f"latents{name}.pt"
        if not path.exists():
            torch.save(encode_scenes(autoencoder, painted), path)
        return LatentScenes(torch.load(path), torch.from_numpy(numpy.array(painted.masks)), captions)
