"""Courses from noise to picture: one draft's own `diffusers` scheduler, with its x0 estimates and noise levels.

Knows schedulers, and that each family of them names its steps and its noise differently; knows no network. A scheduler
remembers where it stands and what came before, so every draft has its own and a step is taken on a copy.
Legend: `c` latent channels, `h`/`w` height and width of the latents.
"""

from __future__ import annotations

import abc
import copy
from typing import Any, Self

import numpy
import torch
from torch import Tensor
from typing_extensions import override

from mmspec.errors import InputError, WeightsError

__all__ = ["Course", "DiffusionCourse", "FlowCourse"]

_FIT = "EulerDiscreteScheduler, EulerAncestralDiscreteScheduler, DDIMScheduler, DPMSolverMultistepScheduler or LCMScheduler"


class Course(abc.ABC):
    """A scheduler that was told its number of steps. Latents are `[c, h, w]` float32."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler

    @property
    def num_steps(self) -> int:
        """Steps from noise to picture."""
        return len(self._scheduler.timesteps)

    def timestep(self, step: int) -> Tensor:
        """The time that the network is told at `step`, a scalar."""
        return self._scheduler.timesteps[step]

    def from_step(self, step: int) -> Self:
        """The same course, to be entered at `step` without any history."""
        fresh = copy.deepcopy(self)
        enter = getattr(fresh._scheduler, "set_begin_index", None)
        if enter is not None:  # DDIM keeps no place: it goes by the time it is told
            enter(step)
        return fresh

    def nearest(self, level: float) -> int:
        """The step whose noise level is nearest to `level`; the earliest of equals. Raises `InputError` outside (0, 1]."""
        if not 0 < level <= 1:
            raise InputError(f"level={level} is no noise level: expected more than 0 and at most 1")
        return min(range(self.num_steps), key=lambda step: abs(self.noise_level(step) - level))

    @abc.abstractmethod
    def begin(self, noise: Tensor) -> Tensor:
        """Latents before the first step, from unit Gaussian `noise`."""

    @abc.abstractmethod
    def noised(self, x0: Tensor, noise: Tensor, step: int) -> Tensor:
        """Latents before `step` on the way to `x0`."""

    @abc.abstractmethod
    def noise_level(self, step: int) -> float:
        """Share of noise in the latents before `step`, in [0, 1]; 0 after the last step."""

    @abc.abstractmethod
    def model_input(self, latents: Tensor, step: int) -> Tensor:
        """Latents as the network wants them."""

    @abc.abstractmethod
    def stepped(
        self, prediction: Tensor, latents: Tensor, step: int, draw: torch.Generator
    ) -> tuple[Self, Tensor, Tensor]:
        """The course after `step`, the next latents and the x0 estimate; `draw` gives the noise of stochastic schedulers.

        Raises `WeightsError` for a scheduler that gives no x0 estimate.
        """


class DiffusionCourse(Course):
    """Denoising diffusion: schedulers over the `alphas_cumprod` of Stable Diffusion."""

    @classmethod
    def of(cls, scheduler: Any, num_steps: int) -> DiffusionCourse:
        """A fresh copy of `scheduler` for `num_steps`.

        Raises `InputError` for a number of steps that it cannot do, `WeightsError` where it calls the network more often.
        """
        fresh = copy.deepcopy(scheduler)
        try:
            fresh.set_timesteps(num_steps)
        except ValueError as error:
            raise InputError(f"num_steps={num_steps} does not fit {type(fresh).__name__}: {error}") from error
        if len(fresh.timesteps) != num_steps:
            raise WeightsError(
                f"{type(fresh).__name__} calls the network {len(fresh.timesteps)} times in {num_steps} steps: "
                f"set diffusion.scheduler to {_FIT}"
            )
        return cls(fresh)

    @override
    def begin(self, noise: Tensor) -> Tensor:
        return noise * float(self._scheduler.init_noise_sigma)

    @override
    def noised(self, x0: Tensor, noise: Tensor, step: int) -> Tensor:
        return self._scheduler.add_noise(x0[None], noise[None], self._scheduler.timesteps[step : step + 1])[0]

    @override
    def noise_level(self, step: int) -> float:
        """sqrt(1 - alpha_bar): the share of noise in latents of unit variance."""
        if step >= self.num_steps:
            return 0.0
        return float((1 - self._scheduler.alphas_cumprod[int(self.timestep(step))]).sqrt())

    @override
    def model_input(self, latents: Tensor, step: int) -> Tensor:
        return self._scheduler.scale_model_input(latents[None], self.timestep(step))[0]

    @override
    def stepped(
        self, prediction: Tensor, latents: Tensor, step: int, draw: torch.Generator
    ) -> tuple[Self, Tensor, Tensor]:
        after = copy.deepcopy(self)
        scheduler = after._scheduler
        arguments = {"generator": draw} if "generator" in scheduler.step.__code__.co_varnames else {}
        result = scheduler.step(prediction[None], self.timestep(step), latents[None], **arguments)
        x0 = next((result[key] for key in ("pred_original_sample", "denoised") if key in result), None)
        if x0 is None and scheduler.config.get("algorithm_type") == "dpmsolver++":
            x0 = scheduler.model_outputs[-1]  # a solver in x0: the network's output, converted
        if x0 is None:
            raise WeightsError(f"{type(scheduler).__name__} gives no x0 estimate: set diffusion.scheduler to {_FIT}")
        return after, result.prev_sample[0], x0[0]


class FlowCourse(Course):
    """Rectified flow: x_t = (1 - sigma) x0 + sigma noise, and the network gives noise - x0 (arXiv 2209.03003)."""

    @classmethod
    def of(cls, scheduler: Any, num_steps: int, *, num_tokens: int) -> FlowCourse:
        """A fresh copy of a `FlowMatchEulerDiscreteScheduler` for `num_steps` over `num_tokens` picture tokens.

        A scheduler with dynamic shifting spends more steps on the noise of larger pictures; the shift is linear in the
        number of tokens, between the two points of the scheduler's configuration. Raises `InputError` for no steps.
        """
        if num_steps < 1:
            raise InputError(f"num_steps={num_steps} is too small: expected at least 1")
        fresh = copy.deepcopy(scheduler)
        sigmas = numpy.linspace(1.0, 1 / num_steps, num_steps)
        config = fresh.config
        low, high = config.base_image_seq_len, config.max_image_seq_len
        share = (num_tokens - low) / (high - low)
        fresh.set_timesteps(sigmas=sigmas, mu=config.base_shift + share * (config.max_shift - config.base_shift))
        return cls(fresh)

    @override
    def begin(self, noise: Tensor) -> Tensor:
        return noise

    @override
    def noised(self, x0: Tensor, noise: Tensor, step: int) -> Tensor:
        sigma = self._scheduler.sigmas[step]
        return (1 - sigma) * x0 + sigma * noise

    @override
    def noise_level(self, step: int) -> float:
        return float(self._scheduler.sigmas[step])

    @override
    def model_input(self, latents: Tensor, step: int) -> Tensor:
        return latents

    @override
    def stepped(
        self, prediction: Tensor, latents: Tensor, step: int, draw: torch.Generator
    ) -> tuple[Self, Tensor, Tensor]:
        after = copy.deepcopy(self)
        following = after._scheduler.step(prediction[None], self.timestep(step), latents[None], generator=draw)
        return after, following.prev_sample[0], latents - self._scheduler.sigmas[step] * prediction
