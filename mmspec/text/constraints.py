"""Output that follows a JSON schema or a regular expression, at every node of a tree.

Knows grammars through `llguidance`; knows no model. A matcher is moved to a node by taking back and
consuming tokens, so every path of a tree has its own mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmspec.errors import InputError


class Constraint:
    """A grammar over the ids of one tokenizer; one instance per request.

    `kind` is "json_schema" or "regex". Raises `InputError` for a grammar that does not compile.
    """

    def __init__(self, kind: str, source: str, *, tokenizer: Any) -> None:
        from llguidance import LLMatcher

        compilers: dict[str, Any] = {
            "json_schema": LLMatcher.grammar_from_json_schema,
            "regex": LLMatcher.grammar_from_regex,
        }
        try:
            grammar = compilers[kind](source)
        except ValueError as error:
            raise InputError(f"{kind} is no valid JSON: {error}") from error
        self._matcher = LLMatcher(tokenizer, grammar, log_level=0)
        if self._matcher.is_error():
            raise InputError(f"{kind} does not compile: {self._matcher.get_error().splitlines()[0]}")
        self._consumed: tuple[int, ...] = ()

    def allowed(self, text_ids: Sequence[int]) -> Tensor:
        """Tokens that may follow `text_ids`: `[v]` bool. All False where these break the grammar."""
        ids = tuple(text_ids)
        common = next(
            (place for place, (a, b) in enumerate(zip(ids, self._consumed, strict=False)) if a != b),
            min(len(ids), len(self._consumed)),
        )
        if common < len(self._consumed):
            self._matcher.rollback(len(self._consumed) - common)
        num = self._matcher.try_consume_tokens(list(ids[common:]))
        self._consumed = ids[: common + num]
        mask = torch.frombuffer(bytearray(self._matcher.compute_logit_bias()), dtype=torch.uint8) > 0
        return mask if len(self._consumed) == len(ids) else torch.zeros_like(mask)


def grammar_tokenizer(tokenizer: Any, end_ids: Sequence[int]) -> Any:
    """The tokenizer in the form that grammars take; takes about a second, so it is made once per model."""
    from llguidance.hf import from_tokenizer

    return from_tokenizer(tokenizer, eos_token=list(end_ids) or None)
