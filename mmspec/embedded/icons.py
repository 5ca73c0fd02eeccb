"""The props' pictures: an atlas of icons that ships with the package, and how it was packed.

Knows tiles and tints; knows nothing of scenes. `pack` renders the atlas from the icon sets' own files
(noto, Apache-2.0; game-icons, CC BY 3.0; see NOTICE) and is needed only to change the set of nouns.
"""

from __future__ import annotations

import colorsys
import io
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from mmspec.embedded.world import COLOURS, NOUNS, Noun
from mmspec.errors import InputError

TILE = 96
_DATA = Path(__file__).parent / "data"
_COLUMNS = 16


class IconAtlas:
    """Every noun's icon as an RGBA tile, tinted and scaled on demand, with the last sizes remembered."""

    def __init__(self, path: Path = _DATA / "icons.png") -> None:
        sheet = Image.open(path).convert("RGBA")
        self._tiles: dict[str, Image.Image] = {}
        for index, name in enumerate(NOUNS):
            x, y = index % _COLUMNS * TILE, index // _COLUMNS * TILE
            tile = sheet.crop((x, y, x + TILE, y + TILE))
            self._tiles[name] = tile.crop(tile.getchannel("A").point(lambda a: 255 * (a > 16)).getbbox())
        self._icon = lru_cache(maxsize=4096)(self._render)

    def icon(self, noun: str, *, side: int, colour: str | None, mirrored: bool) -> Image.Image:
        """The noun's icon, RGBA, its longer side `side` pixels; recoloured when `colour` is given."""
        return self._icon(noun, side, colour, mirrored)

    def _render(self, noun: str, side: int, colour: str | None, mirrored: bool) -> Image.Image:
        tile = self._tiles[noun] if colour is None else tint(self._tiles[noun], COLOURS[colour].hue)
        if mirrored:
            tile = tile.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        scale = side / max(tile.size)
        return tile.resize(
            (max(1, round(tile.width * scale)), max(1, round(tile.height * scale))), Image.Resampling.LANCZOS
        )


def tint(tile: Image.Image, hue: float) -> Image.Image:
    """The tile with every colour moved to `hue` in [0, 1), shading kept; alpha untouched."""
    rgba = np.asarray(tile, np.float32) / 255
    rgb, alpha = rgba[..., :3], rgba[..., 3:]
    value = rgb @ np.array([0.30, 0.59, 0.11], np.float32)
    value = 0.30 + 0.65 * value
    full = np.array(colorsys.hsv_to_rgb(hue, 0.85, 1.0), np.float32)
    tinted = np.where(
        value[..., None] < 0.6,
        full * value[..., None] / 0.6,
        full + (1 - full) * ((value[..., None] - 0.6) / 0.4) * 0.6,
    )
    return Image.fromarray((np.concatenate([tinted, alpha], -1) * 255).round().astype(np.uint8), "RGBA")


def pack(icon_sets: Path, out: Path = _DATA / "icons.png") -> Image.Image:
    """Render the atlas from `icon_sets`, a `node_modules` folder that holds the npm packages.

    Needs resvg-py (extra `train`). Raises `InputError` for an icon that the sets do not have.
    """
    rows = -(-len(NOUNS) // _COLUMNS)
    sheet = Image.new("RGBA", (_COLUMNS * TILE, rows * TILE))
    sets = {
        name: json.loads((icon_sets / "@iconify-json" / name / "icons.json").read_text(encoding="utf-8"))
        for name in ("noto", "game-icons")
    }
    for index, noun in enumerate(NOUNS.values()):
        tile = _rasterise(noun, sets)
        sheet.paste(tile, (index % _COLUMNS * TILE, index // _COLUMNS * TILE))
    sheet.save(out, optimize=True)
    return sheet


def _rasterise(noun: Noun, sets: dict[str, Any]) -> Image.Image:
    from resvg_py import svg_to_bytes

    set_name, _, name = noun.icon.partition(":")
    icons = sets[set_name]
    if name not in icons["icons"]:
        raise InputError(f"noun {noun.name!r}: icon set {set_name} has no icon {name!r}")
    icon = icons["icons"][name]
    width = icon.get("width", icons.get("width", 16))
    height = icon.get("height", icons.get("height", 16))
    body = icon["body"].replace("currentColor", noun.tint or "#ffffff")
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {width} {height}" width="{TILE}" height="{TILE}">{body}</svg>'
    )
    png = bytes(svg_to_bytes(svg_string=svg, width=TILE, height=TILE))
    tile = Image.open(io.BytesIO(png)).convert("RGBA")
    return _outlined(tile) if noun.tint else tile


def _outlined(tile: Image.Image) -> Image.Image:
    """A silhouette with a dark rim and a light from above, so that it reads on any ground."""
    inner = tile.resize((TILE - 8, TILE - 8), Image.Resampling.LANCZOS)
    padded = Image.new("RGBA", (TILE, TILE))
    padded.paste(inner, (4, 4))
    alpha = padded.getchannel("A")
    rim = alpha.filter(ImageFilter.MaxFilter(5)).filter(ImageFilter.GaussianBlur(0.8))
    out = Image.new("RGBA", (TILE, TILE), (24, 20, 30, 0))
    out.putalpha(rim)
    light = np.linspace(1.25, 0.75, TILE, dtype=np.float32)[:, None, None]
    rgb = np.clip(np.asarray(padded.convert("RGB"), np.float32) * light, 0, 255).astype(np.uint8)
    out.paste(Image.fromarray(rgb), (0, 0), alpha)
    return out
