"""The image drafter over `diffusers` folders of the Stable Diffusion family: SD 1.5, SD-Turbo, LCM, SDXL, SDXL-Turbo.

Knows UNet, scheduler and autoencoder of a loaded pipeline, and runs its own denoising loop, because drafts of one batch
stand at different steps and are forked and pruned. Each draft carries its own copy of the scheduler and its own noise
stream, so what it becomes does not depend on its neighbours.
Legend: `n` drafts, `c` latent channels, `l` tokens, `w` width of the text encoder.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from mmspec.errors import InputError, ModelError, WeightsError
from mmspec.image.drafter import ImageDrafter
from mmspec.seeding import generator
from mmspec.types import ImageDraft, Preview
from mmspec.weights import resolve

__all__ = ["StableDiffusionDrafter"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_NUM_REMEMBERED_CONDITIONS = 256


@dataclass(frozen=True, eq=False)
class _Condition:
    """One encoded text: `tokens` `[l, w]`, and what SDXL adds to the time embedding, empty for the others."""

    tokens: Tensor
    added: dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class _State:
    """A draft's own scheduler, the state of its noise generator, and its last x0 estimate `[c, h, w]`."""

    scheduler: Any
    noise: Tensor
    x0: Tensor | None


class StableDiffusionDrafter(ImageDrafter):
    """Draws with a Stable Diffusion pipeline folder or hub reference.

    `guidance_scale` of 1 or less means that the model was distilled and is asked once per step (Turbo, LCM); above,
    the difference to `negative_prompt` is extrapolated. `emphasis_scale` pulls towards a phrase to emphasise. Latents
    stay on the CPU; the model computes on `device` in `dtype`.
    Raises `WeightsError` for a missing folder, another kind of pipeline, or a scheduler that gives no x0 estimate;
    `InputError` for an unknown dtype.
    """

    def __init__(
        self,
        path: str,
        *,
        device: str,
        dtype: str,
        guidance_scale: float,
        emphasis_scale: float,
        negative_prompt: str,
    ) -> None:
        from diffusers import DiffusionPipeline

        if dtype not in _DTYPES:
            raise InputError(f"dtype={dtype!r} is unknown: expected one of {', '.join(_DTYPES)}")
        folder = resolve(path)
        try:
            pipeline = DiffusionPipeline.from_pretrained(folder, dtype=_DTYPES[dtype], local_files_only=True)
        except (OSError, ValueError) as error:
            raise WeightsError(f"{path} cannot be read as a diffusers pipeline: {error}") from error
        kind = type(pipeline).__name__
        if kind not in _ENCODERS:
            raise WeightsError(f"{path} holds a {kind}: expected one of {', '.join(_ENCODERS)}")
        self._pipeline = pipeline.to(device)
        self._guidance_scale = guidance_scale
        self._emphasis_scale = emphasis_scale
        self._negative_prompt = negative_prompt
        encode = _ENCODERS[kind]
        self._text = functools.lru_cache(_NUM_REMEMBERED_CONDITIONS)(lambda text: encode(self._pipeline, text))

    @override
    def start(self, conditions: Sequence[str], seeds: Sequence[int], *, num_steps: int) -> list[ImageDraft]:
        unet = self._pipeline.unet.config
        shape = (unet.in_channels, unet.sample_size, unet.sample_size)
        drafts = []
        for condition, seed in zip(conditions, seeds, strict=True):
            scheduler = self._scheduler(num_steps)
            draw = generator(seed, "image-noise")
            latents = torch.randn(shape, generator=draw) * float(scheduler.init_noise_sigma)
            drafts.append(ImageDraft(latents, 0, num_steps, seed, condition, _State(scheduler, draw.get_state(), None)))
        return drafts

    @override
    def advance(
        self,
        drafts: Sequence[ImageDraft],
        num_steps: int,
        *,
        conditions: Sequence[str] | None = None,
        emphasis: Sequence[str | None] | None = None,
    ) -> list[ImageDraft]:
        out = list(drafts)
        if conditions is not None:
            out = [replace(draft, condition=text) for draft, text in zip(out, conditions, strict=True)]
        phrases = list(emphasis) if emphasis is not None else [None] * len(out)
        for _ in range(num_steps):
            growing = [k for k, draft in enumerate(out) if not draft.finished]
            if not growing:
                break
            predictions = self._predict([out[k] for k in growing], [phrases[k] for k in growing])
            for k, prediction in zip(growing, predictions, strict=True):
                out[k] = _stepped(out[k], prediction)
        return out

    @override
    @torch.no_grad()
    def preview(self, drafts: Sequence[ImageDraft]) -> list[Preview]:
        """See `ImageDrafter.preview`; a draft before its first step costs one step of the model."""
        vae = self._pipeline.vae
        previews = []
        for draft in drafts:
            state = _state(draft)
            x0 = state.x0 if state.x0 is not None else _state(self.advance([draft], 1)[0]).x0
            assert x0 is not None
            latents = (x0[None] / vae.config.scaling_factor).to(vae.device, vae.dtype)
            pixels = vae.decode(latents).sample[0].float().cpu() / 2 + 0.5
            previews.append(Preview(pixels.clamp(0, 1), _noise_level(state.scheduler, draft.step)))
        return previews

    @override
    def renoise(self, draft: ImageDraft, level: float, *, seed: int) -> ImageDraft:
        if not 0 < level <= 1:
            raise InputError(f"level={level} is no noise level: expected more than 0 and at most 1")
        scheduler = self._scheduler(draft.num_steps)
        step = min(range(draft.num_steps), key=lambda k: abs(_noise_level(scheduler, k) - level))
        scheduler.set_begin_index(step)
        state = _state(draft)
        x0 = state.x0 if state.x0 is not None else _state(self.advance([draft], 1)[0]).x0
        assert x0 is not None
        draw = generator(seed, "image-renoise")
        noise = torch.randn(draft.latents.shape, generator=draw)
        latents = scheduler.add_noise(x0[None], noise[None], scheduler.timesteps[step : step + 1])[0]
        return replace(draft, latents=latents, step=step, state=_State(scheduler, draw.get_state(), x0))

    def _scheduler(self, num_steps: int) -> Any:
        if num_steps < 1:
            raise InputError(f"num_steps={num_steps} is too small: expected at least 1")
        scheduler = copy.deepcopy(self._pipeline.scheduler)
        scheduler.set_timesteps(num_steps)
        if len(scheduler.timesteps) != num_steps:
            raise WeightsError(
                f"scheduler {type(scheduler).__name__} makes {len(scheduler.timesteps)} calls of {num_steps} steps: "
                "choose a first-order one, e.g. EulerDiscreteScheduler"
            )
        return scheduler

    @torch.no_grad()
    def _predict(self, drafts: list[ImageDraft], phrases: list[str | None]) -> Tensor:
        """The UNet's guided prediction for every draft, `[n, c, h, w]` float32 on the CPU, in one batch."""
        n = len(drafts)
        rows, texts = list(range(n)), [draft.condition for draft in drafts]
        if guided := self._guidance_scale > 1:
            rows, texts = rows + list(range(n)), texts + [self._negative_prompt] * n
        emphasised = [(k, phrase) for k, phrase in enumerate(phrases) if phrase is not None]
        rows, texts = rows + [k for k, _ in emphasised], texts + [phrase for _, phrase in emphasised]
        times = [_state(draft).scheduler.timesteps[draft.step] for draft in drafts]
        scaled = [
            _state(draft).scheduler.scale_model_input(draft.latents[None], time)
            for draft, time in zip(drafts, times, strict=True)
        ]
        unet = self._pipeline.unet
        conditions = [self._text(text) for text in texts]
        added = {key: torch.stack([c.added[key] for c in conditions]) for key in conditions[0].added}
        prediction = unet(
            torch.cat([scaled[k] for k in rows]).to(unet.device, unet.dtype),
            torch.stack([times[k] for k in rows]).to(unet.device),
            encoder_hidden_states=torch.stack([c.tokens for c in conditions]),
            added_cond_kwargs=added or None,
        ).sample
        prediction = prediction.float().cpu()
        if not prediction.isfinite().all():
            raise ModelError("the UNet gave NaN or infinity: try dtype=float32 or bfloat16")
        with_text = prediction[:n]
        free = prediction[n : 2 * n] if guided else with_text
        out = free + self._guidance_scale * (with_text - free) if guided else with_text.clone()
        for (k, _), with_phrase in zip(emphasised, prediction[len(rows) - len(emphasised) :], strict=True):
            out[k] += self._emphasis_scale * (with_phrase - free[k])
        return out


