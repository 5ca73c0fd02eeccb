"""Pictures from files, as the drafters take them.

Knows Pillow; knows no model.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.nn import functional

from mmspec.errors import InputError

__all__ = ["fitted", "open_picture", "read_picture", "unit_pixels"]

MAX_PIXELS = 100_000_000
"""A picture of more is refused before it is decoded: it would take gigabytes."""


def read_picture(path: str) -> Tensor:
    """The picture in a file as `open_picture` reads it: `[3, h, w]` float32 in [0, 1]."""
    return unit_pixels(open_picture(path, key="init_image"))


def unit_pixels(picture: Image.Image) -> Tensor:
    """An RGB picture as `[3, h, w]` float32 in [0, 1]."""
    return torch.from_numpy(numpy.array(picture)).permute(2, 0, 1).float() / 255


def open_picture(path: str, *, key: str) -> Image.Image:
    """The picture in a file, upright, RGB, transparency on white.

    Raises `InputError`, which names the setting `key`, where there is none or it has more than `MAX_PIXELS`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the bound below is ours
            file = Image.open(Path(path).expanduser())
        with file:
            if file.width * file.height > MAX_PIXELS:
                raise InputError(
                    f"{key}={path} has {file.width}x{file.height} pixels: expected at most {MAX_PIXELS // 10**6} million"
                )
            picture = ImageOps.exif_transpose(file)
            if picture.mode.startswith("I"):  # 16 bits a pixel: Pillow would clip them at 255
                picture = Image.fromarray(
                    (numpy.asarray(picture, numpy.float32) / 257).clip(0, 255).astype(numpy.uint8)
                )
            rgba = picture.convert("RGBA")
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise InputError(f"{key}={path} cannot be read as a picture: {error}") from error
    white = Image.new("RGBA", rgba.size, "white")
    return Image.alpha_composite(white, rgba).convert("RGB")


def fitted(pixels: Tensor, *, height: int, width: int) -> Tensor:
    """The largest middle part of `[3, h, w]` that has this shape, at this size: `[3, height, width]` in [0, 1]."""
    have_height, have_width = pixels.shape[1:]
    scale = max(height / have_height, width / have_width)
    size = (max(height, round(have_height * scale)), max(width, round(have_width * scale)))
    large = functional.interpolate(pixels[None], size=size, mode="bicubic", antialias=True)[0].clamp(0, 1)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    return large[:, top : top + height, left : left + width]
