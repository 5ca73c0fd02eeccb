"""The small CLIP of the embedded world: its `open_clip` configuration, and how its weights are shipped.

Knows the folder format of `open_clip` and a frozen sentence encoder; knows no scene and no claim. The image
tower is open_clip's own ModifiedResNet (the one of CLIP's RN50, with one block a stage), the text tower is
open_clip's HF tower over all-MiniLM-L6-v2 with a two-layer projection. The sentence encoder is frozen, so
shipped weights leave it out; `mmspec.verify.folders` puts it back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from mmspec.verify.folders import CONFIG_NAME, TEXT_PREFIX, WEIGHTS_NAME

__all__ = ["ClipShape", "build", "configuration", "export", "load_trained"]


@dataclass(frozen=True)
class ClipShape:
    """Sizes of the model; `image_size` is a multiple of 32, `width` of 2, `context_length` counts text tokens."""

    image_size: int
    width: int
    layers: tuple[int, int, int, int]
    embed_dim: int
    context_length: int = 48


def configuration(shape: ClipShape, *, text_encoder: str) -> dict[str, Any]:
    """The contents of `open_clip_config.json`; `text_encoder` is a folder or a reference of `mmspec.weights`."""
    return {
        "model_cfg": {
            "embed_dim": shape.embed_dim,
            "vision_cfg": {
                "image_size": shape.image_size,
                "layers": list(shape.layers),
                "width": shape.width,
                "patch_size": None,
            },
            "text_cfg": {
                "hf_model_name": text_encoder,
                "hf_tokenizer_name": text_encoder,
                "hf_proj_type": "mlp",
                "hf_pooler_type": "mean_pooler",
                "context_length": shape.context_length,
            },
        },
        "preprocess_cfg": {
            "mean": [0.5, 0.5, 0.5],
            "std": [0.5, 0.5, 0.5],
            "interpolation": "bicubic",
            "resize_mode": "squash",
        },
    }


def build(shape: ClipShape, *, text_folder: Path) -> Any:
    """The model with random image tower and projection over the sentence encoder in `text_folder`, which is frozen."""
    from open_clip.model import CustomTextCLIP

    config = configuration(shape, text_encoder=str(text_folder.resolve()))["model_cfg"]
    model = CustomTextCLIP(**config)
    for parameter in model.text.transformer.parameters():
        parameter.requires_grad_(False)
    return model


def export(model: nn.Module, shape: ClipShape, folder: Path, *, text_encoder: str) -> None:
    """Write the trained part to `folder` in float16, with a configuration that names the sentence encoder.

    `text_encoder` is a reference of `mmspec.weights`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    trained = {
        name: tensor.half().contiguous() if tensor.is_floating_point() else tensor
        for name, tensor in model.state_dict().items()
        if not name.startswith(TEXT_PREFIX)
    }
    save_file(trained, folder / WEIGHTS_NAME)
    config = configuration(shape, text_encoder=text_encoder)
    (folder / CONFIG_NAME).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load_trained(model: Any, folder: Path, *, image_size: int) -> None:
    """Take up the trained part in `folder`; for another picture size the position table is interpolated.

    The table has one row for the mean and one for each cell of `image_size` / 32 a side.
    """
    weights = {
        name: value.float() if value.is_floating_point() else value
        for name, value in load_file(folder / WEIGHTS_NAME).items()
    }
    name = "visual.attnpool.positional_embedding"
    table, new_side = weights[name], image_size // 32
    side = round((len(table) - 1) ** 0.5)
    cells = table[1:].T.reshape(1, -1, side, side)
    cells = nn.functional.interpolate(cells, size=(new_side, new_side), mode="bilinear", align_corners=False)
    weights[name] = torch.cat([table[:1], cells.reshape(table.shape[1], -1).T])
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected, unexpected
    assert all(name.startswith(TEXT_PREFIX) for name in missing), missing
