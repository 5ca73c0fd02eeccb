"""The embedded CLIP: questions about scenes, the training task, export, previews of known contents, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy
import pytest
import torch
from torch import Tensor

from mmspec.embedded.autoencoder import Autoencoder
from mmspec.embedded.clip import ClipShape, build, export, load_trained
from mmspec.embedded.scenes import Prop, Scene, sample_scene
from mmspec.embedded.training.clip import ClipTask, LossWeights, QuestionBatch, degrade, margins, melt
from mmspec.embedded.training.clip_calibration import KnownMargins, calibrate, known_claims, quality, retrieval
from mmspec.embedded.training.phrases import NOTHING, PhraseTable, mean_pooled, questions, synonyms
from mmspec.embedded.training.previews import KnownPreviews, joined, reconstruct
from mmspec.embedded.training.scenes import PaintedScenes, paint_scenes, scene_at
from mmspec.types import ClaimKind
from mmspec.verify.folders import WEIGHTS_NAME
from mmspec.verify.scorer import ContrastScorer, Thresholds
from tests.verify.folders import SHAPE, write_bert_folder

PLAIN = {kind: tuple(names[0] for names in terms.values()) for kind, terms in synonyms().items()}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence encoder of one layer."""
    return write_bert_folder(tmp_path_factory.mktemp("text") / "bert")


@pytest.fixture(scope="module")
def table(bert: Path) -> PhraseTable:
    """All training phrases, encoded by it."""
    return PhraseTable(bert)


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> PaintedScenes:
    """Twelve painted scenes."""
    folder = tmp_path_factory.mktemp("scenes") / "set"
    return paint_scenes(folder, seed=5, num_scenes=12, size=64, num_workers=1)


def test_questions_of_a_scene() -> None:
    """By hand: two props, one of them tinted."""
    scene = Scene(
        "forest", "night", "rain", (Prop("dragon", "red", 1, "medium", "left"), Prop("car", None, 1, "medium", "right"))
    )
    asked = questions(scene, PLAIN, numpy.random.default_rng(3))
    answers = [(q.kind, q.options[q.answer]) for q in asked if q.kind not in ("colour", "position")]
    assert answers == [
        ("place", "a forest"),
        ("time", "at night"),
        ("weather", "in the rain"),
        ("prop", "a dragon"),
        ("prop", "a car"),
        ("nothing", NOTHING),
        ("count", "one dragon"),
        ("count", "one car"),
    ]
    nothing = next(q for q in asked if q.kind == "nothing")
    assert {nothing.options[k] for k in nothing.left_out} == {"a dragon", "a car"}
    colours = [q.options[q.answer] for q in asked if q.kind == "colour"]
    assert len(colours) == 1
    assert colours[0].startswith("a red d")


def test_margin_by_hand(table: PhraseTable) -> None:
    """Similarity 1 for the true place and 0 for the nine others: the margin is 1 - log 9, that of a wrong one less."""
    scene = Scene("forest", "night", "rain")
    batch = QuestionBatch([questions(scene, PLAIN, numpy.random.default_rng(0))], table)
    scores = torch.zeros(1, len(batch.rows))
    scores[0, int((batch.rows == table.rows(["a forest"])).nonzero())] = 1.0
    true, false = margins(batch, "place", scores, numpy.random.default_rng(0))
    assert float(true) == pytest.approx(1 - float(numpy.log(9)))
    assert float(false) == pytest.approx(-float(numpy.log(8 + numpy.e)))


def test_every_true_phrase_is_in_the_table(table: PhraseTable) -> None:
    """Whatever scene is drawn and however it is phrased, its phrases were encoded."""
    for seed in range(150):
        rng = numpy.random.default_rng(seed)
        say = {
            kind: tuple(names[int(rng.integers(len(names)))] for names in terms.values())
            for kind, terms in synonyms().items()
        }
        QuestionBatch([questions(sample_scene(rng), say, rng)], table)


