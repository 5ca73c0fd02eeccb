"""A small causal language model that drafts for a larger one with the same tokenizer.

Knows a `TextEngine` of its own. Its cache holds what the target committed; the nodes of the tree under
growth are run again at every level, which is cheap for a small model and keeps the cache simple.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from typing_extensions import override

from mmspec.errors import InputError
from mmspec.text.drafters.base import Draft, DraftRequest, TokenDrafter
from mmspec.text.drafters.grow import draw_dense, grow_trees
from mmspec.text.engine import EngineState, TextEngine
from mmspec.text.growth import Growth
from mmspec.text.tree import chain, root_only
from mmspec.text.types import TokenTree

if TYPE_CHECKING:
    from mmspec.text.models import LanguageModels

log = logging.getLogger(__name__)


class SmallLMDrafter(TokenDrafter):
    """The `draft_model_path` of the language models, as a drafter."""

    def __init__(self) -> None:
        self._engine: TextEngine | None = None
        self._num_target = 0
        self._num_shared = 0

    @override
    def bind(self, models: LanguageModels) -> None:
        if models.draft_engine is None:
            raise InputError(
                "drafter=small_lm needs lm.draft_model_path: name a small model with the target's tokenizer"
            )
        self._engine = models.draft_engine
        # Sizes are padded, so ids past the tokenizer's are never drafted.
        self._num_target = models.engine.vocab_size
        self._num_shared = min(models.num_token_ids, models.engine.vocab_size, self._engine.vocab_size)

    @override
    def propose(self, requests: Sequence[DraftRequest], growth: Growth) -> list[Draft]:
        engine = self._engine
        assert engine is not None, "bind comes before propose"
        drafts = [Draft(root_only(request.ids[-1]), request.state) for request in requests]
        # A sequence that outgrew the draft's context goes on without drafts.
        live = [i for i, own in enumerate(requests) if len(own.ids) + own.max_depth <= engine.max_context]
        if not live:
            return drafts
        asked = [requests[i] for i in live]
        states, first = self._catch_up(engine, asked)

        def score(trees: Sequence[TokenTree], wanted: Sequence[Sequence[int]]) -> list[list[Tensor]]:
            verified = engine.verify(states, trees)
            return [
                [self._shared(seen.logits[node]) for node in nodes]
                for seen, nodes in zip(verified, wanted, strict=True)
            ]

        draw = draw_dense(asked, source="small_lm", first=first, score=score)
        trees = grow_trees(asked, growth, source="small_lm", draw=draw)
        for place, tree, state in zip(live, trees, states, strict=True):
            drafts[place] = Draft(tree, state)
        return drafts

    def _shared(self, logits: Tensor) -> Tensor:
        row = torch.full((self._num_target,), -torch.inf)
        row[: self._num_shared] = logits[: self._num_shared].float()
        return row

    def _catch_up(self, engine: TextEngine, requests: Sequence[DraftRequest]) -> tuple[list[EngineState], list[Tensor]]:
        """Draft states of all committed tokens, and the logits `[v]` after each."""
        states: list[EngineState] = []
        for request in requests:
            state = request.state
            states.append(engine.prefill([request.ids[: request.num_prompt]])[0][0] if state is None else state)
        chains = [chain(request.ids[state.num_cached :]) for request, state in zip(requests, states, strict=True)]
        verified = engine.verify(states, chains)
        caught_up = []
        for request, state, seen in zip(requests, states, verified, strict=True):
            last = len(seen.tree) - 1
            caught_up.append(engine.commit([state], [seen], [range(last)], [request.ids[-1]])[0] if last else state)
        return caught_up, [self._shared(seen.logits[-1]) for seen in verified]
