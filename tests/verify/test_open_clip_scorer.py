"""The verifier over real, tiny open_clip models in the real folder formats, offline."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from mmspec.errors import ModelError, WeightsError
from mmspec.types import Claim, ClaimKind, ClaimScore, Preview, Verdict
from mmspec.verify.folders import CONFIG_NAME, WEIGHTS_NAME, open_clip_folder
from mmspec.verify.open_clip_scorer import OpenClipScorer
from mmspec.verify.tiny import save_tiny
from tests.verify.folders import write_bert_folder, write_shipped_folder

SETTINGS = {
    "held": 0.6,
    "failed": 0.2,
    "widening": 0.1,
    "min_auc": 0.7,
    "batch_size": 1,
    "num_cells": 2,
    "device": "cpu",
    "dtype": "float32",
}
CLAIMS = (
    Claim("a dragon", ClaimKind.PROP, "prompt", (0, 8), ("a castle", "a robot", "an empty scene")),
    Claim("a red dragon", ClaimKind.COLOUR, "prompt", (0, 8), ("a blue dragon", "a green dragon"), parent="a dragon"),
    Claim("at night", ClaimKind.TIME, "text", (0, 8), ("at noon", "at dusk", "at dawn")),
    Claim("a bonsai", ClaimKind.OTHER, "prompt", (0, 8)),
)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("MMSPEC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped format: the trained part with its text encoder by reference."""
    bert = write_bert_folder(tmp_path / "bert")
    monkeypatch.chdir(tmp_path)
    return write_shipped_folder(tmp_path / "clip", bert=bert, text_encoder="./bert")


@pytest.fixture(params=["vit", "shipped"])
def scorer(request: pytest.FixtureRequest, tmp_path: Path) -> OpenClipScorer:
    """Both architectures, loaded as a user loads them."""
    folder = save_tiny(tmp_path / "vit", 0) if request.param == "vit" else request.getfixturevalue("shipped")
    return OpenClipScorer(path=str(folder), **SETTINGS)


def _previews(num: int) -> list[Preview]:
    draw = torch.Generator().manual_seed(0)
    return [Preview(torch.rand(3, 40, 40, generator=draw), 0.25 * k) for k in range(num)]


def _same(first: tuple[ClaimScore, ...], second: tuple[ClaimScore, ...]) -> bool:
    return all(
        a.probability == b.probability and a.verdict is b.verdict and a.looks_like == b.looks_like
        for a, b in zip(first, second, strict=True)
    )


def test_scores_do_not_depend_on_batch_or_order(scorer: OpenClipScorer) -> None:
    """A picture alone, among others and in another order gets the same bits, and so do claims."""
    previews = _previews(3)
    together = scorer.score(previews, CLAIMS)
    for order in itertools.permutations(range(3)):
        again = scorer.score([previews[k] for k in order], CLAIMS)
        assert all(_same(again[place], together[k]) for place, k in enumerate(order))
    alone = [scorer.score([preview], CLAIMS)[0] for preview in previews]
    assert all(_same(a, b) for a, b in zip(alone, together, strict=True))
    backwards = scorer.score(previews, CLAIMS[::-1])
    assert all(_same(a[::-1], b) for a, b in zip(backwards, together, strict=True))


@pytest.mark.parametrize("batch_size", [1, 4, 8])
def test_number_of_pictures_does_not_show(tmp_path: Path, batch_size: int) -> None:
    """One to nine pictures in a call: each gets the same bits, because passes are filled up to one shape."""
    scorer = OpenClipScorer(path=str(save_tiny(tmp_path / "vit", 0)), **{**SETTINGS, "batch_size": batch_size})
    previews = _previews(9)
    together = scorer.score(previews, CLAIMS)
    for num in (1, 2, 5):
        part = scorer.score(previews[-num:], CLAIMS)
        assert all(_same(a, b) for a, b in zip(part, together[-num:], strict=True))


def test_batch_size_changes_rounding_only(tmp_path: Path) -> None:
    """More pictures a pass change probabilities by rounding (float32, one layer: 1e-5)."""
    folder = str(save_tiny(tmp_path / "vit", 0))
    single = OpenClipScorer(path=folder, **SETTINGS).score(_previews(5), CLAIMS)
    batched = OpenClipScorer(path=folder, **{**SETTINGS, "batch_size": 4}).score(_previews(5), CLAIMS)
    for a, b in zip(itertools.chain(*single), itertools.chain(*batched), strict=True):
        assert a.probability == pytest.approx(b.probability, abs=1e-5)


