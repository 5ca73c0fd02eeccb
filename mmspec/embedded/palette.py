"""Colours of light: sky, ambient tint and haze by time of day. RGB in 0..255, tints as gains."""

import numpy as np

RGB = tuple[int, int, int]

SKY: dict[str, tuple[RGB, RGB]] = {
    "dawn": ((122, 140, 200), (255, 208, 178)),
    "noon": ((64, 146, 232), (198, 230, 252)),
    "dusk": ((74, 30, 104), (252, 118, 58)),
    "night": ((6, 9, 32), (26, 34, 78)),
}
AMBIENT: dict[str, tuple[float, float, float]] = {
    "dawn": (1.0, 0.90, 0.88),
    "noon": (1.0, 1.0, 1.0),
    "dusk": (0.86, 0.60, 0.58),
    "night": (0.40, 0.45, 0.66),
    "space": (0.92, 0.92, 1.0),
    "cave": (0.78, 0.74, 0.72),
}
OVERCAST: dict[str, RGB] = {
    "dawn": (172, 164, 170),
    "noon": (160, 170, 182),
    "dusk": (122, 84, 98),
    "night": (24, 28, 44),
}
HAZE: dict[str, RGB] = {
    "dawn": (228, 214, 210),
    "noon": (216, 223, 230),
    "dusk": (192, 152, 154),
    "night": (88, 95, 120),
}


def mix(a: RGB, b: RGB, share: float) -> RGB:
    """`share` of `b` in `a`."""
    return tuple(round(x * (1 - share) + y * share) for x, y in zip(a, b, strict=True))  # type: ignore[return-value]


def scale(a: RGB, gains: tuple[float, float, float] | float) -> RGB:
    """Each channel times its gain, clipped to 0..255."""
    gain = (gains, gains, gains) if isinstance(gains, (int, float)) else gains
    return tuple(min(255, max(0, round(x * g))) for x, g in zip(a, gain, strict=True))  # type: ignore[return-value]


def jitter(rng: np.random.Generator, a: RGB, amount: int = 12) -> RGB:
    """The colour moved at random by up to `amount` per channel."""
    moved = [min(255, max(0, x + int(rng.integers(-amount, amount + 1)))) for x in a]
    return (moved[0], moved[1], moved[2])
