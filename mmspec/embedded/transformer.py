"""The small diffusion transformer of the embedded world: velocity of noisy latents given a caption.

Rectified flow (arXiv 2209.03003): x_t = (1 - t) x0 + t eps, and the model predicts v = eps - x0. Cross-attention to
the tokens of a frozen text encoder in every `read_every`-th block; time and the pooled caption modulate all blocks through one shared
projection with an offset per block (adaLN-single, PixArt-alpha, arXiv 2310.00426).
Knows latents and text features; knows neither pixels nor words.
Legend: `n` pictures, `c` latent channels, `s` tokens of a picture, `l` tokens of a caption, `w` width.
"""

from __future__ import annotations

import math

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.modeling_utils import ModelMixin
from torch import Tensor, nn
from torch.nn import functional

from mmspec.errors import InputError

__all__ = ["DiffusionTransformer"]

_NUM_FREQUENCIES = 64
_MASKED = -30000.0  # finite: bfloat16 and float16 hold it, and a row is never masked whole


class _Block(nn.Module):
    """Self-attention, cross-attention where it `reads` the caption, and a ReLU network; starts as the identity.

    Attention is written as bmm, softmax, bmm: the CPU backward of `scaled_dot_product_attention` takes a third of
    the whole step at this size.
    """

    def __init__(self, width: int, num_heads: int, *, reads: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.reads = reads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        if reads:
            self.cross_q = nn.Linear(width, width, bias=False)
            self.cross_kv = nn.Linear(width, 2 * width, bias=False)
            self.cross_out = nn.Linear(width, width, bias=False)
            nn.init.zeros_(self.cross_out.weight)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        self.offsets = nn.Parameter(torch.randn(6, width) * 0.02)
        for last in (self.out, self.down):
            nn.init.zeros_(last.weight)

    def forward(self, x: Tensor, modulation: Tensor, text: Tensor, bias: Tensor) -> Tensor:
        """`x` `[n, s, w]`, `modulation` `[n, 6, w]`, `text` `[n, l, w]`, `bias` `[n, 1, 1, l]` -> `[n, s, w]`."""
        width = x.shape[-1]
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = (modulation + self.offsets).unsqueeze(2).unbind(1)
        y = torch.addcmul(shift_a, functional.layer_norm(x, (width,)), 1 + scale_a)
        q, k, v = self.qkv(y).chunk(3, -1)
        x = torch.addcmul(x, self.out(_attend(q, k, v, self.num_heads, None)), 1 + gate_a)
        if self.reads:
            k, v = self.cross_kv(text).chunk(2, -1)
            q = self.cross_q(functional.layer_norm(x, (width,)))
            x = x + self.cross_out(_attend(q, k, v, self.num_heads, bias))
        y = torch.addcmul(shift_m, functional.layer_norm(x, (width,)), 1 + scale_m)
        return torch.addcmul(x, _in_halves(functional.relu(self.up(y)), self.down.weight), 1 + gate_m)


class DiffusionTransformer(ModelMixin, ConfigMixin):
    """Transformer over the cells of a `size` x `size` latent.

    Small for its data on purpose: at the few hundred thousand pictures that a CPU sees in an hour or two, half the
    width and twice the pictures is the better use of the time.
    """

    @register_to_config  # type: ignore[untyped-decorator]  # diffusers ships no types
    def __init__(
        self,
        latent_channels: int = 16,
        size: int = 8,
        width: int = 192,
        depth: int = 8,
        num_heads: int = 3,
        text_width: int = 384,
        read_every: int = 2,
    ) -> None:
        super().__init__()
        self.read = nn.Linear(latent_channels, width)
        self.positions = nn.Parameter(torch.randn(1, size * size, width) * 0.02)
        self.text = nn.Linear(text_width, width)
        self.pooled = nn.Linear(text_width, width)
        self.no_text = nn.Parameter(torch.zeros(1, 1, width))
        self.time = nn.Sequential(nn.Linear(2 * _NUM_FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width))
        self.modulation = nn.Linear(width, 6 * width)
        self.blocks = nn.ModuleList(_Block(width, num_heads, reads=k % read_every == 0) for k in range(depth))
        self.last_modulation = nn.Linear(width, 2 * width)
        self.write = nn.Linear(width, latent_channels)
        for layer in (self.modulation, self.last_modulation, self.write):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self, latents: Tensor, time: Tensor, tokens: Tensor, lengths: Tensor, pooled: Tensor, dropped: Tensor
    ) -> Tensor:
        """Velocity of noisy latents.

        `latents` `[n, c, size, size]`; `time` `[n]` float32 in [0, 1], 1 is pure noise; `tokens` `[n, l, 384]` padded
        text features of which `lengths` `[n]` int count; `pooled` `[n, 384]`, unit length; `dropped` `[n]` bool: these
        pictures are unconditional. Returns `[n, c, size, size]` in the model's dtype.
        """
        dtype, width = self.read.weight.dtype, self.config["width"]
        kept = ~dropped
        text = torch.where(kept[:, None, None], self.text(tokens.to(dtype)), self.no_text)
        text = functional.layer_norm(text, (width,))
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        # Unconditional pictures attend to one null token: a plain constant, whatever the padding of the batch.
        seen = positions[None] < torch.where(kept, lengths, torch.ones_like(lengths))[:, None]
        bias = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, _MASKED)[:, None, None]
        summary = self.pooled(pooled.to(dtype)) * kept[:, None].to(dtype)
        signal = functional.silu(self.time(_time_features(time).to(dtype)) + summary)
        modulation = self.modulation(signal).unflatten(1, (6, width))
        x = self.read(latents.flatten(2).transpose(1, 2).to(dtype)) + self.positions
        for block in self.blocks:
            x = block(x, modulation, text, bias)
        shift, scale = self.last_modulation(signal).unsqueeze(1).chunk(2, -1)
        x = self.write(torch.addcmul(shift, functional.layer_norm(x, (width,)), 1 + scale))
        return x.transpose(1, 2).reshape(latents.shape)

    def take_over(self, smaller: DiffusionTransformer) -> None:
        """Take the weights of a model that lacks some of this one's cross-attentions; the function stays the same.

        Cross-attentions that are new write nothing until they are trained. Raises `InputError` where any other
        parameter differs in name or shape.
        """
        missing, unexpected = self.load_state_dict(smaller.state_dict(), strict=False)
        if unexpected or any(".cross_" not in name for name in missing):
            raise InputError(f"cannot start from other shapes: {unexpected or missing}")

    def matrices(self) -> list[nn.Parameter]:
        """The weight matrices of the blocks, which Muon trains."""
        return [p for p in self.blocks.parameters() if p.ndim == 2 and p.shape[0] > 6]