def test_margin_is_that_of_plain_open_clip(shipped: Path) -> None:
    """The slow obvious way: load the folder with open_clip alone and compare its softmax."""
    import open_clip

    name = f"local-dir:{open_clip_folder(str(shipped))}"
    model, _, prepare = open_clip.create_model_and_transforms(name)
    tokenizer = open_clip.get_tokenizer(name)
    preview = _previews(1)[0]
    picture = preview.pixels.mul(255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    from PIL import Image

    with torch.no_grad():
        image = model.eval().encode_image(prepare(Image.fromarray(picture)).unsqueeze(0), normalize=True)
        text = model.encode_text(tokenizer([CLAIMS[2].phrase, *CLAIMS[2].contrasts]), normalize=True)
        expected = (model.logit_scale.exp() * image @ text.T).softmax(-1)[0, 0]
    score = OpenClipScorer(path=str(shipped), **SETTINGS).score([preview], CLAIMS)[0][2]
    assert score.probability == pytest.approx(float(expected), abs=1e-5)


def test_assembled_folder_is_built_once(shipped: Path) -> None:
    """The second call takes the folder of the first from the cache."""
    first = open_clip_folder(str(shipped))
    stamp = (first / WEIGHTS_NAME).stat().st_mtime_ns
    assert open_clip_folder(str(shipped)) == first
    assert (first / WEIGHTS_NAME).stat().st_mtime_ns == stamp


def test_claim_without_opponents_is_unjudged(scorer: OpenClipScorer) -> None:
    """What the verifier has no opponent for is neither held nor failed."""
    score = scorer.score(_previews(1), CLAIMS)[0][3]
    assert score.verdict is Verdict.UNJUDGED
    assert scorer.score(_previews(2), CLAIMS[3:])[1][0].verdict is Verdict.UNJUDGED
    assert scorer.score([], CLAIMS) == []
    assert scorer.score(_previews(1), ()) == [()]


def test_relevance_maps_fit_the_picture(scorer: OpenClipScorer) -> None:
    """Every judged claim gets a map of the preview's size in [0, 1]; verdicts stay as they were."""
    preview = _previews(1)[0]
    scores = scorer.score([preview], CLAIMS)[0]
    explained = scorer.explain(preview, scores)
    assert [score.verdict for score in explained] == [score.verdict for score in scores]
    for score in explained:
        if score.verdict is Verdict.UNJUDGED:
            assert score.relevance is None
        else:
            assert score.relevance is not None
            assert score.relevance.shape == (40, 40)
            assert 0 <= float(score.relevance.min()) <= float(score.relevance.max()) <= 1


def test_nan_picture_is_refused(scorer: OpenClipScorer) -> None:
    """A diverged draft is reported as such, not judged."""
    preview = Preview(torch.full((3, 32, 32), torch.nan), 0.5)
    with pytest.raises(ModelError, match="preview 1 holds NaN"):
        scorer.score([_previews(1)[0], preview], CLAIMS)


def test_folder_without_configuration_is_refused(tmp_path: Path) -> None:
    """A folder of another library is named with what was expected."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    with pytest.raises(WeightsError, match=CONFIG_NAME):
        OpenClipScorer(path=str(tmp_path / "other"), **SETTINGS)


def test_folder_without_weights_is_refused(tmp_path: Path) -> None:
    """open_clip itself would warn and go on with random weights."""
    folder = save_tiny(tmp_path / "vit", 0)
    (folder / WEIGHTS_NAME).unlink()
    with pytest.raises(WeightsError, match="weights"):
        OpenClipScorer(path=str(folder), **SETTINGS)


def test_phrases_of_a_model_in_the_cache_are_encoded_once_on_a_machine(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second scorer of the same folder reads no phrase and gives the very same scores."""
    first = OpenClipScorer(path=str(shipped), **SETTINGS)
    scores = first.score(_previews(2), CLAIMS)
    second = OpenClipScorer(path=str(shipped), **SETTINGS)
    monkeypatch.setattr(second, "_encode_phrases", None)
    again = second.score(_previews(2), CLAIMS)
    assert [[s.probability for s in row] for row in again] == [[s.probability for s in row] for row in scores]


def test_text_features_do_not_depend_on_their_neighbours(scorer: OpenClipScorer) -> None:
    """A phrase alone, among few and among many has the same bits."""
    phrases = [f"a dragon number {k}" for k in range(11)]
    pixels = [preview.pixels for preview in _previews(1)]
    alone = scorer.similarities(pixels, phrases[:1])
    scorer._text.clear()
    among = scorer.similarities(pixels, phrases)
    assert torch.equal(alone[:, 0], among[:, 0])


def test_phrase_that_is_cut_is_said(scorer: OpenClipScorer, caplog: pytest.LogCaptureFixture) -> None:
    """A phrase beyond the text tower's context is named, others are not."""
    long = "a red dragon " * 40
    scorer.similarities([preview.pixels for preview in _previews(1)], ["a dragon", long])
    (line,) = caplog.messages
    assert line.startswith("the verifier reads ") and long in line


def test_spoilt_file_of_phrases_is_written_anew(shipped: Path) -> None:
    """Neither a cut file nor one of other content stops the verifier."""
    first = OpenClipScorer(path=str(shipped), **SETTINGS)
    first.score(_previews(1), CLAIMS)
    assert first._kept is not None
    whole = first._kept.read_bytes()
    first._kept.write_bytes(whole[:40])
    OpenClipScorer(path=str(shipped), **SETTINGS).score(_previews(1), CLAIMS)
    assert first._kept.read_bytes() == whole


def test_picture_is_encoded_once_however_often_it_is_asked_about(
    scorer: OpenClipScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New claims about the same pictures cost no pass of the image tower, and many pictures are forgotten again."""
    previews = _previews(3)
    before = scorer.score(previews, CLAIMS[:2])
    encode = scorer._model.encode_image
    monkeypatch.setattr(scorer._model, "encode_image", None)
    after = scorer.score(previews, CLAIMS)
    assert [[s.probability for s in row[:2]] for row in after] == [[s.probability for s in row] for row in before]
    monkeypatch.setattr(scorer._model, "encode_image", encode)
    scorer.score(_previews(80), CLAIMS)
    assert len(scorer._seen) == 64
