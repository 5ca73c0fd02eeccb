"""Backdrops: sky and land of the ten places, drawn with Pillow at twice the size and reduced.

Each place is one function `(pen, light) -> None`; a new place is a new function and a row of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from mmspec.embedded.palette import AMBIENT, OVERCAST, RGB, SKY, jitter, mix, scale
from mmspec.embedded.scenes import Scene

_OVERCAST_SHARE = {"rain": 0.55, "storm": 0.68, "snow": 0.42, "fog": 0.5}


@dataclass(frozen=True, eq=False)
class Pen:
    """A drawing surface with the scene's light. Coordinates are shares of the side, 0 to 1."""

    image: Image.Image
    draw: ImageDraw.ImageDraw
    rng: np.random.Generator
    horizon: float
    time: str
    weather: str
    light: tuple[float, float, float]

    @property
    def side(self) -> int:
        """The surface's side in pixels."""
        return self.image.width

    def lit(self, colour: RGB) -> RGB:
        """The colour, varied a little, in the scene's ambient light."""
        return scale(jitter(self.rng, colour, 9), self.light)

    def polygon(self, points: list[tuple[float, float]], colour: RGB) -> None:
        """A filled polygon."""
        self.draw.polygon([(x * self.side, y * self.side) for x, y in points], fill=colour)

    def box(self, left: float, top: float, right: float, bottom: float, colour: RGB) -> None:
        """A filled rectangle."""
        self.draw.rectangle((left * self.side, top * self.side, right * self.side, bottom * self.side), fill=colour)

    def disc(self, x: float, y: float, rx: float, ry: float, colour: RGB) -> None:
        """A filled ellipse."""
        self.draw.ellipse(
            ((x - rx) * self.side, (y - ry) * self.side, (x + rx) * self.side, (y + ry) * self.side), fill=colour
        )

    def glow(self, x: float, y: float, radius: float, colour: RGB, strength: float) -> None:
        """A soft light that fades to nothing at `radius`."""
        pixels = max(4, round(2 * radius * self.side / 8))
        grid = np.linspace(-1, 1, pixels)
        alpha = np.clip(1 - np.hypot(grid[:, None], grid[None, :]), 0, 1) ** 1.5 * 255 * strength
        mask = Image.fromarray(alpha.astype(np.uint8)).resize((pixels * 8, pixels * 8), Image.Resampling.BILINEAR)
        self.image.paste(colour, (round((x - radius) * self.side), round((y - radius) * self.side)), mask)

    def ridge(self, base: float, height: float, rough: float, colour: RGB, knots: int = 7) -> list[tuple[float, float]]:
        """A hill line from edge to edge, filled down to the bottom; returns its points."""
        xs = np.linspace(0, 1, knots * 6)
        phase, freq = self.rng.uniform(0, 6.3, 3), np.array([1.0, 2.3, 4.1]) * knots / 4
        ys = base - height * (0.5 + 0.5 * np.sin(xs[:, None] * freq * 2 + phase) @ np.array([0.55, 0.3, 0.15]) * rough)
        points = list(zip(xs.tolist(), ys.tolist(), strict=True))
        self.polygon([(0, 1), *points, (1, 1)], colour)
        return points


def backdrop(scene: Scene, size: int, rng: np.random.Generator) -> tuple[Image.Image, float]:
    """Sky and land of a scene at `size` pixels, and the height of the horizon as a share of the side."""
    time, weather = scene.time or scene.place, scene.weather or "clear"
    horizon = float(rng.uniform(0.54, 0.66))
    image = _sky(time, weather, 2 * size, horizon, rng)
    pen = Pen(image, ImageDraw.Draw(image), rng, horizon, time, weather, AMBIENT[time])
    if scene.time is not None:
        _heavens(pen)
    _PLACES[scene.place](pen)
    if weather == "snow":
        _snow_on_ground(pen)
    return image.reduce(2), horizon


