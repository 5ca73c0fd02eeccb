"""The image drafter over the embedded models: rectified flow in a few Euler steps.

Knows the embedded `diffusers` folder, its scheduler's sigmas and the frozen text encoder. The scheduler's Euler step
is written out (`latents + (next sigma - sigma) * velocity`), because the drafts of one batch stand at different steps.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy
import torch
from torch import Tensor
from typing_extensions import override

from mmspec.dtypes import dtype_named
from mmspec.embedded.flow import Guidance, guided_velocity, noisy, x0_of
from mmspec.embedded.pixels import signed_from_unit
from mmspec.embedded.rephrase import rephrased
from mmspec.embedded.text_encoder import PaddedText, TextEncoder, TextFeatures, pad_features
from mmspec.errors import InputError, ModelError
from mmspec.image.drafter import ImageDrafter
from mmspec.image.pictures import fitted, read_picture
from mmspec.image.prompts import readable
from mmspec.seeding import generator
from mmspec.types import Emphasis, ImageDraft, Preview
from mmspec.weights import resolve

if TYPE_CHECKING:
    from mmspec.embedded.pipeline import EmbeddedModels

__all__ = ["EmbeddedDrafter"]

_DTYPES = ("float32", "bfloat16")
_NUM_REMEMBERED_CONDITIONS = 256


@dataclass(frozen=True, eq=False)
class _State:
    """The guided velocity of the last step, and the sigma that the step led to."""

    velocity: Tensor
    sigma: float


class EmbeddedDrafter(ImageDrafter):
    """Draws 128x128 pictures of the embedded world.

    `path` and `text_encoder` are references for `mmspec.weights`; `dtype` is "float32", "bfloat16" or
    "auto", the precision of the transformer and of the decoder. `guidance_scale` pulls towards the condition, `emphasis_scale` towards a phrase
    to emphasise, `early_guidance_scale` replaces the former above sigma `early_sigma`, where nothing is visible yet.
    With `rephrase`, known words that the transformer never read are said in words that it did. With `init_image`, a file, drafts do not begin with noise but with this picture at noise `init_level`. `num_steps` and
    `draft_steps` are what pipelines take of it by default. Raises `WeightsError` for a missing or foreign folder,
    `InputError` for an unknown dtype or a file that is no picture.
    """

    def __init__(
        self,
        path: str,
        *,
        text_encoder: str,
        num_steps: int,
        draft_steps: int,
        dtype: str,
        guidance_scale: float,
        emphasis_scale: float,
        early_guidance_scale: float,
        early_sigma: float,
        init_image: str | None,
        init_level: float,
        rephrase: bool,
    ) -> None:
        from mmspec.embedded.pipeline import load_pipeline  # diffusers takes seconds to import, and text needs none

        self.num_steps, self.draft_steps = num_steps, draft_steps
        number_format = dtype_named(dtype, among=_DTYPES)
        self._set_up(
            load_pipeline(resolve(path), dtype=number_format),
            TextEncoder(text_encoder),
            Guidance(guidance_scale, emphasis_scale, early_guidance_scale, early_sigma),
            init=(read_picture(init_image), init_level) if init_image is not None else None,
            rephrase=rephrase,
        )

    @classmethod
    def from_models(cls, models: EmbeddedModels, text_encoder: TextEncoder, guidance: Guidance) -> EmbeddedDrafter:
        """A drafter over models that are loaded already."""
        drafter = cls.__new__(cls)
        drafter._set_up(models, text_encoder, guidance, init=None, rephrase=False)
        return drafter

    def _set_up(
        self,
        models: EmbeddedModels,
        text_encoder: TextEncoder,
        guidance: Guidance,
        *,
        init: tuple[Tensor, float] | None,
        rephrase: bool,
    ) -> None:
        self._models = models
        self._guidance = guidance
        self._init = init
        self._sigmas = functools.cache(self._compute_sigmas)
        say = rephrased if rephrase else str
        self._text = functools.lru_cache(_NUM_REMEMBERED_CONDITIONS)(lambda text: text_encoder.encode([say(text)])[0])
        self._tokenizer, self._max_tokens = text_encoder.tokenizer, text_encoder.max_tokens

    @property
    @override
    def reads_negative(self) -> bool:
        return True

    @override
    def unread(self, condition: str) -> str:
        return condition[len(readable(self._tokenizer, condition, max_tokens=self._max_tokens)) :].strip()

    @override
    def start(
        self, conditions: Sequence[str], seeds: Sequence[int], *, num_steps: int, negative: str = ""
    ) -> list[ImageDraft]:
        if num_steps < 1:
            raise InputError(f"num_steps={num_steps} is too small: expected at least 1")
        pairs = zip(conditions, seeds, strict=True)
        if self._init is not None:
            picture, level = self._init
            return [
                self.start_from(picture, c, s, num_steps=num_steps, level=level, negative=negative) for c, s in pairs
            ]
        return [ImageDraft(self._noise(seed), 0, num_steps, seed, text, None, negative) for text, seed in pairs]

    @override
    @torch.no_grad()
    def start_from(
        self, picture: Tensor, condition: str, seed: int, *, num_steps: int, level: float, negative: str = ""
    ) -> ImageDraft:
        vae = self._models.vae
        side = 8 * self._models.transformer.config["size"]  # half of what the decoder draws
        x0 = vae.encode(signed_from_unit(fitted(picture, height=side, width=side))[None].to(vae.dtype)).float()
        draft = ImageDraft(x0[0], 0, num_steps, seed, condition, None, negative)
        return self._entered(draft, x0, level, noise=self._noise(seed))

    def _noise(self, seed: int) -> Tensor:
        config = self._models.transformer.config
        shape = (config["latent_channels"], config["size"], config["size"])
        return torch.randn(shape, generator=generator(seed, "image-noise"))

    @override
    def advance(
        self,
        drafts: Sequence[ImageDraft],
        num_steps: int,
        *,
        conditions: Sequence[str] | None = None,
        emphasis: Sequence[Emphasis] | None = None,
    ) -> list[ImageDraft]:
        out = list(drafts)
        if conditions is not None:
            out = [replace(draft, condition=text) for draft, text in zip(out, conditions, strict=True)]
        phrases = list(emphasis) if emphasis is not None else [()] * len(out)
        for _ in range(num_steps):
            growing = [k for k, draft in enumerate(out) if not draft.finished]
            if not growing:
                break
            stepped = self._step([out[k] for k in growing], [phrases[k] for k in growing])
            for k, draft in zip(growing, stepped, strict=True):
                out[k] = draft
        return out

    @override
    def preview(self, drafts: Sequence[ImageDraft]) -> list[Preview]:
        """See `ImageDrafter.preview`; a draft before its first step costs one step of the model."""
        if not drafts:
            return []
        x0, levels = self._estimates(drafts)
        pixels = self._models.vae.decode_unit(x0)
        return [Preview(picture, level) for picture, level in zip(pixels, levels, strict=True)]

    @override
    def renoise(self, draft: ImageDraft, level: float, *, seed: int) -> ImageDraft:
        x0, _ = self._estimates([draft])
        noise = torch.randn(draft.latents.shape, generator=generator(seed, "image-renoise"))
        return self._entered(draft, x0, level, noise=noise)

    def _entered(self, draft: ImageDraft, x0: Tensor, level: float, *, noise: Tensor) -> ImageDraft:
        """The draft at the step nearest to noise `level` on its way to `x0` `[1, c, h, w]`."""
        if not 0 < level <= 1:
            raise InputError(f"level={level} is no noise level: expected more than 0 and at most 1")
        sigmas = self._sigmas(draft.num_steps)
        step = int((sigmas[:-1] - level).abs().argmin())
        return replace(draft, latents=noisy(x0, noise[None], sigmas[step : step + 1])[0], step=step, state=None)

    def _step(self, drafts: list[ImageDraft], phrases: list[Emphasis]) -> list[ImageDraft]:
        schedules = [self._sigmas(draft.num_steps) for draft in drafts]
        sigma = torch.stack([s[draft.step] for s, draft in zip(schedules, drafts, strict=True)])
        following = torch.stack([s[draft.step + 1] for s, draft in zip(schedules, drafts, strict=True)])
        velocity = self._velocity(drafts, sigma, phrases)
        latents = torch.stack([draft.latents for draft in drafts])
        latents = latents + (following - sigma)[:, None, None, None] * velocity
        return [
            replace(draft, latents=latents[k], step=draft.step + 1, state=_State(velocity[k], float(following[k])))
            for k, draft in enumerate(drafts)
        ]

    def _velocity(self, drafts: Sequence[ImageDraft], sigma: Tensor, phrases: Sequence[Emphasis]) -> Tensor:
        emphasised = [k for k, own in enumerate(phrases) for _ in own]
        named: list[TextFeatures] = [self._text(phrase) for own in phrases for phrase, _ in own]
        velocity = guided_velocity(
            self._models.transformer,
            torch.stack([draft.latents for draft in drafts]),
            sigma,
            text=pad_features([self._text(draft.condition) for draft in drafts]),
            emphasis=pad_features(named) if named else None,
            emphasised=torch.tensor(emphasised, dtype=torch.long),
            strengths=torch.tensor([strength for own in phrases for _, strength in own]),
            guidance=self._guidance,
            against=self._against(drafts),
        )
        if not velocity.isfinite().all():
            raise ModelError(
                "the diffusion transformer gave NaN or infinity: the weights do not fit, or try dtype=float32"
            )
        return velocity

    def _against(self, drafts: Sequence[ImageDraft]) -> PaddedText | None:
        """What the drafts move away from, of length 0 where that is nothing."""
        if not any(draft.negative for draft in drafts):
            return None
        width = self._models.transformer.config["text_width"]
        nothing = TextFeatures(torch.zeros(0, width), torch.zeros(width))
        return pad_features([self._text(draft.negative) if draft.negative else nothing for draft in drafts])

    def _estimates(self, drafts: Sequence[ImageDraft]) -> tuple[Tensor, list[float]]:
        """x0 estimates `[n, c, h, w]` and the noise levels of the drafts' latents.

        The velocity of the last step holds the estimate (x0 does not move along its straight line): looking is free.
        """
        fresh = [k for k, draft in enumerate(drafts) if draft.state is None]
        velocities: dict[int, tuple[Tensor, float]] = {}
        if fresh:
            chosen = [drafts[k] for k in fresh]
            sigma = torch.stack([self._sigmas(draft.num_steps)[draft.step] for draft in chosen])
            for k, v, s in zip(fresh, self._velocity(chosen, sigma, [()] * len(chosen)), sigma, strict=True):
                velocities[k] = (v, float(s))
        x0, levels = [], []
        for k, draft in enumerate(drafts):
            if isinstance(draft.state, _State):
                velocity, sigma_now = draft.state.velocity, draft.state.sigma
            else:
                velocity, sigma_now = velocities[k]
            x0.append(x0_of(draft.latents[None], velocity[None], torch.tensor([sigma_now]))[0])
            levels.append(sigma_now)
        return torch.stack(x0), levels

    def noise_levels(self, num_steps: int) -> Tensor:
        """Noise levels before each step and after the last, `[num_steps + 1]`, from 1 to 0."""
        return self._sigmas(num_steps)

    def _compute_sigmas(self, num_steps: int) -> Tensor:
        scheduler = self._models.scheduler
        scheduler.set_timesteps(sigmas=numpy.linspace(1.0, 1 / num_steps, num_steps))
        return torch.as_tensor(scheduler.sigmas, dtype=torch.float32)
