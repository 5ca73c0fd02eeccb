"""The draft head: its cache, its trees, its training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mmspec.errors import InputError, WeightsError
from mmspec.text.decode import TextDecoder
from mmspec.text.distill import Text, TrainSettings, agreement, frequent_tokens, read, train_head
from mmspec.text.drafters.base import DraftRequest, NoDrafter
from mmspec.text.drafters.head import HeadDrafter
from mmspec.text.drafters.head_model import DraftHead, HeadConfig, causal
from mmspec.text.drafters.head_rows import HeadRows, Rows
from mmspec.text.growth import ConfidentGrowth, FixedGrowth
from mmspec.text.sampling import Processors, Rejection, SharedNoise
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


def test_ready_rows_are_those_of_training() -> None:
    """In bf16 about what the module gives in float32, run at once or in two parts, beyond the window too."""
    head = DraftHead(CONFIG, torch.arange(5))
    for norm in (head.norm_token, head.norm_hidden, head.norm_attention, head.norm_mlp):
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    hidden, embedded = torch.randn(2, 24, 32)
    whole = head(hidden, embedded, torch.arange(24), causal(24).triu(1 - CONFIG.window))
    rows = HeadRows(head, torch.randn(5, 32))
    stored, seen = rows.empty(1, 32), torch.zeros(1, 32, 32, dtype=torch.bool)
    seen[0, :24, :24] = causal(24).triu(1 - CONFIG.window)

    def run(start: int, end: int) -> torch.Tensor:
        places, own = [0] * (end - start), list(range(start, end))
        mask = torch.cat([seen[:, start:], seen[:, :start]], dim=1)
        numbers = list(range(end - start))
        return rows.run(hidden[start:end], embedded[start:end], Rows(places, numbers, own, own), stored, mask).float()

    parts = torch.cat([run(0, 9), run(9, 24)])
    assert torch.equal(parts, run(0, 24))
    assert torch.allclose(whole, parts, atol=0.05, rtol=0.05)


def test_drafts_do_not_depend_on_neighbours(trained: Path, language_models: Any) -> None:
    """A tree and the q of its trials are the same bits alone and beside other texts, point masses or sampled."""
    models = language_models("llama", engine="llama")
    growth = FixedGrowth(tree_widths=[3, 2, 2], tree_budget=40)
    drafter = HeadDrafter(head_path=str(trained))
    drafter.bind(models)
    for acceptance in (SharedNoise(5), Rejection(5)):
        requests = []
        for prompt in ("neon", "a lamp in the fog beside the harbour wall", "xy"):
            ids = models.encode_prompt(prompt)
            ((_, hidden),) = models.engine.prefill([ids])
            state = drafter.observe(drafter.start(ids, hidden), [7], torch.randn(1, 32))
            params = SamplingParams(temperature=0.8, top_p=0.9, frequency_penalty=0.3)
            requests.append(DraftRequest((*ids, 7), len(ids), state, acceptance, Processors(params, end_ids=[]), 40, 3))
        together = drafter.propose(requests, growth)
        for request, draft in zip(requests, together, strict=True):
            (alone,) = drafter.propose([request], growth)
            assert (alone.tree.tokens, alone.tree.parents) == (draft.tree.tokens, draft.tree.parents)
            assert alone.tree.log_confidence == draft.tree.log_confidence
            assert len(alone.tree) > 6
            for own, other in zip(alone.tree.trials, draft.tree.trials, strict=True):
                for a, b in zip(own, other, strict=True):
                    assert (a.q is None and b.q is None) or torch.equal(a.q, b.q)


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
