"""The image drafter over any pipeline folder of `diffusers`: Stable Diffusion 1.5, 2, XL, their Turbo and LCM, and Flux.

Runs its own denoising loop, because drafts of one batch stand at different steps and are forked and pruned. Each draft
carries its own course and its own noise stream, so what it becomes does not depend on its neighbours.
Knows drafts and conditions; the networks are `denoisers`, the schedules `courses`.
Legend: `n` drafts, `c` latent channels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from mmspec.errors import InputError, ModelError
from mmspec.image.courses import Course
from mmspec.image.denoisers import Denoiser, UNetDenoiser, UNetXLDenoiser
from mmspec.image.drafter import ImageDrafter
from mmspec.image.flux import FluxDenoiser
from mmspec.image.loading import Placement, load_pipeline, loras_of
from mmspec.image.pictures import fitted, read_picture
from mmspec.seeding import generator
from mmspec.types import Emphasis, ImageDraft, Preview

__all__ = ["DiffusersDrafter"]

_NUM_REMEMBERED_CONDITIONS = 256
_DENOISERS: dict[str, Callable[..., Denoiser]] = {
    "StableDiffusionPipeline": UNetDenoiser,
    "LatentConsistencyModelPipeline": UNetDenoiser,
    "StableDiffusionXLPipeline": UNetXLDenoiser,
    "FluxPipeline": FluxDenoiser,
}


@dataclass(frozen=True, eq=False)
class _State:
    """A draft's own course, the state of its noise generator, and its last x0 estimate `[c, h, w]`."""

    course: Course
    noise: Tensor
    x0: Tensor | None


