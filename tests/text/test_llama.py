"""The lean engine against the `transformers` engine, and its linear layers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, Qwen2Config

from mmspec.errors import InputError
from mmspec.seeding import generator
from mmspec.text.decode import TextDecoder
from mmspec.text.drafters.base import NoDrafter
from mmspec.text.drafters.small_lm import SmallLMDrafter
from mmspec.text.growth import FixedGrowth
from mmspec.text.linear import Int4Linear, Int8Linear, PackedLinear, PlainLinear
from mmspec.text.llama import check_config
from mmspec.text.models import LanguageModels
from mmspec.text.prompt import CompletionTemplate
from mmspec.text.state import TextState
from mmspec.text.tiny import save_random
from mmspec.text.tree import root_only
from mmspec.text.types import SamplingParams
from tests.text.test_tree import random_tree

PROMPT = [72, 101, 108, 108, 111, 0]


@pytest.mark.parametrize("seed", range(5))
def test_engines_agree_in_float32(seed: int, language_models: Any) -> None:
    """Prefill, random trees of two sequences, commit of a path, another tree: equal logits and hidden states.

    Tolerance: sums in another order, over 32 inputs of order 1.
    """
    trees = [random_tree(seed, num_nodes=12, num_tokens=200), random_tree(seed + 100, num_nodes=5, num_tokens=200)]
    results = []
    for name in ("hf", "llama"):
        engine = language_models("llama", engine=name).engine
        (long, hidden), (short, _) = engine.prefill([PROMPT, [0]])
        seen = engine.verify([long, short], trees)
        deepest = max(range(len(trees[0])), key=lambda node: trees[0].depths[node])
        path = [deepest]
        while path[0] > 0:
            path.insert(0, trees[0].parents[path[0]])
        (grown,) = engine.commit([long], seen[:1], [path], [9])
        again = engine.verify([grown, long], [root_only(9), trees[0]])
        results.append([hidden, *(own.logits for own in (*seen, *again)), *(own.hidden for own in (*seen, *again))])
    for expected, got in zip(*results, strict=True):
        assert torch.allclose(expected, got, atol=2e-4)


def test_tree_pass_equals_step_by_step(language_models: Any) -> None:
    """Every node's logits are those of its path, decoded token by token."""
    engine = language_models("llama", engine="llama").engine
    tree = random_tree(7, num_nodes=12, num_tokens=200)
    ((start, _),) = engine.prefill([PROMPT])
    (seen,) = engine.verify([start], [tree])
    for node in range(len(tree)):
        path, at = [], node
        while at > 0:
            path.insert(0, tree.tokens[at])
            at = tree.parents[at]
        ((alone, _),) = engine.prefill([[*PROMPT, *path]])
        (own,) = engine.verify([alone], [root_only((*PROMPT, *path)[-1])])
        assert torch.allclose(own.logits[0], seen.logits[node], atol=2e-4)


def test_lean_engine_writes_what_the_general_engine_writes(language_models: Any) -> None:
    """Same texts with the same seed, forks in one pass."""
    texts = []
    for name in ("hf", "llama"):
        models = language_models("llama", engine=name, draft_seed=1)
        decoder = TextDecoder(
            engine=models,
            drafter=SmallLMDrafter(),
            growth=FixedGrowth(tree_widths=[3, 2], tree_budget=9),
            acceptance="shared_noise",
        )
        start = decoder.start("neon rain", params=SamplingParams(max_tokens=30, temperature=0.8), seed=1)
        forks = [decoder.fork(start, seed=seed) for seed in range(3)]
        texts.append([state.ids for state in decoder.extend(forks, max_new_tokens=30, until=None)])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("kind", [PlainLinear, PackedLinear, Int8Linear])
def test_linear_is_close_to_the_exact_product(kind: type[Any]) -> None:
    """bf16 keeps 8 bits, int8 with row scales about 7: relative error of the norm below 2 %."""
    source = generator(0, "test")
    weight, x = torch.randn(48, 64, generator=source), torch.randn(5, 64, generator=source)
    dtype = torch.float32 if kind is PlainLinear else torch.bfloat16
    expected = x @ weight.T
    got = kind(weight)(x.to(dtype)).float()
    assert (got - expected).norm() / expected.norm() < 0.02


