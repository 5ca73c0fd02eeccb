"""The benchmarks' judge: its losses, its training, and its verdicts by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mmspec.embedded.autoencoder import Autoencoder
from mmspec.embedded.judge import Judge, Reading, attribute_phrases, scene_phrases
from mmspec.embedded.lexicon import embedded_lexicon
from mmspec.embedded.scenes import Prop, Scene
from mmspec.embedded.training.judge import JudgeTask, _noun_loss, accuracy
from mmspec.embedded.training.previews import painted_previews, reconstruct, redraw
from mmspec.embedded.training.scenes import paint_scenes, scene_at
from mmspec.embedded.world import NOUNS
from mmspec.errors import WeightsError
from mmspec.image.tiny import tiny_drafter, tiny_models
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
    """All logits zero: the one that is there against 175 absent and "nothing", and "nothing" against those 175."""
    scene = Scene("cave", None, None, (Prop("dragon"),))
    loss = _noun_loss(torch.zeros(1, len(NAMES) + 1), [scene])
    assert float(loss) == pytest.approx(math.log(len(NAMES) + 1) + math.log(len(NAMES)), rel=1e-5)
    empty = _noun_loss(torch.zeros(2, len(NAMES) + 1), [Scene("cave", None, None)] * 2)
    assert float(empty) == pytest.approx(math.log(len(NAMES) + 1), rel=1e-5)


def test_accuracy_by_hand(tmp_path: Path) -> None:
    """A judge that always sees a forest at night with a dragon is right as often as scenes are like that."""
    painted = paint_scenes(tmp_path / "set", seed=5, num_scenes=12, size=32, num_workers=1)
    known = painted_previews(painted, torch.arange(12), size=16)
    assert known.pictures.shape == (12, 3, 16, 16)
    torch.manual_seed(0)
    figures = accuracy(_Sees(channels=(8, 8, 16)).eval(), known)
    scenes = [scene_at(5, k) for k in range(12)]
    assert figures["place"] == pytest.approx(sum(scene.place == "forest" for scene in scenes) / 12)
    dragons = sum(prop.noun == "dragon" for scene in scenes for prop in scene.props)
    assert figures["noun_recall"] == pytest.approx(dragons / sum(len(scene.props) for scene in scenes))
    assert figures["noun_false"] == pytest.approx(1 - dragons / 12)


def test_judge_of_another_folder_is_refused(tmp_path: Path) -> None:
    """A folder without a judge is named in one line."""
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(WeightsError, match="train_judge"):
        Judge.load(str(tmp_path))


def test_redrawn_scenes_are_finished_pictures(tmp_path: Path) -> None:
    """Noise level 0, the judge's size, and the same for the same seed."""
    painted = paint_scenes(tmp_path / "set", seed=5, num_scenes=3, size=32, num_workers=1)
    autoencoder = tiny_models(0).vae
    first, second = (
        redraw(tiny_drafter(0), autoencoder, painted, torch.arange(3), num_steps=4, max_level=0.5, size=16, seed=1)
        for _ in range(2)
    )
    assert first.levels.tolist() == [0.0] * 3
    assert first.pictures.shape == (3, 3, 16, 16)
    assert torch.equal(first.pictures, second.pictures)


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
            held_out={"reconstructed": previews},
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
    assert {f"reconstructed_{kind}" for kind in ("place", "noun", "noun_false", "count", "position")} <= set(
        first.evaluate()
    )
    first.export(tmp_path / "export")
    loaded = Judge.load(str(tmp_path / "export"))
    assert loaded.config["channels"] == [8, 16, 16]
    assert loaded.nouns.weight.dtype == torch.float32
