"""Training of the autoencoder on painted scenes.

Knows pictures only. Latents get noise before decoding, of a standard deviation that each picture draws for itself from
[0, `latent_noise`], so that the decoder forgives the small errors of a diffusion model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from mmspec.embedded.autoencoder import Autoencoder
from mmspec.embedded.pixels import signed_from_bytes, unit_from_signed
from mmspec.embedded.training.device import Place
from mmspec.embedded.training.loop import Task
from mmspec.embedded.training.optimiser import Optimiser
from mmspec.embedded.training.scenes import PaintedScenes
from mmspec.embedded.training.sheet import contact_sheet
from mmspec.seeding import generator

__all__ = ["AutoencoderTask", "psnr"]

_NUM_SHEET = 16
_SQUARED = 5.0  # weight of the squared error: at 28 dB its slope is then a half of the absolute error's


class AutoencoderTask(Task):
    """L1, gradient and squared error, at the size drawn and at half of it, the size read.

    `held_out` is `[n, 3, 2h, 2w]` uint8; batches are drawn from `pictures` with horizontal flips.
    """

    def __init__(
        self,
        model: Autoencoder,
        *,
        pictures: PaintedScenes,
        held_out: Tensor,
        batch_size: int,
        learning_rate: float,
        latent_noise: float,
        seed: int,
        device: str = "cpu",
    ) -> None:
        self._model = model.to(memory_format=torch.channels_last)
        self._place = Place(device)
        self._place.put(model)
        self._pictures = pictures
        self._held_out = held_out
        self._batch_size = batch_size
        self._latent_noise = latent_noise
        self._seed = seed
        self._optimiser = Optimiser(
            model, learning_rate=learning_rate, weight_decay=0.01, betas=(0.9, 0.99), average_decay=0.998
        )

    def loss(self, step: int) -> tuple[Tensor, dict[str, float]]:
        """Reconstruction loss of one batch."""
        draw = generator(self._seed, "autoencoder-batch", step)
        chosen = torch.randint(len(self._pictures), (self._batch_size,), generator=draw).sort().values
        large = signed_from_bytes(self._pictures.batch(chosen))
        if step % 2:
            large = large.flip(3)
        large = large.contiguous(memory_format=torch.channels_last)
        small = functional.avg_pool2d(large, 2)
        latents = self._place.run(self._model.encode, small)
        strength = self._latent_noise * torch.rand(len(latents), 1, 1, 1, generator=draw)
        noise = torch.randn(latents.shape, generator=draw)
        drawn = self._place.run(self._model.decode, latents + strength * noise)
        at_half = functional.avg_pool2d(drawn, 2)
        loss = _distance(drawn, large) + _distance(at_half, small)
        return loss, {"psnr_half": float(psnr(at_half.detach(), small).mean())}

    def update(self, scale: float) -> None:
        """One AdamW step."""
        self._optimiser.step(scale)

    def state(self) -> dict[str, Any]:
        """Optimiser, and the running statistics of the latents, which no optimiser knows."""
        return {"optimiser": self._optimiser.state(), "norm": self._model.norm.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._optimiser.load(state["optimiser"])
        self._model.norm.load_state_dict(state["norm"])

    def evaluate(self) -> dict[str, float]:
        """Held-out PSNR in dB at both sizes."""
        large = signed_from_bytes(self._held_out)
        small = functional.avg_pool2d(large, 2)
        drawn = self._reconstruct(small)
        return {
            "psnr_half": float(psnr(functional.avg_pool2d(drawn, 2), small).mean()),
            "psnr_full": float(psnr(drawn, large).mean()),
        }

    def sheet(self) -> Image.Image:
        """Rows of originals above their reconstructions."""
        large = signed_from_bytes(self._held_out[:_NUM_SHEET])
        drawn = self._reconstruct(functional.avg_pool2d(large, 2))
        rows = [part for k in range(0, len(large), 8) for part in (large[k : k + 8], drawn[k : k + 8])]
        return contact_sheet(unit_from_signed(torch.cat(rows)), num_columns=8, tile=128)

    def export(self, folder: Path) -> None:
        """Write the averaged model as a `diffusers` model folder."""
        with self._optimiser.averaged():
            self._model.save_pretrained(folder)

    @torch.no_grad()
    def _reconstruct(self, small: Tensor) -> Tensor:
        self._model.eval()
        with self._optimiser.averaged():
            latents = [self._place.run(self._model.encode, part) for part in small.split(64)]
            drawn = torch.cat([self._place.run(self._model.decode, part) for part in latents])
        self._model.train()
        return drawn.clamp(-1, 1)


def _distance(drawn: Tensor, truth: Tensor) -> Tensor:
    difference = drawn - truth
    edges = difference.diff(dim=2).abs().mean() + difference.diff(dim=3).abs().mean()
    return difference.abs().mean() + 0.5 * edges + _SQUARED * difference.pow(2).mean()


def psnr(drawn: Tensor, truth: Tensor) -> Tensor:
    """Peak signal to noise ratio per picture in dB.

    Both `[n, 3, h, w]` in [-1, 1] (peak to peak 2) -> `[n]`.

    >>> float(psnr(torch.zeros(1, 3, 2, 2), torch.full((1, 3, 2, 2), 0.2)).round())
    20.0
    """
    return -10 * ((drawn - truth).pow(2).mean((1, 2, 3)) / 4).log10()
