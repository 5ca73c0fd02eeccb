"""Training of the judge on painted scenes and previews of known contents.

Knows scenes as data and pictures; knows no words. Legend: `n` pictures.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from mmspec.embedded.judge import Judge, Reading
from mmspec.embedded.scenes import Scene
from mmspec.embedded.training.clip import degrade
from mmspec.embedded.training.device import Place
from mmspec.embedded.training.loop import Task
from mmspec.embedded.training.optimiser import Optimiser
from mmspec.embedded.training.previews import KnownPreviews
from mmspec.embedded.training.scenes import PaintedScenes, scene_at
from mmspec.embedded.training.sheet import contact_sheet
from mmspec.embedded.world import COLOURS, COUNTS, NOUNS, PLACES, POSITIONS, TIMES, WEATHERS
from mmspec.seeding import generator

__all__ = ["JudgeTask", "accuracy"]

_SIZE = 64
_TABLES = {"place": list(PLACES), "time": list(TIMES), "weather": list(WEATHERS)}
_NOUNS = list(NOUNS)
_IGNORED = -100


class JudgeTask(Task):
    """Cross-entropy of every head; `preview_share` of a batch are `previews`, at the judge's size.

    `held_out` are named sets to measure on, also at the judge's size.
    """

    def __init__(
        self,
        model: Judge,
        *,
        pictures: PaintedScenes,
        held_out: Mapping[str, KnownPreviews],
        previews: KnownPreviews,
        preview_share: float,
        batch_size: int,
        learning_rate: float,
        seed: int,
        device: str = "cpu",
    ) -> None:
        self._model = model.to(memory_format=torch.channels_last)
        self._place = Place(device)
        self._place.put(model)
        self._pictures = pictures
        self._held_out = held_out
        self._previews = previews
        self._num_previews = round(preview_share * batch_size)
        self._batch_size = batch_size
        self._seed = seed
        self._optimiser = Optimiser(
            model, learning_rate=learning_rate, weight_decay=0.02, betas=(0.9, 0.98), average_decay=0.998
        )

    def loss(self, step: int) -> tuple[Tensor, dict[str, float]]:
        """Sum over the heads of one batch."""
        pixels, scenes = self._draw_batch(generator(self._seed, "judge-batch", step))
        with self._place.autocast():
            reading = self._model(pixels.to(self._place.device, memory_format=torch.channels_last))
        return self._loss(_float(reading), scenes)

    def _draw_batch(self, draw: torch.Generator) -> tuple[Tensor, list[Scene]]:
        chosen = (
            torch.randperm(len(self._pictures), generator=draw)[: self._batch_size - self._num_previews].sort().values
        )
        rows = torch.randint(len(self._previews), (self._num_previews,), generator=draw)
        painted = degrade(self._pictures.batch(chosen).float().div(255), draw, size=_SIZE)
        scenes = [scene_at(self._pictures.seed, int(k)) for k in chosen]
        scenes += [scene_at(self._previews.seed, int(k)) for k in self._previews.indices[rows]]
        return torch.cat([painted, self._previews.pictures[rows].float().div(255)]), scenes

    def _loss(self, reading: Reading, scenes: list[Scene]) -> tuple[Tensor, dict[str, float]]:
        parts = {kind: _cross_entropy(reading.scene[kind], _scene_labels(kind, scenes)) for kind in _TABLES}
        parts["noun"] = _noun_loss(reading.nouns, scenes)
        pictures, nouns, labels = _thing_labels(scenes)
        if len(pictures):
            found = self._model.describe(reading, pictures.to(self._place.device), nouns.to(self._place.device))
            for kind, target in labels.items():
                if (target != _IGNORED).any():
                    parts[kind] = _cross_entropy(getattr(found, kind), target)
        return torch.stack(list(parts.values())).sum(), {kind: float(part.detach()) for kind, part in parts.items()}

    def update(self, scale: float) -> None:
        """One AdamW step."""
        self._optimiser.step(scale)

    def state(self) -> dict[str, Any]:
        """The optimiser holds everything."""
        return self._optimiser.state()

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._optimiser.load(state)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Accuracy of every head on each held-out set."""
        with self._optimiser.averaged():
            self._model.eval()
            figures = {
                f"{name}_{kind}": value
                for name, known in self._held_out.items()
                for kind, value in accuracy(self._model, known).items()
            }
            self._model.train()
        return figures

    def sheet(self) -> Image.Image:
        """Pictures of a batch as the tower sees them."""
        return contact_sheet(self._draw_batch(generator(self._seed, "judge-sheet"))[0][:32], num_columns=8, tile=96)

    def export(self, folder: Path) -> None:
        """Write the averaged model."""
        with self._optimiser.averaged():
            self._model.save(folder)


