"""A file of prompts from the command line: done once, whatever happens in between."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.command import CONF, Command, command

__all__ = ["command"]

_ROOT = Path(__file__).parent.parent.parent
_ECHO = "pipeline=echo"
_MOODY = ("pipeline=echo", "pipeline.ending=as_prompted")


def _prompts(*lines: str, name: str = "p.txt") -> str:
    Path(name).write_text("\n".join(lines), encoding="utf-8")
    return f"prompts={name}"


def _batch() -> Path:
    (folder,) = Path("outputs").iterdir()
    return folder


def _results() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_batch() / "results.jsonl").read_text(encoding="utf-8").splitlines()]


def _times() -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in _batch().glob("*/trace.json")}


def test_every_row_leaves_an_ordinary_result(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """The same files as a run with that prompt alone; a line for each row, and when the rest will be there."""
    assert command(_ECHO, _prompts("a lantern", "", "mars, at night")) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("2 prompts: ")
    assert "1/2  verified" in out[1] and out[1].endswith(" left)")
    assert "2/2  verified" in out[2]
    assert out[-1] == str((_batch() / "index.html").absolute())
    results = _results()
    assert [(row["line"], row["prompt"], row["status"], row["verified"]) for row in results] == [
        (1, "a lantern", "done", True),
        (3, "mars, at night", "done", True),
    ]
    batch = _batch()
    assert command(_ECHO, "prompt=mars, at night", "output=alone") == 0
    (alone,) = Path("alone").iterdir()
    for name in ("image.png", "text.txt", "drafts.png"):
        assert (alone / name).is_file() and (batch / results[1]["folder"] / name).is_file()
    assert (alone / "drafts.png").read_bytes() == (batch / results[1]["folder"] / "drafts.png").read_bytes()


def test_second_run_does_nothing_twice(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """A row that is added, moved or mended is the only one that is computed."""
    assert command(_ECHO, _prompts("a", "b")) == 0
    before = _times()
    assert command(_ECHO, _prompts("c", "b", "a")) == 0
    assert "3 prompts, 2 there already" in capsys.readouterr().out
    after = _times()
    assert before.items() < after.items()
    assert [row["prompt"] for row in _results()] == ["c", "b", "a"]


def test_other_configuration_is_another_batch(command: Command) -> None:
    """Results of one policy never stand in for those of another; where they go and how loudly matters not."""
    prompts = _prompts("a")
    assert command(_ECHO, prompts) == 0
    assert command(_ECHO, prompts, "quiet=true", "fail_on_unverified=true") == 0
    assert len(list(Path("outputs").iterdir())) == 1
    assert command(_ECHO, prompts, "pipeline.num_branches=3") == 0
    assert len(list(Path("outputs").iterdir())) == 2


def test_one_failing_prompt_does_not_stop_the_rest(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither does a bug in one; both are said at the end, kept in the table and tried again by the next run."""
    assert command(*_MOODY, _prompts("good", "model_error", "bug", "contradicted")) == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "line 2 failed: the voice cracked: got NaN in round 0 (model_error)",
        "line 3 failed: RuntimeError: a bug (bug)",
    ]
    rows = _results()
    assert [row["status"] for row in rows] == ["done", "failed", "failed", "done"]
    assert [row["verified"] for row in rows] == [True, None, None, False]
    assert "Traceback" in rows[2]["details"] and not rows[1]["details"]
    page = (_batch() / "index.html").read_text(encoding="utf-8")
    assert "the voice cracked" in page and page.count("data:image/webp") == 2
    assert command(*_MOODY, _prompts("good", "model_error", "bug", "contradicted")) == 1
    assert "4 prompts, 2 there already" in capsys.readouterr().out


def test_unverified_rows_can_fail_the_run(command: Command) -> None:
    """As with one prompt."""
    assert command(*_MOODY, "fail_on_unverified=true", "quiet=true", _prompts("good", "contradicted")) == 3


def test_quiet_prints_the_folder_alone(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts."""
    assert command(_ECHO, "quiet=true", _prompts("a")) == 0
    assert capsys.readouterr().out == f"{_batch().absolute()}\n"


def test_row_is_run_again_from_its_own_picture(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a row's result says of how it was made is a run with one prompt."""
    from mmspec import rerun

    assert command(_ECHO, _prompts("a", "b, c")) == 0
    picture = _batch() / _results()[1]["folder"] / "image.png"
    monkeypatch.setattr(sys, "argv", ["mmspec", str(picture), "output=again"])
    assert rerun.main() == 0
    (again,) = Path("again").iterdir()
    assert (again / "text.txt").read_text(encoding="utf-8") == "echo: b, c\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["prompts=nothing.txt"], 1, "cannot read prompts=nothing.txt: No such file"),
        (["prompts=p.txt", "prompt=x"], 2, "prompt and prompts exclude each other"),
        (["prompts=p.txt", "pipeline=chore"], 2, "this pipeline answers no prompt"),
        (["prompts=p.txt", "executor=locl"], 2, "group executor has no option 'locl': did you mean local?"),
        (["prompts=p.txt", "+executor.num=3"], 2, "unknown key executor.num"),
        (["prompts=broken.csv"], 1, "unknown column promt"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_loaded(
    command: Command, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    """One line, and no folder."""
    _prompts("a")
    _prompts("promt", "a", name="broken.csv")
    assert command(_ECHO, *arguments) == code
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1
    assert not Path("outputs").exists()


def test_foreign_folder_is_left_alone(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """A result that lost its trace is neither adopted nor overwritten."""
    assert command(_ECHO, _prompts("a")) == 0
    (_batch() / _results()[0]["folder"] / "trace.json").unlink()
    assert command(_ECHO, _prompts("a")) == 1
    assert "is no whole result: move it away" in capsys.readouterr().err


def _start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mmspec.run", "--config-dir", str(CONF), *arguments],
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_batch_goes_on_where_it_stopped(command: Command, how: signal.Signals) -> None:
    """What was whole stays as it is, what was not is made; nothing half written is left."""
    # The same configuration in both runs: what makes the second row wait is a file that is gone by then.
    prompts = _prompts("a", "wait_for_no_file", "c")
    Path("wait").touch()
    with _start(*_MOODY, prompts) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("1/3"):
                break
        time.sleep(0.2)
        if how is signal.SIGINT:  # another run keeps out
            assert command(*_MOODY, prompts) == 1
        process.send_signal(how)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if how is signal.SIGINT else -how)
    if how is signal.SIGINT:
        assert errors.startswith("interrupted: 1 results are in") and errors.count("\n") == 1
        assert "2 not done yet" in (_batch() / "index.html").read_text(encoding="utf-8")
    before = _times()
    assert len(before) == 1
    (_batch() / ".left-by-a-killed-run").mkdir()
    Path("wait").unlink()
    assert command(*_MOODY, prompts) == 0
    assert [row["status"] for row in _results()] == ["done"] * 3
    assert before.items() < _times().items() and len(_times()) == 3
    assert {path.name for path in _batch().iterdir() if path.name.startswith(".")} == {".hydra", ".lock"}
