"""The sheet and the page of a sweep."""

from pathlib import Path

import pytest
from PIL import Image

from tests.command import Command, command

__all__ = ["command"]

_RED, _GREEN = (200, 40, 40), (30, 140, 70)


def _sweep() -> Path:
    (folder,) = Path("outputs").iterdir()
    return folder


def _page() -> str:
    return (_sweep() / "index.html").read_text(encoding="utf-8")


def test_two_swept_knobs_are_two_axes(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """The first is across, the second down; each pair links to its report; the last lines are the paths."""
    assert command("-m", "pipeline=echo", "prompt=a, b", "seed=1,2,3", "pipeline.num_branches=2,3", "quiet=true") == 0
    assert [Path(line).name for line in capsys.readouterr().out.splitlines()[-2:]] == ["sheet.png", "index.html"]
    page = _page()
    assert page.count("data:image/webp") == 6 and page.count(">Report</a>") == 6
    assert all(f'<th scope="col">seed={seed}</th>' in page for seed in (1, 2, 3))
    assert all(f"<span>pipeline.num_branches={number}</span>" in page for number in (2, 3))
    assert "prompt=" not in page
    with Image.open(_sweep() / "sheet.png") as sheet:
        assert sheet.width > sheet.height
        assert _GREEN in {colour for _, colour in sheet.getcolors(1 << 20)}


def test_failed_run_keeps_its_place_with_the_reason(command: Command) -> None:
    """And its row and column stay."""
    assert command("-m", "pipeline=echo", "prompt=a", "pipeline.ending=good,model_error", "quiet=true") == 1
    assert "failed: the voice cracked: got NaN in round 0" in _page()
    assert "pipeline.ending=model_error" in _page()
    with Image.open(_sweep() / "sheet.png") as sheet:
        assert _RED in {colour for _, colour in sheet.getcolors(1 << 20)}


def test_third_axis_makes_more_rows(command: Command) -> None:
    """A row for each combination of the keys that are not across."""
    knobs = ("seed=1,2", "n=1,2", "pipeline.num_branches=1,2")
    assert command("-m", "pipeline=echo", "prompt=a", *knobs, "quiet=true") == 0
    assert _page().count('<th scope="row">') == 4
    assert _page().count("data:image/webp") == 8


def test_sweep_without_results_has_no_sheet(command: Command) -> None:
    """Jobs make no pair, and where everything failed there is nothing to compare."""
    assert command("-m", "pipeline=chore", "seed=1,2", "quiet=true") == 0
    assert not list(Path("outputs").rglob("sheet.png"))
    assert command("-m", "pipeline=echo", "prompt=a", "n=0,-1", "quiet=true", "output=failed") == 1
    assert not list(Path("failed").rglob("sheet.png"))