@torch.no_grad()
def accuracy(judge: Judge, known: KnownPreviews) -> dict[str, float]:
    """How often `judge` is right about pictures of known contents, at its own size, on the device that it is on.

    Place, time, weather, and colour, count and position of things that are there: share of right answers. `noun`: a
    present thing scores above all absent ones; `noun_recall`: it scores above "nothing"; `noun_false`: things a picture
    that score above "nothing" and are not there.
    """
    scenes = [scene_at(known.seed, int(k)) for k in known.indices]
    readings = [judge(part.float().div(255).to(judge.device)) for part in known.pictures.split(100)]
    reading = Reading(
        {kind: torch.cat([r.scene[kind] for r in readings]) for kind in _TABLES},
        torch.cat([r.nouns for r in readings]),
        torch.cat([r.cells for r in readings]),
    )
    figures = {kind: _right(reading.scene[kind], _scene_labels(kind, scenes)) for kind in _TABLES}
    present = _present(scenes).to(judge.device)
    best_absent = reading.nouns[:, :-1].masked_fill(present, -torch.inf).amax(1, keepdim=True)
    seen = reading.nouns[:, :-1] > reading.nouns[:, -1:]
    figures["noun"] = float((reading.nouns[:, :-1] > best_absent)[present].float().mean())
    figures["noun_recall"] = float(seen[present].float().mean())
    figures["noun_false"] = float((seen & ~present).float().sum(1).mean())
    pictures, nouns, labels = _thing_labels(scenes)
    found = judge.describe(reading, pictures.to(judge.device), nouns.to(judge.device))
    return figures | {kind: _right(getattr(found, kind), target) for kind, target in labels.items()}


def _float(reading: Reading) -> Reading:
    return Reading({k: v.float() for k, v in reading.scene.items()}, reading.nouns.float(), reading.cells.float())


def _scene_labels(kind: str, scenes: list[Scene]) -> Tensor:
    values = [getattr(scene, kind) for scene in scenes]
    return torch.tensor([_IGNORED if value is None else _TABLES[kind].index(value) for value in values])


def _present(scenes: list[Scene]) -> Tensor:
    present = torch.zeros(len(scenes), len(_NOUNS), dtype=torch.bool)
    for n, scene in enumerate(scenes):
        present[n, [_NOUNS.index(prop.noun) for prop in scene.props]] = True
    return present


def _noun_loss(logits: Tensor, scenes: list[Scene]) -> Tensor:
    """Every present noun against "nothing" and all absent ones, and "nothing" against all absent ones: two softmaxes."""
    present = _present(scenes).to(logits.device)
    others = torch.cat([logits[:, :-1].masked_fill(present, -torch.inf), logits[:, -1:]], 1).logsumexp(1)
    nothing = (others - logits[:, -1]).mean()
    rows, nouns = present.nonzero(as_tuple=True)
    if not len(rows):
        return nothing
    return nothing + functional.softplus(others[rows] - logits[rows, nouns]).mean()


def _thing_labels(scenes: list[Scene]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """For every prop: its picture, its noun, and colour, count and position where the picture shows them."""
    rows = []
    for n, scene in enumerate(scenes):
        for prop in scene.props:
            colour = _IGNORED if prop.colour is None else list(COLOURS).index(prop.colour)
            placed = prop.count == 1 and prop.position in POSITIONS
            position = list(POSITIONS).index(prop.position) if placed else _IGNORED
            rows.append((n, _NOUNS.index(prop.noun), colour, list(COUNTS).index(prop.count), position))
    table = torch.tensor(rows, dtype=torch.long).reshape(-1, 5)
    return table[:, 0], table[:, 1], {"colour": table[:, 2], "count": table[:, 3], "position": table[:, 4]}


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels.to(logits.device), ignore_index=_IGNORED)


def _right(logits: Tensor, labels: Tensor) -> float:
    asked = labels != _IGNORED
    return float((logits.cpu()[asked].argmax(1) == labels[asked]).float().mean())