def _in_halves(x: Tensor, weight: Tensor) -> Tensor:
    """`x` `[..., i]` times `weight` `[o, i]`, each half of the inputs by itself.

    Over 512 inputs the CPU's bfloat16 product adds in an order that depends on the number of rows: a picture would
    depend on those beside it.
    """
    half = x.shape[-1] // 2
    return functional.linear(x[..., :half], weight[:, :half]) + functional.linear(x[..., half:], weight[:, half:])


def _attend(q: Tensor, k: Tensor, v: Tensor, num_heads: int, bias: Tensor | None) -> Tensor:
    n, num_queries, width = q.shape
    head = width // num_heads

    def split(x: Tensor) -> Tensor:
        return x.view(n, -1, num_heads, head).transpose(1, 2).reshape(n * num_heads, -1, head)

    scores = torch.bmm(split(q * head**-0.5), split(k).transpose(1, 2))
    if bias is not None:
        scores = (scores.view(n, num_heads, num_queries, -1) + bias).view_as(scores)
    mixed = torch.bmm(scores.softmax(-1), split(v))
    return mixed.view(n, num_heads, num_queries, head).transpose(1, 2).reshape(n, num_queries, width)


def _time_features(time: Tensor) -> Tensor:
    """Sines and cosines of `time` `[n]` in [0, 1] -> `[n, 128]` float32."""
    steps = torch.arange(_NUM_FREQUENCIES, device=time.device)
    angles = time.float()[:, None] * 1000 * torch.exp(-math.log(1000) * steps / _NUM_FREQUENCIES)
    return torch.cat([angles.sin(), angles.cos()], 1)
