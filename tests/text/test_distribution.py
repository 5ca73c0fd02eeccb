"""Sampled texts of a tiny model are distributed as the model's own, over joint outcomes of several tokens."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from mmspec.text.decode import TextDecoder
from mmspec.text.drafters.base import MixedDrafter
from mmspec.text.drafters.lookup import LookupDrafter
from mmspec.text.drafters.small_lm import SmallLMDrafter
from mmspec.text.growth import FixedGrowth
from mmspec.text.sampling import Processors
from mmspec.text.tree import root_only
from mmspec.text.types import SamplingParams

PROMPT = "rain on neon rain"
NUM_TEXTS = 1000
NUM_TOKENS = 3
PARAMS = SamplingParams(max_tokens=NUM_TOKENS, temperature=1.5, top_k=3, repetition_penalty=1.2)


def exact_probabilities(models: Any) -> dict[tuple[int, ...], float]:
    """Probability of every joint outcome, by plain passes over every prefix."""
    engine, processors = models.engine, Processors(PARAMS, end_ids=models.end_ids)
    prompt = models.encode_prompt(PROMPT)
    paths: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(NUM_TOKENS):
        longer: dict[tuple[int, ...], float] = {}
        for path, chance in paths.items():
            if path and path[-1] in models.end_ids:
                longer[path] = chance
                continue
            ((state, _),) = engine.prefill([[*prompt, *path]])
            (seen,) = engine.verify([state], [root_only(state.ids[-1])])
            probs = processors(seen.logits[0], prompt, path).softmax(0)
            for token in probs.nonzero().squeeze(1).tolist():
                longer[(*path, token)] = chance * float(probs[token])
        paths = longer
    return paths


@pytest.mark.parametrize("acceptance", ["rejection", "shared_noise"])
def test_joint_outcomes_follow_the_target(acceptance: str, language_models: Any) -> None:
    """Chi-square over all joint outcomes of 3 tokens, two drafters in one tree; fails once in 1000 seeds."""
    models = language_models("llama", engine="llama", draft_seed=1)
    expected = exact_probabilities(models)
    lookup = LookupDrafter(max_ngram=2, min_ngram=1, num_matches=2, confidence=0.5, corpus=None)
    decoder = TextDecoder(
        engine=models,
        drafter=MixedDrafter(drafters=[SmallLMDrafter(), lookup]),
        growth=FixedGrowth(tree_widths=[2, 2], tree_budget=12),
        acceptance=acceptance,
    )
    start = decoder.start(PROMPT, params=PARAMS, seed=0)
    counts: Counter[tuple[int, ...]] = Counter()
    for first in range(0, NUM_TEXTS, 100):
        forks = [decoder.fork(start, seed=seed) for seed in range(first, first + 100)]
        states = decoder.extend(forks, max_new_tokens=NUM_TOKENS, until=None)
        counts.update(state.ids for state in states)
        assert not any(state.metrics.alerts for state in states)
    assert set(counts) <= set(expected)
    # Outcomes rarer than 5 expected counts are taken together, as the test's approximation asks for.
    common = [path for path, chance in expected.items() if chance * NUM_TEXTS >= 5]
    cells = [(counts[path], expected[path] * NUM_TEXTS) for path in common]
    rest = (NUM_TEXTS - sum(seen for seen, _ in cells), NUM_TEXTS - sum(wanted for _, wanted in cells))
    cells += [rest] if rest[1] > 1 else []
    distance = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    assert len(cells) > 3
    # Chance of a larger distance, from the chi-square distribution with one degree less than cells.
    chance = 1 - float(torch.special.gammainc(torch.tensor((len(cells) - 1) / 2), torch.tensor(distance / 2)))
    assert chance > 0.001
