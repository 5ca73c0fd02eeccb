"""Paints a scene: backdrop, props, weather. Deterministic: the same scene and seed give the same pixels.

Knows how things look; knows no sentence and no model. Geometry is drawn at twice the size and reduced, so
that edges are smooth; light and weather are mixed in at the final size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

from mmspec.embedded.backdrops import backdrop
from mmspec.embedded.icons import IconAtlas
from mmspec.embedded.palette import AMBIENT
from mmspec.embedded.scenes import ABOVE, Prop, Scene
from mmspec.embedded.weather import WeatherOverlays

_SIDE = {"small": (0.27, 0.32), "medium": (0.38, 0.46), "large": (0.54, 0.64)}
_COLUMN = {"left": 0.25, "centre": 0.5, "right": 0.75}


@dataclass(frozen=True, eq=False)
class Painting:
    """A painted scene. `boxes` are the props' [left, top, right, bottom) in shares of the side, 0 to 1."""

    image: Image.Image
    boxes: tuple[tuple[float, float, float, float], ...]


class Painter:
    """Paints scenes at `size` x `size` pixels; builds its overlays once."""

    def __init__(self, size: int = 128) -> None:
        self.size = size
        self._atlas = IconAtlas()
        self._overlays = WeatherOverlays(size)

    def paint(self, scene: Scene, *, seed: int) -> Image.Image:
        """The scene as an RGB picture."""
        return self.painting(scene, seed=seed).image

    def painting(self, scene: Scene, *, seed: int) -> Painting:
        """The scene as a picture with the boxes of its props."""
        rng = np.random.default_rng(seed)
        canvas, horizon = backdrop(scene, self.size, rng)
        if scene.weather == "storm":
            self._overlays.lightning(canvas, horizon, rng)
        if scene.weather == "fog":
            canvas = self._overlays.fog(canvas, scene, rng, share=0.75)
        boxes = [box for prop in scene.props for box in self._place(canvas, prop, scene, horizon, rng)]
        image = self._overlays.apply(canvas, scene, rng)
        return Painting(image, tuple(boxes))

    def _place(
        self, canvas: Image.Image, prop: Prop, scene: Scene, horizon: float, rng: np.random.Generator
    ) -> list[tuple[float, float, float, float]]:
        share = rng.uniform(*_SIDE[prop.size])
        columns = [_COLUMN["centre" if prop.position == ABOVE else prop.position]]
        if prop.count > 1:
            share *= 0.82 if prop.count == 2 else 0.68
            columns = [(k + 0.5) / prop.count * 0.92 + 0.04 for k in range(prop.count)]
        ground = 0.5 + 0.5 * horizon if scene.place != "space" else 0.62
        if any(other.position == ABOVE for other in scene.props):
            ground, share = (0.50, share * 0.95) if prop.position == ABOVE else (0.93, share)
        boxes = []
        for column in columns:
            x = column + rng.uniform(-0.04, 0.04)
            foot = min(0.97, max(ground + 0.2 * share, share + 0.03) + rng.uniform(-0.03, 0.03))
            boxes.append(self._paste(canvas, prop, scene, x, foot, share, bool(rng.integers(2))))
        return boxes

    def _paste(
        self, canvas: Image.Image, prop: Prop, scene: Scene, x: float, foot: float, share: float, mirrored: bool
    ) -> tuple[float, float, float, float]:
        side = max(8, round(share * self.size))
        icon = self._atlas.icon(prop.noun, side=side, colour=prop.colour, mirrored=mirrored)
        left = round(x * self.size - icon.width / 2)
        left = min(max(left, 1), self.size - icon.width - 1)
        top = max(0, round(foot * self.size) - icon.height)
        if scene.place != "space" and prop.position != ABOVE:
            _shadow(canvas, left, top + icon.height, icon.width)
        light = AMBIENT[scene.time or scene.place]
        lit = Image.merge(
            "RGBA",
            [
                band.point([min(255, int(v * (0.5 + 0.5 * gain))) for v in range(256)])
                for band, gain in zip(icon.split()[:3], light, strict=True)
            ]
            + [icon.getchannel("A")],
        )
        canvas.paste(lit, (left, top), lit)
        size = self.size
        return (left / size, top / size, (left + icon.width) / size, (top + icon.height) / size)


def _shadow(canvas: Image.Image, left: int, bottom: int, width: int) -> None:
    height = max(3, width // 6)
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    alpha = (np.clip(1 - x * x - y * y, 0, 1) * 120).astype(np.uint8)
    canvas.paste((0, 0, 0), (left, bottom - height // 2), Image.fromarray(alpha))
