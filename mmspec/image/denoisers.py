"""The networks of a `diffusers` pipeline behind one meaning: text in, guided prediction, pixels in and out.

Knows the UNet of Stable Diffusion 1.5, 2, LCM and XL, and their autoencoder; knows no draft and no schedule's history.
Latents are float32 on the CPU, unscaled by the scheduler; pixels are in [0, 1].
Legend: `n` pictures, `c` latent channels, `h`/`w` height and width of the latents, `l` tokens, `d` text width.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from typing_extensions import override

from mmspec.errors import InputError
from mmspec.image.courses import Course, DiffusionCourse
from mmspec.image.prompts import pieces

__all__ = ["Condition", "Denoiser", "UNetDenoiser", "UNetXLDenoiser"]


@dataclass(frozen=True, eq=False)
class Condition:
    """One encoded text: `tokens` `[l, d]`, what else the network takes of it, and the end of it that was not read."""

    tokens: Tensor
    added: dict[str, Tensor] = field(default_factory=dict)
    unread: str = ""


class Denoiser(abc.ABC):
    """The loaded `pipeline` on `device`, for pictures of `width` x `height` pixels; None: the model's own size.

    Raises `InputError` for a size that does not divide.
    """

    takes_guidance: bool
    """The guidance scale is an input of the network, which is asked once per step."""

    def __init__(self, pipeline: Any, *, device: str, width: int | None, height: int | None) -> None:
        self._pipeline = pipeline
        self._device = torch.device(device)
        own_height, own_width = self._own_size()
        self.width, self.height = width or own_width, height or own_height
        for name, value in (("width", self.width), ("height", self.height)):
            if value < 1 or value % self._multiple():
                raise InputError(f"{name}={value} does not fit the model: expected a multiple of {self._multiple()}")
        factor = pipeline.vae_scale_factor
        self.latent_shape = (self._num_channels(), self.height // factor, self.width // factor)

    @abc.abstractmethod
    def _own_size(self) -> tuple[int, int]:
        """Height and width that the model was made for, in pixels."""

    @abc.abstractmethod
    def _multiple(self) -> int:
        """What width and height must be multiples of."""

    @abc.abstractmethod
    def _num_channels(self) -> int:
        """Latent channels."""

    @abc.abstractmethod
    def course(self, num_steps: int) -> Course:
        """A course of `num_steps`. Raises `InputError` or `WeightsError` where there is none."""

    @abc.abstractmethod
    def encode(self, text: str) -> Condition:
        """Encode a prompt."""

    @abc.abstractmethod
    def predict(
        self, latents: Tensor, times: Tensor, conditions: Sequence[Condition], *, guidance_scale: float
    ) -> Tensor:
        """The network's output for `latents` `[n, c, h, w]` at `times` `[n]`, the same shape, float32 on the CPU."""

    @torch.no_grad()
    def decode(self, x0: Tensor) -> Tensor:
        """Latents `[c, h, w]` as pixels `[3, height, width]`."""
        vae = self._pipeline.vae
        latents = x0[None] / vae.config.scaling_factor + self._shift()
        pixels = vae.decode(latents.to(self._device, vae.dtype)).sample[0]
        return (pixels.float().cpu() / 2 + 0.5).clamp(0, 1)

    @torch.no_grad()
    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Pixels `[3, height, width]` as latents `[c, h, w]`: the mode of the autoencoder's distribution."""
        vae = self._pipeline.vae
        encoded = vae.encode((pixels[None] * 2 - 1).to(self._device, vae.dtype))
        latents = encoded.latents if "latents" in encoded else encoded.latent_dist.mode()
        return ((latents.float().cpu() - self._shift()) * vae.config.scaling_factor)[0]

    def _shift(self) -> float:
        return self._pipeline.vae.config.get("shift_factor") or 0.0


