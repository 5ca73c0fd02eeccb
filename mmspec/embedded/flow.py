"""Rectified flow: paths between latents and noise, guided velocities, and a plain sampler.

x_t = (1 - t) x0 + t eps and v = eps - x0 (arXiv 2209.03003), so x0 = x_t - t v. Guidance is classifier-free
(arXiv 2207.12598) with one optional extra direction for a phrase to emphasise (composable diffusion, arXiv 2206.01714).
Knows latents and text features; knows neither words nor pixels.
Legend: `n` pictures, `c` latent channels, `h`/`w` height and width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mmspec.embedded.text_encoder import PaddedText

__all__ = ["Guidance", "euler_sample", "guided_velocity", "noisy", "x0_of"]


@dataclass(frozen=True)
class Guidance:
    """Guidance scales: `scale` along the caption, `emphasis_scale` along the emphasised phrase.

    Above time `early_time` nothing is visible yet and a large scale only saturates: there it is `early_scale`.
    """

    scale: float
    emphasis_scale: float
    early_scale: float
    early_time: float

    def at(self, time: Tensor) -> Tensor:
        """Scale at each `time` `[n]`."""
        return torch.where(time > self.early_time, min(self.early_scale, self.scale), self.scale)


def noisy(x0: Tensor, noise: Tensor, time: Tensor) -> Tensor:
    """Point at `time` `[n]` on the straight path from `x0` to `noise`, both `[n, c, h, w]`."""
    t = time[:, None, None, None]
    return (1 - t) * x0 + t * noise


def x0_of(latents: Tensor, velocity: Tensor, time: Tensor) -> Tensor:
    """The x0 that `velocity` points to from `latents` (`[n, c, h, w]`) at `time` `[n]`.

    >>> x0, noise, time = torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1), torch.tensor([0.3])
    >>> float(x0_of(noisy(x0, noise, time), noise - x0, time))
    0.0
    """
    return latents - time[:, None, None, None] * velocity


@torch.no_grad()
def guided_velocity(
    model: Callable[..., Tensor],
    latents: Tensor,
    time: Tensor,
    *,
    text: PaddedText,
    emphasis: PaddedText | None,
    emphasised: Tensor,
    strengths: Tensor,
    guidance: Guidance,
    against: PaddedText | None = None,
) -> Tensor:
    """v_free + g (v_text - v_free) + sum of e s (v_phrase - v_free), all in one pass of the model, a `DiffusionTransformer`.

    `latents` `[n, c, h, w]` float32, `time` `[n]` in [0, 1]; `emphasis` holds `m` phrases, of the pictures with
    indices `emphasised` `[m]` (one may have several), with strengths s `strengths` `[m]`. v_free is unconditional, or the velocity of the text `against` which the pictures are
    drawn, where that has a length above 0. Returns `[n, c, h, w]` float32.
    """
    n = len(latents)
    everyone = torch.arange(n)
    rows = torch.cat([everyone, everyone, emphasised])
    parts = [text, against or text] + ([emphasis] if emphasis is not None else [])
    longest = max(part.tokens.shape[1] for part in parts)
    tokens = torch.cat([torch.nn.functional.pad(p.tokens, (0, 0, 0, longest - p.tokens.shape[1])) for p in parts])
    dropped = torch.zeros(len(rows), dtype=torch.bool)
    dropped[n : 2 * n] = against.lengths == 0 if against is not None else True
    velocity = model(
        latents[rows],
        time[rows],
        tokens,
        torch.cat([p.lengths for p in parts]),
        torch.cat([p.pooled for p in parts]),
        dropped,
    ).float()
    with_text, free, with_phrase = velocity[:n], velocity[n : 2 * n], velocity[2 * n :]
    guided = free + guidance.at(time)[:, None, None, None] * (with_text - free)
    pull = guidance.emphasis_scale * strengths[:, None, None, None] * (with_phrase - free[emphasised])
    return guided.index_add(0, emphasised, pull)


def euler_sample(
    model: Callable[..., Tensor], noise: Tensor, *, text: PaddedText, guidance: Guidance, num_steps: int
) -> Tensor:
    """Latents of `text` from `noise` `[n, c, h, w]` in `num_steps` equal Euler steps."""
    latents, nobody = noise, torch.zeros(0, dtype=torch.long)
    for k in range(num_steps):
        time = torch.full((len(noise),), 1 - k / num_steps)
        velocity = guided_velocity(
            model, latents, time, text=text, emphasis=None, emphasised=nobody, strengths=nobody, guidance=guidance
        )
        latents = latents - velocity / num_steps
    return latents
