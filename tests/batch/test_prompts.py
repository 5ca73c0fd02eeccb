"""Files of prompts: what they may hold, and what is said of those that are wrong."""

from pathlib import Path

import pytest

from mmspec.batch.prompts import read_rows
from mmspec.errors import InputError

_DEFAULTS = {"prompt": "", "seed": 3, "max_tokens": 9, "n": 1, "negative_prompt": "fog", "image": "", "text": ""}


def _rows(tmp_path: Path, name: str, content: str | bytes) -> list[tuple[int, str, int]]:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [(row.line, row.request.prompt, row.request.seed) for row in read_rows(path, defaults=_DEFAULTS)]


def test_text_is_one_prompt_a_line(tmp_path: Path) -> None:
    """Blank lines are none; commas, quotes and a hash belong to the prompt; both kinds of line end."""
    content = '\ufeff#1, "a"\r\n\r\n  a red car  \n赛博朋克'
    assert _rows(tmp_path, "p.txt", content) == [(1, '#1, "a"', 3), (3, "a red car", 3), (4, "赛博朋克", 3)]


def test_csv_row_overrides_the_settings(tmp_path: Path) -> None:
    """An empty cell is no value; a quoted cell may hold commas and line breaks."""
    content = 'prompt, seed\n"a, b",7\nc,\n"d\u2028e\nf",8\n'
    assert _rows(tmp_path, "p.csv", content) == [(2, "a, b", 7), (3, "c", 3), (5, "d\u2028e\nf", 8)]


def test_jsonl_row_overrides_the_settings(tmp_path: Path) -> None:
    """Every field of a request, and the settings for those that are left out."""
    path = tmp_path / "p.jsonl"
    path.write_text('{"text": "It rains.", "n": 2}\n\n{"prompt": "a", "negative_prompt": ""}\n', encoding="utf-8")
    first, second = (row.request for row in read_rows(path, defaults=_DEFAULTS))
    assert (first.text, first.n, first.negative_prompt, first.max_tokens) == ("It rains.", 2, "fog", 9)
    assert (second.prompt, second.negative_prompt) == ("a", "")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.txt", "", "holds no prompt"),
        ("p.txt", "\n \n", "holds no prompt"),
        ("p.csv", "", "holds no prompt"),
        ("p.csv", "prompt,seed\n", "holds no prompt"),
        ("p.doc", "a", "expected a file that ends in .txt, .csv, .jsonl"),
        ("p.txt", b"a\ncaf\xe9\n", "line 2 is not UTF-8"),
        ("p.csv", "promt,seed\na,1\n", "line 1: unknown column promt: did you mean prompt?"),
        ("p.csv", "prompt,prompt\na,b\n", "line 1 names a column twice"),
        ("p.csv", "seed\n1\n", "line 1 has none of the columns prompt, image, text"),
        ("p.csv", "prompt\na\nb, c\n", "line 3 has more cells than columns"),
        ("p.csv", "prompt,seed\na,x\n", "line 2: seed=x is no whole number"),
        ("p.csv", 'prompt\n"a\n', "is no CSV"),
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": "b", "sed": 1}\n', "line 2: unknown key sed: did you mean seed"),
        ("p.jsonl", '{"prompt": "a"', "line 1 is no JSON"),
        ("p.jsonl", '"a"', "line 1 is no object"),
        ("p.jsonl", '{"prompt": 7}', "line 1: prompt=7 is no text"),
        ("p.jsonl", '{"prompt": "a", "seed": true}', "line 1: seed=True is no whole number"),
        ("p.jsonl", '{"prompt": "a", "seed": 1.5}', "line 1: seed=1.5 is no whole number"),
        ("p.jsonl", '{"prompt": "a", "n": 0}', "line 1: n=0 is too small"),
        ("p.jsonl", '{"seed": 1}', "line 1: prompt is empty"),
        ("p.txt", "a\nb\na\n", "line 3 repeats line 1"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, name: str, content: str | bytes, said: str) -> None:
    """One line each, for the whole file, before anything is computed."""
    with pytest.raises(InputError) as raised:
        _rows(tmp_path, name, content)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_file_is_said(tmp_path: Path) -> None:
    """So is a folder in its place."""
    (tmp_path / "folder.txt").mkdir()
    for name in ("nothing.txt", "folder.txt"):
        with pytest.raises(InputError, match="cannot read prompts="):
            read_rows(tmp_path / name, defaults=_DEFAULTS)
