"""The command line in this process, as a fixture."""

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mmspec import run

Command = Callable[..., int]

CONF = Path(__file__).parent / "conf"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Runs the command line in this process, with the pipelines of `tests/conf`, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "")
    monkeypatch.delenv("HYDRA_FULL_ERROR")
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.setattr(sys, "path", [*sys.path])
    handlers = logging.root.handlers[:]
    levels = {name: logging.getLogger(name).level for name in ("", "mmspec", "mmspec.weights", "pipelines")}

    def call(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["mmspec", "--config-dir", str(CONF), *arguments])
        return run.main()

    yield call
    logging.root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
