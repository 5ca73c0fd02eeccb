"""Where a model is trained: its passes run on a device, everything around them stays on the CPU.

Batches, losses and figures are small beside the passes, so a task is written once for CPU and GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from mmspec.dtypes import autocast
from mmspec.errors import InputError

__all__ = ["Place"]


class Place:
    """A device by its name: cpu, cuda, cuda:1, mps. Raises `InputError` where torch has no such device."""

    def __init__(self, name: str) -> None:
        try:
            self.device = torch.device(name)
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            first = str(error).splitlines()[0]
            raise InputError(f"loop.device={name} cannot be used ({first}): expected cpu, cuda or mps") from error

    def put(self, model: nn.Module) -> None:
        """Move a model there."""
        nn.Module.to(model, self.device)

    def autocast(self) -> torch.autocast:
        """A context in which passes compute in bfloat16 where that is exact enough and fast."""
        return autocast(self.device.type)

    def run(self, function: Callable[..., Tensor], *inputs: Tensor, autocast: bool = True) -> Tensor:
        """`function(*inputs)` on the device, its result in float32 on the CPU; gradients flow through.

        Without `autocast` in the precision of the model and its inputs.
        """
        with self.autocast() if autocast else contextlib.nullcontext():
            result = function(*(tensor.to(self.device) for tensor in inputs))
        return result.float().cpu()
