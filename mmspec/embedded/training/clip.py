"""Training of the small CLIP on painted scenes: a softmax over all options of every question about a picture.

One picture answers several questions at once (place, time, weather; noun, colour, count and position of each
prop), so a swap of one attribute is a hard negative in every step. Captions against pictures are a side loss: as
the only one it is settled by place and time, and props stay invisible to it. The sentence encoder is frozen and
phrases are encoded once, so the text side costs a projection.
Legend: `n` pictures, `p` phrases of a step, `q` questions, `o` options, `d` joint width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from mmspec.embedded.clip import ClipShape, export
from mmspec.embedded.scenes import Scene
from mmspec.embedded.training.device import Place
from mmspec.embedded.training.loop import Task
from mmspec.embedded.training.optimiser import Optimiser
from mmspec.embedded.training.phrases import PhraseTable, Question, questions, synonyms
from mmspec.embedded.training.previews import KnownPreviews
from mmspec.embedded.training.scenes import PaintedScenes, scene_at
from mmspec.embedded.training.sheet import contact_sheet
from mmspec.seeding import generator
from mmspec.verify.calibration import area_under_curve

__all__ = ["ClipTask", "LossWeights", "QuestionBatch", "degrade", "margins", "melt"]

_MAX_LOG_SCALE = 4.6052  # logits at most 100 times the cosine, as in CLIP
_NUM_REFRESH = 24


@dataclass(frozen=True)
class LossWeights:
    """Weight of each kind of question, and of captions against pictures."""

    place: float = 0.5
    time: float = 0.5
    weather: float = 0.5
    prop: float = 1.0
    nothing: float = 0.3
    colour: float = 0.5
    count: float = 0.4
    position: float = 0.4
    caption: float = 0.2


class QuestionBatch:
    """The questions about a batch, as indices: `rows` `[p]` into the phrase table, and per kind
    `pictures` `[q]`, `options` `[q, o]` into the batch's phrases, `answers` `[q]`, `opponents` `[q, o]` bool.
    """

    def __init__(self, asked: list[list[Question]], table: PhraseTable) -> None:
        local: dict[str, int] = {}
        indices: dict[tuple[str, ...], list[int]] = {}  # most questions of a batch share their options
        kinds: dict[str, list[tuple[int, Question]]] = {}
        for picture, about in enumerate(asked):
            for question in about:
                kinds.setdefault(question.kind, []).append((picture, question))
                if question.options not in indices:
                    indices[question.options] = [local.setdefault(o, len(local)) for o in question.options]
        self.rows = table.rows(list(local))
        self.kinds = tuple(kinds)
        self.pictures = {kind: torch.tensor([n for n, _ in found]) for kind, found in kinds.items()}
        self.answers = {kind: torch.tensor([q.answer for _, q in found]) for kind, found in kinds.items()}
        self.options = {kind: torch.tensor([indices[q.options] for _, q in found]) for kind, found in kinds.items()}
        self.opponents = {}
        for kind, found in kinds.items():
            mask = torch.ones(len(found), len(found[0][1].options), dtype=torch.bool)
            for k, (_, question) in enumerate(found):
                mask[k, list(question.left_out)] = False
            self.opponents[kind] = mask

    def logits(self, kind: str, scores: Tensor) -> Tensor:
        """Scores of one kind `[q, o]` from `[n, p]`; options left out are out of the softmax."""
        chosen = scores[self.pictures[kind].unsqueeze(1), self.options[kind]]
        return chosen.masked_fill(~self.opponents[kind], -torch.inf)


class ClipTask(Task):
    """Trains image tower, projection and scale of `model` on painted scenes and on previews of known contents.

    `captions` `[m, w]` are sentence embeddings that belong to the first m pictures. `preview_share` of a batch are
    `previews`, which have the tower's size. `melted_share` of the paintings have their props melted to blobs of the
    right colour, as a weak drafter draws them, and then show nothing.
    """

    def __init__(
        self,
        model: Any,
        shape: ClipShape,
        *,
        table: PhraseTable,
        pictures: PaintedScenes,
        held_out: PaintedScenes,
        captions: Tensor,
        weights: LossWeights,
        batch_size: int,
        learning_rate: float,
        seed: int,
        text_encoder: str,
        previews: KnownPreviews | None,
        held_out_previews: KnownPreviews | None,
        preview_share: float,
        melted_share: float,
        device: str = "cpu",
    ) -> None:
        self._model = model
        self._place = Place(device)
        self._place.put(model)
        model.visual.to(memory_format=torch.channels_last)
        self._shape = shape
        self._table = table
        self._say = synonyms()
        self._pictures = pictures
        self._held_out = held_out
        self._captions = captions
        self._weights = weights
        self._batch_size = batch_size
        self._seed = seed
        self._text_encoder = text_encoder
        self._previews = previews
        self._held_out_previews = held_out_previews
        self._melted_share = melted_share
        self._num_previews = round(preview_share * batch_size) if previews is not None else 0
        self._optimiser = Optimiser(
            model, learning_rate=learning_rate, weight_decay=0.02, betas=(0.9, 0.98), average_decay=0.998
        )

    def loss(self, step: int) -> tuple[Tensor, dict[str, float]]:
        """Weighted mean over the kinds of question of one batch."""
        draw = generator(self._seed, "clip-batch", step)
        rng = numpy.random.default_rng([self._seed, step])
        chosen, pixels, scenes = self._draw_batch(draw, captioned=step % 4 == 0)
        say = {kind: tuple(_pick(names, rng) for names in terms.values()) for kind, terms in self._say.items()}
        batch = QuestionBatch([questions(scene, say, rng) for scene in scenes], self._table)
        image = self._image(pixels)
        scale = self._model.logit_scale.clamp(max=_MAX_LOG_SCALE).exp().cpu()
        scores = scale * image @ self._text(self._table.embeddings(batch.rows)).T
        figures, parts = {}, []
        for kind in batch.kinds:
            logits = batch.logits(kind, scores)
            loss = functional.cross_entropy(logits, batch.answers[kind])
            parts.append(getattr(self._weights, kind) * loss)
            figures[kind] = float(loss.detach())
        with_caption = chosen < len(self._captions)
        if with_caption.sum() > 1:
            captions = self._text(self._captions[chosen[with_caption]].float())
            logits = scale * image[: len(chosen)][with_caption] @ captions.T
            truth = torch.arange(len(logits))
            loss = (functional.cross_entropy(logits, truth) + functional.cross_entropy(logits.T, truth)) / 2
            parts.append(self._weights.caption * loss)
            figures["caption"] = float(loss.detach())
        return torch.stack(parts).sum(), figures

    def _draw_batch(self, draw: torch.Generator, *, captioned: bool) -> tuple[Tensor, Tensor, list[Scene]]:
        """Indices of the painted pictures `[m]`, all pixels `[n, 3, size, size]` in [0, 1], all scenes.

        A `captioned` batch is drawn from the pictures that have a caption.
        """
        limit = len(self._captions) if captioned and len(self._captions) else len(self._pictures)
        num_painted = self._batch_size - self._num_previews
        chosen = torch.randperm(limit, generator=draw)[:num_painted].sort().values
        pixels = degrade(self._pictures.batch(chosen).float().div_(255), draw, size=self._shape.image_size)
        scenes = [scene_at(self._pictures.seed, int(k)) for k in chosen]
        melting = torch.rand(len(chosen), generator=draw) < (0 if captioned else self._melted_share)
        if melting.any():
            masks = torch.from_numpy(self._pictures.masks[chosen[melting].numpy()])
            pixels[melting] = melt(pixels[melting], masks, draw)
            scenes = [replace(s, props=()) if gone else s for s, gone in zip(scenes, melting.tolist(), strict=True)]
        if self._previews is not None and self._num_previews:
            rows = torch.randint(len(self._previews), (self._num_previews,), generator=draw)
            pixels = torch.cat([pixels, self._previews.pictures[rows].float().div_(255)])
            scenes += [scene_at(self._previews.seed, int(k)) for k in self._previews.indices[rows]]
        return chosen, pixels, scenes

    def _image(self, pixels: Tensor) -> Tensor:
        pixels = pixels.mul(2).sub(1).contiguous(memory_format=torch.channels_last)
        # The fused kernel's backward pass is slow on CPU, and the tower attends over a handful of cells.
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            features = self._place.run(self._model.visual, pixels)
        return functional.normalize(features, dim=-1)

    def _text(self, embeddings: Tensor) -> Tensor:
        return functional.normalize(self._place.run(self._model.text.proj, embeddings, autocast=False), dim=-1)

    def update(self, scale: float) -> None:
        """One AdamW step."""
        self._optimiser.step(scale)

    def state(self) -> dict[str, Any]:
        """Optimiser, and the running statistics of the image tower's norms."""
        return {"optimiser": self._optimiser.state(), "buffers": dict(self._model.visual.named_buffers())}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._optimiser.load(state["optimiser"])
        for name, buffer in self._model.visual.named_buffers():
            buffer.copy_(state["buffers"][name])

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Area under the ROC curve per kind on held-out pictures: true phrase against one attribute swapped."""
        with self._optimiser.averaged():
            self._refresh_norms()
            self._model.eval()
            pixels = self._held_out.batch(torch.arange(len(self._held_out))).float().div_(255)
            pixels = functional.interpolate(pixels, size=(self._shape.image_size,) * 2, mode="area")
            figures = self._figures(pixels, [scene_at(self._held_out.seed, k) for k in range(len(pixels))])
            if (known := self._held_out_previews) is not None:
                scenes = [scene_at(known.seed, int(k)) for k in known.indices]
                found = self._figures(known.pictures.float().div(255), scenes)
                figures |= {f"preview_{name}": value for name, value in found.items()}
            self._model.train()
        return figures

    def _figures(self, pixels: Tensor, scenes: list[Scene]) -> dict[str, float]:
        image = torch.cat([self._image(part) for part in pixels.split(100)])
        rng = numpy.random.default_rng([self._seed, 7])
        say = {kind: tuple(names[0] for names in terms.values()) for kind, terms in self._say.items()}
        batch = QuestionBatch([questions(scene, say, rng) for scene in scenes], self._table)
        scale = float(self._model.logit_scale.clamp(max=_MAX_LOG_SCALE).exp())
        scores = scale * image @ self._text(self._table.embeddings(batch.rows)).T
        figures = {}
        for kind in (kind for kind in batch.kinds if kind != "nothing"):
            true, false = margins(batch, kind, scores, rng)
            figures[f"auc_{kind}"] = area_under_curve(true, false)
            logits = batch.logits(kind, scores)
            figures[f"top1_{kind}"] = float((logits.argmax(1) == batch.answers[kind]).float().mean())
        return figures

    def _refresh_norms(self) -> None:
        """Running statistics of the averaged weights: those of the raw weights do not fit them."""
        self._model.train()
        for k in range(_NUM_REFRESH):
            self._image(self._draw_batch(generator(self._seed, "clip-refresh", k), captioned=False)[1])

    def sheet(self) -> Image.Image:
        """Pictures of a batch as the tower sees them."""
        pixels = self._draw_batch(generator(self._seed, "clip-sheet"), captioned=False)[1]
        return contact_sheet(pixels, num_columns=8, tile=96)

    def export(self, folder: Path) -> None:
        """Write the averaged model as it ships."""
        with self._optimiser.averaged():
            export(self._model, self._shape, folder, text_encoder=self._text_encoder)


def melt(pixels: Tensor, masks: Tensor, draw: torch.Generator) -> Tensor:
    """Pictures `[n, 3, h, w]` whose props keep colour and place and lose their shape, as a weak drafter draws them.

    Under `masks` `[n, 8, 8]` bool, each picture is stirred: every pixel comes from up to about a fifth of the side away,
    by a displacement that is smooth over a sixth of the side.
    """
    n, _, height, width = pixels.shape
    coarse = torch.randn(n, 2, 7, 7, generator=draw) * 0.25
    shift = functional.interpolate(coarse, size=(height, width), mode="bicubic", align_corners=True)
    cover = functional.interpolate(masks[:, None].to(pixels.dtype), size=(height, width), mode="bilinear")
    identity = torch.eye(2, 3).expand(n, 2, 3)
    grid = functional.affine_grid(identity, [n, 3, height, width], align_corners=False)
    grid = grid + (shift * cover).permute(0, 2, 3, 1)
    stirred = functional.grid_sample(pixels, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    return torch.lerp(pixels, stirred, (2 * cover).clamp(max=1))


def margins(batch: QuestionBatch, kind: str, scores: Tensor, rng: numpy.random.Generator) -> tuple[Tensor, Tensor]:
    """Margin of the true option and of one wrong option of every question, both `[q]`.

    The margin of a claim is its score less the log-sum-exp of its opponents.
    """
    logits = batch.logits(kind, scores)
    answers = batch.answers[kind]
    true_ones = [{answer} for answer in answers.tolist()]
    num = logits.shape[1]
    if kind == "prop":  # a picture has several, and "an empty scene" is nobody's claim
        num -= 1
        seen: dict[int, set[int]] = {}
        for picture, answer in zip(batch.pictures[kind].tolist(), answers.tolist(), strict=True):
            seen.setdefault(picture, set()).add(answer)
        true_ones = [seen[picture] for picture in batch.pictures[kind].tolist()]
    wrong = torch.tensor([_another(rng, num, true) for true in true_ones])
    true = _margin(logits, answers)
    return true, _margin(logits, wrong)


def _margin(logits: Tensor, chosen: Tensor) -> Tensor:
    own = logits.gather(1, chosen.unsqueeze(1)).squeeze(1)
    others = logits.scatter(1, chosen.unsqueeze(1), -torch.inf)
    return own - others.logsumexp(1)


def _another(rng: numpy.random.Generator, num: int, true_ones: set[int]) -> int:
    options = [k for k in range(num) if k not in true_ones]
    return options[int(rng.integers(len(options)))]


def _pick(names: tuple[str, ...], rng: numpy.random.Generator) -> str:
    return names[0] if rng.random() < 0.5 else names[int(rng.integers(len(names)))]


def degrade(pixels: Tensor, draw: torch.Generator, *, size: int) -> Tensor:
    """Pictures at the tower's size, half of them as soft as a small decoder draws, some noisy or dim.

    `pixels` `[n, 3, h, w]` in [0, 1] -> `[n, 3, size, size]` in [0, 1].
    """
    n = len(pixels)
    soft = torch.rand(n, generator=draw) < 0.5
    half = functional.avg_pool2d(pixels, 2)
    if half.shape[-1] == size:
        pixels = half
    else:
        pixels = functional.interpolate(pixels, size=(size, size), mode="area")
        pixels[soft] = functional.interpolate(half[soft], size=(size, size), mode="bilinear")
    blurred = torch.rand(n, generator=draw) < 0.2
    pixels[blurred] = functional.avg_pool2d(pixels[blurred], 3, stride=1, padding=1, count_include_pad=False)
    noise = (torch.rand(n, 1, 1, 1, generator=draw) - 0.6).clamp(min=0) * 0.2
    gain = 1 + 0.16 * (torch.rand(n, 1, 1, 1, generator=draw) - 0.5)
    return (pixels * gain + noise * torch.randn(pixels.shape, generator=draw)).clamp(0, 1)