def _sky(time: str, weather: str, side: int, horizon: float, rng: np.random.Generator) -> Image.Image:
    if time not in SKY:
        return Image.new("RGB", (side, side), {"space": (9, 6, 22), "cave": (34, 28, 30)}[time])
    top, bottom = (jitter(rng, colour) for colour in SKY[time])
    share = _OVERCAST_SHARE.get(weather, 0.0)
    top, bottom = mix(top, OVERCAST[time], share), mix(bottom, OVERCAST[time], share)
    if weather == "storm":
        top, bottom = scale(top, (0.55, 0.55, 0.62)), scale(bottom, (0.66, 0.66, 0.74))
    strip = Image.new("RGB", (1, 2))
    strip.putpixel((0, 0), top)
    strip.putpixel((0, 1), bottom)
    down = round(side * horizon)
    image = Image.new("RGB", (side, side), bottom)
    image.paste(
        strip.resize((side, 2 * down), Image.Resampling.BILINEAR).crop((0, down // 2, side, down // 2 + down)), (0, 0)
    )
    return image


def _heavens(pen: Pen) -> None:
    rng, clear = pen.rng, pen.weather == "clear"
    seen = {"clear": 1.0, "snow": 0.45, "fog": 0.3}.get(pen.weather, 0.0)
    x = float(rng.uniform(0.14, 0.86))
    if pen.time == "night" and clear:
        for _ in range(34):
            sx, sy, r = rng.uniform(0, 1), rng.uniform(0, pen.horizon), rng.uniform(0.004, 0.008)
            pen.disc(sx, sy, r, r, mix((120, 130, 170), (255, 255, 240), rng.uniform(0.3, 1)))
    if seen:
        y, radius, colour = {
            "noon": (rng.uniform(0.10, 0.20), 0.065, (255, 246, 190)),
            "dawn": (pen.horizon - rng.uniform(0.02, 0.09), 0.085, (255, 240, 196)),
            "dusk": (pen.horizon - rng.uniform(0.02, 0.09), 0.090, (255, 156, 54)),
            "night": (rng.uniform(0.12, 0.26), 0.065, (240, 240, 226)),
        }[pen.time]
        pen.glow(x, float(y), 3 * radius, colour, 0.45 * seen)
        if seen > 0.4:
            disc = colour if clear else mix(colour, OVERCAST[pen.time], 0.45)
            pen.disc(x, float(y), radius, radius, disc)
    if pen.weather in ("rain", "storm") or (clear and rng.random() < 0.3):
        grey = {"rain": (112, 118, 130), "storm": (66, 66, 84)}.get(pen.weather, (250, 248, 248))
        tone = scale(grey, tuple(0.35 + 0.65 * v for v in pen.light))  # type: ignore[arg-type]
        for _ in range(8 if not clear else 3):
            cx, cy, w = rng.uniform(-0.05, 1.05), rng.uniform(0.02, 0.15), rng.uniform(0.12, 0.26)
            pen.disc(cx, cy, w, w * 0.3, jitter(rng, tone, 5))


def _neon_city(pen: Pen) -> None:
    rng, h = pen.rng, pen.horizon
    dark = {"night": (20, 18, 40), "dusk": (52, 30, 62), "dawn": (92, 82, 112), "noon": (104, 114, 140)}[pen.time]
    glowing = {"night": 1.0, "dusk": 0.95, "dawn": 0.75, "noon": 0.65}[pen.time]
    neon: list[RGB] = [(255, 40, 150), (30, 230, 255), (180, 70, 255), (70, 255, 140), (255, 196, 50)]
    for depth in (0, 1):
        tone = mix(dark, SKY[pen.time][1], 0.35) if depth == 0 else dark
        x = float(rng.uniform(-0.08, 0))
        while x < 1:
            width = float(rng.uniform(0.11, 0.19))
            top = h - float(rng.uniform(0.22, 0.5) if depth else rng.uniform(0.34, 0.58))
            pen.box(x, top, x + width, h + 0.01, jitter(rng, tone, 7))
            if depth:
                for wy in np.arange(top + 0.04, h - 0.04, 0.055):
                    for wx in np.arange(x + 0.02, x + width - 0.03, 0.045):
                        if rng.random() < 0.3:
                            pen.box(wx, wy, wx + 0.022, wy + 0.026, mix(tone, (255, 214, 130), 0.75 * glowing))
                if rng.random() < 0.75:
                    colour = neon[int(rng.integers(5))]
                    sx, sy = x + rng.uniform(0.01, max(0.02, width - 0.06)), top + rng.uniform(0.03, 0.16)
                    sw, sh = (0.035, rng.uniform(0.10, 0.18)) if rng.random() < 0.6 else (0.085, 0.05)
                    pen.glow(sx + sw / 2, sy + sh / 2, 0.13, colour, 0.55 * glowing)
                    pen.box(sx, sy, sx + sw, sy + sh, mix(tone, colour, glowing))
            x += width + float(rng.uniform(0.0, 0.03))
    pen.box(0, h, 1, 1, mix(dark, (14, 14, 22), 0.45))
    for _ in range(5):
        x, colour = float(rng.uniform(0.05, 0.95)), neon[int(rng.integers(5))]
        pen.glow(x, h + 0.14, 0.15, colour, 0.35 * glowing)
    pen.polygon([(0.46, h), (0.54, h), (0.66, 1), (0.34, 1)], mix(dark, (30, 30, 40), 0.6))


def _forest(pen: Pen) -> None:
    rng, h = pen.rng, pen.horizon
    pen.box(0, h, 1, 1, pen.lit((84, 112, 62)))
    for depth, (count, colour) in enumerate(((9, (70, 118, 88)), (7, (38, 88, 56)), (4, (22, 62, 40)))):
        tone = mix(pen.lit(colour), SKY[pen.time][1], 0.35 - 0.17 * depth)
        for x in np.linspace(0.02, 0.98, count) + rng.uniform(-0.06, 0.06, count):
            if depth == 2 and 0.25 < x < 0.75:
                continue
            foot, tall = h + 0.02 + 0.06 * depth, float(rng.uniform(0.34, 0.5)) * (0.8 + 0.25 * depth)
            pen.box(x - 0.012, foot - 0.08, x + 0.012, foot + 0.02, pen.lit((74, 52, 38)))
            for k in range(3):
                base, wide = foot - 0.04 - tall * 0.26 * k, 0.10 * (1 - 0.22 * k) * (0.8 + 0.2 * depth)
                pen.polygon([(x - wide, base), (x + wide, base), (x, base - tall * 0.42)], tone)


def _desert(pen: Pen) -> None:
    h = pen.horizon
    for k, colour in enumerate(((226, 186, 118), (214, 166, 94), (198, 146, 78))):
        pen.ridge(h + 0.02 + 0.13 * k, 0.11 - 0.02 * k, 1.0, pen.lit(colour), 4)


def _sea(pen: Pen) -> None:
    rng, h = pen.rng, pen.horizon
    top, bottom = pen.lit((86, 156, 198)), pen.lit((24, 78, 138))
    water = mix(top, SKY[pen.time][1], 0.25)
    for k in range(12):
        y = h + (1 - h) * k / 12
        pen.box(0, y, 1, y + (1 - h) / 12 + 0.01, mix(water, bottom, k / 11))
    for _ in range(16):
        y = float(rng.uniform(h + 0.02, 0.98))
        x, w = float(rng.uniform(0, 1)), float(rng.uniform(0.05, 0.12)) * (0.5 + y)
        pen.box(x, y, x + w, y + 0.012, mix(water, pen.lit((224, 240, 250)), 0.6))


def _mountains(pen: Pen) -> None:
    rng, h = pen.rng, pen.horizon
    for depth, (count, colour) in enumerate(((4, (128, 132, 158)), (3, (98, 100, 124)))):
        tone = mix(pen.lit(colour), SKY[pen.time][1], 0.25 - 0.2 * depth)
        shade = scale(tone, 0.78)
        for x in np.linspace(0.08, 0.92, count) + rng.uniform(-0.08, 0.08, count):
            tall, wide = float(rng.uniform(0.26, 0.42)) * (1 - 0.15 * depth), float(rng.uniform(0.2, 0.28))
            peak, foot = (float(x), h - tall), h + 0.05
            pen.polygon([(x - wide, foot), peak, (x + wide, foot)], tone)
            pen.polygon([peak, (x + wide, foot), (x + 0.15 * wide, foot)], shade)
            cap, snow = 0.34, pen.lit((240, 244, 252))
            pen.polygon(
                [
                    (x - wide * cap, h - tall * (1 - cap)),
                    peak,
                    (x + wide * cap, h - tall * (1 - cap)),
                    (x + wide * 0.12, h - tall * 0.76),
                    (x, h - tall * 0.6),
                    (x - wide * 0.14, h - tall * 0.74),
                ],
                snow,
            )
    pen.ridge(h + 0.05, 0.06, 1.0, pen.lit((108, 138, 84)), 3)


def _space(pen: Pen) -> None:
    rng = pen.rng
    nebula: list[RGB] = [(120, 40, 160), (40, 70, 190), (190, 50, 120), (30, 130, 150)]
    for _ in range(4):
        pen.glow(
            float(rng.uniform(0, 1)),
            float(rng.uniform(0, 1)),
            float(rng.uniform(0.3, 0.5)),
            nebula[int(rng.integers(4))],
            0.55,
        )
    for _ in range(50):
        r = float(rng.uniform(0.004, 0.009))
        pen.disc(
            float(rng.uniform(0, 1)),
            float(rng.uniform(0, 1)),
            r,
            r,
            mix((120, 120, 180), (255, 255, 250), float(rng.uniform(0.3, 1))),
        )
    x, y = (
        (float(rng.uniform(0.05, 0.28)) if rng.random() < 0.5 else float(rng.uniform(0.72, 0.95))),
        float(rng.uniform(0.06, 0.24)),
    )
    radius, colour = (
        float(rng.uniform(0.08, 0.16)),
        jitter(rng, [(216, 132, 70), (90, 170, 210), (200, 90, 110)][int(rng.integers(3))]),
    )
    pen.disc(x, y, radius, radius, colour)
    pen.disc(x + radius * 0.15, y + radius * 0.12, radius * 0.82, radius * 0.82, scale(colour, 0.82))


def _village(pen: Pen) -> None:
    rng, h = pen.rng, pen.horizon
    pen.ridge(h + 0.01, 0.09, 1.0, mix(pen.lit((112, 156, 92)), SKY[pen.time][1], 0.3), 3)
    pen.box(0, h + 0.03, 1, 1, pen.lit((126, 168, 84)))
    pen.polygon([(0.47, h + 0.03), (0.53, h + 0.03), (0.7, 1), (0.3, 1)], pen.lit((206, 178, 136)))
    lamps = pen.time in ("night", "dusk")
    for x in (0.06, 0.22, 0.36, 0.64, 0.79, 0.93):
        x = x + float(rng.uniform(-0.03, 0.03))
        w, tall, foot = float(rng.uniform(0.06, 0.08)), float(rng.uniform(0.09, 0.13)), h + 0.06 + 0.05 * abs(x - 0.5)
        pen.box(x - w, foot - tall, x + w, foot, pen.lit((232, 218, 192)))
        pen.polygon(
            [(x - w - 0.02, foot - tall), (x + w + 0.02, foot - tall), (x, foot - tall - 0.09)], pen.lit((176, 74, 56))
        )
        window = (255, 214, 110) if lamps else pen.lit((96, 112, 132))
        pen.box(x - w * 0.55, foot - tall * 0.72, x - w * 0.1, foot - tall * 0.3, window)
        pen.box(x + w * 0.2, foot - tall * 0.6, x + w * 0.6, foot, pen.lit((110, 76, 54)))


def _cave(pen: Pen) -> None:
    rng = pen.rng
    glows: list[RGB] = [(236, 150, 66), (90, 170, 220), (160, 110, 220)]
    colour = glows[int(rng.integers(3))]
    pen.glow(float(rng.uniform(0.38, 0.62)), float(rng.uniform(0.4, 0.52)), 0.62, colour, 0.85)
    rock = jitter(rng, (30, 25, 28), 4)
    pen.polygon([(0, 0), (0.16, 0), (0.10, 0.3), (0.13, 0.62), (0, 0.9)], rock)
    pen.polygon([(1, 0), (0.84, 0), (0.90, 0.34), (0.87, 0.6), (1, 0.9)], rock)
    for x in np.linspace(0.02, 0.98, 9) + rng.uniform(-0.04, 0.04, 9):
        w, drop = float(rng.uniform(0.03, 0.06)), float(rng.uniform(0.10, 0.26))
        pen.polygon([(x - w, 0), (x + w, 0), (x, drop)], jitter(rng, rock, 5))
    pen.ridge(pen.horizon + 0.12, 0.07, 1.0, jitter(rng, (44, 36, 38), 4), 5)


def _ruins(pen: Pen) -> None:
    rng, h = pen.rng, pen.horizon
    pen.ridge(h, 0.06, 1.0, mix(pen.lit((132, 142, 108)), SKY[pen.time][1], 0.35), 3)
    pen.box(0, h + 0.02, 1, 1, pen.lit((148, 142, 104)))
    stone = pen.lit((204, 196, 178))
    for x in (0.08, 0.24, 0.40, 0.60, 0.76, 0.92):
        x = x + float(rng.uniform(-0.02, 0.02))
        tall, w, foot = float(rng.choice([0.16, 0.30, 0.38, 0.40])), 0.036, h + 0.06
        pen.box(x - w, foot - tall, x + w, foot, stone)
        pen.box(x + w * 0.25, foot - tall, x + w, foot, scale(stone, 0.8))
        pen.box(x - w * 1.5, foot - 0.025, x + w * 1.5, foot + 0.01, scale(stone, 0.9))
        if tall > 0.25:
            pen.box(x - w * 1.5, foot - tall - 0.025, x + w * 1.5, foot - tall + 0.005, scale(stone, 0.95))
    left = float(rng.choice([0.05, 0.57]))
    pen.box(left, h - 0.40, left + 0.38, h - 0.345, scale(stone, 0.92))
    for _ in range(4):
        x, y = float(rng.uniform(0, 1)), float(rng.uniform(h + 0.1, 0.95))
        pen.box(x, y, x + 0.06, y + 0.035, scale(stone, 0.85))


def _volcano(pen: Pen) -> None:
    rng, h = pen.rng, pen.horizon
    x, top = float(rng.uniform(0.35, 0.65)), h - float(rng.uniform(0.32, 0.40))
    rock, lava = pen.lit((92, 74, 76)), (255, 110, 30)
    pen.glow(x, top, 0.34, lava, 0.75)
    for k in range(3):
        pen.disc(
            x + float(rng.uniform(-0.05, 0.05)),
            top - 0.06 - 0.06 * k,
            0.07 + 0.02 * k,
            0.045,
            mix(rock, (150, 140, 150), 0.4),
        )
    pen.polygon([(x - 0.46, h + 0.05), (x - 0.08, top), (x + 0.08, top), (x + 0.46, h + 0.05)], rock)
    pen.polygon([(x + 0.02, top), (x + 0.08, top), (x + 0.46, h + 0.05), (x + 0.18, h + 0.05)], scale(rock, 0.78))
    pen.polygon(
        [
            (x - 0.07, top),
            (x + 0.06, top),
            (x + 0.03, top + 0.12),
            (x + 0.05, h),
            (x - 0.03, h),
            (x - 0.01, top + 0.15),
        ],
        lava,
    )
    pen.box(0, h + 0.03, 1, 1, pen.lit((66, 54, 58)))
    for _ in range(5):
        y, lx = float(rng.uniform(h + 0.08, 0.96)), float(rng.uniform(-0.1, 0.9))
        pen.disc(lx + 0.1, y, float(rng.uniform(0.08, 0.16)), 0.014, jitter(rng, lava, 18))


def _snow_on_ground(pen: Pen) -> None:
    """Snow lies on the land: the ground is whitened below the horizon, softly."""
    side, h = pen.side, pen.horizon
    ramp = Image.linear_gradient("L").resize((side, round(side * (1 - h)))).point(lambda v: 90 + v // 3)
    pen.image.paste(scale((244, 247, 255), tuple(0.3 + 0.7 * v for v in pen.light)), (0, side - ramp.height), ramp)  # type: ignore[arg-type]


_PLACES: dict[str, Callable[[Pen], None]] = {
    "neon city": _neon_city,
    "forest": _forest,
    "desert": _desert,
    "sea": _sea,
    "mountains": _mountains,
    "space": _space,
    "village": _village,
    "cave": _cave,
    "ruins": _ruins,
    "volcano": _volcano,
}
