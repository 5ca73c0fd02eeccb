"""Painted scenes on disk: a training set that is fixed by its seed and its length.

Knows the painter and files; knows no model. Scene `i` of a seed is drawn from its own generator, so a set can be
extended, painted by several processes, or described in one line: (seed, length).
Legend: `n` scenes.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import multiprocessing
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from torch import Tensor

from mmspec.embedded.captions import caption
from mmspec.embedded.painter import Painter
from mmspec.embedded.scenes import Scene, sample_scene
from mmspec.errors import InputError

__all__ = ["PaintedScenes", "caption_at", "check_counts", "data_version", "paint_scenes", "scene_at"]

_NUM_CELLS = 8  # prop masks are kept on the grid of the latents
_CHUNK = 500
_SAMPLE = 8


@dataclass(frozen=True, eq=False)
class PaintedScenes:
    """A painted set: `pictures` `[n, size, size, 3]` uint8 on disk, `masks` `[n, 8, 8]` bool, True under a prop."""

    seed: int
    pictures: numpy.ndarray
    masks: numpy.ndarray

    def __len__(self) -> int:
        return len(self.pictures)

    def batch(self, chosen: Tensor) -> Tensor:
        """Pictures of the scenes `chosen` `[n]` int64 -> `[n, 3, size, size]` uint8."""
        return torch.from_numpy(self.pictures[chosen.numpy()]).permute(0, 3, 1, 2)


def scene_at(seed: int, index: int) -> Scene:
    """Scene `index` of the endless set `seed`."""
    return sample_scene(numpy.random.default_rng([seed, index]))


def caption_at(seed: int, index: int, *, variant: int) -> str:
    """One of many captions of scene `index`; different variants are phrased independently."""
    return caption(scene_at(seed, index), numpy.random.default_rng([seed, index, variant + 1]))


def check_counts(num_scenes: int, **counts: int) -> None:
    """Raises `InputError` where one of `counts`, by its knob, asks for more scenes than are painted.

    >>> check_counts(64, num_previews=64)
    """
    for name, count in counts.items():
        if not 0 <= count <= num_scenes:
            raise InputError(f"{name}={count} with num_scenes={num_scenes}: expected 0 to {num_scenes}")


def data_version() -> str:
    """Twelve hexadecimal digits of what the painter paints and says today: the first scenes of set 0, pixels and captions.

    Sets of the same seed and length are the same where this is the same.
    """
    digest, painter = hashlib.sha256(), Painter(128)
    for index in range(_SAMPLE):
        digest.update(painter.painting(scene_at(0, index), seed=index).image.tobytes())
        digest.update(caption_at(0, index, variant=0).encode())
    return digest.hexdigest()[:12]


def paint_scenes(folder: Path, *, seed: int, num_scenes: int, size: int, num_workers: int) -> PaintedScenes:
    """Paint scenes 0 .. `num_scenes` - 1 of `seed` to `folder`; a set that is there already is only opened.

    Raises `InputError` where `folder` holds another set.
    """
    description = {"seed": seed, "num_scenes": num_scenes, "size": size}
    done = folder / "set.json"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _create(folder / "pictures.npy", (num_scenes, size, size, 3), numpy.uint8)
        _create(folder / "masks.npy", (num_scenes, _NUM_CELLS, _NUM_CELLS), numpy.bool_)
        starts = range(0, num_scenes, _CHUNK)
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(num_workers, mp_context=context) as pool:
            jobs = [pool.submit(_paint, folder, seed, k, min(k + _CHUNK, num_scenes), size) for k in starts]
            for job in jobs:
                job.result()
        done.write_text(json.dumps(description))
    if (found := json.loads(done.read_text())) != description:
        raise InputError(f"{folder} holds {found}, expected {description}: choose another folder")
    return PaintedScenes(
        seed,
        numpy.load(folder / "pictures.npy", mmap_mode="r"),
        numpy.load(folder / "masks.npy", mmap_mode="r"),
    )


def _create(path: Path, shape: tuple[int, ...], dtype: type) -> None:
    numpy.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape).flush()


def _paint(folder: Path, seed: int, start: int, stop: int, size: int) -> None:
    pictures = numpy.load(folder / "pictures.npy", mmap_mode="r+")
    masks = numpy.load(folder / "masks.npy", mmap_mode="r+")
    painter = Painter(size)
    for index in range(start, stop):
        painting = painter.painting(scene_at(seed, index), seed=index)
        pictures[index] = numpy.asarray(painting.image)
        for left, top, right, bottom in painting.boxes:
            rows = slice(int(top * _NUM_CELLS), int(numpy.ceil(bottom * _NUM_CELLS)))
            columns = slice(int(left * _NUM_CELLS), int(numpy.ceil(right * _NUM_CELLS)))
            masks[index, rows, columns] = True
