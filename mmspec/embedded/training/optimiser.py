"""Muon for matrices, AdamW for the rest, with float32 masters and an exponential moving average.

A model may live in bfloat16: gradients are applied to float32 copies of its parameters and copied back.
Muon: Jordan et al. 2024 as `torch.optim.Muon`, its step rescaled to AdamW's size (arXiv 2502.16982).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Optimiser"]


class Optimiser:
    """Steps a model and keeps the moving average of its parameters.

    `matrices` are the parameters (two-dimensional, of `model`) that Muon steps; all others go to AdamW.
    `average_decay` is the decay of the moving average after its warm-up of about ten times 1/(1 - decay) steps.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        learning_rate: float,
        weight_decay: float,
        betas: tuple[float, float],
        average_decay: float,
        matrices: Sequence[nn.Parameter] = (),
        matrix_learning_rate: float = 0.0,
        max_gradient_norm: float = 1.0,
    ) -> None:
        self._parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self._masters = [p.detach().float().clone().requires_grad_() for p in self._parameters]
        self._averages = [m.detach().clone() for m in self._masters]
        self._average_decay = average_decay
        self._max_gradient_norm = max_gradient_norm
        chosen = {id(p) for p in matrices}
        pairs = list(zip(self._parameters, self._masters, strict=True))
        rest = [m for p, m in pairs if id(p) not in chosen]
        self._steppers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(rest, learning_rate, betas=betas, weight_decay=weight_decay, fused=True)
        ]
        if chosen:
            self._steppers.append(
                torch.optim.Muon(
                    [m for p, m in pairs if id(p) in chosen],
                    lr=matrix_learning_rate,
                    weight_decay=weight_decay,
                    momentum=0.95,
                    adjust_lr_fn="match_rms_adamw",
                )
            )
        self._base = [[group["lr"] for group in s.param_groups] for s in self._steppers]
        self._step = 0

    @torch.no_grad()
    def step(self, scale: float) -> float:
        """Apply the gradients in the model at `scale` times the learning rates; returns the gradient norm."""
        for parameter, master in zip(self._parameters, self._masters, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None
        norm = torch.nn.utils.clip_grad_norm_(self._masters, self._max_gradient_norm)
        for stepper, base in zip(self._steppers, self._base, strict=True):
            for group, rate in zip(stepper.param_groups, base, strict=True):
                group["lr"] = rate * scale
            stepper.step()
        torch._foreach_copy_(self._parameters, self._masters)
        self._step += 1
        decay = min(self._average_decay, (self._step + 1) / (self._step + 10))
        torch._foreach_lerp_(self._averages, self._masters, 1 - decay)
        return float(norm)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The model holds its moving average inside the `with`."""
        with torch.no_grad():
            torch._foreach_copy_(self._parameters, self._averages)
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(self._parameters, self._masters)

    def state(self) -> dict[str, Any]:
        """Everything that a later `load` needs to go on as if nothing had happened."""
        return {
            "step": self._step,
            "masters": [m.detach() for m in self._masters],
            "averages": self._averages,
            "steppers": [s.state_dict() for s in self._steppers],
        }

    @torch.no_grad()
    def load(self, state: dict[str, Any]) -> None:
        """Take up `state`, parameters of the model included."""
        self._step = state["step"]
        masters: list[Tensor] = state["masters"]
        torch._foreach_copy_(self._masters, masters)
        torch._foreach_copy_(self._parameters, masters)
        torch._foreach_copy_(self._averages, state["averages"])
        for stepper, saved in zip(self._steppers, state["steppers"], strict=True):
            stepper.load_state_dict(saved)
