"""The loop: where texts end, what they read like, and drafters that misbehave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from typing_extensions import override

from mmspec.errors import InputError, ModelError
from mmspec.text.decode import SENTENCE, TextDecoder
from mmspec.text.drafters.base import Draft, DraftRequest, NoDrafter, TokenDrafter
from mmspec.text.engine import Verified
from mmspec.text.growth import FixedGrowth, Growth, PayingGrowth
from mmspec.text.prompt import CompletionTemplate, PromptTemplate
from mmspec.text.state import TextState
from mmspec.text.tree import chain
from mmspec.text.types import FinishReason, SamplingParams, SegmentEnd, TokenTree, Trial

TEXT = "Rain. 雨 falls 🌧🌆 on neon; it glows! END of it"
EOS = 256


class ScriptedEngine:
    """Wraps an engine so that it writes a script: what is tested is where and how the script is cut."""

    def __init__(self, engine: Any, script: Sequence[int], num_prompt: int) -> None:
        self._engine = engine
        self._script = list(script)
        self._num_prompt = num_prompt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def verify(self, states: Any, trees: Sequence[TokenTree]) -> list[Verified]:
        """Logits of the script's token at every node's place."""
        seen = []
        for state, tree, own in zip(states, trees, self._engine.verify(states, trees), strict=True):
            logits = torch.zeros_like(own.logits)
            for node, depth in enumerate(tree.depths):
                place = len(state.ids) - self._num_prompt + depth
                logits[node, self._script[place] if place < len(self._script) else EOS] = 20.0
            seen.append(Verified(tree, logits, own.hidden, own.cache))
        return seen


class RightDrafter(TokenDrafter):
    """Drafts the script itself, `size` tokens at a time."""

    def __init__(self, script: Sequence[int], size: int) -> None:
        self._script, self._size = list(script), size

    @override
    def propose(self, requests: Sequence[DraftRequest], growth: Growth) -> list[Draft]:
        return [
            Draft(chain([own.ids[-1], *self._script[own.num_text :][: min(self._size, own.max_depth)]]), None)
            for own in requests
        ]


def growth(depth: int = 12) -> FixedGrowth:
    """A chain."""
    return FixedGrowth(tree_widths=[1] * depth, tree_budget=depth + 1)


def scripted(models: Any, text: str, size: int) -> TextDecoder:
    """A decoder that writes `text` and then ends, drafted in chunks of `size`."""
    script = [*models.encode(text), EOS]
    decoder = TextDecoder(engine=models, drafter=RightDrafter(script, size), growth=growth(), acceptance="shared_noise")
    decoder._engine = ScriptedEngine(models.engine, script, num_prompt=1)
    return decoder


def run(decoder: TextDecoder, params: SamplingParams) -> TextState:
    """A text to its end."""
    state = decoder.start("x", params=params, seed=0)
    (state,) = decoder.extend([state], max_new_tokens=params.max_tokens, until=None)
    return state


@pytest.mark.parametrize("size", [1, 2, 3, 5, 12])
def test_streamed_chunks_are_whole_characters_that_concatenate(size: int, language_models: Any) -> None:
    """Emoji and CJK of several tokens each: no replacement character in any chunk, and the text is whole."""
    decoder = scripted(language_models("llama"), TEXT, size)
    chunks = list(decoder.stream("x", params=SamplingParams(max_tokens=200), seed=0))
    assert all("\ufffd" not in chunk.text for chunk in chunks)
    assert "".join(chunk.text for chunk in chunks) == TEXT
    assert chunks[-1].finished is FinishReason.EOS
    assert sum(len(chunk.token_ids) for chunk in chunks) == len(TEXT.encode()) + 1
    assert sum(len(chunk.log_probs) for chunk in chunks) == chunks[-1].metrics.num_tokens


@pytest.mark.parametrize("size", [1, 3, 12])
@pytest.mark.parametrize("stop", ["END", "ls!", "glows! E", "🌆"])
def test_stop_string_cuts_everything_at_one_token(size: int, stop: str, language_models: Any) -> None:
    """Stop strings over several tokens and rounds: text before it, ids up to the token that completes it."""
    decoder = scripted(language_models("llama"), TEXT, size)
    state = run(decoder, SamplingParams(max_tokens=200, stop=(stop, "never")))
    place = TEXT.find(stop) if stop in TEXT else None
    if place is None:
        assert state.finished is FinishReason.EOS
        return
    assert state.finished is FinishReason.STOP
    assert state.text == TEXT[:place]
    assert len(state.ids) == len(TEXT[: place + len(stop)].encode())
    assert len(state.ids) == len(state.log_probs) == state.metrics.num_tokens


@pytest.mark.parametrize("size", [1, 12])
def test_streamed_text_never_shows_part_of_a_stop_string(size: int, language_models: Any) -> None:
    """What may be the beginning of a stop string is held back, and released where it is not."""
    decoder = scripted(language_models("llama"), TEXT, size)
    params = SamplingParams(max_tokens=200, stop=("glows! EXIT", "END"))
    texts = [chunk.text for chunk in decoder.stream("x", params=params, seed=0)]
    assert "".join(texts) == TEXT[: TEXT.find("END")]


@pytest.mark.parametrize("limit", range(1, 14))
def test_budget_cuts_inside_an_accepted_path(limit: int, language_models: Any) -> None:
    """A limit at every offset of an accepted path."""
    decoder = scripted(language_models("llama"), TEXT, 12)
    state = run(decoder, SamplingParams(max_tokens=limit))
    assert len(state.ids) == len(state.log_probs) == limit
    assert state.finished is FinishReason.LENGTH


@pytest.mark.parametrize("end", range(1, 10))
def test_end_of_text_cuts_inside_an_accepted_path(end: int, language_models: Any) -> None:
    """End of text at every offset; the drafter goes on past it."""
    models = language_models("llama")
    decoder = scripted(models, "abcdefghij"[:end], 12)
    decoder._drafter = RightDrafter([*models.encode("abcdefghij"[:end]), EOS, 70, 71, 72], 12)
    state = run(decoder, SamplingParams(max_tokens=50))
    assert state.finished is FinishReason.EOS
    assert state.text == "abcdefghij"[:end]
    assert state.ids[-1] == EOS
    assert len(state.ids) == end + 1


def test_stop_token_ends_the_text(language_models: Any) -> None:
    """A stop token is part of the ids and not of the text."""
    models = language_models("llama")
    semicolon = models.encode(";")[0]
    state = run(scripted(models, TEXT, 12), SamplingParams(max_tokens=99, stop_token_ids=(semicolon,)))
    assert state.finished is FinishReason.STOP
    assert state.text == TEXT[: TEXT.find(";")]


def test_extend_stops_at_segments(language_models: Any) -> None:
    """Sentence by sentence; a finished text is left alone."""
    decoder = scripted(language_models("llama"), "One is here. Two! Three", 12)
    state = decoder.start("x", params=SamplingParams(max_tokens=99), seed=0)
    texts = []
    for _ in range(4):
        (state,) = decoder.extend([state], max_new_tokens=50, until=SENTENCE)
        texts.append(state.text)
    assert texts == ["One is here.", "One is here. Two!", "One is here. Two! Three", "One is here. Two! Three"]
    (start,) = [decoder.start("x", params=SamplingParams(max_tokens=99), seed=0)]
    (grown,) = decoder.extend([start], max_new_tokens=50, until=SegmentEnd(marks=".!", min_tokens=14))
    assert grown.text == "One is here. Two!"


def test_older_state_is_not_changed_by_newer_ones(language_models: Any) -> None:
    """States are values: growing one twice gives the same text twice, on both engines."""
    for engine in ("hf", "llama"):
        models = language_models("llama", engine=engine)
        decoder = TextDecoder(engine=models, drafter=NoDrafter(), growth=growth(), acceptance="shared_noise")
        start = decoder.start("rain", params=SamplingParams(max_tokens=40, temperature=0.8), seed=3)
        (middle,) = decoder.extend([start], max_new_tokens=9, until=None)
        fork = decoder.fork(middle, seed=4)
        (first,) = decoder.extend([middle], max_new_tokens=20, until=None)
        other, second = decoder.extend([fork, middle], max_new_tokens=20, until=None)
        assert first.ids == second.ids
        assert other.ids[:9] == first.ids[:9]
        assert other.ids != first.ids


class Raising(TokenDrafter):
    """Fails in every call."""

    @override
    def propose(self, requests: Sequence[DraftRequest], growth: Growth) -> list[Draft]:
        raise RuntimeError("no drafts today")


class RaisingAtStart(Raising):
    """Fails before the first token."""

    @override
    def start(self, ids: Sequence[int], hidden: Tensor) -> Any:
        raise ValueError("no start")


class Garbage(TokenDrafter):
    """Another root, tokens outside the vocabulary, NaN confidences, by turns."""

    @override
    def propose(self, requests: Sequence[DraftRequest], growth: Growth) -> list[Draft]:
        kind = len(requests[0].ids) % 3
        root = requests[0].ids[-1] + (kind == 0)
        token = 10**6 if kind == 1 else 5
        tree = TokenTree((root, token), (-1, 0), ((Trial(token),), ()), (0.0, float("nan")))
        return [Draft(tree, None) for _ in requests]


class FailsForOne(TokenDrafter):
    """Fails for one of several requests."""

    @override
    def propose(self, requests: Sequence[DraftRequest], growth: Growth) -> list[Draft]:
        if any(own.num_prompt == 1 for own in requests):
            raise RuntimeError("not this one")
        return [Draft(chain([own.ids[-1], 5]), None) for own in requests]


@pytest.mark.parametrize("drafter", [Raising(), RaisingAtStart(), Garbage(), FailsForOne()])
def test_broken_drafter_costs_speed_only(drafter: TokenDrafter, language_models: Any) -> None:
    """The texts are those of plain decoding, and the metrics name what happened."""
    models = language_models("llama")
    params = SamplingParams(max_tokens=20, temperature=0.9)
    plain = TextDecoder(engine=models, drafter=NoDrafter(), growth=growth(), acceptance="shared_noise")
    broken = TextDecoder(engine=models, drafter=drafter, growth=growth(), acceptance="shared_noise")
    texts = []
    for decoder in (plain, broken):
        starts = [decoder.start(prompt, params=params, seed=5) for prompt in ("a", "bc")]
        texts.append(decoder.extend(starts, max_new_tokens=20, until=None))
    assert [state.ids for state in texts[0]] == [state.ids for state in texts[1]]
    assert any("drafter failed" in alert for state in texts[1] for alert in state.metrics.alerts)


def test_text_goes_to_the_end_of_the_context(language_models: Any) -> None:
    """A text that fills the context ends with it; a longer prompt is refused."""
    models = language_models("llama")
    decoder = TextDecoder(engine=models, drafter=NoDrafter(), growth=growth(), acceptance="shared_noise")
    params = SamplingParams(max_tokens=500, min_new_tokens=500)
    state = decoder.start("a" * 120, params=params, seed=0)
    (state,) = decoder.extend([state], max_new_tokens=500, until=None)
    assert state.finished is FinishReason.CONTEXT
    assert len(state.prompt_ids) + len(state.ids) == models.engine.max_context + 1
    with pytest.raises(InputError, match="context"):
        decoder.start("a" * 129, params=params, seed=0)


def test_bad_requests_are_refused(language_models: Any) -> None:
    """Empty prompt, unknown rule, a timed tree with a rule that depends on trees, no tokens asked for."""
    models = language_models("llama")
    decoder = TextDecoder(engine=models, drafter=NoDrafter(), growth=growth(), acceptance="rejection")
    with pytest.raises(InputError, match="empty"):
        decoder.start("  ", params=SamplingParams(), seed=0)
    with pytest.raises(InputError, match="acceptance"):
        TextDecoder(engine=models, drafter=NoDrafter(), growth=growth(), acceptance="sometimes")
    timed = PayingGrowth(growth=growth(), probe_every=40, min_acceptance=0.0)
    with pytest.raises(InputError, match="shared_noise"):
        TextDecoder(engine=models, drafter=NoDrafter(), growth=timed, acceptance="rejection")
    with pytest.raises(InputError, match="max_new_tokens"):
        decoder.extend([], max_new_tokens=0, until=None)
    with pytest.raises(InputError, match="prompt"):
        PromptTemplate(user="no place")
    with pytest.raises(InputError, match="prompt"):
        CompletionTemplate("no place")


def test_nan_logits_are_an_error_that_names_the_stage(language_models: Any) -> None:
    """A target that misbehaves is not papered over."""
    models = language_models("llama")
    decoder = scripted(models, "abc", 2)
    decoder._engine.verify = lambda states, trees: [  # type: ignore[method-assign]
        Verified(own.tree, own.logits * torch.nan, own.hidden, own.cache) for own in models.engine.verify(states, trees)
    ]
    with pytest.raises(ModelError, match="target logits"):
        run(decoder, SamplingParams(max_tokens=5))


def test_log_probs_are_the_models_own(language_models: Any) -> None:
    """Log-probability of every token, from one plain pass over the whole text."""
    models = language_models("llama")
    decoder = TextDecoder(engine=models, drafter=NoDrafter(), growth=growth(), acceptance="shared_noise")
    state = run(decoder, SamplingParams(max_tokens=12, temperature=0.7))
    ids = [*state.prompt_ids, *state.ids]
    ((first, _),) = models.engine.prefill([ids[:1]])
    (seen,) = models.engine.verify([first], [chain(ids[:-1])])
    expected = seen.logits.log_softmax(-1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
    assert torch.allclose(torch.tensor(state.log_probs), expected[len(state.prompt_ids) - 1 :], atol=1e-4)
    assert state.log_prob == pytest.approx(float(expected[len(state.prompt_ids) - 1 :].sum()), abs=1e-3)
