"""A tiny, randomly initialised CLIP: a verifier that needs no weights, for tests of everything around it.

Its verdicts are nonsense, and the same nonsense for the same seed.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from mmspec.seeding import derive
from mmspec.verify.folders import CONFIG_NAME, WEIGHTS_NAME
from mmspec.verify.open_clip_scorer import OpenClipScorer

__all__ = ["TinyScorer", "save_tiny"]

_CONFIG: dict[str, Any] = {
    "model_cfg": {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    },
    "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "squash"},
}


class TinyScorer(OpenClipScorer):
    """`OpenClipScorer` over a random ViT with open_clip's own text tower, saved in the standard format."""

    def __init__(self, *, seed: int, held: float, failed: float, widening: float) -> None:
        with tempfile.TemporaryDirectory(prefix="mmspec-tiny-") as folder:
            super().__init__(
                path=str(save_tiny(Path(folder, "clip"), seed)),
                held=held,
                failed=failed,
                widening=widening,
                min_auc=0.0,
                batch_size=1,
                num_cells=2,
                device="cpu",
                dtype="float32",
            )


def save_tiny(folder: Path, seed: int) -> Path:
    """Write a random model of ViT-B-32's architecture at tiny size to `folder`, which must not exist."""
    import torch
    from open_clip.model import CLIP
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    (folder / CONFIG_NAME).write_text(json.dumps(_CONFIG), encoding="utf-8")
    with torch.random.fork_rng():
        torch.manual_seed(derive(seed, "tiny-clip"))
        model = CLIP(**_CONFIG["model_cfg"])
    save_file(model.state_dict(), folder / WEIGHTS_NAME)
    return folder
