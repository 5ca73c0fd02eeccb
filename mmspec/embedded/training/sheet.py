"""Contact sheets: many pictures on one, to look at.

Knows pixels in [0, 1]; knows no model.
"""

from __future__ import annotations

import numpy
from PIL import Image
from torch import Tensor

__all__ = ["contact_sheet"]


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
