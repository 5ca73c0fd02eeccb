"""Training of the diffusion transformer on the latents of painted scenes.

Knows latents and encoded captions; the autoencoder is frozen and only draws the contact sheets.
Rectified flow with logit-normal times (arXiv 2403.03206) and caption dropout; cells under a prop weigh more, because
most of a picture is backdrop and the backdrop is learned first.
Legend: `n` scenes, `c` latent channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from mmspec.dtypes import AUTO, autocast, dtype_named
from mmspec.embedded.autoencoder import Autoencoder
from mmspec.embedded.flow import Guidance, euler_sample, noisy
from mmspec.embedded.pixels import signed_from_bytes
from mmspec.embedded.saving import save_pipeline
from mmspec.embedded.text_encoder import PaddedText
from mmspec.embedded.training.captions import EncodedCaptions
from mmspec.embedded.training.device import Place
from mmspec.embedded.training.loop import Task
from mmspec.embedded.training.optimiser import Optimiser
from mmspec.embedded.training.record import write_origin
from mmspec.embedded.training.scenes import PaintedScenes
from mmspec.embedded.training.sheet import contact_sheet
from mmspec.embedded.transformer import DiffusionTransformer
from mmspec.seeding import generator

__all__ = ["DiffusionTask", "LatentScenes", "encode_scenes"]

_SHEET_GUIDANCE = Guidance(scale=3.5, emphasis_scale=0.0, early_scale=1.5, early_time=0.95)
_SHEET_STEPS = 8


@dataclass(frozen=True, eq=False)
class LatentScenes:
    """A training set: `latents` `[n, c, 8, 8]` float16, `masks` `[n, 8, 8]` bool (under a prop), encoded captions."""

    latents: Tensor
    masks: Tensor
    captions: EncodedCaptions

    def __len__(self) -> int:
        return len(self.latents)


class DiffusionTask(Task):
    """Velocity matching. The model lives in the device's fastest precision, its optimiser in float32."""

    def __init__(
        self,
        model: DiffusionTransformer,
        autoencoder: Autoencoder,
        *,
        scenes: LatentScenes,
        held_out: LatentScenes,
        prompts: PaddedText,
        batch_size: int,
        learning_rate: float,
        matrix_learning_rate: float,
        average_decay: float,
        dropout: float,
        prop_weight: float,
        origin: Mapping[str, object],
        seed: int,
        device: str = "cpu",
    ) -> None:
        self._model = model
        nn.Module.to(model, dtype_named(AUTO, device=device))  # not ModelMixin.to, which warns of any cast
        self._place = Place(device)
        self._place.put(model)
        self._autoencoder = autoencoder.eval()
        self._scenes = scenes
        self._held_out = held_out
        self._prompts = prompts
        self._batch_size = batch_size
        self._dropout = dropout
        self._prop_weight = prop_weight
        self._origin = origin
        self._seed = seed
        self._optimiser = Optimiser(
            self._model,
            learning_rate=learning_rate,
            weight_decay=0.01,
            betas=(0.9, 0.98),
            average_decay=average_decay,
            matrices=self._model.matrices(),
            matrix_learning_rate=matrix_learning_rate,
        )

    def loss(self, step: int) -> tuple[Tensor, dict[str, float]]:
        """Weighted velocity error of one batch; `plain` is the unweighted one."""
        draw = generator(self._seed, "diffusion-batch", step)
        chosen = torch.randint(len(self._scenes), (self._batch_size,), generator=draw)
        error = self._error(self._scenes, chosen, draw, dropout=self._dropout)
        mask = self._scenes.masks[chosen][:, None].float()
        weight = 1 + (self._prop_weight - 1) * mask
        return (error * weight).sum() / (weight.sum() * error.shape[1]), {"plain": error.detach().mean().item()}

    def update(self, scale: float) -> None:
        """One step of Muon and AdamW."""
        self._optimiser.step(scale)

    def state(self) -> dict[str, Any]:
        """The optimiser holds everything."""
        return self._optimiser.state()

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._optimiser.load(state)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Velocity error of the averaged model on held-out scenes, whole pictures and under props, same draws always."""
        draw = generator(self._seed, "diffusion-held-out")
        errors, masks = [], []
        with self._optimiser.averaged():
            for chosen in torch.arange(len(self._held_out)).split(128):
                errors.append(self._error(self._held_out, chosen, draw, dropout=0.0).mean(1))
                masks.append(self._held_out.masks[chosen])
        error, mask = torch.cat(errors), torch.cat(masks)
        return {"held_out": error.mean().item(), "held_out_props": error[mask].mean().item()}

    def sheet(self) -> Image.Image:
        """The prompts drawn in a few steps by the averaged model, always from the same noise."""
        config = self._model.config
        shape = (len(self._prompts.lengths), config["latent_channels"], config["size"], config["size"])
        noise = torch.randn(shape, generator=generator(self._seed, "diffusion-sheet"))
        with self._optimiser.averaged():
            latents = euler_sample(
                self._velocity, noise, text=self._prompts, guidance=_SHEET_GUIDANCE, num_steps=_SHEET_STEPS
            )
        return contact_sheet(self._autoencoder.decode_unit(latents), num_columns=8, tile=128)

    def export(self, folder: Path) -> None:
        """Write the averaged model as a `diffusers` pipeline folder in float16."""
        with self._optimiser.averaged():
            save_pipeline(folder, self._autoencoder, self._model)
        write_origin(folder, self._origin)

    def _error(self, scenes: LatentScenes, chosen: Tensor, draw: torch.Generator, *, dropout: float) -> Tensor:
        n = len(chosen)
        x0 = scenes.latents[chosen].float()
        variants = torch.randint(scenes.captions.num_variants, (n,), generator=draw)
        text = scenes.captions.batch(chosen, variants)
        noise = torch.randn(x0.shape, generator=draw)
        time = torch.randn(n, generator=draw).sigmoid()
        dropped = torch.rand(n, generator=draw) < dropout
        velocity = self._velocity(noisy(x0, noise, time), time, text.tokens, text.lengths, text.pooled, dropped)
        return (velocity - (noise - x0)).pow(2)

    def _velocity(self, *inputs: Tensor) -> Tensor:
        """`DiffusionTransformer.forward`, with inputs and velocities float32 on the CPU."""
        return self._place.run(self._model, *inputs, autocast=False)


@torch.no_grad()
def encode_scenes(autoencoder: Autoencoder, scenes: PaintedScenes) -> Tensor:
    """Latents of all pictures of a painted set -> `[n, c, 8, 8]` float16."""
    autoencoder.eval()
    parts = []
    for chosen in torch.arange(len(scenes)).split(256):
        pictures = signed_from_bytes(scenes.batch(chosen)).contiguous(memory_format=torch.channels_last)
        with autocast():
            parts.append(autoencoder.encode(functional.avg_pool2d(pictures, 2)).half())
    return torch.cat(parts)
