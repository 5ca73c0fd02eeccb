"""The judge that ships, on freshly painted scenes of a seed of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mmspec.embedded.judge import Judge
from mmspec.embedded.training.judge import accuracy
from mmspec.embedded.training.previews import painted_previews
from mmspec.embedded.training.scenes import paint_scenes
from mmspec.weights import resolve

pytestmark = pytest.mark.slow


def test_shipped_judge_knows_painted_scenes(tmp_path: Path) -> None:
    """Better than what any benchmark asks of the models that it grades, and small."""
    scenes = paint_scenes(tmp_path / "scenes", seed=777, num_scenes=120, size=128, num_workers=1)
    figures = accuracy(Judge.load("builtin:judge"), painted_previews(scenes, torch.arange(120), size=64))
    assert figures["place"] > 0.97
    assert figures["time"] > 0.97
    assert figures["weather"] > 0.97
    assert figures["noun"] > 0.65
    assert figures["noun_false"] < 0.2
    assert figures["count"] > 0.9
    assert figures["position"] > 0.9
    size = sum(path.stat().st_size for path in resolve("builtin:judge").iterdir())
    assert size < 6e6
