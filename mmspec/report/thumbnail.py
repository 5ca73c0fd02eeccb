"""Pictures for a page: small, encoded, as text."""

import base64
import io
from collections.abc import Sequence

from PIL import Image

_QUALITY = 82
_HEAT = (230, 40, 30)
_MAX_OPACITY = 0.7


def data_uri(picture: Image.Image, *, side: int) -> str:
    """The picture as a `data:` URI of WebP, its longer side at most `side` pixels."""
    small = picture.convert("RGB")
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "WEBP", quality=_QUALITY)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def shaded(picture: Image.Image, relevance: Sequence[str], *, side: int) -> Image.Image:
    """A copy of the picture, red where it matters: `relevance` is rows of bytes in hexadecimal, ff where it matters most."""
    small = picture.convert("RGB")
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    rows = [bytes.fromhex(row) for row in relevance]
    heat = Image.frombytes("L", (len(rows[0]), len(rows)), b"".join(rows))
    mask = heat.resize(small.size, Image.Resampling.BICUBIC).point(lambda value: value * _MAX_OPACITY)
    return Image.composite(Image.new("RGB", small.size, _HEAT), small, mask)
