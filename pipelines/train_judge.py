"""Train the benchmarks' judge: other scenes and another seed than the verifier's, and the drafter's own previews."""

from __future__ import annotations

from pathlib import Path

import torch

from mmspec.embedded.judge import Judge
from mmspec.embedded.pipeline import load_pipeline
from mmspec.embedded.training.judge import JudgeTask
from mmspec.embedded.training.loop import LoopSettings, train
from mmspec.embedded.training.previews import KnownPreviews, joined, painted_previews, reconstruct, redraw
from mmspec.embedded.training.record import write_origin
from mmspec.embedded.training.scenes import PaintedScenes, check_counts, data_version, paint_scenes
from mmspec.embedded.training.schedule import Schedule
from mmspec.image.drafter import ImageDrafter
from mmspec.pipeline import Job
from mmspec.weights import resolve, write_checksums

__all__ = ["TrainJudge"]

_SIZE = 64  # of the pictures that the judge reads


class TrainJudge(Job):
    """Files: `scenes*/`, `pictures*.pt`, `judge/` (checkpoint, log, curve, sheets, `export/`).

    With a `workspace` they go there instead of the run's own folder, and what is there already is continued.
    """

    def __init__(
        self,
        *,
        workspace: str | None,
        drafter: ImageDrafter,
        autoencoder: str,
        num_scenes: int,
        num_reconstructed: int,
        num_redrawn: int,
        num_held_out: int,
        num_workers: int,
        num_steps: int,
        max_level: float,
        picture_size: int,
        scenes_seed: int,
        held_out_seed: int,
        channels: list[int],
        preview_share: float,
        batch_size: int,
        learning_rate: float,
        seed: int,
        schedule: Schedule,
        loop: LoopSettings,
    ) -> None:
        check_counts(num_scenes, num_reconstructed=num_reconstructed, num_redrawn=num_redrawn)
        self._workspace = workspace
        self._drafter = drafter
        self._autoencoder = autoencoder
        self._sets = {"": (scenes_seed, num_scenes), "_held_out": (held_out_seed, num_held_out)}
        self._num_reconstructed = num_reconstructed
        self._num_redrawn = num_redrawn
        self._num_workers = num_workers
        self._num_steps = num_steps
        self._max_level = max_level
        self._picture_size = picture_size
        self._channels = channels
        self._preview_share = preview_share
        self._batch_size = batch_size
        self._learning_rate = learning_rate
        self._seed = seed
        self._schedule = schedule
        self._loop = loop

    def run(self, folder: Path) -> None:
        """See `Job.run`."""
        place = Path(self._workspace) if self._workspace else folder
        torch.set_num_threads(self._loop.num_threads)
        scenes, held_out = (
            paint_scenes(
                place / f"scenes{name}",
                seed=seed,
                num_scenes=length,
                size=self._picture_size,
                num_workers=self._num_workers,
            )
            for name, (seed, length) in self._sets.items()
        )
        torch.manual_seed(self._seed)  # initial weights
        task = JudgeTask(
            Judge(channels=tuple(self._channels)),
            pictures=scenes,
            held_out={"painted": painted_previews(held_out, torch.arange(len(held_out)), size=_SIZE)}
            | self._drawn(place / "pictures_held_out.pt", held_out, len(held_out), len(held_out) // 2),
            previews=joined(
                list(self._drawn(place / "pictures.pt", scenes, self._num_reconstructed, self._num_redrawn).values())
            ),
            preview_share=self._preview_share,
            batch_size=self._batch_size,
            learning_rate=self._learning_rate,
            seed=self._seed,
            device=self._loop.device,
        )
        figures = train(task, self._schedule, self._loop, folder=place / "judge")
        export = place / "judge" / "export"
        write_origin(
            export,
            {
                "sets": self._sets,
                "data_version": data_version(),
                "model": {"channels": self._channels},
                "pictures": {"reconstructed": self._num_reconstructed, "redrawn": self._num_redrawn},
                "training": {
                    "preview_share": self._preview_share,
                    "batch_size": self._batch_size,
                    "learning_rate": self._learning_rate,
                    "max_level": self._max_level,
                    "seed": self._seed,
                },
                "held_out": figures,
            },
        )
        write_checksums(export)

    def _drawn(
        self, path: Path, scenes: PaintedScenes, num_reconstructed: int, num_redrawn: int
    ) -> dict[str, KnownPreviews]:
        """Scenes after the autoencoder and as the drafter redraws them, by how they were made."""
        if not path.exists():
            autoencoder = load_pipeline(resolve(self._autoencoder), dtype=torch.float32).vae
            reconstructed = reconstruct(autoencoder, scenes, torch.arange(num_reconstructed), size=_SIZE)
            redrawn = redraw(
                self._drafter,
                autoencoder,
                scenes,
                torch.arange(num_redrawn),
                num_steps=self._num_steps,
                max_level=self._max_level,
                size=_SIZE,
                seed=self._seed,
            )
            torch.save({"reconstructed": vars(reconstructed), "redrawn": vars(redrawn)}, path)
        return {name: KnownPreviews(**fields) for name, fields in torch.load(path).items()}