class DiffusersDrafter(ImageDrafter):
    """Draws with the pipeline that `path` (a reference for `mmspec.weights`) stands for.

    `guidance_scale` of 1 or less means that the model was distilled and is asked once per step (Turbo, Flux schnell);
    above, the difference to the negative prompt is extrapolated, or the network is told the scale where it was trained
    to be (LCM, Flux dev). `emphasis_scale` pulls towards a phrase to emphasise. `negative_prompt` is added to the
    request's. With `init_image`, a file, drafts do not begin with noise but with this picture at noise `init_level`.
    `width`, `height` None are the model's own; `num_steps` and `draft_steps` are what pipelines take of it by default.
    Latents stay on the CPU. Raises `WeightsError` for a missing or foreign folder, `InputError` for settings that do not
    go together.
    """

    def __init__(
        self,
        path: str,
        *,
        num_steps: int,
        draft_steps: int,
        width: int | None,
        height: int | None,
        guidance_scale: float,
        emphasis_scale: float,
        negative_prompt: str,
        scheduler: str | None,
        loras: Sequence[str | Mapping[str, Any]],
        init_image: str | None,
        init_level: float,
        device: str,
        dtype: str,
        vae_dtype: str | None,
        offload: str,
    ) -> None:
        self.num_steps, self.draft_steps = num_steps, draft_steps
        self._init = (read_picture(init_image), init_level) if init_image is not None else None
        placement = Placement(device, dtype, vae_dtype, offload)
        pipeline = load_pipeline(path, placement, scheduler=scheduler, loras=loras_of(loras))
        make = _DENOISERS[type(pipeline).__name__]
        self._denoiser = make(pipeline, device=device, width=width, height=height)
        self._guidance_scale = guidance_scale
        self._emphasis_scale = emphasis_scale
        self._negative_prompt = negative_prompt
        if negative_prompt and not self.reads_negative:
            raise InputError(
                f"diffusion.negative_prompt has no effect on {path} at guidance_scale={guidance_scale}: leave it empty"
            )
        self._text = functools.lru_cache(_NUM_REMEMBERED_CONDITIONS)(self._denoiser.encode)
        self._course = functools.cache(self._denoiser.course)

    @property
    @override
    def reads_negative(self) -> bool:
        return self._guidance_scale > 1 and not self._denoiser.takes_guidance

    @override
    def unread(self, condition: str) -> str:
        return self._text(condition).unread

    @override
    def start(
        self, conditions: Sequence[str], seeds: Sequence[int], *, num_steps: int, negative: str = ""
    ) -> list[ImageDraft]:
        pairs = zip(conditions, seeds, strict=True)
        if self._init is not None:
            picture, level = self._init
            return [
                self.start_from(picture, c, s, num_steps=num_steps, level=level, negative=negative) for c, s in pairs
            ]
        course = self._course(num_steps)
        drafts = []
        for condition, seed in pairs:
            draw = generator(seed, "image-noise")
            latents = course.begin(torch.randn(self._denoiser.latent_shape, generator=draw))
            state = _State(course, draw.get_state(), None)
            drafts.append(ImageDraft(latents, 0, num_steps, seed, condition, state, negative))
        return drafts

    @override
    def start_from(
        self, picture: Tensor, condition: str, seed: int, *, num_steps: int, level: float, negative: str = ""
    ) -> ImageDraft:
        x0 = self._denoiser.encode_pixels(fitted(picture, height=self._denoiser.height, width=self._denoiser.width))
        draft = ImageDraft(x0, 0, num_steps, seed, condition, None, negative)
        return self._entered(draft, x0, level, draw=generator(seed, "image-noise"))

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
            predictions = self._predict([out[k] for k in growing], [phrases[k] for k in growing])
            for k, prediction in zip(growing, predictions, strict=True):
                out[k] = _stepped(out[k], prediction)
        return out

    @override
    def preview(self, drafts: Sequence[ImageDraft]) -> list[Preview]:
        """See `ImageDrafter.preview`; a draft before its first step costs one step of the model."""
        return [
            Preview(self._denoiser.decode(self._x0(draft)), _state(draft).course.noise_level(draft.step))
            for draft in drafts
        ]

    @override
    def renoise(self, draft: ImageDraft, level: float, *, seed: int) -> ImageDraft:
        return self._entered(draft, self._x0(draft), level, draw=generator(seed, "image-renoise"))

    def _entered(self, draft: ImageDraft, x0: Tensor, level: float, *, draw: torch.Generator) -> ImageDraft:
        """The draft at the step nearest to noise `level` on its way to `x0`."""
        course = self._course(draft.num_steps)
        step = course.nearest(level)
        latents = course.noised(x0, torch.randn(x0.shape, generator=draw), step)
        return replace(draft, latents=latents, step=step, state=_State(course.from_step(step), draw.get_state(), x0))

    def _x0(self, draft: ImageDraft) -> Tensor:
        state = _state(draft)
        x0 = state.x0 if state.x0 is not None else _state(self.advance([draft], 1)[0]).x0
        assert x0 is not None
        return x0

    def _predict(self, drafts: list[ImageDraft], phrases: list[Emphasis]) -> Tensor:
        """The guided prediction for every draft, `[n, c, h, w]` float32 on the CPU, in one batch."""
        n = len(drafts)
        rows, texts = list(range(n)), [draft.condition for draft in drafts]
        if guided := self.reads_negative:
            rows = rows + list(range(n))
            texts += [", ".join(part for part in (draft.negative, self._negative_prompt) if part) for draft in drafts]
        emphasised = [(k, phrase, strength) for k, own in enumerate(phrases) for phrase, strength in own]
        rows, texts = rows + [k for k, _, _ in emphasised], texts + [phrase for _, phrase, _ in emphasised]
        inputs = torch.stack([_state(draft).course.model_input(draft.latents, draft.step) for draft in drafts])
        times = torch.stack([_state(draft).course.timestep(draft.step) for draft in drafts])
        prediction = self._denoiser.predict(
            inputs[rows], times[rows], [self._text(text) for text in texts], guidance_scale=self._guidance_scale
        )
        if not prediction.isfinite().all():
            raise ModelError("the diffusion model gave NaN or infinity: set diffusion.dtype to float32 or bfloat16")
        with_text = prediction[:n]
        free = prediction[n : 2 * n] if guided else with_text
        out = free + self._guidance_scale * (with_text - free) if guided else with_text.clone()
        for (k, _, strength), with_phrase in zip(emphasised, prediction[len(rows) - len(emphasised) :], strict=True):
            out[k] += strength * self._emphasis_scale * (with_phrase - free[k])
        return out


def _stepped(draft: ImageDraft, prediction: Tensor) -> ImageDraft:
    state = _state(draft)
    draw = torch.Generator()
    draw.set_state(state.noise)
    course, latents, x0 = state.course.stepped(prediction, draft.latents, draft.step, draw)
    if draft.step + 1 == draft.num_steps:
        x0 = latents  # a schedule may end just above zero: the picture is where it ends
    return replace(draft, latents=latents, step=draft.step + 1, state=_State(course, draw.get_state(), x0))


def _state(draft: ImageDraft) -> _State:
    assert isinstance(draft.state, _State)
    return draft.state
