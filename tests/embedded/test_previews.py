"""Previews of known contents stand where the drafter's own schedule stands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from mmspec.embedded.pixels import signed_from_bytes
from mmspec.embedded.training.previews import draw_previews
from mmspec.embedded.training.scenes import check_counts, paint_scenes
from mmspec.errors import InputError
from mmspec.image.tiny import tiny_drafter, tiny_models
from mmspec.types import ImageDraft


@pytest.mark.parametrize("shift", [1.0, 0.5])
def test_scenes_are_noised_to_the_level_of_their_step(
    shift: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left without the scene is unit noise times the level that the drafter has at that step."""
    scenes = paint_scenes(tmp_path / "set", seed=5, num_scenes=60, size=32, num_workers=1)
    drafter, autoencoder = tiny_drafter(0), tiny_models(0).vae
    drafter._models.scheduler.set_shift(shift)
    levels = drafter.noise_levels(8)
    assert float(levels[4]) == pytest.approx(shift * 0.5 / (1 + (shift - 1) * 0.5))
    advance, noised = drafter.advance, []

    def kept(drafts: Sequence[ImageDraft], num_steps: int, **more: Any) -> list[ImageDraft]:
        noised.extend(drafts)
        return advance(drafts, num_steps, **more)

    monkeypatch.setattr(drafter, "advance", kept)
    known = draw_previews(drafter, autoencoder, scenes, torch.arange(60), num_steps=8, size=16, seed=3)
    with torch.no_grad():
        x0 = autoencoder.encode(functional.avg_pool2d(signed_from_bytes(scenes.batch(torch.arange(60))), 2)).float()
    sigma = levels[torch.tensor([draft.step for draft in noised])][:, None, None, None]
    noise = (torch.stack([draft.latents for draft in noised]) - (1 - sigma) * x0) / sigma
    assert float(noise.std()) == pytest.approx(1, abs=0.08)
    torch.testing.assert_close(known.levels, torch.stack([levels[draft.step + 1] for draft in noised]))


def test_drafter_of_another_kind_is_refused(tmp_path: Path) -> None:
    """Its latents and its schedule are not those of the embedded autoencoder."""
    scenes = paint_scenes(tmp_path / "set", seed=5, num_scenes=1, size=32, num_workers=1)
    other: Any = object()
    with pytest.raises(InputError, match="diffusion=embedded"):
        draw_previews(other, tiny_models(0).vae, scenes, torch.arange(1), num_steps=2, size=16, seed=3)


def test_more_previews_than_scenes_are_refused() -> None:
    """At once, not after the painting."""
    check_counts(64, num_redrawn=64, num_previews=0)
    with pytest.raises(InputError, match="num_redrawn=65 with num_scenes=64"):
        check_counts(64, num_previews=4, num_redrawn=65)
