"""The draft head that ships, with its target: accepted, and without a trace in the text."""

from __future__ import annotations

import pytest

import mmspec
from mmspec.errors import WeightsError
from mmspec.text.drafters.head_model import DraftHead
from mmspec.weights import resolve

EXACT = ["lm.dtype=float32", "lm.quantize=none"]
"""In bfloat16 a node's sums run over a tree in another order than over a text, and may decide a near-tie."""


def test_shipped_head_is_small_and_says_where_it_comes_from() -> None:
    """Below 12 MB, with the tokens it can propose, and its origin beside it."""
    folder = resolve("builtin:draft_head")
    head = DraftHead.load(folder)
    assert sum(file.stat().st_size for file in folder.iterdir()) < 12_000_000
    assert len(head.token_ids) == 2994
    assert (folder / "origin.json").exists()


def test_shipped_head_is_accepted_and_keeps_the_text() -> None:
    """Twice the tokens per target pass at least, and the text of plain decoding."""
    try:
        plain = mmspec.load("text", overrides=["drafter=none", *EXACT])
    except WeightsError as error:
        pytest.skip(f"the language model is not here: {error}")
    drafted = mmspec.load("text", overrides=EXACT)
    one, other = (pipe("a lighthouse in a storm", seed=2, max_tokens=24) for pipe in (plain, drafted))
    assert one.text == other.text
    assert one.metrics["mean_accepted_length"] == 1.0
    assert float(other.metrics["mean_accepted_length"]) > 1.5
