"""Flux behind the meaning of `denoisers`: a transformer over packed latents, conditioned on T5 and a CLIP summary.

Knows `FluxTransformer2DModel`, which sees two by two latents as one token; knows no draft.
Legend: `n` pictures, `c` latent channels, `h`/`w` height and width of the latents, `t` = `h w / 4` picture tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from mmspec.image.courses import Course, FlowCourse
from mmspec.image.denoisers import Condition, Denoiser
from mmspec.image.prompts import readable

__all__ = ["FluxDenoiser"]


class FluxDenoiser(Denoiser):
    """Flux: guidance is an input (dev) or was distilled away (schnell)."""

    def __init__(self, pipeline: Any, *, device: str, width: int | None, height: int | None) -> None:
        super().__init__(pipeline, device=device, width=width, height=height)
        self.takes_guidance = pipeline.transformer.config.guidance_embeds
        # What the two models were trained with: 512 tokens for dev, half for schnell.
        self._max_tokens = min(512 if self.takes_guidance else 256, pipeline.tokenizer_2.model_max_length)

    @override
    def _own_size(self) -> tuple[int, int]:
        side = self._pipeline.default_sample_size * self._pipeline.vae_scale_factor
        return side, side

    @override
    def _multiple(self) -> int:
        return 2 * self._pipeline.vae_scale_factor

    @override
    def _num_channels(self) -> int:
        return self._pipeline.transformer.config.in_channels // 4

    @override
    def course(self, num_steps: int) -> Course:
        _, h, w = self.latent_shape
        return FlowCourse.of(self._pipeline.scheduler, num_steps, num_tokens=h * w // 4)

    @override
    @torch.no_grad()
    def encode(self, text: str) -> Condition:
        """See `Denoiser.encode`: T5 reads the text up to its limit; CLIP's summary is of the beginning alone."""
        tokenizer, second = self._pipeline.tokenizer, self._pipeline.tokenizer_2
        read = readable(second, text, max_tokens=self._max_tokens)
        tokens, pooled, _ = self._pipeline.encode_prompt(
            prompt=readable(tokenizer, text, max_tokens=tokenizer.model_max_length),
            prompt_2=read,
            device=self._device,
            max_sequence_length=self._max_tokens,
        )
        return Condition(tokens[0], {"pooled": pooled[0]}, unread=text[len(read) :].strip())

    @override
    @torch.no_grad()
    def predict(
        self, latents: Tensor, times: Tensor, conditions: Sequence[Condition], *, guidance_scale: float
    ) -> Tensor:
        transformer = self._pipeline.transformer
        dtype, device = transformer.dtype, self._device
        tokens = torch.stack([c.tokens for c in conditions])
        scales = torch.full((len(latents),), guidance_scale, device=device) if self.takes_guidance else None
        prediction = transformer(
            hidden_states=_packed(latents).to(device, dtype),
            timestep=times.to(device, dtype) / 1000,
            guidance=scales,
            pooled_projections=torch.stack([c.added["pooled"] for c in conditions]),
            encoder_hidden_states=tokens,
            txt_ids=torch.zeros(tokens.shape[1], 3, device=device, dtype=dtype),
            img_ids=_places(latents.shape[2] // 2, latents.shape[3] // 2).to(device, dtype),
        ).sample
        return _unpacked(prediction.float().cpu(), latents.shape)


def _packed(latents: Tensor) -> Tensor:
    """`[n, c, h, w]` -> `[n, t, 4 c]`."""
    return functional.pixel_unshuffle(latents, 2).flatten(2).transpose(1, 2)


def _unpacked(tokens: Tensor, shape: torch.Size) -> Tensor:
    """`[n, t, 4 c]` -> `[n, c, h, w]` of `shape`."""
    n, _, h, w = shape
    return functional.pixel_shuffle(tokens.transpose(1, 2).reshape(n, -1, h // 2, w // 2), 2)


def _places(rows: int, columns: int) -> Tensor:
    """Where the picture tokens are: `[t, 3]`, the first column is not used."""
    axes = [torch.arange(size, dtype=torch.float32) for size in (1, rows, columns)]
    return torch.cartesian_prod(*axes)
