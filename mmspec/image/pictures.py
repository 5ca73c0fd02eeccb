"""Pictures from files, as the drafters take them.

Knows Pillow; knows no model.
"""

from __future__ import annotations

from pathlib import Path

import numpy
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.nn import functional

from mmspec.errors import InputError

__all__ = ["fitted", "read_picture"]


def read_picture(path: str) -> Tensor:
    """The picture in a file, upright, RGB, transparency on white: `[3, h, w]` float32 in [0, 1].

    Raises `InputError` where there is none.
    """
    try:
        with Image.open(Path(path).expanduser()) as file:
            picture = ImageOps.exif_transpose(file)
            if picture.mode.startswith("I"):  # 16 bits a pixel: Pillow would clip them at 255
                picture = Image.fromarray(
                    (numpy.asarray(picture, numpy.float32) / 257).clip(0, 255).astype(numpy.uint8)
                )
            rgba = picture.convert("RGBA")
    except (OSError, UnidentifiedImageError) as error:
        raise InputError(f"init_image={path} cannot be read as a picture: {error}") from error
    white = Image.new("RGBA", rgba.size, "white")
    rgb = numpy.array(Image.alpha_composite(white, rgba).convert("RGB"))
    return torch.from_numpy(rgb).permute(2, 0, 1).float() / 255


def fitted(pixels: Tensor, *, height: int, width: int) -> Tensor:
    """The largest middle part of `[3, h, w]` that has this shape, at this size: `[3, height, width]` in [0, 1]."""
    have_height, have_width = pixels.shape[1:]
    scale = max(height / have_height, width / have_width)
    size = (max(height, round(have_height * scale)), max(width, round(have_width * scale)))
    large = functional.interpolate(pixels[None], size=size, mode="bicubic", antialias=True)[0].clamp(0, 1)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    return large[:, top : top + height, left : left + width]
