"""Linear layers of the lean engine: float32, bf16 with packed weights, int8 with a scale per row, int4 in groups.

Knows one matrix at a time. Every kind gives each row of its input the same result whatever the other rows
are: int8 scales are taken per row, not over the batch, or a text would depend on its neighbours.
Legend: `m` rows, `i` inputs, `o` outputs.
"""

from __future__ import annotations

import abc
import functools

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from mmspec.errors import InputError

TYPICAL_ROWS = 16
"""Rows that packed weights are laid out for: the nodes of one tree."""


class Linear(abc.ABC):
    """A weight matrix `[o, i]` without bias, made ready for its product."""

    takes_norm: bool = True
    """Whether a norm's weight may be multiplied into the matrix before."""

    pass_rows: int = 32
    """See `TextEngine.pass_rows`."""

    @abc.abstractmethod
    def __init__(self, weight: Tensor) -> None: ...

    @abc.abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """`[m, i]` to `[m, o]`."""

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """The product added to `residual` `[m, o]`."""
        return residual + self(x)


class PlainLinear(Linear):
    """The weight as it is, in its own dtype."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight.contiguous()

    @override
    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self._weight)


MAX_ROWS = 32
"""Rows of one bf16 product: above, the kernel adds in another order, and a text would depend on its neighbours."""


class PackedLinear(Linear):
    """bf16, reordered once for oneDNN: an unpacked weight is reordered again in every product.

    Where the processor has no kernel for it (AVX2), the same product in float32, with bf16 inputs and outputs.
    """

    def __init__(self, weight: Tensor) -> None:
        rounded = weight.bfloat16().contiguous()
        self._kernel_dtype = torch.bfloat16
        try:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(rounded, TYPICAL_ROWS)
        except RuntimeError:
            self._kernel_dtype = torch.float32
            self._weight = torch.ops.mkldnn._reorder_linear_weight(rounded.float(), TYPICAL_ROWS)

    @override
    def __call__(self, x: Tensor) -> Tensor:
        if len(x) > MAX_ROWS:
            return torch.cat([self(part) for part in x.split(MAX_ROWS)])
        product = torch.ops.mkldnn._linear_pointwise(x.to(self._kernel_dtype), self._weight, None, "none", [], "")
        return product.to(x.dtype)

    @override
    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        if self._kernel_dtype != x.dtype:
            return residual + self(x)
        if len(x) > MAX_ROWS:
            parts = zip(residual.split(MAX_ROWS), x.split(MAX_ROWS), strict=True)
            return torch.cat([self.add_to(*part) for part in parts])
        return torch.ops.mkldnn._linear_pointwise(x, residual, self._weight, None, "add")


@functools.cache
def _input_levels() -> int:
    """Largest input of the int8 kernel: 127, or 63 where pairs of products are summed in 16 bits (no VNNI)."""
    weight = torch.ops.onednn.qlinear_prepack(torch.full((16, 64), 127, dtype=torch.int8), [1, 64])
    x, one, zero = torch.full((1, 64), 255, dtype=torch.uint8), torch.ones(16), torch.zeros(16, dtype=torch.int32)
    product = torch.ops.onednn.qlinear_pointwise(
        x, 1.0, 0, weight, one, zero, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return 127 if float(product[0, 0]) == 255 * 127 * 64 else 63


class Int8Linear(Linear):
    """int8 weights with a scale per output, int8 inputs with a scale per row; exact integer sums between.

    Takes any float input and gives float32, so that logits keep their digits.
    """

    def __init__(self, weight: Tensor) -> None:
        scale = weight.float().abs().amax(1).clamp_min(1e-8) / 127
        rounded = (weight.float() / scale[:, None]).round().to(torch.int8)
        self._weight = torch.ops.onednn.qlinear_prepack(rounded, [TYPICAL_ROWS, weight.shape[1]])
        self._levels = _input_levels()
        self._scale = scale / self._levels
        self._one = torch.ones_like(scale)
        self._zero = torch.zeros(len(scale), dtype=torch.int32)

    @override
    def __call__(self, x: Tensor) -> Tensor:
        x = x.float()
        largest = x.abs().amax(1, keepdim=True).clamp_min(1e-8)
        # In units of the row's largest value, moved into unsigned bytes.
        rounded = torch.addcdiv(x.new_full((1, 1), self._levels + 1.5), x, largest, value=float(self._levels)).to(
            torch.uint8
        )
        # Scales are left out of the kernel: it applies them in an order that depends on the number of rows.
        product = torch.ops.onednn.qlinear_pointwise(
            rounded,
            1.0,
            self._levels + 1,
            self._weight,
            self._one,
            self._zero,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        return product.mul_(largest).mul_(self._scale)


GROUP = 32
"""Inputs that share a scale and an offset in int4: those of a block of Q4_1."""


class Int4Linear(Linear):
    """int4 weights with a scale and an offset per group of inputs, bf16 inputs and outputs.

    Weights that come from a Q4_1 file are met but for the rounding of scale and offset to bf16. Reads a third of what
    bf16 does, but computes without matrix instructions: faster for few rows, slower from about 8 on.
    Raises `InputError` for a shape that the kernel does not take.
    """

    pass_rows = 4  # are computed at a time
    takes_norm = False  # other factors for every input of a group would be off its 16 levels

    def __init__(self, weight: Tensor) -> None:
        num_outputs, num_inputs = weight.shape
        if num_inputs % GROUP or num_outputs % 16:
            raise InputError(
                f"quantize=int4 takes layers of {GROUP}n inputs and 16n outputs, not {num_inputs} and {num_outputs}"
            )
        groups = weight.float().unflatten(1, (-1, GROUP))
        lowest, highest = groups.amin(2), groups.amax(2)
        scale = ((highest - lowest) / 15).clamp_min(1e-8)
        rounded = ((groups - lowest[..., None]) / scale[..., None]).round().clamp(0, 15).to(torch.int32).flatten(1)
        self._weight = torch.ops.aten._convert_weight_to_int4pack_for_cpu(rounded, 1)
        # The kernel's weight is (q - 8) * scale + offset.
        offset = lowest + 8 * scale
        self._scale = torch.stack([scale, offset], dim=2).transpose(0, 1).contiguous().bfloat16()

    @override
    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self._weight, GROUP, self._scale)
