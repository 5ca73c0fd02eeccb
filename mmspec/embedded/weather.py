"""Weather on a painted scene: rain, snow, fog, lightning. Textures are made once and shifted per scene."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from mmspec.embedded.palette import HAZE
from mmspec.embedded.scenes import Scene

_NUM_TEXTURES = 16


class WeatherOverlays:
    """Draws the weather of a scene over it. Textures come from a fixed seed, so every painter has the same."""

    def __init__(self, size: int) -> None:
        rng = np.random.default_rng(20240)
        self._size = size
        self._rain = [_streaks(size, rng) for _ in range(_NUM_TEXTURES)]
        self._snow = [_flakes(size, rng) for _ in range(_NUM_TEXTURES)]
        self._fog = [_banks(size, rng) for _ in range(_NUM_TEXTURES)]

    def apply(self, canvas: Image.Image, scene: Scene, rng: np.random.Generator) -> Image.Image:
        """The picture with its weather; the canvas itself where the sky is clear."""
        time = scene.time or "night"
        index, dx, dy = int(rng.integers(_NUM_TEXTURES)), int(rng.integers(self._size)), int(rng.integers(self._size))
        if scene.weather in ("rain", "storm"):
            darker = canvas.point(lambda v: int(v * (0.88 if scene.weather == "rain" else 0.80)))
            colour = {"noon": (225, 235, 250), "night": (150, 168, 205)}.get(time, (205, 208, 230))
            return _blend(darker, colour, _rolled(self._rain[index], dx, dy))
        if scene.weather == "snow":
            return _blend(canvas, (250, 252, 255), _rolled(self._snow[index], dx, dy))
        if scene.weather == "fog":
            return self.fog(canvas, scene, rng, share=0.45)
        return canvas

    def fog(self, canvas: Image.Image, scene: Scene, rng: np.random.Generator, *, share: float) -> Image.Image:
        """The picture in fog; `share` scales how much it hides, so that it can lie behind props more than over them."""
        mask = self._fog[int(rng.integers(_NUM_TEXTURES))].point(lambda v: int(v * share))
        if rng.integers(2):
            mask = mask.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return _blend(canvas, HAZE[scene.time or "night"], mask)

    def lightning(self, canvas: Image.Image, horizon: float, rng: np.random.Generator) -> None:
        """One or two bolts from the sky to the horizon, drawn in place on the canvas (a buffer)."""
        size, glow = self._size, Image.new("L", canvas.size)
        draw = ImageDraw.Draw(glow)
        bolts = []
        for _ in range(int(rng.integers(1, 3))):
            x, y = rng.uniform(0.1, 0.9) * size, 0.0
            points = [(x, y)]
            while y < horizon * 0.95 * size:
                y += rng.uniform(0.06, 0.11) * size
                x += rng.uniform(-0.07, 0.07) * size
                points.append((x, y))
            draw.line(points, fill=150, width=max(2, size // 22), joint="curve")
            bolts.append(points)
        canvas.paste((190, 195, 255), (0, 0), glow.filter(ImageFilter.BoxBlur(size / 50)))
        for points in bolts:
            ImageDraw.Draw(canvas).line(points, fill=(255, 255, 236), width=max(2, size // 52), joint="curve")


def _blend(canvas: Image.Image, colour: tuple[int, int, int], mask: Image.Image) -> Image.Image:
    out = canvas.copy()
    out.paste(colour, (0, 0), mask)
    return out


def _rolled(mask: Image.Image, dx: int, dy: int) -> Image.Image:
    width, height = mask.size
    out = Image.new("L", mask.size)
    for x in (dx - width, dx):
        for y in (dy - height, dy):
            out.paste(mask, (x, y))
    return out


def _streaks(size: int, rng: np.random.Generator) -> Image.Image:
    """Slanted streaks, few and soft enough to survive an 8x8 latent."""
    big = Image.new("L", (2 * size, 2 * size))
    draw = ImageDraw.Draw(big)
    for _ in range(46):
        x, y = rng.uniform(-0.1, 1) * 2 * size, rng.uniform(-0.1, 1) * 2 * size
        length = rng.uniform(0.10, 0.18) * 2 * size
        draw.line((x, y, x + 0.28 * length, y + length), fill=int(rng.integers(80, 150)), width=max(2, size // 40))
    return big.filter(ImageFilter.BoxBlur(1)).reduce(2)


def _flakes(size: int, rng: np.random.Generator) -> Image.Image:
    big = Image.new("L", (2 * size, 2 * size))
    draw = ImageDraw.Draw(big)
    for _ in range(58):
        x, y = rng.uniform(0, 2 * size, 2)
        radius = rng.uniform(0.011, 0.022) * 2 * size
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=int(rng.integers(190, 245)))
    return big.filter(ImageFilter.BoxBlur(1)).reduce(2)


def _banks(size: int, rng: np.random.Generator) -> Image.Image:
    """Soft horizontal banks, 0.4 to 0.8 opaque."""
    coarse = Image.fromarray((rng.random((5, 3)) * 255).astype(np.uint8)).resize((size, size), Image.Resampling.BICUBIC)
    y = np.linspace(0, 1, size)[:, None]
    alpha = 0.42 + 0.22 * np.asarray(coarse, np.float32) / 255 + 0.14 * np.exp(-(((y - 0.6) / 0.25) ** 2))
    return Image.fromarray((np.clip(alpha, 0, 0.8) * 255).astype(np.uint8))
