"""Prompt lookup: the text often repeats its own prompt, itself, or a shared corpus.

Proposes what followed earlier occurrences of the last tokens. Needs no model; knows token ids only.
Source: apoorvumang/prompt-lookup-decoding; a shared corpus as in REST (arXiv 2311.08252).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from mmspec.errors import InputError
from mmspec.text.drafters.base import Draft, DraftRequest, TokenDrafter
from mmspec.text.growth import Growth
from mmspec.text.tree import TreeBuilder
from mmspec.text.types import Trial

if TYPE_CHECKING:
    from mmspec.text.models import LanguageModels


class LookupDrafter(TokenDrafter):
    """Continuations of the longest earlier match of the last `max_ngram` ... `min_ngram` tokens.

    `num_matches` different matches at most go into one tree. `confidence` is the chance, per matched
    token count n, that the next token is right: 1 - (1 - confidence)**n; it shapes the tree, no more.
    `corpus` is a UTF-8 text file, one document a line, looked at after the request's own tokens.
    """

    def __init__(
        self, *, max_ngram: int, min_ngram: int, num_matches: int, confidence: float, corpus: str | None
    ) -> None:
        if not 1 <= min_ngram <= max_ngram:
            raise InputError(f"min_ngram={min_ngram}, max_ngram={max_ngram}: expected 1 <= min_ngram <= max_ngram")
        if num_matches < 1 or not 0 < confidence < 1:
            raise InputError(
                f"num_matches={num_matches}, confidence={confidence}: expected at least 1 and a "
                "confidence between 0 and 1"
            )
        self._max_ngram = max_ngram
        self._min_ngram = min_ngram
        self._num_matches = num_matches
        self._confidence = confidence
        self._corpus_path = corpus
        self._corpus = np.zeros(0, dtype=np.int64)

    @override
    def bind(self, models: LanguageModels) -> None:
        if self._corpus_path is None:
            return
        try:
            lines = Path(self._corpus_path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"corpus {self._corpus_path} cannot be read as UTF-8 text: {error}") from error
        # -1 ends a document: no n-gram matches across it.
        ids: list[int] = []
        for line in lines:
            ids += [*models.encode(line), -1]
        self._corpus = np.array(ids, dtype=np.int64)

    @override
    def propose(self, requests: Sequence[DraftRequest], growth: Growth) -> list[Draft]:
        return [self._propose(request, request.max_depth) for request in requests]

    def _propose(self, request: DraftRequest, max_depth: int) -> Draft:
        builder = TreeBuilder(request.ids[-1])
        own = np.array(request.ids, dtype=np.int64)
        left = self._num_matches
        for size in range(min(self._max_ngram, len(own)), self._min_ngram - 1, -1):
            for source in (own, self._corpus):
                for start in matches(source, own[-size:], left):
                    left -= 1
                    self._add(builder, source[start : start + max_depth], size, request.max_nodes)
            if left == 0 or len(builder) > max_depth:
                break
        return Draft(builder.build(), request.state)

    def _add(self, builder: TreeBuilder, tokens: NDArray[np.int64], size: int, max_nodes: int) -> None:
        node, log_confidence = 0, 0.0
        for depth, token in enumerate(tokens.tolist()):
            if token < 0 or len(builder) >= max_nodes:
                return
            log_confidence += math.log1p(-((1 - self._confidence) ** (size + depth)))
            node = builder.add(node, Trial(token, source="lookup"), log_confidence)


def matches(ids: NDArray[np.int64], suffix: NDArray[np.int64], limit: int) -> list[int]:
    """Where `suffix` occurred in `ids` with something after it: start of what followed, latest first.

    >>> matches(np.array([1, 2, 3, 1, 2, 4, 1, 2]), np.array([1, 2]), 5)
    [5, 2]
    """
    size = len(suffix)
    if limit < 1 or len(ids) <= size:
        return []
    hit = np.ones(len(ids) - size, dtype=bool)
    for offset, token in enumerate(suffix.tolist()):
        hit &= ids[offset : offset + len(hit)] == token
    return (np.flatnonzero(hit)[::-1][:limit] + size).tolist()
