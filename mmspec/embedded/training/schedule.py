"""Warm-up, stable, decay: a learning-rate schedule that can be ended at any time (arXiv 2405.18392).

Knows steps and the clock, no model. The end is a time, because a run on a borrowed machine has a deadline.
"""

from __future__ import annotations

from dataclasses import dataclass

from mmspec.errors import InputError

__all__ = ["Schedule"]


@dataclass(frozen=True)
class Schedule:
    """Learning rate scale: linear rise over `num_warmup_steps`, then 1, then linear fall to 0 in the last `decay_s`.

    Raises `InputError` where the decay is longer than `duration_s`, the whole of the run.
    """

    duration_s: float
    decay_s: float
    num_warmup_steps: int

    def __post_init__(self) -> None:
        if not 0 <= self.decay_s <= self.duration_s:
            raise InputError(f"decay_s={self.decay_s} must lie in [0, duration_s={self.duration_s}]")

    def scale(self, step: int, *, remaining_s: float) -> float:
        """Scale in [0, 1] for `step` (from 0) with `remaining_s` until the end.

        >>> Schedule(duration_s=100, decay_s=20, num_warmup_steps=10).scale(500, remaining_s=5)
        0.25
        """
        rise = min(1.0, (step + 1) / max(1, self.num_warmup_steps))
        fall = min(1.0, max(0.0, remaining_s) / self.decay_s) if self.decay_s else 1.0
        return rise * fall
