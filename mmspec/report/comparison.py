"""The comparison of a sweep: what every run made, on the axes that its runs differ in.

The first key that was swept is across, the second down; a third and further ones make a sheet of rows for each of
their combinations. A run that failed keeps its place, with the reason.
"""

import itertools
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from PIL import Image, ImageDraw, ImageOps

from mmspec.report.cell import Cell
from mmspec.report.folder import output_errors
from mmspec.report.page import template
from mmspec.report.thumbnail import data_uri

__all__ = ["comparison_page", "comparison_sheet", "write_comparison"]

_TILE, _GAP, _HEADER, _SIDE, _NOTE = 200, 12, 44, 150, 64
_LABEL_CHARS, _NOTE_CHARS = 22, 32
_PAPER, _INK, _MUTED = (250, 250, 248), (25, 25, 28), (125, 125, 130)
_RED, _GREEN, _AMBER, _EMPTY = (200, 40, 40), (30, 140, 70), (150, 105, 10), (232, 230, 225)
_THUMB = 320


@dataclass(frozen=True)
class _Shown:
    picture: Image.Image | None
    text: str
    verdict: str
    kind: str
    folder: Path | None


@dataclass(frozen=True)
class _Grid:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    cells: Mapping[tuple[tuple[str, ...], str], _Shown]
    across: str
    down: tuple[str, ...]


def write_comparison(cells: Sequence[Cell], *, folder: Path) -> tuple[Path, Path]:
    """Write `sheet.png` and `index.html` into the folder of the sweep; returns their paths.

    At least one of `cells` has a result. Raises `OutputError`.
    """
    sheet, page = folder / "sheet.png", folder / "index.html"
    with output_errors(folder):
        comparison_sheet(cells).save(sheet)
        page.write_text(comparison_page(cells, folder=folder, title=_topic(cells)), encoding="utf-8")
    return sheet, page


def comparison_sheet(cells: Sequence[Cell]) -> Image.Image:
    """The runs as one RGB picture, a row of tiles for each value down."""
    grid = _grid(cells)
    step_x, step_y = _TILE + _GAP, _TILE + _NOTE + _GAP
    left = _SIDE if grid.down else _GAP
    size = (left + len(grid.columns) * step_x, _HEADER + len(grid.rows) * step_y)
    sheet = Image.new("RGB", size, _PAPER)
    draw = ImageDraw.Draw(sheet)
    for number, column in enumerate(grid.columns):
        _label(draw, (left + number * step_x, 8), f"{grid.across}={column}", width=_NOTE_CHARS)
    for number, row in enumerate(grid.rows):
        top = _HEADER + number * step_y
        named = "\n".join(f"{key}={value}" for key, value in zip(grid.down, row, strict=True))
        _label(draw, (_GAP, top), named, width=_LABEL_CHARS)
        for place, column in enumerate(grid.columns):
            if (row, column) in grid.cells:
                _tile(sheet, (left + place * step_x, top), grid.cells[row, column])
    return sheet


def comparison_page(cells: Sequence[Cell], *, folder: Path, title: str) -> str:
    """The runs as a table, in HTML that needs nothing beside it; links lead to the reports below `folder`."""
    grid = _grid(cells)
    rows = [
        {
            "labels": [f"{key}={value}" for key, value in zip(grid.down, row, strict=True)],
            "cells": [_plain(grid.cells.get((row, column)), folder) for column in grid.columns],
        }
        for row in grid.rows
    ]
    columns = [f"{grid.across}={column}" for column in grid.columns]
    return str(template("comparison.html").render(title=title, columns=columns, rows=rows, has_labels=bool(grid.down)))


def _topic(cells: Sequence[Cell]) -> str:
    """What all runs were about: a prompt cannot be swept."""
    made = next(cell.folder for cell in cells if cell.folder)
    request = json.loads((made / "trace.json").read_text(encoding="utf-8"))["request"]
    return request["prompt"] or request["text"] or request["image"]


def _grid(cells: Sequence[Cell]) -> _Grid:
    keys = list(dict.fromkeys(key for cell in cells for key in cell.values))
    varied = {key: [*dict.fromkeys(cell.values.get(key, "") for cell in cells)] for key in keys}
    axes = [key for key in keys if len(varied[key]) > 1] or keys[:1]
    across, down = axes[0], tuple(axes[1:])
    rows = tuple(itertools.product(*(varied[key] for key in reversed(down))))
    ordered = tuple(tuple(reversed(row)) for row in rows)
    shown = {
        (tuple(cell.values.get(key, "") for key in down), cell.values.get(across, "")): _shown(cell) for cell in cells
    }
    return _Grid(tuple(varied[across]), ordered, shown, across, down)


def _shown(cell: Cell) -> _Shown:
    if cell.folder is None:
        return _Shown(None, "", f"failed: {cell.error}", "bad", None)
    pair = json.loads((cell.folder / "trace.json").read_text(encoding="utf-8"))["pairs"][0]
    picture = None
    if (cell.folder / "image.png").is_file():
        with Image.open(cell.folder / "image.png") as image:
            picture = image.convert("RGB")
    verdict, kind = ("verified", "good") if pair["verified"] else ("not verified", "open")
    return _Shown(picture, pair["text"].strip(), verdict, kind, cell.folder)


def _plain(shown: _Shown | None, folder: Path) -> dict[str, str | None] | None:
    if shown is None:
        return None
    return {
        "picture": data_uri(shown.picture, side=_THUMB) if shown.picture else None,
        "text": shown.text,
        "verdict": shown.verdict,
        "kind": shown.kind,
        "report": quote(f"{shown.folder.relative_to(folder).as_posix()}/report.html") if shown.folder else None,
    }


def _label(draw: ImageDraw.ImageDraw, corner: tuple[int, int], text: str, *, width: int) -> None:
    lines = [part for line in text.split("\n") for part in textwrap.wrap(line, width, max_lines=3, placeholder=" …")]
    draw.multiline_text(corner, "\n".join(lines), fill=_INK, font_size=13)


def _tile(sheet: Image.Image, corner: tuple[int, int], shown: _Shown) -> None:
    left, top = corner
    draw = ImageDraw.Draw(sheet)
    if shown.picture is None:
        words = shown.text or shown.verdict
        draw.rectangle([left, top, left + _TILE - 1, top + _TILE - 1], fill=_EMPTY)
        lines = textwrap.wrap(words, _NOTE_CHARS - 4, max_lines=11, placeholder=" …")
        colour = _RED if shown.kind == "bad" else _INK
        draw.multiline_text((left + 8, top + 8), "\n".join(lines), fill=colour, font_size=12)
    else:
        sheet.paste(ImageOps.contain(shown.picture, (_TILE, _TILE), Image.Resampling.LANCZOS), corner)
    colour = {"good": _GREEN, "open": _AMBER, "bad": _RED}[shown.kind]
    draw.text((left, top + _TILE + 4), shown.verdict.partition(":")[0], fill=colour, font_size=12)
    if shown.picture is not None:
        lines = textwrap.wrap(shown.text, _NOTE_CHARS, max_lines=2, placeholder=" …")
        draw.multiline_text((left, top + _TILE + 20), "\n".join(lines), fill=_MUTED, font_size=11)
