"""Grammars on the paths of a tree."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from mmspec.errors import InputError
from mmspec.text.decode import TextDecoder
from mmspec.text.drafters.base import Drafter, MixedDrafter, NoDrafter
from mmspec.text.drafters.lookup import LookupDrafter
from mmspec.text.drafters.small_lm import SmallLMDrafter
from mmspec.text.growth import FixedGrowth
from mmspec.text.types import FinishReason, SamplingParams

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"night": {"type": "boolean"}, "weather": {"enum": ["rain", "fog", "snow"]}},
        "required": ["night", "weather"],
        "additionalProperties": False,
    }
)


def texts(models: Any, drafter: Drafter, params: SamplingParams) -> list[Any]:
    """Three texts with different seeds, in one forest."""
    growth = FixedGrowth(tree_widths=[3, 2, 1], tree_budget=14)
    decoder = TextDecoder(engine=models, drafter=drafter, growth=growth, acceptance="shared_noise")
    states = [decoder.start("rain fog rain", params=params, seed=seed) for seed in range(3)]
    return decoder.extend(states, max_new_tokens=params.max_tokens, until=None)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_regex_holds_on_every_path(temperature: float, language_models: Any) -> None:
    """Every text matches; trees of a model and of lookup give the texts of plain decoding."""
    models = language_models("llama", draft_seed=1)
    params = SamplingParams(max_tokens=30, temperature=temperature, regex="(red|blue) (lamp|fog){1,3}!")
    lookup = LookupDrafter(max_ngram=2, min_ngram=1, num_matches=3, confidence=0.5, corpus=None)
    plain = texts(models, NoDrafter(), params)
    for state in plain:
        assert re.fullmatch(str(params.regex), state.text)
        assert state.finished is FinishReason.EOS
    tree = texts(models, MixedDrafter(drafters=[lookup, SmallLMDrafter()]), params)
    assert [state.ids for state in tree] == [state.ids for state in plain]
    assert not any(state.metrics.alerts for state in tree)
    assert sum(s.metrics.num_target_calls for s in tree) < sum(s.metrics.num_target_calls for s in plain)


def test_json_schema_gives_valid_json(language_models: Any) -> None:
    """A random model under a schema writes JSON that parses and has the fields."""
    models = language_models("llama", draft_seed=1)
    for state in texts(models, SmallLMDrafter(), SamplingParams(max_tokens=100, temperature=1.0, json_schema=SCHEMA)):
        if state.finished is FinishReason.EOS:  # white space may take the whole budget
            assert json.loads(state.text)["weather"] in ("rain", "fog", "snow")
        else:
            assert state.text.startswith("{")


def test_bad_grammar_is_refused(language_models: Any) -> None:
    """No JSON, no regular expression, both at once."""
    models = language_models("llama")
    for params in (SamplingParams(json_schema="{"), SamplingParams(regex="(")):
        with pytest.raises(InputError):
            models.constraint(params)
    with pytest.raises(InputError, match="both"):
        SamplingParams(json_schema=SCHEMA, regex="a")
