"""The training loop that every embedded model shares.

Knows steps, the clock and files; knows no model and no data: those are a `Task`. A run lives in one folder:
`checkpoint.pt` (everything needed to go on), `log.jsonl`, `curve.png`, `sheet_<step>.png`, `export/`, and
`control.json`, which a person may write while the run goes on: {"end_at": "2026-12-01T06:15:00", "num_threads": 1}.
"""

from __future__ import annotations

import abc
import datetime
import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from mmspec.embedded.training.record import Log
from mmspec.embedded.training.schedule import Schedule
from mmspec.errors import InputError

__all__ = ["LoopSettings", "Task", "train"]

_LOGGER = logging.getLogger(__name__)
_CONTROL_KEYS = {"end_at", "num_threads"}


class Task(abc.ABC):
    """What is trained: model, data and optimiser."""

    @abc.abstractmethod
    def loss(self, step: int) -> tuple[Tensor, dict[str, float]]:
        """Scalar loss of the step's batch, and figures to log beside it. The batch depends on `step` alone."""

    @abc.abstractmethod
    def update(self, scale: float) -> None:
        """Apply the gradients at `scale` times the learning rate and clear them."""

    @abc.abstractmethod
    def state(self) -> dict[str, Any]:
        """What a checkpoint holds."""

    @abc.abstractmethod
    def load(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""

    @abc.abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Figures on held-out data."""

    @abc.abstractmethod
    def sheet(self) -> Image.Image:
        """A contact sheet to look at."""

    @abc.abstractmethod
    def export(self, folder: Path) -> None:
        """Write the model as it is used (the moving average) to `folder`."""


@dataclass(frozen=True)
class LoopSettings:
    """How often things happen, and on which `device` the passes run. `fast_dev_run` does two steps and every other thing
    once.
    """

    log_steps: int
    checkpoint_s: float
    export_s: float
    num_threads: int
    fast_dev_run: bool = False
    device: str = "cpu"


def train(task: Task, schedule: Schedule, settings: LoopSettings, *, folder: Path) -> dict[str, float]:
    """Run `task` until the schedule ends, resuming from `folder`; returns the last evaluation.

    Raises `InputError` where `control.json` has an unknown key.
    """
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "checkpoint.pt"
    step, spent_s = 0, 0.0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True, map_location="cpu")
        task.load(saved["task"])
        step, spent_s = saved["step"], saved["spent_s"]
        _LOGGER.info("resumed %s at step %d after %.0f s", folder.name, step, spent_s)
    log = Log(folder)
    started = time.time() - spent_s
    first, first_time = step, time.time()
    next_checkpoint, next_export = time.time() + settings.checkpoint_s, time.time() + settings.export_s
    torch.set_num_threads(settings.num_threads)
    end = started + schedule.duration_s
    while time.time() < end:
        if step % 20 == 0:
            end = _control(folder, started + schedule.duration_s)
        loss, figures = task.loss(step)
        loss.backward()
        task.update(schedule.scale(step, remaining_s=end - time.time()))
        log.add(step, {"loss": loss.item(), **figures})
        step += 1
        now = time.time()
        if step % settings.log_steps == 0:
            rate = (step - first) / (now - first_time)
            log.flush(now - started)
            _LOGGER.info("%s step %d, %s, %.2f steps/s, %.0f s left", folder.name, step, log.summary(), rate, end - now)
        if now >= next_checkpoint:
            _save(task, checkpoint, step, now - started)
            next_checkpoint = now + settings.checkpoint_s
        if now >= next_export:
            _publish(task, log, folder, step)
            next_export = time.time() + settings.export_s
        if settings.fast_dev_run and step >= first + 2:
            break
    log.flush(time.time() - started)
    _save(task, checkpoint, step, time.time() - started)
    return _publish(task, log, folder, step)


def _control(folder: Path, end: float) -> float:
    path = folder / "control.json"
    if not path.exists():
        return end
    control = json.loads(path.read_text())
    if unknown := set(control) - _CONTROL_KEYS:
        raise InputError(f"{path}: unknown {sorted(unknown)}, allowed are {sorted(_CONTROL_KEYS)}")
    if "num_threads" in control:
        torch.set_num_threads(control["num_threads"])
    return datetime.datetime.fromisoformat(control["end_at"]).timestamp() if "end_at" in control else end


def _save(task: Task, path: Path, step: int, spent_s: float) -> None:
    partial = path.with_suffix(".partial")
    torch.save({"task": task.state(), "step": step, "spent_s": spent_s}, partial)
    partial.replace(path)


def _publish(task: Task, log: Log, folder: Path, step: int) -> dict[str, float]:
    figures = task.evaluate()
    log.evaluation(step, figures)
    log.curve()
    task.sheet().save(folder / f"sheet_{step:06d}.png")
    task.export(folder / "export")
    _LOGGER.info("%s step %d: %s", folder.name, step, ", ".join(f"{k} {v:.4f}" for k, v in figures.items()))
    return figures