class UNetDenoiser(Denoiser):
    """Stable Diffusion 1.5, 2, Turbo and LCM: one CLIP, whose last hidden states the UNet attends to."""

    def __init__(self, pipeline: Any, *, device: str, width: int | None, height: int | None) -> None:
        super().__init__(pipeline, device=device, width=width, height=height)
        # Distilled with guidance as an input (LCM, arXiv 2310.04378).
        self.takes_guidance = pipeline.unet.config.time_cond_proj_dim is not None

    @override
    def _own_size(self) -> tuple[int, int]:
        size = self._pipeline.unet.config.sample_size
        height, width = (size, size) if isinstance(size, int) else size
        return height * self._pipeline.vae_scale_factor, width * self._pipeline.vae_scale_factor

    @override
    def _multiple(self) -> int:
        return self._pipeline.vae_scale_factor

    @override
    def _num_channels(self) -> int:
        return self._pipeline.unet.config.in_channels

    @override
    def course(self, num_steps: int) -> Course:
        if num_steps < 1:
            raise InputError(f"num_steps={num_steps} is too small: expected at least 1")
        return DiffusionCourse.of(self._pipeline.scheduler, num_steps)

    @override
    @torch.no_grad()
    def encode(self, text: str) -> Condition:
        ids = pieces(self._pipeline.tokenizer, text).to(self._device)
        return Condition(self._pipeline.text_encoder(ids)[0].flatten(0, 1))

    @override
    @torch.no_grad()
    def predict(
        self, latents: Tensor, times: Tensor, conditions: Sequence[Condition], *, guidance_scale: float
    ) -> Tensor:
        unet = self._pipeline.unet
        lengths = torch.tensor([len(c.tokens) for c in conditions])
        longest = int(lengths.max())
        # Shorter prompts are padded with nothing, and nobody looks there: a picture does not depend on its batch.
        seen = (torch.arange(longest) < lengths[:, None]).to(self._device) if int(lengths.min()) < longest else None
        scale_embedding = None
        if self.takes_guidance:
            scales = torch.full((len(latents),), guidance_scale - 1)
            width = unet.config.time_cond_proj_dim
            scale_embedding = self._pipeline.get_guidance_scale_embedding(scales, embedding_dim=width)
            scale_embedding = scale_embedding.to(self._device, unet.dtype)
        added = {key: torch.stack([c.added[key] for c in conditions]) for key in conditions[0].added}
        prediction = unet(
            latents.to(self._device, unet.dtype),
            times.to(self._device),
            encoder_hidden_states=pad_sequence([c.tokens for c in conditions], batch_first=True),
            encoder_attention_mask=seen,
            timestep_cond=scale_embedding,
            added_cond_kwargs=added or None,
        ).sample
        return prediction.float().cpu()


class UNetXLDenoiser(UNetDenoiser):
    """Stable Diffusion XL: two CLIPs side by side, and a summary of the text and the size beside the time."""

    @override
    @torch.no_grad()
    def encode(self, text: str) -> Condition:
        """See `Denoiser.encode`; no text is all zeros where the model was trained so."""
        parts, pooled = [], None
        for number in ("", "_2"):
            ids = pieces(getattr(self._pipeline, f"tokenizer{number}"), text).to(self._device)
            found = getattr(self._pipeline, f"text_encoder{number}")(ids, output_hidden_states=True)
            parts.append(found.hidden_states[-2].flatten(0, 1))
            pooled = found[0][0]  # of the second encoder in the end: the summary of its first piece
        shortest = min(len(part) for part in parts)
        tokens = torch.cat([part[:shortest] for part in parts], -1)
        size = (self.height, self.width, 0, 0, self.height, self.width)
        assert pooled is not None
        if not text and self._pipeline.config.force_zeros_for_empty_prompt:
            tokens, pooled = torch.zeros_like(tokens), torch.zeros_like(pooled)
        added = {"text_embeds": pooled, "time_ids": torch.tensor(size, dtype=tokens.dtype, device=tokens.device)}
        return Condition(tokens, added)