def test_mean_pooled_is_the_text_tower_before_its_projection(bert: Path) -> None:
    """Phrases encoded for training meet the projection as open_clip's own tower meets it."""
    from transformers import AutoTokenizer

    model = build(SHAPE, text_folder=bert)
    words = ["a red dragon", "at night"]
    tokens = AutoTokenizer.from_pretrained(bert)(words, padding="max_length", max_length=12, return_tensors="pt")[
        "input_ids"
    ]
    with torch.no_grad():
        expected = model.text(tokens)
        assert torch.allclose(model.text.proj(mean_pooled(words, text_folder=bert)), expected, atol=1e-5)


def _task(bert: Path, table: PhraseTable, painted: PaintedScenes, previews: KnownPreviews | None) -> ClipTask:
    torch.manual_seed(0)
    return ClipTask(
        build(SHAPE, text_folder=bert),
        SHAPE,
        table=table,
        pictures=painted,
        held_out=painted,
        captions=mean_pooled([f"scene {k}" for k in range(6)], text_folder=bert),
        weights=LossWeights(),
        batch_size=6,
        learning_rate=1e-3,
        seed=0,
        text_encoder="./bert",
        previews=previews,
        held_out_previews=previews,
        preview_share=0.3,
        melted_share=0.3,
    )


def test_training_goes_on_from_a_checkpoint_as_if_uninterrupted(
    bert: Path, table: PhraseTable, painted: PaintedScenes
) -> None:
    """Four steps in one go and two plus two give the same loss."""
    torch.manual_seed(0)
    previews = reconstruct(Autoencoder(8, (8, 16, 16)).eval(), painted, torch.arange(8), size=SHAPE.image_size)
    whole, first = _task(bert, table, painted, previews), _task(bert, table, painted, previews)
    for step in range(4):
        whole.loss(step)[0].backward()
        whole.update(1.0)
    for step in range(2):
        first.loss(step)[0].backward()
        first.update(1.0)
    second = _task(bert, table, painted, previews)
    second.load(first.state())
    for step in range(2, 4):
        second.loss(step)[0].backward()
        second.update(1.0)
    with torch.no_grad():
        assert second.loss(4)[0].item() == pytest.approx(whole.loss(4)[0].item(), rel=1e-4)
    figures = whole.evaluate()
    assert {"auc_place", "auc_prop", "preview_auc_place"} <= set(figures)


def test_exported_weights_come_back(bert: Path, tmp_path: Path) -> None:
    """Written in float16 without the sentence encoder; a larger picture size interpolates the position table."""
    torch.manual_seed(0)
    model = build(SHAPE, text_folder=bert)
    export(model, SHAPE, tmp_path, text_encoder="./bert")
    assert (tmp_path / WEIGHTS_NAME).stat().st_size < 2.2 * sum(
        p.numel() for n, p in model.named_parameters() if not n.startswith("text.transformer")
    )
    back = build(SHAPE, text_folder=bert)
    load_trained(back, tmp_path, image_size=32)
    x = torch.rand(2, 3, 32, 32)
    assert torch.allclose(back.eval().visual(x), model.eval().visual(x), atol=2e-3)  # float16 weights
    large = build(ClipShape(64, *(SHAPE.width, SHAPE.layers, SHAPE.embed_dim, SHAPE.context_length)), text_folder=bert)
    load_trained(large, tmp_path, image_size=64)
    assert large.visual(torch.rand(2, 3, 64, 64)).shape == (2, 16)


def test_degraded_pictures_keep_their_range() -> None:
    """In [0, 1], at the tower's size, the given pictures untouched."""
    pixels = torch.rand(8, 3, 64, 64)
    before = pixels.clone()
    for size in (32, 48):
        out = degrade(pixels, torch.Generator().manual_seed(0), size=size)
        assert out.shape == (8, 3, size, size)
        assert 0 <= float(out.min()) <= float(out.max()) <= 1
    assert torch.equal(pixels, before)


