"""Long texts: what they take grows with their tokens and no faster; drafters that cannot follow drop out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import LlamaConfig

from mmspec.text.decode import TextDecoder
from mmspec.text.distill import TrainSettings, train_head
from mmspec.text.drafters.base import NoDrafter
from mmspec.text.drafters.head import HeadDrafter
from mmspec.text.drafters.small_lm import SmallLMDrafter
from mmspec.text.growth import FixedGrowth
from mmspec.text.kv_cache import SPARE_SLOTS
from mmspec.text.models import LanguageModels
from mmspec.text.tiny import save_random
from mmspec.text.types import SamplingParams
from tests.text.conftest import ROPE
from tests.text.test_head import CONFIG, own_texts

SPARE = SPARE_SLOTS + 32
"""Slots beyond the text's own that a buffer may have, whole blocks included."""


def test_memory_grows_with_the_text_and_the_share_of_its_tree_is_constant(tmp_path: Path) -> None:
    """Slots are at most those of the text, what the buffer spares, and one doubling; the head's state never grows."""
    folder = save_random(tmp_path / "target", LlamaConfig(**ROPE | {"max_position_embeddings": 2048}), 0)
    models = LanguageModels(
        target_model_path=str(folder), draft_model_path=None, engine="llama", dtype="float32", quantize="none"
    )
    settings = TrainSettings(num_steps=1, batch_size=2, learning_rate=1e-3, warmup_steps=1, save_every=1)
    steps = train_head(
        models.engine, own_texts(models), config=CONFIG, num_tokens=50, settings=settings, folder=tmp_path, seed=0
    )
    assert len(list(steps)) == 1
    growth = FixedGrowth(tree_widths=[2, 2], tree_budget=7)
    decoder = TextDecoder(
        engine=models, drafter=HeadDrafter(head_path=str(tmp_path)), growth=growth, acceptance="shared_noise"
    )
    params = SamplingParams(max_tokens=2000, min_new_tokens=2000)
    kept = set()
    for num_prompt in (250, 500, 1000, 1900):
        state = decoder.start("a" * num_prompt, params=params, seed=0)
        assert state.engine_state.cache.capacity <= num_prompt + SPARE
        (state,) = decoder.extend([state], max_new_tokens=300, until=None)
        num_tokens = len(state.prompt_ids) + len(state.ids)
        assert state.engine_state.cache.capacity <= min(2 * (num_prompt + SPARE), models.engine.max_context + SPARE)
        assert num_tokens == min(num_prompt + 300, models.engine.max_context + 1)
        kept.add(state.draft_state.kept.numel())
        assert state.metrics.num_drafted > 0
        assert not state.metrics.alerts
    assert len(kept) == 1


def test_draft_whose_context_is_full_stops_and_the_text_goes_on(model_folder: Any, tmp_path: Path) -> None:
    """Prompts around the end of the draft's context: the text of plain decoding; a shorter one beside goes on drafting."""
    context = 64
    draft = save_random(tmp_path, LlamaConfig(**ROPE | {"max_position_embeddings": context}), 1)
    models = LanguageModels(
        target_model_path=str(model_folder("llama")),
        draft_model_path=str(draft),
        engine="llama",
        dtype="float32",
        quantize="none",
    )
    assert models.pairing is not None
    assert (models.pairing.draft_context, models.pairing.target_context) == (context, 128)
    growth = FixedGrowth(tree_widths=[2, 1], tree_budget=5)
    plain = TextDecoder(engine=models, drafter=NoDrafter(), growth=growth, acceptance="shared_noise")
    drafted = TextDecoder(engine=models, drafter=SmallLMDrafter(), growth=growth, acceptance="shared_noise")
    params = SamplingParams(max_tokens=40, min_new_tokens=40)
    prompts = ["a" * (context + more) for more in (-30, -4, -3, -2, -1, 0, 1, 20)] + ["rain"]
    texts = []
    for decoder in (plain, drafted):
        states = [decoder.start(prompt, params=params, seed=0) for prompt in prompts]
        texts.append(decoder.extend(states, max_new_tokens=40, until=None))
    assert [state.ids for state in texts[0]] == [state.ids for state in texts[1]]
    assert not any(state.metrics.alerts for state in texts[1])
    num_drafted = [state.metrics.num_drafted for state in texts[1]]
    assert num_drafted[5:8] == [0, 0, 0], "no room for a draft from the start"
    assert 0 < num_drafted[1] < num_drafted[0] < num_drafted[-1]
