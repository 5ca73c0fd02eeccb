"""The main job from the command line, in a process of its own, as a person runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageStat

from mmspec.report.png import read_own

_TINY = ("lm=tiny", "diffusion=tiny", "verifier=tiny", "tree=tiny", "drafter=tiny")
_PROMPT = "cyberpunk rainy street"
# Nothing may dial out once the models are there: every proxy leads nowhere.
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "PIP_NO_INDEX": "1",
}


def _run(output: Path, *arguments: str) -> tuple[Path, dict[str, Any], int]:
    """The result folder, its trace and the peak memory in bytes."""
    command = [sys.executable, "-m", "mmspec.run", f"prompt={_PROMPT}", f"output={output}", "quiet=true", *arguments]
    with subprocess.Popen(
        command, cwd=output, env=os.environ | _OFFLINE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        printed, errors = process.stdout.read(), process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, errors
    assert errors == ""
    folder = Path(printed.strip())
    return folder, json.loads((folder / "trace.json").read_text(encoding="utf-8")), usage.ru_maxrss * 1024


def test_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    """Text, picture and contact sheet are byte for byte the same in two processes (tiny models)."""
    first, _, _ = _run(tmp_path, *_TINY, "seed=7", "max_tokens=24", "metadata=false")
    second, _, _ = _run(tmp_path, *_TINY, "seed=7", "max_tokens=24", "metadata=false")
    for name in ("text.txt", "image.png", "drafts.png"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


@pytest.mark.slow
def test_main_job_on_the_real_models(tmp_path: Path) -> None:
    """One text and one picture that were verified, from a tree of which branches or drafts were pruned."""
    folder, trace, peak_memory = _run(tmp_path)
    text = (folder / "text.txt").read_text(encoding="utf-8")
    assert len(text.split()) >= 8
    assert text.isprintable() or text.strip().isprintable()
    with Image.open(folder / "image.png") as image:
        assert min(image.size) >= 128
        assert max(ImageStat.Stat(image.convert("RGB")).stddev) > 10, "a flat picture"
        own = read_own(image)
    assert own["prompt"] == _PROMPT
    assert own["claims"], "nothing was verified"
    assert len(trace["branches"]) >= 2
    drafts = [draft for branch in trace["branches"] for draft in branch["drafts"]]
    assert any(branch["reason"] for branch in trace["branches"]) or any(draft["reason"] for draft in drafts)
    kinds = [event["event"] for event in trace["timeline"]]
    last_text = max(index for index, kind in enumerate(kinds) if kind == "text")
    assert kinds.index("preview") < last_text, "the picture waited for the text to finish"
    assert peak_memory < 3 * 2**30
