"""Measure the embedded models on scenes, captions and prompts that nothing was trained on."""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from mmspec.embedded.judge import Judge
from mmspec.embedded.pipeline import load_pipeline
from mmspec.embedded.training.benchmark import Drawing, draw, fidelity, known_pictures, prompts, rates, shown
from mmspec.embedded.training.clip_calibration import known_margins, quality, retrieval
from mmspec.embedded.training.judge import accuracy
from mmspec.embedded.training.previews import KnownPreviews, bytes_of
from mmspec.embedded.training.record import table
from mmspec.embedded.training.scenes import caption_at, paint_scenes
from mmspec.embedded.training.sheet import captioned_sheet, contact_sheet
from mmspec.image.drafter import ImageDrafter, pixels_to_image
from mmspec.pipeline import Job
from mmspec.verify.scorer import ContrastScorer
from mmspec.weights import resolve

__all__ = ["BenchModels"]

_LOGGER = logging.getLogger(__name__)
_JUDGED = 64  # side of the pictures that the judge reads
_GROUP = 64  # captions that a picture's own is to be found among
_SHEET = 60  # pictures on a sheet


class BenchModels(Job):
    """Files: `results.json`, `table.md`, `drawn_<mode>.png`, `growing.png`, `autoencoder.png`, `scenes/`.

    Autoencoder: PSNR. Judge: accuracy. Drafter: share of prompts whose picture shows what was asked for, in every one
    of `modes` (denoising steps by name). Verifier: area under the ROC curve, calibration error and share of planted
    mismatches caught at 5 % false prunes, per kind of claim, on paintings, after the autoencoder, on pictures that the
    drafter finished, on those that it drew from prompts as far as the judge sees what they were asked for, and on
    previews at each noise level; retrieval of the right caption among 64.
    """

    def __init__(
        self,
        *,
        scorer: ContrastScorer,
        drafter: ImageDrafter,
        judge: str,
        autoencoder: str,
        modes: dict[str, int],
        num_prompts: int,
        num_scenes: int,
        num_steps: int,
        picture_size: int,
        prompts_seed: int,
        scenes_seed: int,
        num_workers: int,
    ) -> None:
        self._scorer = scorer
        self._drafter = drafter
        self._judge = Judge.load(judge)
        self._autoencoder = load_pipeline(resolve(autoencoder), dtype=torch.float32).vae
        self._modes = modes
        self._asked = prompts(prompts_seed, num_prompts)
        self._num_scenes = num_scenes
        self._num_steps = num_steps
        self._size = picture_size
        self._prompts_seed = prompts_seed
        self._seed = scenes_seed
        self._num_workers = num_workers
        self._rows: list[dict[str, object]] = []

    def run(self, folder: Path) -> None:
        """See `Job.run`."""
        scenes = paint_scenes(
            folder / "scenes",
            seed=self._seed,
            num_scenes=self._num_scenes,
            size=self._size,
            num_workers=self._num_workers,
        )
        self._add("autoencoder", fidelity(self._autoencoder, scenes))
        known = known_pictures(self._drafter, self._autoencoder, scenes, num_steps=self._num_steps, size=self._size)
        rows = [known[name].pictures[k : k + 10] for k in range(0, 40, 10) for name in list(known)[:3]]
        contact_sheet(torch.cat(rows) / 255, num_columns=10, tile=128).save(folder / "autoencoder.png")
        for name in ("paintings", "autoencoder", "redrawn"):
            small = bytes_of(known[name].pictures / 255, size=_JUDGED)
            self._add(f"judge, {name}", accuracy(self._judge, replace(known[name], pictures=small)))
        drawings = {mode: self._draw(mode, num_steps, folder) for mode, num_steps in self._modes.items()}
        self._growing(folder)
        for name, pictures in known.items():
            self._verify(name, pictures, judge=None)
        for mode, drawing in drawings.items():
            self._verify(f"drawn, {mode}", drawing.known(self._prompts_seed, size=self._size), judge=self._judge)
        machine = {"python": platform.python_version(), "torch": torch.__version__, "processor": platform.processor()}
        machine["num_threads"] = str(torch.get_num_threads())
        results = json.dumps({"machine": machine, "rows": self._rows}, indent=1)
        (folder / "results.json").write_text(results + "\n", encoding="utf-8")
        (folder / "table.md").write_text(table(self._rows), encoding="utf-8")

    def _draw(self, mode: str, num_steps: int, folder: Path) -> Drawing:
        """Draw and judge the prompts."""
        drawing = draw(self._drafter, self._asked, num_steps=num_steps, seed=self._prompts_seed)
        right = shown(self._judge, self._asked, drawing.pixels)
        for kind, figures in rates(self._asked, right).items():
            self._add(f"drawn, {mode} ({num_steps} steps), {kind}", figures)
        self._add(f"drawn, {mode} ({num_steps} steps)", {"step_ms": drawing.step_s * 1000})
        every = max(1, len(self._asked) // _SHEET)
        pictures = [pixels_to_image(pixels) for pixels in drawing.pixels[::every]][:_SHEET]
        words = [
            f"[{' '.join(f'no {name}' for name, yes in row.items() if not yes) or 'all right'}] {prompt.text}"
            for prompt, row in zip(self._asked[::every], right[::every], strict=True)
        ][:_SHEET]
        captioned_sheet(pictures, words, num_columns=10).save(folder / f"drawn_{mode}.png")
        return drawing

    def _growing(self, folder: Path) -> None:
        """A sheet of previews: one prompt a row, one step a column."""
        asked = self._asked[:8]
        drafts = self._drafter.start([prompt.text for prompt in asked], list(range(8)), num_steps=self._num_steps)
        columns = []
        for _ in range(self._num_steps):
            drafts = self._drafter.advance(drafts, 1)
            columns.append(torch.stack([preview.pixels for preview in self._drafter.preview(drafts)]))
        sheet = contact_sheet(torch.stack(columns, 1).flatten(0, 1), num_columns=self._num_steps, tile=128)
        sheet.save(folder / "growing.png")

    def _verify(self, name: str, pictures: KnownPreviews, *, judge: Judge | None) -> None:
        """Measure the verifier on pictures of known contents."""
        margins = known_margins(self._scorer, pictures, seed=self._seed, judge=judge)
        for kind, figures in quality(margins, self._scorer).items():
            self._add(f"{name}, {kind}", figures)
        if len(pictures) >= _GROUP:
            captions = [caption_at(pictures.seed, int(k), variant=0) for k in pictures.indices]
            self._add(f"{name}, caption", {"retrieval_64": retrieval(self._scorer, pictures, captions, group=_GROUP)})

    def _add(self, method: str, figures: Mapping[str, float]) -> None:
        _LOGGER.info("%s: %s", method, ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
        self._rows.append({"method": method, "figures": dict(figures)})
