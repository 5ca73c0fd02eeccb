"""Measure the embedded verifier on scenes and captions that nothing was trained on."""

from __future__ import annotations

import json
import logging
import platform
from pathlib import Path
from typing import Any

import torch

from mmspec.embedded.pipeline import load_pipeline
from mmspec.embedded.training.clip_calibration import known_margins, quality, retrieval
from mmspec.embedded.training.previews import KnownPreviews, draw_previews, painted_previews, reconstruct
from mmspec.embedded.training.scenes import caption_at, paint_scenes
from mmspec.image.drafter import ImageDrafter
from mmspec.pipeline import Job
from mmspec.verify.scorer import ContrastScorer
from mmspec.weights import resolve

__all__ = ["BenchModels"]

_LOGGER = logging.getLogger(__name__)


class BenchModels(Job):
    """Files: `results.json`, `table.md`, `scenes/`.

    Per kind of claim: area under the ROC curve, calibration error, share of planted mismatches caught at 5 % false
    prunes; on paintings, after the autoencoder, and on the drafter's previews at each noise level. Retrieval of the
    right caption among 64.
    """

    def __init__(
        self,
        *,
        scorer: ContrastScorer,
        drafter: ImageDrafter,
        autoencoder: str,
        num_scenes: int,
        num_steps: int,
        picture_size: int,
        scenes_seed: int,
        num_workers: int,
    ) -> None:
        self._scorer = scorer
        self._drafter = drafter
        self._autoencoder = autoencoder
        self._num_scenes = num_scenes
        self._num_steps = num_steps
        self._size = picture_size
        self._seed = scenes_seed
        self._num_workers = num_workers

    def run(self, folder: Path) -> None:
        """See `Job.run`."""
        scenes = paint_scenes(
            folder / "scenes",
            seed=self._seed,
            num_scenes=self._num_scenes,
            size=self._size,
            num_workers=self._num_workers,
        )
        indices = torch.arange(len(scenes))
        autoencoder = load_pipeline(resolve(self._autoencoder), dtype=torch.float32).vae
        painted = painted_previews(scenes, indices, size=self._size)
        drawn = draw_previews(
            self._drafter,
            autoencoder,
            scenes,
            indices,
            num_steps=self._num_steps,
            size=self._size,
            seed=self._seed,
        )
        rows = self._rows("paintings", painted)
        rows += self._rows("autoencoder", reconstruct(autoencoder, scenes, indices, size=self._size))
        for level in drawn.levels.unique().tolist():
            rows += self._rows(f"previews at noise level {level:.3f}", drawn.where(drawn.levels == level))
        captions = [caption_at(self._seed, k, variant=0) for k in range(len(scenes))]
        figures = {"retrieval_64": retrieval(self._scorer, painted, captions, group=64)}
        rows.append({"method": "paintings, caption among 64", "figures": figures})
        machine = {"python": platform.python_version(), "torch": torch.__version__, "processor": platform.processor()}
        machine["num_threads"] = str(torch.get_num_threads())
        results = {"machine": machine, "rows": rows}
        (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (folder / "table.md").write_text(_table(rows), encoding="utf-8")

    def _rows(self, name: str, previews: KnownPreviews) -> list[dict[str, Any]]:
        measured = quality(known_margins(self._scorer, previews, seed=self._seed), self._scorer)
        for kind, figures in measured.items():
            _LOGGER.info("%s, %s: %s", name, kind, ", ".join(f"{k} {v:.4f}" for k, v in figures.items()))
        return [{"method": f"{name}, {kind}", "figures": figures} for kind, figures in measured.items()]


def _table(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row["figures"]))
    lines = ["| pictures, claims | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row in rows:
        cells = [f"{row['figures'][name]:.3f}" if name in row["figures"] else "" for name in names]
        lines.append(f"| {row['method']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
