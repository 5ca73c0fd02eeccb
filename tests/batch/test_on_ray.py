"""The same batch on a Ray cluster of two workers on this machine, where workers die."""

import json
import sys
from pathlib import Path

import pytest

from tests.command import Command, command

__all__ = ["command"]

_MOODY = ("pipeline=echo", "pipeline.ending=as_prompted", "quiet=true", "metadata=false")


# Ray's own processes and sockets are closed by Ray, some of them later than the interpreter looks.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*", "ignore::FutureWarning:ray.*")
def test_prompt_of_a_killed_worker_is_begun_again(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One worker is killed in the middle of a prompt, and its prompt is done all the same; a prompt that kills every
    worker fails alone. No process loads the models twice, and every file is what a run in one process writes.
    """
    pytest.importorskip("ray")
    once, always, loads = tmp_path / "once", tmp_path / "always", tmp_path / "loads"
    monkeypatch.setenv("ECHO_LOADS", str(loads))
    kills = [f"die 1 {once}", f"die 9 {always}"]
    prompts = ["a lantern", kills[0], "model_error", "a red car", "mars", kills[1]]
    Path("p.txt").write_text("\n".join(prompts), encoding="utf-8")
    assert command(*_MOODY, "prompts=p.txt", "executor=ray", "executor.max_attempts=2") == 1
    captured = capsys.readouterr()
    batch = Path(captured.out.strip())
    rows = [json.loads(line) for line in (batch / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {row["prompt"]: row["error"] for row in rows if row["status"] == "failed"} == {
        "model_error": "the voice cracked: got NaN in round 0",
        kills[1]: "its worker died 2 times",
    }
    assert [row["prompt"] for row in rows] == prompts
    assert (once.read_bytes(), always.read_bytes()) == (b"x", b"xx")
    pids = loads.read_text().split()
    assert len(pids) == len(set(pids)) and len(pids) >= 3

    always.write_bytes(b"x" * 9)  # here, nobody dies
    monkeypatch.delenv("ECHO_LOADS")
    assert command(*_MOODY, "prompts=p.txt", "output=local") == 1
    local = Path(capsys.readouterr().out.strip())
    assert local.name == batch.name
    for row in rows:
        if row["status"] == "done":
            for name in ("image.png", "text.txt", "drafts.png"):
                assert (batch / row["folder"] / name).read_bytes() == (local / row["folder"] / name).read_bytes()


def test_missing_ray_is_said(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with the extra to install; a number too small is said as plainly."""
    Path("p.txt").write_text("a", encoding="utf-8")
    assert command(*_MOODY, "prompts=p.txt", "executor=ray", "executor.num_workers=0") == 1
    assert "executor.num_workers=0 is too small" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ray", None)
    assert command(*_MOODY, "prompts=p.txt", "executor=ray") == 1
    assert capsys.readouterr().err == "error: executor=ray needs Ray: pip install 'mmspec[ray]'\n"
