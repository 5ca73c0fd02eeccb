"""The contact sheet: every draft that was ever drawn, the pruned ones crossed out with the reason."""

import textwrap
from collections.abc import Mapping
from typing import Any

from PIL import Image, ImageDraw, ImageOps

from mmspec.report.previews import Pictures

_TILE = 160
_HEADER, _CAPTION, _GAP = 32, 64, 8
_ROW = _HEADER + _TILE + _CAPTION + _GAP
_MIN_COLUMNS = 3  # a branch's text needs some width
_LINE_CHARS = 27
_PAPER, _INK, _MUTED = (250, 250, 248), (25, 25, 28), (125, 125, 130)
_RED, _GREEN = (200, 40, 40), (30, 140, 70)


def contact_sheet(trace: Mapping[str, Any], pictures: Pictures) -> Image.Image | None:
    """One row per branch in order of birth, its text above its drafts; None where no draft has a picture.

    `pictures` are the last previews by branch id and draft index. A green frame marks a finished draft of
    a branch that became a pair, a red cross a pruned draft; its reason stands below.
    """
    rows = [
        (branch, [draft for draft in branch["drafts"] if (branch["id"], draft["index"]) in pictures])
        for branch in trace["branches"]
    ]
    rows = [(branch, drafts) for branch, drafts in rows if drafts]
    if not rows:
        return None
    columns = max(_MIN_COLUMNS, *(len(drafts) for _, drafts in rows))
    width = _GAP + columns * (_TILE + _GAP)
    height = _GAP + len(rows) * _ROW
    sheet = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(sheet)
    chosen = {pair["branch"] for pair in trace["pairs"]}
    for index, (branch, drafts) in enumerate(rows):
        top = _GAP + index * _ROW
        said = " ".join(f"{branch['id']}  {branch['text']}".split())
        lines = textwrap.wrap(said, columns * _LINE_CHARS, max_lines=2, placeholder=" …")
        draw.multiline_text((_GAP, top), "\n".join(lines), fill=_MUTED if branch["reason"] else _INK, font_size=11)
        for column, draft in enumerate(drafts):
            corner = (_GAP + column * (_TILE + _GAP), top + _HEADER)
            _paste(sheet, corner, pictures[branch["id"], draft["index"]], branch, draft, chosen=branch["id"] in chosen)
    return sheet


def _paste(
    sheet: Image.Image,
    corner: tuple[int, int],
    picture: Image.Image,
    branch: Mapping[str, Any],
    draft: Mapping[str, Any],
    *,
    chosen: bool,
) -> None:
    left, top = corner
    reason = draft["reason"] or branch["reason"]
    tile = ImageOps.contain(picture, (_TILE, _TILE), Image.Resampling.LANCZOS)
    if reason:
        tile = Image.blend(ImageOps.grayscale(tile).convert("RGB"), Image.new("RGB", tile.size, _PAPER), 0.35)
    sheet.paste(tile, corner)
    draw = ImageDraw.Draw(sheet)
    right, bottom = left + tile.width - 1, top + tile.height - 1
    if reason:
        draw.line([(left, top), (right, bottom)], fill=_RED, width=3)
        draw.line([(left, bottom), (right, top)], fill=_RED, width=3)
    elif chosen and draft["step"] == draft["num_steps"]:
        draw.rectangle([(left - 3, top - 3), (right + 3, bottom + 3)], outline=_GREEN, width=3)
    title = f"{branch['id']}/{draft['index']}  step {draft['step']}/{draft['num_steps']}"
    draw.text((left, top + _TILE + 3), title, fill=_INK, font_size=11)
    note = reason or _summary(draft["claims"])
    lines = textwrap.wrap(note, _LINE_CHARS, max_lines=3, placeholder=" …")
    draw.multiline_text((left, top + _TILE + 18), "\n".join(lines), fill=_RED if reason else _MUTED, font_size=11)


def _summary(claims: list[Mapping[str, Any]]) -> str:
    held = sum(claim["verdict"] == "held" for claim in claims)
    return f"{held} of {len(claims)} claims held" if claims else "not verified"
