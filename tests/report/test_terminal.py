"""What a person reads while a run goes on."""

import io

import pytest

from mmspec.report.live import LiveTerminal
from mmspec.report.previews import unit_to_image
from mmspec.report.terminal import LineTerminal, summary_of, terminal
from mmspec.types import Loaded, Request, RoundStarted, TextGrown
from tests.report.conftest import run_of


def test_lines_hold_text_reasons_and_verdict() -> None:
    """Every branch's text, why a branch went, and what became of the claims."""
    stream = io.StringIO()
    screen = LineTerminal(stream)
    for event in run_of(Request("street"), ending="contradicted").events:
        screen.handle(event)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "round 0: 3 live (0, 1, 2)"
    assert "  1 | echo: street" in lines
    assert "pruned 2: red car: looks like blue car (0.10)" in lines
    assert "not verified: of 1 claims 1 failed; contradicted: red car (looks like blue car)" in lines
    assert lines[-2:] == ["seconds: text 0.25", "figures: num_target_calls 3"]


def test_text_is_printed_by_sentence_or_line_and_whole() -> None:
    """Chunks are joined; a long sentence is broken at a space; nothing is lost or said twice."""
    stream = io.StringIO()
    screen = LineTerminal(stream)
    text = "Neon signs hum. " + "word " * 40 + "and the end"
    for start in range(0, len(text), 3):
        screen.handle(TextGrown("0", text[start : start + 3], 1))
    screen.close()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "  0 | Neon signs hum."
    assert len(lines) > 2
    assert " ".join(line.removeprefix("  0 | ") for line in lines).split() == text.split()


def test_live_table_shows_the_branches_and_ends_with_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    """Events of a whole run go through the live terminal; it leaves text and verdict behind."""
    screen = LiveTerminal()
    screen.start("title [not markup]")
    screen.handle(Loaded("text", 1.0))
    run = run_of(Request("street [bold]"))
    for event in run.events:
        screen.handle(event)
    screen.close()
    out = capsys.readouterr().out
    assert "title [not markup]" in out
    for line in summary_of(run.result):
        assert line in out


def test_terminal_fits_standard_output(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Live in a terminal, lines in a pipe, the path alone when quiet."""
    assert type(terminal(quiet=False)).__name__ == "LineTerminal"
    assert type(terminal(quiet=True)).__name__ == "QuietTerminal"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert type(terminal(quiet=False)).__name__ == "LiveTerminal"
    terminal(quiet=True).handle(RoundStarted(0, ()))
    assert capsys.readouterr().out == ""


def test_unit_range_becomes_bytes() -> None:
    """0 is 0, 1 is 255, a half rounds, and what lies outside is clipped."""
    import torch

    pixels = torch.tensor([0.0, 1.0, 0.5, -0.2, 1.7]).expand(3, 1, 5)
    assert [unit_to_image(pixels).getpixel((x, 0))[0] for x in range(5)] == [0, 255, 128, 0, 255]
