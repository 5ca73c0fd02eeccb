"""Contact sheets: many pictures on one, to look at.

Knows pixels in [0, 1]; knows no model.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy
from PIL import Image, ImageDraw
from torch import Tensor

__all__ = ["captioned_sheet", "contact_sheet"]

_TEXT_HEIGHT = 40


def contact_sheet(pixels: Tensor, *, num_columns: int, tile: int) -> Image.Image:
    """Lay out pictures row by row.

    `pixels` `[n, 3, h, w]` in [0, 1]; every picture becomes `tile` px square with a 4 px gap.
    """
    num_rows = -(-len(pixels) // num_columns)
    step = tile + 4
    sheet = Image.new("RGB", (num_columns * step - 4, num_rows * step - 4), "white")
    array = (pixels.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy()
    for k, picture in enumerate(array):
        scaled = Image.fromarray(numpy.ascontiguousarray(picture)).resize((tile, tile), Image.Resampling.BICUBIC)
        sheet.paste(scaled, (k % num_columns * step, k // num_columns * step))
    return sheet


def captioned_sheet(pictures: Sequence[Image.Image], captions: Sequence[str], *, num_columns: int) -> Image.Image:
    """Lay out pictures of one size row by row, each above its caption."""
    side = pictures[0].width
    rows = -(-len(pictures) // num_columns)
    sheet = Image.new("RGB", (num_columns * (side + 4), rows * (side + _TEXT_HEIGHT)), (250, 250, 250))
    draw = ImageDraw.Draw(sheet)
    for k, (picture, words) in enumerate(zip(pictures, captions, strict=True)):
        x, y = k % num_columns * (side + 4), k // num_columns * (side + _TEXT_HEIGHT)
        sheet.paste(picture, (x, y))
        lines = "\n".join(textwrap.wrap(words, side // 5)[:4])
        draw.multiline_text((x + 2, y + side + 1), lines, fill=(20, 20, 20), font_size=9, spacing=0)
    return sheet
