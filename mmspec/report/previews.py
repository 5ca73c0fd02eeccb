"""The last look of every draft, kept as small pictures for the contact sheet and the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from mmspec.report.sink import Sink
from mmspec.types import Event, PreviewReady

if TYPE_CHECKING:
    from torch import Tensor

Pictures = Mapping[tuple[str, int], Image.Image]
"""The drafts' last previews, RGB, by branch id and draft index."""


class Previews(Sink):
    """Keeps the newest preview of each draft, by branch id and draft index; keeps no tensor."""

    def __init__(self) -> None:
        self.pictures: dict[tuple[str, int], Image.Image] = {}

    def handle(self, event: Event) -> None:
        """Keep the picture of a `PreviewReady`."""
        if isinstance(event, PreviewReady):
            self.pictures[event.branch_id, event.draft_index] = unit_to_image(event.preview.pixels)


def unit_to_image(pixels: Tensor) -> Image.Image:
    """An RGB picture of `pixels`, `[3, h, w]` float in [0, 1]; values outside are clipped."""
    values = pixels.clamp(0, 1).mul(255).round().permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(values.astype(np.uint8), "RGB")
