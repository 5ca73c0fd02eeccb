"""Running the same thing again, from a picture, a trace or a folder."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from mmspec import rerun, run
from mmspec.configuration import UsageError
from mmspec.errors import InputError
from mmspec.rerun import Stored, read_stored, with_overrides

_TINY = [
    "lm=tiny",
    "drafter=tiny",
    "tree=tiny",
    "diffusion=tiny",
    "verifier=tiny",
    "max_tokens=8",
    "pipeline.num_branches=2",
    "pipeline.num_drafts=1",
]
_PROMPT = "two red cars, 'neon' = ${x}\nat night"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result folder of the tiny models."""
    output = tmp_path_factory.mktemp("first")
    assert _main(run, [f"prompt={_PROMPT}", "seed=7", f"output={output}", *_TINY]) == 0
    (folder,) = output.iterdir()
    return folder


def _main(module: Any, arguments: list[str]) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [module.__name__, *arguments])
        return module.main()


def _again(path: Path, output: Path, *overrides: str) -> Path:
    assert _main(rerun, [str(path), f"output={output}", *overrides]) == 0
    (folder,) = output.iterdir()
    return folder


@pytest.mark.parametrize("name", ["image.png", "trace.json", "."])
def test_replay_gives_the_same_pixels(
    first: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """From any of the three, moved elsewhere, without a warning."""
    moved = tmp_path / "moved"
    if name == ".":
        shutil.copytree(first, moved)
    else:
        moved.mkdir()
        shutil.copy(first / name, moved / name)
    again = _again(moved / name, tmp_path / "again")
    with Image.open(first / "image.png") as one, Image.open(again / "image.png") as other:
        assert one.tobytes() == other.tobytes()
    assert (again / "text.txt").read_bytes() == (first / "text.txt").read_bytes()
    assert json.loads((again / "trace.json").read_text(encoding="utf-8"))["request"]["prompt"] == _PROMPT
    assert "pixels may differ" not in capsys.readouterr().err


def test_another_seed_gives_other_pixels(first: Path, tmp_path: Path) -> None:
    """An override changes the replay, and the result says so."""
    again = _again(first, tmp_path / "again", "seed=8")
    with Image.open(first / "image.png") as one, Image.open(again / "image.png") as other:
        assert one.tobytes() != other.tobytes()
    assert read_stored(again).config["seed"] == 8


def test_other_versions_are_one_line_of_warning(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which library was another one, and that pixels may differ."""
    trace = json.loads((first / "trace.json").read_text(encoding="utf-8"))
    trace["versions"]["torch"] = "0.0.1"
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace), encoding="utf-8")
    _again(path, tmp_path / "again")
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.endswith("pixels may differ"))
    assert line.startswith("warning: made with torch 0.0.1 (now ")


def _foreign(folder: Path, kind: str) -> Path:
    path = folder / "file"
    chunk = PngInfo()
    chunk.add_itxt("mmspec", "[1, 2]")
    match kind:
        case "picture of somebody else":
            Image.new("RGB", (8, 8)).save(path, "PNG")
        case "broken chunk":
            Image.new("RGB", (8, 8)).save(path, "PNG", pnginfo=chunk)
        case "cut picture":
            path.write_bytes(b"\x89PNG\r\n")
        case "text":
            path.write_text("a street", encoding="utf-8")
        case "binary":
            path.write_bytes(bytes(range(256)))
        case "other json":
            path.write_text('{"config": {}, "overrides": [], "versions": {}}', encoding="utf-8")
    return folder if kind == "empty folder" else path


@pytest.mark.parametrize(
    "kind",
    ["picture of somebody else", "broken chunk", "cut picture", "text", "binary", "other json", "empty folder", "gone"],
)
def test_what_is_not_ours_is_one_line_and_exit_code_1(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the file."""
    path = _foreign(tmp_path, kind)
    assert _main(rerun, [str(path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and str(path) in line


def test_without_a_path_usage_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing, a pair or a call for help in place of the path."""
    for arguments in ([], ["seed=8"], ["--help"]):
        assert _main(rerun, arguments) == 2
        assert "usage: python -m mmspec.rerun PATH" in capsys.readouterr().err


def test_overrides_change_what_was_stored() -> None:
    """Values are read as on the command line, words as they stand; what is unknown has a neighbour named."""
    config = {"prompt": "street", "seed": 1, "pipeline": {"num_branches": 4, "text": {"engine": {"path": "a"}}}}
    stored = Stored(config, ("seed=1",), {})
    changed, overrides = with_overrides(stored, ["seed=2", "prompt=3", "pipeline.text.engine.path=b"])
    assert (changed["seed"], changed["prompt"], changed["pipeline"]["text"]["engine"]["path"]) == (2, "3", "b")
    assert overrides == ("prompt='street'", "seed=1", "seed=2", "prompt='3'", "pipeline.text.engine.path=b")
    assert config["seed"] == 1
    with pytest.raises(UsageError, match="did you mean seed"):
        with_overrides(stored, ["sed=2"])
    with pytest.raises(UsageError, match="did you mean num_branches"):
        with_overrides(stored, ["pipeline.num_branch=2"])


def test_another_option_of_a_group_composes_anew(first: Path) -> None:
    """The first run's overrides still hold."""
    config, _ = with_overrides(read_stored(first), ["policy=strict"])
    assert config["max_tokens"] == 8
    assert config["prompt"] == _PROMPT
    assert config["policy"] != read_stored(first).config["policy"]


def test_folder_without_trace_is_refused(tmp_path: Path) -> None:
    """The error names what was looked for."""
    with pytest.raises(InputError, match=r"trace\.json"):
        read_stored(tmp_path)
