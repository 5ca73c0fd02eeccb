"""Number formats by their names, and which one a device computes fastest.

Knows torch's formats and what a device can do; knows no model.
"""

from __future__ import annotations

import functools
from collections.abc import Collection

import torch

from mmspec.errors import InputError

__all__ = ["AUTO", "DTYPES", "autocast", "computes_bfloat16", "dtype_named"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
AUTO = "auto"
"""bfloat16 where the device multiplies it in hardware, float32 elsewhere."""


def dtype_named(
    name: str, *, key: str = "dtype", device: str = "cpu", among: Collection[str] = tuple(DTYPES)
) -> torch.dtype:
    """The format that `name` stands for: one of `among`, or `auto`.

    Raises `InputError`, which calls the knob `key`, for any other name.

    >>> dtype_named("float32")
    torch.float32
    """
    if name == AUTO:
        return torch.bfloat16 if computes_bfloat16(device) else torch.float32
    if name not in among:
        raise InputError(f"{key}={name!r} is unknown: expected one of {', '.join((AUTO, *among))}")
    return DTYPES[name]


def autocast(device: str = "cpu") -> torch.autocast:
    """A context in which passes compute in bfloat16 where that is exact enough and fast, else in float32."""
    kind = torch.device(device).type
    return torch.autocast(kind, torch.bfloat16, enabled=computes_bfloat16(kind))


@functools.cache
def computes_bfloat16(device: str) -> bool:
    """Whether `device` has instructions for bfloat16 products: without them it is slower than float32, up to tenfold."""
    kind = torch.device(device).type
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if kind != "cpu":
        return True
    if hasattr(torch.cpu, "get_capabilities"):
        return any(has for name, has in torch.cpu.get_capabilities().items() if name.endswith("bf16"))
    return torch.backends.cpu.get_cpu_capability().startswith("AVX512")  # an older torch tells no more