def _stepped(draft: ImageDraft, prediction: Tensor) -> ImageDraft:
    state = _state(draft)
    scheduler = copy.deepcopy(state.scheduler)
    draw = torch.Generator()
    draw.set_state(state.noise)
    arguments = {"generator": draw} if "generator" in scheduler.step.__code__.co_varnames else {}
    result = scheduler.step(prediction[None], scheduler.timesteps[draft.step], draft.latents[None], **arguments)
    x0 = next((result[key] for key in ("pred_original_sample", "denoised") if key in result), None)
    if x0 is None:
        raise WeightsError(
            f"scheduler {type(scheduler).__name__} gives no x0 estimate: choose EulerDiscreteScheduler, "
            "EulerAncestralDiscreteScheduler, DDIMScheduler or LCMScheduler in the folder's scheduler_config.json"
        )
    return replace(
        draft,
        latents=result.prev_sample[0],
        step=draft.step + 1,
        state=_State(scheduler, draw.get_state(), x0[0]),
    )


def _state(draft: ImageDraft) -> _State:
    assert isinstance(draft.state, _State)
    return draft.state


def _noise_level(scheduler: Any, step: int) -> float:
    """sqrt(1 - alpha_bar) before `step`: the share of noise in latents of unit variance; 0 after the last step."""
    if step >= len(scheduler.timesteps):
        return 0.0
    time = int(scheduler.timesteps[step])
    return float((1 - scheduler.alphas_cumprod[time]).sqrt())


def _encode_sd(pipeline: Any, text: str) -> _Condition:
    tokens, _ = pipeline.encode_prompt(text, pipeline.device, 1, False)
    return _Condition(tokens[0], {})


def _encode_sdxl(pipeline: Any, text: str) -> _Condition:
    tokens, _, pooled, _ = pipeline.encode_prompt(text, device=pipeline.device, do_classifier_free_guidance=False)
    side = pipeline.unet.config.sample_size * pipeline.vae_scale_factor
    times = torch.tensor([side, side, 0, 0, side, side], dtype=tokens.dtype, device=tokens.device)
    return _Condition(tokens[0], {"text_embeds": pooled[0], "time_ids": times})


_ENCODERS: dict[str, Callable[[Any, str], _Condition]] = {
    "StableDiffusionPipeline": _encode_sd,
    "StableDiffusionXLPipeline": _encode_sdxl,
    "LatentConsistencyModelPipeline": _encode_sd,
}
