"""Previews with known contents: painted scenes as a drafter shows them half-way, and after the autoencoder.

A painted scene's latents are noised to a step of the drafter's schedule and denoised by one step, exactly as in a
run; what is on the picture is known, because it was painted. So a verifier can be trained and calibrated at every
noise level without guessing whether a generated picture shows what was asked for. Denoised to the end from a low
noise level, they are pictures in the drafter's own hand of which nearly everything is still known.
Knows the drafter's and the autoencoder's interface; knows no verifier. Legend: `n` previews.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from mmspec.dtypes import autocast
from mmspec.embedded.autoencoder import Autoencoder
from mmspec.embedded.flow import noisy
from mmspec.embedded.pixels import signed_from_bytes
from mmspec.embedded.training.scenes import PaintedScenes, caption_at
from mmspec.errors import InputError
from mmspec.image.drafter import ImageDrafter
from mmspec.image.embedded import EmbeddedDrafter
from mmspec.seeding import derive, generator
from mmspec.types import ImageDraft

__all__ = ["KnownPreviews", "bytes_of", "draw_previews", "joined", "painted_previews", "reconstruct", "redraw"]

_BATCH = 32
_CAPTION_VARIANTS = 1000  # far from the variants that anything is trained on


@dataclass(frozen=True, eq=False)
class KnownPreviews:
    """`pictures` `[n, 3, size, size]` uint8 of scenes `indices` `[n]` int64 of set `seed`, at noise `levels` `[n]`."""

    seed: int
    indices: Tensor
    levels: Tensor
    pictures: Tensor

    def __len__(self) -> int:
        return len(self.indices)

    def where(self, chosen: Tensor) -> KnownPreviews:
        """Those of `chosen` `[n]` bool."""
        return KnownPreviews(self.seed, self.indices[chosen], self.levels[chosen], self.pictures[chosen])


def painted_previews(scenes: PaintedScenes, indices: Tensor, *, size: int) -> KnownPreviews:
    """Scenes `indices` `[n]` as they were painted."""
    parts = [bytes_of(scenes.batch(part).float().div(255), size=size) for part in indices.split(_BATCH)]
    return KnownPreviews(scenes.seed, indices, torch.zeros(len(indices)), torch.cat(parts))


@torch.no_grad()
def reconstruct(autoencoder: Autoencoder, scenes: PaintedScenes, indices: Tensor, *, size: int) -> KnownPreviews:
    """Scenes `indices` `[n]` after encoding and decoding: noise level 0, drawn by the decoder."""
    out = []
    for part in indices.split(_BATCH):
        with autocast():
            latents = _latents(autoencoder, scenes, part)
            out.append(bytes_of(autoencoder.decode_unit(latents), size=size))
    return KnownPreviews(scenes.seed, indices, torch.zeros(len(indices)), torch.cat(out))


@torch.no_grad()
def draw_previews(
    drafter: ImageDrafter,
    autoencoder: Autoencoder,
    scenes: PaintedScenes,
    indices: Tensor,
    *,
    num_steps: int,
    size: int,
    seed: int,
) -> KnownPreviews:
    """Scenes `indices` `[n]` as the drafter previews them after a random step of `num_steps`.

    Every draft is conditioned on a caption of its own scene.
    """
    out, levels = [], []
    for number, part in enumerate(indices.split(_BATCH)):
        draw = generator(seed, "known-previews", number)
        steps = torch.randint(num_steps, (len(part),), generator=draw)
        drafts = _noised(drafter, autoencoder, scenes, part, steps, num_steps=num_steps, draw=draw, seed=seed)
        previews = drafter.preview(drafter.advance(drafts, 1))
        out.append(bytes_of(torch.stack([preview.pixels for preview in previews]), size=size))
        levels += [preview.noise_level for preview in previews]
    return KnownPreviews(scenes.seed, indices, torch.tensor(levels), torch.cat(out))


@torch.no_grad()
def redraw(
    drafter: ImageDrafter,
    autoencoder: Autoencoder,
    scenes: PaintedScenes,
    indices: Tensor,
    *,
    num_steps: int,
    max_level: float,
    size: int,
    seed: int,
) -> KnownPreviews:
    """Scenes `indices` `[n]` finished by the drafter from a random noise level of its schedule up to `max_level`.

    Up to half of the noise, the layout and the colours stay and the drafter redraws the detail.
    """
    first = int((_levels(drafter, num_steps) > max_level).sum())
    out = []
    for number, part in enumerate(indices.split(_BATCH)):
        draw = generator(seed, "redrawn", number)
        steps = torch.randint(first, num_steps, (len(part),), generator=draw)
        drafts = _noised(drafter, autoencoder, scenes, part, steps, num_steps=num_steps, draw=draw, seed=seed)
        previews = drafter.preview(drafter.advance(drafts, num_steps))
        out.append(bytes_of(torch.stack([preview.pixels for preview in previews]), size=size))
    return KnownPreviews(scenes.seed, indices, torch.zeros(len(indices)), torch.cat(out))


def _noised(
    drafter: ImageDrafter,
    autoencoder: Autoencoder,
    scenes: PaintedScenes,
    indices: Tensor,
    steps: Tensor,
    *,
    num_steps: int,
    draw: torch.Generator,
    seed: int,
) -> list[ImageDraft]:
    """Drafts that stand at `steps` `[n]` on the way to scenes `indices`, each with a caption of its scene."""
    latents = _latents(autoencoder, scenes, indices)
    noise = torch.randn(latents.shape, generator=draw)
    mixed = noisy(latents, noise, _levels(drafter, num_steps)[steps])
    return [
        ImageDraft(
            mixed[k],
            int(steps[k]),
            num_steps,
            derive(seed, "known-preview", int(index)),
            caption_at(scenes.seed, int(index), variant=_CAPTION_VARIANTS),
        )
        for k, index in enumerate(indices)
    ]


def _levels(drafter: ImageDrafter, num_steps: int) -> Tensor:
    """Noise levels of the drafter's own schedule, `[num_steps + 1]`. Raises `InputError` for another kind of drafter."""
    if not isinstance(drafter, EmbeddedDrafter):
        raise InputError("previews of painted scenes are drawn by the embedded models alone: set diffusion=embedded")
    return drafter.noise_levels(num_steps)


def _latents(autoencoder: Autoencoder, scenes: PaintedScenes, indices: Tensor) -> Tensor:
    half = functional.avg_pool2d(signed_from_bytes(scenes.batch(indices)), 2)
    return autoencoder.encode(half.to(autoencoder.dtype)).float()


def bytes_of(pixels: Tensor, *, size: int) -> Tensor:
    """[0, 1] to uint8 at `size` pixels a side."""
    pixels = functional.interpolate(pixels.float(), size=(size, size), mode="area")
    return pixels.mul(255).round().clamp(0, 255).to(torch.uint8)


def joined(parts: Sequence[KnownPreviews]) -> KnownPreviews:
    """Several sets of the same scenes as one."""
    assert len({part.seed for part in parts}) == 1
    return KnownPreviews(
        parts[0].seed,
        torch.cat([part.indices for part in parts]),
        torch.cat([part.levels for part in parts]),
        torch.cat([part.pictures for part in parts]),
    )
