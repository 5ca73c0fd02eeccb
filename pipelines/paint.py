"""A contact sheet of painted scenes with their captions: what the embedded models learn from."""

import json
import logging
import time
from pathlib import Path

import numpy as np

from mmspec.embedded.captions import caption
from mmspec.embedded.painter import Painter
from mmspec.embedded.scenes import sample_scene
from mmspec.embedded.training.sheet import captioned_sheet
from mmspec.errors import InputError
from mmspec.pipeline import Job

_LOGGER = logging.getLogger(__name__)


class Paint(Job):
    """Paints `num_scenes` random scenes; writes `sheet.png`, `captions.txt` and `results.json`."""

    def __init__(self, *, num_scenes: int, columns: int, size: int, seed: int) -> None:
        if num_scenes < 1 or columns < 1:
            raise InputError(f"num_scenes={num_scenes}, columns={columns}: expected at least 1 of each")
        self._num_scenes, self._columns, self._size, self._seed = num_scenes, columns, size, seed

    def run(self, folder: Path) -> None:
        """Paint the sheet and time the painter on one thread."""
        rng = np.random.default_rng(self._seed)
        scenes = [sample_scene(rng) for _ in range(self._num_scenes)]
        captions = [caption(scene, rng) for scene in scenes]
        painter = Painter(self._size)
        started = time.perf_counter()
        pictures = [painter.paint(scene, seed=self._seed + k) for k, scene in enumerate(scenes)]
        rate = len(scenes) / (time.perf_counter() - started)
        captioned_sheet(pictures, captions, num_columns=self._columns).save(folder / "sheet.png")
        (folder / "captions.txt").write_text("\n".join(captions) + "\n", encoding="utf-8")
        figures = {"scenes_per_s": round(rate, 1)}
        rows = [{"method": "painter", "threads": 1, "size": self._size, "figures": figures}]
        (folder / "results.json").write_text(json.dumps({"rows": rows}, indent=2), encoding="utf-8")
        _LOGGER.info("painted %d scenes at %.0f scenes/s: %s", len(scenes), rate, folder / "sheet.png")