def test_melting_keeps_the_backdrop_and_the_colours() -> None:
    """Outside the mask nothing changes; inside, pixels move but the palette stays."""
    pixels = torch.zeros(1, 3, 64, 64)
    pixels[:, 0, 20:44, 36:60] = 1.0  # a red square
    masks = torch.zeros(1, 8, 8, dtype=torch.bool)
    masks[0, 2:6, 4:8] = True
    out = melt(pixels, masks, torch.Generator().manual_seed(0))
    assert torch.allclose(out[..., :24], pixels[..., :24], atol=1e-6)
    assert float((out - pixels).abs().mean()) > 0.02
    assert float(out[:, 1:].max()) == pytest.approx(0.0, abs=1e-6)
    assert float(out.max()) <= 1 + 1e-6


def test_reconstructions_know_their_scenes(painted: PaintedScenes) -> None:
    """Sets join in order, and a subset keeps its indices."""
    autoencoder = Autoencoder(8, (8, 16, 16)).eval()
    known = joined([reconstruct(autoencoder, painted, torch.arange(k, k + 3), size=32) for k in (0, 6)])
    assert known.indices.tolist() == [0, 1, 2, 6, 7, 8]
    assert known.pictures.dtype == torch.uint8
    assert known.where(known.indices > 5).indices.tolist() == [6, 7, 8]


def test_known_claims_are_true_and_false() -> None:
    """True ones name what the scene holds, false ones what it does not; no claim is its own opponent."""
    for k in range(40):
        scene = scene_at(3, k)
        nouns = {prop.noun for prop in scene.props}
        for claim, holds in known_claims(scene, numpy.random.default_rng(k)):
            assert claim.phrase not in claim.contrasts
            if claim.kind is ClaimKind.PROP:
                assert any(claim.phrase.endswith(noun) for noun in nouns) or not holds
            if claim.kind is ClaimKind.PLACE:
                assert holds == (claim.phrase.split()[-1] in scene.place.split()[-1] or claim.phrase == scene.place)


def test_calibration_finds_level_and_weak_phrases() -> None:
    """Margins that separate at no noise and not at full noise; one phrase is at chance everywhere."""
    draw = torch.Generator().manual_seed(0)
    phrases, rows, holds, levels = [], [], [], []
    for level, gap in ((0.0, 6.0), (1.0, 1.0)):
        for k in range(400):
            true = k % 2 == 0
            phrase = "a kite" if k % 10 == 0 else "a dragon"
            phrases.append(phrase)
            rows.append(float(torch.randn((), generator=draw)) + (gap if true and phrase != "a kite" else 0.0))
            holds.append(true)
            levels.append(level)
    known = {"prop": KnownMargins(tuple(phrases), torch.tensor(rows), torch.tensor(holds), torch.tensor(levels))}
    calibration = calibrate(known)
    curve = calibration.curves["prop"]
    assert [point.level for point in curve.points] == [0.0, 1.0]
    assert curve.points[0].auc > 0.85 > curve.points[1].auc
    assert calibration.weak == {"a kite"}
    scorer = _Calibrated(thresholds=Thresholds(0.6, 0.1, 0.0, 0.5), calibration=calibration, num_cells=1)
    assert quality(known, scorer)["prop"]["ece"] < 0.1


class _Calibrated(ContrastScorer):
    """Has a calibration and no model."""

    def similarities(self, pixels: Sequence[Tensor], phrases: Sequence[str]) -> Tensor:
        """One hot: picture k shows phrase k."""
        return torch.eye(len(pixels), len(phrases))


def test_retrieval_counts_own_captions() -> None:
    """By hand: a scorer whose k-th picture shows the k-th caption is always right."""
    known = KnownPreviews(0, torch.arange(4), torch.zeros(4), torch.zeros(4, 3, 8, 8, dtype=torch.uint8))
    scorer = _Calibrated(thresholds=Thresholds(0.6, 0.1, 0.0, 0.5), calibration=None, num_cells=1)
    assert retrieval(scorer, known, ["a", "b", "c", "d"], group=2) == 1.0
