"""A pipeline and a job without models, for tests of what stands around them: they end as they are told."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from PIL import Image

from mmspec.errors import ModelError
from mmspec.pipeline import Job, Pipeline
from mmspec.types import (
    Branch,
    BranchState,
    Claim,
    ClaimKind,
    ClaimScore,
    Done,
    Event,
    ImageDraft,
    Pair,
    Preview,
    PreviewReady,
    Pruned,
    Request,
    Result,
    RoundStarted,
    Scored,
    TextGrown,
    Verdict,
)


class Voice:
    """The one part of `Echo`."""

    def __init__(self, *, word: str) -> None:
        self.word = word
        if loads := os.environ.get("ECHO_LOADS"):
            with Path(loads).open("a") as file:
                file.write(f"{os.getpid()}\n")


class Echo(Pipeline):
    """Says the prompt back in every branch, paints a plain colour beside it and prunes all but the first."""

    def __init__(self, *, voice: Voice, num_branches: int, ending: str) -> None:
        self._voice = voice
        self._num_branches = num_branches
        self._ending = ending

    def stream(self, request: Request) -> Iterator[Event]:
        """Grow, preview, score and prune once."""
        ids = tuple(str(index) for index in range(self._num_branches))
        text = f"{self._voice.word}: {request.prompt}"
        yield RoundStarted(0, ids)
        for branch_id in ids:
            yield TextGrown(branch_id, text, num_tokens=3)
            yield PreviewReady(branch_id, 0, 2, preview=Preview(torch.full((3, 8, 8), 0.25), 0.5))
        ending = request.prompt if self._ending == "as_prompted" else self._ending
        if ending == "model_error":
            raise ModelError("the voice cracked: got NaN in round 0")
        if ending == "bug":
            raise RuntimeError("a bug")
        if ending == "interrupted":
            time.sleep(60)
        if ending.startswith("die "):  # die TIMES FILE, which keeps count
            _, times, file = ending.split(" ", 2)
            count = len(Path(file).read_bytes()) if Path(file).exists() else 0
            if count < int(times):
                Path(file).write_bytes(b"x" * (count + 1))
                os.kill(os.getpid(), signal.SIGKILL)
        while ending == "wait_for_no_file" and Path("wait").exists():
            time.sleep(0.05)
        claim = Claim("red car", ClaimKind.PROP, "prompt", (0, 7), contrasts=("blue car",))
        failed = ClaimScore(claim, 0.1, Verdict.FAILED, looks_like="blue car")
        held = failed if ending == "contradicted" else ClaimScore(claim, 0.9, Verdict.HELD)
        reason = "red car: looks like blue car (0.10)"
        tree = []
        for branch_id in ids:
            kept = branch_id == "0"
            scores = (held if kept else failed,)
            draft = ImageDraft(torch.zeros(1, 2, 2), step=4 if kept else 2, num_steps=4, seed=5, condition=text)
            yield Scored(branch_id, 0, scores)
            if not kept:
                yield Pruned(branch_id, None, reason)
            state = BranchState.FINISHED if kept else BranchState.PRUNED
            tree.append(Branch(branch_id, None, text, (draft,), (scores,), state, None if kept else reason))
        picture = Image.new("RGB", (16, 12), (request.seed % 256, 40, 60))
        pairs = tuple(
            Pair("0", text, picture, (held,), held.verdict is Verdict.HELD, seed=request.seed + k)
            for k in range(request.n)
        )
        metrics = {"text_s": 0.25, "num_target_calls": 3}
        yield Done(Result(request, pairs, tuple(tree), metrics, partial=ending == "partial"))


class Chore(Job):
    """Leaves one file."""

    def __init__(self, *, ending: str) -> None:
        self._ending = ending

    def run(self, folder: Path) -> None:
        """Write, and perhaps be interrupted."""
        (folder / "results.json").write_text("{}", encoding="utf-8")
        if self._ending == "interrupted":
            raise KeyboardInterrupt