def test_weights_of_four_bits_are_met() -> None:
    """Blocks of 16 levels, as in a Q4_1 file: the product is that of bf16; others are rounded to 4 bits."""
    source = generator(2, "test")
    levels = torch.randint(0, 16, (48, 2, 32), generator=source).float()
    levels[..., 0], levels[..., 1] = 0, 15  # a block always has both ends
    blocks = levels * torch.rand(48, 2, 1, generator=source) + torch.randn(48, 2, 1, generator=source)
    weight, x = blocks.flatten(1), torch.randn(5, 64, generator=source).bfloat16()

    def error(weight: torch.Tensor) -> float:
        expected = x.float() @ weight.T
        return float((Int4Linear(weight)(x).float() - expected).norm() / expected.norm())

    assert error(weight) < 0.005
    assert 0.02 < error(torch.randn(48, 64, generator=source)) < 0.15
    with pytest.raises(InputError, match="not 48 and 64"):
        Int4Linear(torch.zeros(64, 48))


@pytest.mark.parametrize("kind", [PackedLinear, Int8Linear, Int4Linear])
def test_row_does_not_depend_on_other_rows(kind: type[Any]) -> None:
    """A row alone is bit-identical to the row among others, also beside a row of huge values."""
    source = generator(1, "test")
    layer = kind(torch.randn(960, 576, generator=source))
    x = torch.randn(80, 576, generator=source).bfloat16()
    residual = torch.randn(80, 960, generator=source).bfloat16()
    x[7] *= 1000
    for number in (1, 5, 8, 17, 32, 33, 48, 64):
        assert torch.equal(layer(x)[:number], layer(x[:number]))
        assert torch.equal(layer.add_to(residual, x)[:number], layer.add_to(residual[:number], x[:number]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sequences_side_by_side_change_nothing(dtype: str, tmp_path: Path) -> None:
    """Scores of a sequence are those alone, round after round: the same bits in bf16, in float32 up to the order of sums.

    Sequences come, go, fork, and outgrow their place; trees are of different sizes.
    """
    sizes = {"hidden_size": 192, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 3}
    config = LlamaConfig(**sizes, num_key_value_heads=1, head_dim=64, vocab_size=300, max_position_embeddings=2048)
    models = LanguageModels(
        target_model_path=str(save_random(tmp_path, config, 0)),
        draft_model_path=None,
        engine="llama",
        dtype=dtype,
        quantize="none",
    )
    engine = models.engine
    source = random.Random(0)
    prompts = [[source.randrange(200) for _ in range(length)] for length in (1, 3, 30, 31, 40, 70, 250, 600)]
    together = [state for state, _ in engine.prefill(prompts)]
    alone = [state for state, _ in engine.prefill(prompts)]
    together.append(together[2])  # a fork
    alone.append(engine.prefill([prompts[2]])[0][0])
    for number in range(6):
        trees = [
            random_tree(number + place, num_nodes=(number * place) % 7, num_tokens=200)
            for place in range(len(together))
        ]
        chosen = [0, 3, 8] if number == 4 else list(range(len(together)))
        seen = engine.verify([together[place] for place in chosen], [trees[place] for place in chosen])
        paths = [[0, 1] if len(own.tree) > 1 else [0] for own in seen]
        grown = engine.commit([together[place] for place in chosen], seen, paths, [5] * len(chosen))
        for place, own, path, state in zip(chosen, seen, paths, grown, strict=True):
            (expected,) = engine.verify([alone[place]], [trees[place]])
            for got, wanted in ((own.logits, expected.logits), (own.hidden, expected.hidden)):
                assert torch.equal(got, wanted) or (dtype == "float32" and torch.allclose(got, wanted, atol=2e-4))
            (alone[place],) = engine.commit([alone[place]], [expected], [path], [5])
            together[place] = state
    buffers = [state.cache for state in together]
    assert {buffer.shelf is None for buffer in buffers} == {True, False}, "some lie alone, some beside others"


def test_other_architecture_is_refused() -> None:
    """The message says what to use instead."""
    with pytest.raises(InputError, match="engine=hf"):
        check_config(Qwen2Config())


def test_shared_beginning_changes_no_text(language_models: Any) -> None:
    """With or without what is kept of an earlier prompt, the states of a prompt are the same bits."""
    engine = language_models("llama", engine="llama").engine
    prompts = [[3, 5, 7, 9, 11, 2], [3, 5, 7, 9, 8, 8, 8], [3, 5, 7, 9]]

    def scores(ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        ((state, hidden),) = engine.prefill([ids], num_shared=4)
        (seen,) = engine.verify([state], [root_only(ids[-1])])
        return hidden, seen.logits

    first = [scores(ids) for ids in prompts]
    again = [scores(ids) for ids in reversed(prompts)][::-1]
    for (hidden, logits), (same_hidden, same_logits), ids in zip(first, again, prompts, strict=True):
        assert len(hidden) == len(ids) - 1
        assert torch.equal(hidden, same_hidden)
        assert torch.equal(logits, same_logits)
        ((state, whole),) = engine.prefill([ids])
        torch.testing.assert_close(hidden, whole, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(logits, engine.verify([state], [root_only(ids[-1])])[0].logits, atol=1e-4, rtol=1e-4)


def test_prepared_template_leaves_the_prompt_alone_to_compute(
    language_models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `prepare`, a first text runs its own tokens only, and reads the same as without."""
    models = language_models("llama", engine="llama")
    template = CompletionTemplate("One: rain.\nTwo: {prompt}")
    growth = FixedGrowth(tree_widths=[1], tree_budget=2)
    decoder = TextDecoder(engine=models, drafter=NoDrafter(), growth=growth, acceptance="shared_noise")
    forward, sizes = models.engine._forward, []

    def counted(tokens: torch.Tensor, *rest: Any) -> torch.Tensor:
        sizes.append(len(tokens))
        return forward(tokens, *rest)

    def text() -> TextState:
        state = decoder.start("fog", params=SamplingParams(max_tokens=12), seed=3, template=template)
        sizes.append(0)
        return decoder.extend([state], max_new_tokens=12, until=None)[0]

    monkeypatch.setattr(models.engine, "_forward", counted)
    unprepared = text()
    models.engine._beginnings.clear()
    decoder.prepare(template)
    sizes.clear()
    prepared = text()
    assert sizes[: sizes.index(0)] == [len("fog")]  # a token is a byte
    assert prepared.ids == unprepared.ids
    assert prepared.log_probs == unprepared.log_probs


@pytest.mark.parametrize("num_shared", [0, 3])
def test_first_tokens_of_forks_cost_no_pass(
    num_shared: int, language_models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prefill has scored the prompt's last token: its forks go on from there, each on its own path."""
    engine = language_models("llama", engine="llama").engine
    reference = language_models("llama", engine="hf").engine
    ((start, _),) = engine.prefill([PROMPT], num_shared=num_shared)
    forward = engine._forward
    monkeypatch.setattr(engine, "_forward", None)  # to call it would fail
    seen = engine.verify([start] * 3, [root_only(PROMPT[-1])] * 3)
    states = engine.commit([start] * 3, seen, [[0]] * 3, [5, 6, 7])
    monkeypatch.setattr(engine, "_forward", forward)
    tree = random_tree(3, num_nodes=6, num_tokens=200)
    # A whole tree is scored beside them all the same, and changes nothing that they share.
    *own, whole = engine.verify([*states, start], [*map(root_only, (5, 6, 7)), tree])
    ((expected_start, _),) = reference.prefill([PROMPT])
    expected = reference.verify([expected_start], [root_only(PROMPT[-1])])[0].logits
    assert torch.allclose(seen[2].logits, expected, atol=2e-4)
    assert torch.allclose(whole.logits, reference.verify([expected_start], [tree])[0].logits, atol=2e-4)
    for token, got in zip((5, 6, 7), own, strict=True):
        ((state, _),) = reference.prefill([[*PROMPT, token]])
        assert torch.allclose(got.logits, reference.verify([state], [root_only(token)])[0].logits, atol=2e-4)


@pytest.mark.parametrize(("quantize", "expected"), [("head", [32, 16, 8, 4, 4]), ("int4", [4, 2, 1, 1, 1])])
def test_trees_share_what_a_pass_is_meant_to_hold(quantize: str, expected: list[int], tmp_path: Path) -> None:
    """Nodes per tree of 1, 2, 4, 8 and 128 sequences, and no more than these are drafted."""
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=304, max_position_embeddings=512)
    folder = str(save_random(tmp_path, config, 0))
    models = LanguageModels(
        target_model_path=folder, draft_model_path=folder, engine="llama", dtype="bfloat16", quantize=quantize
    )
    assert [models.engine.share(number) for number in (1, 2, 4, 8, 128)] == expected
    growth = FixedGrowth(tree_widths=[2, 1, 1, 1, 1], tree_budget=40)
    decoder = TextDecoder(engine=models, drafter=SmallLMDrafter(), growth=growth, acceptance="shared_noise")
    params = SamplingParams(max_tokens=12, min_new_tokens=12)
    for number, share in ((1, expected[0]), (4, expected[2])):
        states = [decoder.start("neon", params=params, seed=seed) for seed in range(number)]
        for state in decoder.extend(states, max_new_tokens=12, until=None):
            assert len(state.ids) == 12
            assert state.metrics.num_drafted <= state.metrics.num_target_calls * (share - 1)
            assert (state.metrics.num_drafted > 0) == (share > 1)
