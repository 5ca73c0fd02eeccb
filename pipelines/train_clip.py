"""Train the embedded CLIP: paint scenes, draw previews of known contents, train, calibrate, export."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from mmspec.embedded.clip import ClipShape, build, load_trained
from mmspec.embedded.pipeline import load_pipeline
from mmspec.embedded.training.clip import ClipTask, LossWeights
from mmspec.embedded.training.clip_calibration import calibrate_folder
from mmspec.embedded.training.loop import LoopSettings, train
from mmspec.embedded.training.phrases import PhraseTable, mean_pooled
from mmspec.embedded.training.previews import KnownPreviews, draw_previews, joined, reconstruct
from mmspec.embedded.training.record import write_origin
from mmspec.embedded.training.scenes import PaintedScenes, caption_at, check_counts, data_version, paint_scenes
from mmspec.embedded.training.schedule import Schedule
from mmspec.image.drafter import ImageDrafter
from mmspec.pipeline import Job
from mmspec.weights import resolve, write_checksums

__all__ = ["TrainClip"]

_CAPTION_VARIANT = 500  # phrased independently of the captions that the diffusion transformer reads


class TrainClip(Job):
    """Files: `scenes*/`, `previews*.pt`, `captions.pt`, `clip/` (checkpoint, log, curve, sheets, `export/` as it ships).

    With a `workspace` they go there instead of the run's own folder, and what is there already is continued.
    """

    def __init__(
        self,
        *,
        workspace: str | None,
        drafter: ImageDrafter,
        autoencoder: str,
        text_encoder: str,
        start_from: str | None,
        num_scenes: int,
        num_captions: int,
        num_previews: int,
        num_held_out: int,
        num_workers: int,
        num_steps: int,
        picture_size: int,
        scenes_seed: int,
        held_out_seed: int,
        shape: ClipShape,
        weights: LossWeights,
        preview_share: float,
        melted_share: float,
        batch_size: int,
        learning_rate: float,
        seed: int,
        schedule: Schedule,
        loop: LoopSettings,
    ) -> None:
        check_counts(num_scenes, num_previews=num_previews)
        self._workspace = workspace
        self._drafter = drafter
        self._autoencoder = autoencoder
        self._text_encoder = text_encoder
        self._start_from = start_from
        self._sets = {
            "": (scenes_seed, num_scenes, num_previews),
            "_held_out": (held_out_seed, num_held_out, num_held_out),
        }
        self._num_captions = num_captions
        self._num_workers = num_workers
        self._num_steps = num_steps
        self._picture_size = picture_size
        self._shape = shape
        self._training: dict[str, Any] = {
            "weights": weights,
            "preview_share": preview_share,
            "melted_share": melted_share,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "seed": seed,
        }
        self._schedule = schedule
        self._loop = loop

    def run(self, folder: Path) -> None:
        """See `Job.run`."""
        place = Path(self._workspace) if self._workspace else folder
        torch.set_num_threads(self._loop.num_threads)
        scenes, held_out = (self._paint(place, name) for name in self._sets)
        previews, held_out_previews = (
            self._draw(place, name, painted) for name, painted in zip(self._sets, (scenes, held_out), strict=True)
        )
        torch.manual_seed(self._training["seed"])  # initial weights
        text_folder = resolve(self._text_encoder)
        model = build(self._shape, text_folder=text_folder)
        if self._start_from is not None:
            load_trained(model, resolve(self._start_from), image_size=self._shape.image_size)
        task = ClipTask(
            model,
            self._shape,
            table=PhraseTable(text_folder),
            pictures=scenes,
            held_out=held_out,
            captions=self._captions(place, scenes, text_folder),
            previews=previews,
            held_out_previews=held_out_previews,
            text_encoder=self._text_encoder,
            **self._training,
            device=self._loop.device,
        )
        train(task, self._schedule, self._loop, folder=place / "clip")
        export = place / "clip" / "export"
        figures = calibrate_folder(export, held_out_previews, seed=self._training["seed"])
        origin = {
            "sets": self._sets,
            "data_version": data_version(),
            "model": asdict(self._shape),
            "training": self._training | {"weights": asdict(self._training["weights"])},
            "held_out": figures,
        }
        write_origin(export, origin)
        write_checksums(export)

    def _paint(self, place: Path, name: str) -> PaintedScenes:
        seed, length, _ = self._sets[name]
        return paint_scenes(
            place / f"scenes{name}",
            seed=seed,
            num_scenes=length,
            size=self._picture_size,
            num_workers=self._num_workers,
        )

    def _draw(self, place: Path, name: str, scenes: PaintedScenes) -> KnownPreviews:
        path = place / f"previews{name}.pt"
        if not path.exists():
            autoencoder = load_pipeline(resolve(self._autoencoder), dtype=torch.float32).vae
            indices = torch.arange(len(scenes))[-self._sets[name][2] :]
            size = self._shape.image_size
            finished = reconstruct(autoencoder, scenes, indices, size=size)
            drawn = draw_previews(
                self._drafter, autoencoder, scenes, indices, num_steps=self._num_steps, size=size, seed=scenes.seed
            )
            torch.save(vars(joined([finished, drawn])), path)
        return KnownPreviews(**torch.load(path))

    def _captions(self, place: Path, scenes: PaintedScenes, text_folder: Path) -> torch.Tensor:
        path = place / "captions.pt"
        if not path.exists():
            captions = [caption_at(scenes.seed, k, variant=_CAPTION_VARIANT) for k in range(self._num_captions)]
            torch.save(mean_pooled(captions, text_folder=text_folder).half(), path)
        return torch.load(path)
