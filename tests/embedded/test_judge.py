"""The benchmarks' judge: its losses, its training, and its verdicts by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from mmspec.embedded.autoencoder import Autoencoder
from mmspec.embedded.judge import Judge, Reading, attribute_phrases, scene_phrases
from mmspec.embedded.lexicon import embedded_lexicon
from mmspec.embedded.scenes import Prop, Scene
from mmspec.embedded.training.judge import JudgeTask, _noun_loss
from mmspec.embedded.training.previews import reconstruct
from mmspec.embedded.training.scenes import paint_scenes
from mmspec.embedded.world import NOUNS
from mmspec.types import Verdict
from mmspec.verify.claims import ClaimExtractor

NAMES = list(NOUNS)


class _Sees(Judge):
    """A judge whose tower is replaced by one reading: a night in the forest with a dragon."""

    def forward(self, pixels: Tensor) -> Reading:
        """The same for every picture."""
        scene = {kind: torch.zeros(len(pixels), len(scene_phrases(kind))) for kind in ("place", "time", "weather")}
        scene["place"][:, scene_phrases("place").index("a forest")] = 1
        scene["time"][:, scene_phrases("time").index("at night")] = 1
        nouns = torch.full((len(pixels), len(NAMES) + 1), -1.0)
        nouns[:, -1] = 0
        nouns[:, NAMES.index("dragon")] = 1
        return Reading(scene, nouns, torch.zeros(len(pixels), 64, 16))


def test_verdicts_by_hand() -> None:
    """The likeliest place and time hold, others fail; a thing that is not seen fails with its attributes."""
    torch.manual_seed(0)
    judge = _Sees(channels=(8, 8, 16))
    text = "a forest at noon, a dragon, a red castle, a white dragon"
    claims = ClaimExtractor(embedded_lexicon(), name_unknown=True).extract(text, source="prompt")
    found = dict(
        zip([claim.phrase for claim in claims], judge.verdicts([torch.rand(3, 128, 128)], claims)[0], strict=True)
    )
    assert found == {
        "a forest": Verdict.HELD,
        "at noon": Verdict.FAILED,
        "a dragon": Verdict.HELD,
        "a castle": Verdict.FAILED,
        "a red castle": Verdict.FAILED,
        "a white dragon": Verdict.UNJUDGED,
    }


def test_every_judged_claim_is_in_the_judges_words() -> None:
    """Phrases of the extractor and of the judge are the same strings."""
    things = {entry.phrase for entry in embedded_lexicon().entries}
    for kind in ("place", "time", "weather"):
        assert set(scene_phrases(kind)) <= things
    extractor = ClaimExtractor(embedded_lexicon(), name_unknown=True)
    body = ("eyes", "hearts", "brains")  # read as parts of a body, never as things
    for noun in NAMES:
        for kind in ("colour", "count", "position"):
            for phrase in attribute_phrases(kind, noun):
                if phrase.split()[-1] not in body:
                    assert phrase in {claim.phrase for claim in extractor.extract(phrase, source="text")}


def test_noun_loss_by_hand() -> None:
    """All logits zero: one present and 175 absent nouns cost log 2 each."""
    scene = Scene("cave", None, None, (Prop("dragon"),))
    loss = _noun_loss(torch.zeros(1, len(NAMES) + 1), [scene])
    assert float(loss) == pytest.approx(len(NAMES) * float(torch.tensor(2.0).log()), rel=1e-5)


def test_training_lowers_the_loss_and_resumes(tmp_path: Path) -> None:
    """Eight steps on twelve pictures; a checkpoint gives the same next loss."""
    painted = paint_scenes(tmp_path / "set", seed=5, num_scenes=12, size=128, num_workers=1)
    torch.manual_seed(0)
    previews = reconstruct(Autoencoder(8, (8, 16, 16)).eval(), painted, torch.arange(4), size=64)

    def task() -> JudgeTask:
        torch.manual_seed(0)
        return JudgeTask(
            Judge(channels=(8, 16, 16)),
            pictures=painted,
            held_out=painted,
            previews=previews,
            preview_share=0.25,
            batch_size=8,
            learning_rate=3e-3,
            seed=0,
        )

    first, second = task(), task()
    losses = []
    for step in range(8):
        loss, _ = first.loss(step)
        loss.backward()
        first.update(1.0)
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    second.load(first.state())
    with torch.no_grad():
        assert second.loss(9)[0].item() == pytest.approx(first.loss(9)[0].item(), rel=1e-3)
    assert {"place", "noun_recall", "noun_false", "colour", "count", "position"} <= set(first.evaluate())
    first.export(tmp_path / "export")
    assert Judge.from_pretrained(tmp_path / "export", local_files_only=True).config["channels"] == [8, 16, 16]
