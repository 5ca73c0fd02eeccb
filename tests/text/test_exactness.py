"""Greedy texts in float32 are token-identical to `generate`, whatever is drafted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from typing_extensions import override

from mmspec.text.decode import TextDecoder
from mmspec.text.drafters.base import Draft, Drafter, DraftRequest, MixedDrafter, NoDrafter, TokenDrafter
from mmspec.text.drafters.lookup import LookupDrafter
from mmspec.text.drafters.small_lm import SmallLMDrafter
from mmspec.text.growth import ConfidentGrowth, FixedGrowth, Growth
from mmspec.text.tree import TreeBuilder
from mmspec.text.types import SamplingParams, Trial
from tests.text.conftest import CONFIGS

PROMPT = "rain on rain on rain, neon and rain"
NUM_TOKENS = 24


def lookup() -> LookupDrafter:
    """Prompt lookup."""
    return LookupDrafter(max_ngram=3, min_ngram=1, num_matches=4, confidence=0.5, corpus=None)


def adaptive() -> ConfidentGrowth:
    """A small adaptive tree."""
    return ConfidentGrowth(tree_depth=4, tree_width=3, tree_budget=12, min_confidence=0.001)


def generated(folder: Any, ids: Sequence[int], **options: Any) -> list[int]:
    """What `transformers` generates, the prompt cut off."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    output = model.generate(torch.tensor([list(ids)]), max_new_tokens=NUM_TOKENS, do_sample=False, **options)
    return output[0, len(ids) :].tolist()


class TeacherDrafter(TokenDrafter):
    """Proposes the true continuation with wrong siblings beside every token: everything is accepted."""

    def __init__(self, truth: Sequence[int]) -> None:
        self._truth = list(truth)

    @override
    def propose(self, requests: Sequence[DraftRequest], growth: Growth) -> list[Draft]:
        drafts = []
        for request in requests:
            builder, node = TreeBuilder(request.ids[-1]), 0
            for token in self._truth[request.num_text :][: min(4, request.max_depth)]:
                builder.add(node, Trial((token + 1) % 256), -1.0)
                node = builder.add(node, Trial(token), 0.0)
            drafts.append(Draft(builder.build(), None))
        return drafts


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_greedy_text_equals_generate(family: str, model_folder: Any, language_models: Any) -> None:
    """Every family, under no drafter, lookup, a small model, both in one tree, and a drafter that is right."""
    models = language_models(family, draft_seed=1)
    ids = models.encode(PROMPT)
    truth = generated(model_folder(family), ids)
    drafters: list[Drafter] = [
        NoDrafter(),
        lookup(),
        SmallLMDrafter(),
        MixedDrafter(drafters=[lookup(), SmallLMDrafter()]),
        TeacherDrafter(truth),
    ]
    for drafter in drafters:
        for growth in (adaptive(), FixedGrowth(tree_widths=[2, 2, 1], tree_budget=12)):
            decoder = TextDecoder(engine=models, drafter=drafter, growth=growth, acceptance="shared_noise")
            state = decoder.start(PROMPT, params=SamplingParams(max_tokens=NUM_TOKENS), seed=0)
            (state,) = decoder.extend([state], max_new_tokens=NUM_TOKENS, until=None)
            assert list(state.ids) == truth, type(drafter).__name__
    # GPT-Neo's window of slots leaves no room for a tree from the 7th token on.
    assert state.metrics.mean_accepted_length > (1 if family == "gpt_neo" else 3)


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.3},
        {"min_new_tokens": 20},
        {"bias": True},
    ],
)
def test_greedy_text_with_processors_equals_generate(
    options: dict[str, Any], model_folder: Any, language_models: Any
) -> None:
    """Penalties, minimum length and biases act on every node's own history, as they do in `generate`."""
    models = language_models("llama", draft_seed=1)
    ids = models.encode(PROMPT)
    free = generated(model_folder("llama"), ids)
    ours, theirs = dict(options), dict(options)
    if ours.pop("bias", False):
        bias = ((free[0], -50.0), (256, 3.0))
        ours["logit_bias"] = bias
        theirs = {"sequence_bias": {(token,): value for token, value in bias}}
    truth = generated(model_folder("llama"), ids, **theirs)
    for drafter in (SmallLMDrafter(), TeacherDrafter(truth)):
        decoder = TextDecoder(engine=models, drafter=drafter, growth=adaptive(), acceptance="shared_noise")
        state = decoder.start(PROMPT, params=SamplingParams(max_tokens=NUM_TOKENS, **ours), seed=0)
        (state,) = decoder.extend([state], max_new_tokens=NUM_TOKENS, until=None)
        assert list(state.ids) == truth


def test_sampled_text_does_not_depend_on_drafts(language_models: Any) -> None:
    """With shared noise a sampled text is the one of plain decoding, token for token."""
    models = language_models("llama", draft_seed=1)
    params = SamplingParams(max_tokens=30, temperature=0.9, top_k=40, top_p=0.95, repetition_penalty=1.1)
    texts = set()
    for drafter in (NoDrafter(), lookup(), SmallLMDrafter(), MixedDrafter(drafters=[SmallLMDrafter(), lookup()])):
        decoder = TextDecoder(engine=models, drafter=drafter, growth=adaptive(), acceptance="shared_noise")
        state = decoder.start(PROMPT, params=params, seed=11)
        (state,) = decoder.extend([state], max_new_tokens=30, until=None)
        texts.add(state.ids)
    assert len(texts) == 1


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "gpt_neo"])
def test_branch_does_not_depend_on_neighbours(family: str, language_models: Any) -> None:
    """A branch grown among others equals the branch grown alone; rows accept different counts."""
    models = language_models(family, draft_seed=1)
    decoder = TextDecoder(engine=models, drafter=SmallLMDrafter(), growth=adaptive(), acceptance="shared_noise")
    params = SamplingParams(max_tokens=24, temperature=0.7)
    prompts = [PROMPT, "x", "a much longer prompt about a lighthouse in a storm"]
    starts = [decoder.start(prompt, params=params, seed=index) for index, prompt in enumerate(prompts)]
    branches = [decoder.fork(start, seed=10 + place) for place, start in enumerate([*starts, starts[0]])]
    together = branches
    for _ in range(3):
        together = decoder.extend(together, max_new_tokens=8, until=None)
    for branch, other in zip(branches, together, strict=True):
        (alone,) = decoder.extend([branch], max_new_tokens=24, until=None)
        assert alone.ids == other.ids
        assert alone.text == other.text
