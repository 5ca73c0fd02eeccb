"""A file of prompts: one a line, or a table whose columns are what a request can be asked.

`.txt` holds one prompt a line, `.csv` a header and a row for each request, `.jsonl` one object a line. What a row
leaves out comes from the settings. Knows files and requests; knows neither models nor results.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mmspec.configuration import nearest
from mmspec.errors import InputError
from mmspec.types import Request

__all__ = ["Row", "read_rows"]

_NUMBERS = {item.name for item in fields(Request) if item.type == "int"}
_KEYS = tuple(item.name for item in fields(Request))
_PLAIN_STARTS = ("prompt", "image", "text")


@dataclass(frozen=True)
class Row:
    """One request of a file, and the number of its line there (from 1)."""

    line: int
    request: Request


def read_rows(path: Path, *, defaults: Mapping[str, Any]) -> tuple[Row, ...]:
    """Every request of the file, in its order; blank lines are none.

    `defaults` are the fields of `Request` for what a row leaves out. Raises `InputError` with the line: for a file
    that is missing, empty, no UTF-8 or of another kind, an unknown key, a value of the wrong type, a request that is
    none, and one that is there twice.
    """
    readers = {".txt": _of_text, ".csv": _of_csv, ".jsonl": _of_jsonl}
    if path.suffix.lower() not in readers:
        raise InputError(f"prompts={path} is of no known kind: expected a file that ends in {', '.join(readers)}")
    rows: list[Row] = []
    seen: dict[Request, int] = {}
    for line, values in readers[path.suffix.lower()](path, _content(path)):
        place = f"{path}, line {line}"
        request = _request(values, defaults, place=place)
        if request in seen:
            raise InputError(f"{place} repeats line {seen[request]}: leave one out, or give one another seed")
        seen[request] = line
        rows.append(Row(line, request))
    if not rows:
        raise InputError(f"prompts={path} holds no prompt: expected at least one")
    return tuple(rows)


def _content(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read prompts={path}: {error.strerror or error}") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line} is not UTF-8: save the file as UTF-8") from error


def _of_text(path: Path, content: str) -> Iterator[tuple[int, dict[str, Any]]]:
    del path
    for line, words in enumerate(content.split("\n"), 1):
        if words.strip():
            yield line, {"prompt": words.strip()}


def _of_csv(path: Path, content: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(content, newline=""), strict=True, skipinitialspace=True)
    try:
        columns = [name.strip() for name in reader.fieldnames or []]
        reader.fieldnames = columns
        _check_keys(columns, place=f"{path}, line 1", what="column")
        if len(set(columns)) < len(columns):
            raise InputError(f"{path}, line 1 names a column twice: {', '.join(columns)}")
        if columns and not set(columns) & set(_PLAIN_STARTS):
            raise InputError(f"{path}, line 1 has none of the columns {', '.join(_PLAIN_STARTS)}")
        for cells in reader:
            if None in cells:
                raise InputError(f"{path}, line {reader.line_num} has more cells than columns: put commas in quotes")
            yield reader.line_num, {key: cell for key, cell in cells.items() if cell and cell.strip()}
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num} is no CSV: {error}") from error


def _of_jsonl(path: Path, content: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, words in enumerate(content.split("\n"), 1):
        if not words.strip():
            continue
        place = f"{path}, line {line}"
        try:
            values = json.loads(words)
        except ValueError as error:
            raise InputError(f"{place} is no JSON: {error}") from error
        if not isinstance(values, dict):
            raise InputError(f'{place} is no object: expected e.g. {{"prompt": "a lantern", "seed": 7}}')
        _check_keys(values, place=place, what="key")
        yield line, values


def _check_keys(keys: Mapping[str, Any] | list[str], *, place: str, what: str) -> None:
    for key in keys:
        if key not in _KEYS:
            raise InputError(f"{place}: unknown {what} {key or '(empty)'}: {nearest(key, _KEYS)}")


def _request(values: Mapping[str, Any], defaults: Mapping[str, Any], *, place: str) -> Request:
    typed = {key: _typed(key, value, place=place) for key, value in values.items()}
    try:
        return Request(**{**defaults, **typed})
    except InputError as error:
        raise InputError(f"{place}: {error}") from error


def _typed(key: str, value: object, *, place: str) -> str | int:
    """The value as the type of its field; a cell of a table is text that may stand for a number."""
    if key not in _NUMBERS:
        if isinstance(value, str):
            return value
        raise InputError(f"{place}: {key}={value} is no text")
    try:
        if isinstance(value, int | str) and not isinstance(value, bool):
            return int(value)
    except ValueError:
        pass
    raise InputError(f"{place}: {key}={value} is no whole number")
