"""The draft head: its cache, its trees, its training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mmspec.errors import InputError, WeightsError
from mmspec.text.decode import TextDecoder
from mmspec.text.distill import Text, TrainSettings, agreement, frequent_tokens, read, train_head
from mmspec.text.drafters.base import NoDrafter
from mmspec.text.drafters.head import HeadDrafter
from mmspec.text.drafters.head_model import DraftHead, HeadConfig, causal
from mmspec.text.growth import ConfidentGrowth, FixedGrowth
from mmspec.text.types import SamplingParams

CONFIG = HeadConfig(hidden_size=32, num_heads=4, intermediate_size=48, window=16)
SETTINGS = TrainSettings(num_steps=60, batch_size=4, learning_rate=3e-3, warmup_steps=5, save_every=20)


def own_texts(models: Any) -> list[Text]:
    """What a tiny target writes."""
    decoder = TextDecoder(
        engine=models,
        drafter=NoDrafter(),
        growth=FixedGrowth(tree_widths=[1], tree_budget=2),
        acceptance="shared_noise",
    )
    states = [decoder.start(p, params=SamplingParams(max_tokens=50), seed=0) for p in ("neon", "rain", "fog", "lamp")]
    grown = decoder.extend(states, max_new_tokens=50, until=None)
    return [Text((*s.prompt_ids, *s.ids), num_prompt=len(s.prompt_ids)) for s in grown]


@pytest.fixture(scope="module")
def trained(language_models: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head that learnt four texts by heart."""
    models = language_models("llama", engine="llama")
    folder = tmp_path_factory.mktemp("head")
    losses = [
        loss
        for _, loss in train_head(
            models.engine, own_texts(models), config=CONFIG, num_tokens=200, settings=SETTINGS, folder=folder, seed=0
        )
    ]
    assert losses[-1] < losses[0]
    return folder


def test_cached_rows_equal_rows_run_at_once() -> None:
    """Running rows in two parts gives what one pass gives."""
    head = DraftHead(CONFIG, torch.arange(5))
    hidden, embedded = torch.randn(2, 7, 32)
    whole, _ = head(hidden, embedded, torch.arange(7), None, causal(7))
    first, cache = head(hidden[:4], embedded[:4], torch.arange(4), None, causal(4))
    rest, cache = head(hidden[4:], embedded[4:], torch.arange(4, 7), cache, causal(7)[4:])
    assert (len(cache), cache.num_rows, len(cache.last(3)), cache.last(3).num_rows) == (7, 7, 3, 7)
    assert torch.allclose(whole, torch.cat([first, rest]), atol=1e-5)


def test_trained_head_is_accepted_and_keeps_the_text(trained: Path, language_models: Any) -> None:
    """Well over one token a pass on what it learnt; texts are those of plain decoding, sampled too."""
    models = language_models("llama", engine="llama")
    growth = ConfidentGrowth(tree_depth=5, tree_width=3, tree_budget=12, min_confidence=0.01)
    drafter = HeadDrafter(head_path=str(trained))
    for temperature in (0.0, 0.8):
        params = SamplingParams(max_tokens=50, temperature=temperature)
        texts = []
        for own in (NoDrafter(), drafter):
            decoder = TextDecoder(engine=models, drafter=own, growth=growth, acceptance="shared_noise")
            states = [decoder.start(prompt, params=params, seed=3) for prompt in ("neon", "x")]
            texts.append(decoder.extend(states, max_new_tokens=50, until=None))
        assert [state.ids for state in texts[0]] == [state.ids for state in texts[1]]
        assert not texts[1][0].metrics.alerts
        if temperature == 0:
            assert texts[1][0].metrics.mean_accepted_length > 1.5


def test_training_goes_on_from_its_checkpoint(language_models: Any, tmp_path: Path) -> None:
    """Broken off and gone on equals run through."""
    models = language_models("llama", engine="llama")
    texts = own_texts(models)

    def steps(folder: Path, stop: int | None) -> None:
        run = train_head(models.engine, texts, config=CONFIG, num_tokens=100, settings=SETTINGS, folder=folder, seed=1)
        for step, _ in run:
            if step == stop:
                return

    steps(tmp_path / "through", None)
    steps(tmp_path / "broken", 25)
    steps(tmp_path / "broken", None)
    one, two = DraftHead.load(tmp_path / "through"), DraftHead.load(tmp_path / "broken")
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)


def test_agreement_counts_the_first_choice(trained: Path, language_models: Any) -> None:
    """On its own texts a trained head agrees far more often than a fresh one."""
    engine = language_models("llama", engine="llama").engine
    examples = read(engine, own_texts(language_models("llama", engine="llama")), 16)
    head = DraftHead.load(trained)
    fresh = DraftHead(CONFIG, head.token_ids)
    rows = engine.output_weights()[head.token_ids]
    assert (
        agreement(head, examples, engine.embeddings(), rows)
        > agreement(fresh, examples, engine.embeddings(), rows) + 0.3
    )


def test_frequent_tokens_are_the_most_frequent() -> None:
    """Hand-computed, ties to the lower id."""
    texts = [Text((8, 5, 5, 2)), Text((8, 8, 9, 2, 7), num_prompt=2)]
    assert frequent_tokens(texts, 3).tolist() == [2, 5, 7]


def test_bad_head_is_refused(tmp_path: Path, trained: Path, language_models: Any) -> None:
    """No file, a cut file, another target's head."""
    with pytest.raises(WeightsError, match="draft head"):
        DraftHead.load(tmp_path)
    for file in trained.glob("head.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes()[:100])
    with pytest.raises(WeightsError, match="draft head"):
        DraftHead.load(tmp_path)
    with pytest.raises(InputError, match="heads"):
        HeadConfig(hidden_size=30, num_heads=4, intermediate_size=8)
    with pytest.raises(InputError, match="no text"):
        frequent_tokens([], 3)
