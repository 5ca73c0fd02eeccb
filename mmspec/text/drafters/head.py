"""A draft head as a drafter: its cache follows the target's hidden states, its trees its own predictions.

Row i of the head is the pair (target's hidden state at i, token i + 1) and predicts token i + 2. Knows
one target: the one that the head was trained for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import override

from mmspec.errors import InputError
from mmspec.text.drafters.base import Draft, Drafter, DraftRequest
from mmspec.text.drafters.grow import grow_trees
from mmspec.text.drafters.head_model import DraftHead, HeadCache, causal
from mmspec.text.growth import Growth
from mmspec.text.tree import ancestor_mask
from mmspec.text.types import TokenTree

if TYPE_CHECKING:
    from mmspec.text.models import LanguageModels


@dataclass(frozen=True, eq=False)
class HeadState:
    """Rows in the cache, and rows that wait for the next proposal: `hidden` `[k, d]`, `token_ids` `[k]`."""

    cache: HeadCache | None
    hidden: Tensor
    token_ids: tuple[int, ...]


class HeadDrafter(Drafter):
    """Proposes with a trained draft head; `head_path` is a reference as `mmspec.weights.resolve` takes it."""

    def __init__(self, *, head_path: str) -> None:
        from mmspec.weights import resolve

        self._head = DraftHead.load(resolve(head_path))
        self._num_target = 0
        self._embeddings = torch.zeros(0)
        self._output_rows = torch.zeros(0)

    @override
    def bind(self, models: LanguageModels) -> None:
        engine, config = models.engine, self._head.config
        if engine.hidden_size != config.hidden_size or int(self._head.token_ids.max()) >= engine.vocab_size:
            raise InputError(
                f"the draft head is for hidden size {config.hidden_size} and token ids up to "
                f"{int(self._head.token_ids.max())}: the target has {engine.hidden_size} and {engine.vocab_size}"
            )
        self._num_target = engine.vocab_size
        self._embeddings = engine.embeddings()
        self._output_rows = engine.output_weights()[self._head.token_ids].float()

    @override
    def start(self, ids: Sequence[int], hidden: Tensor) -> HeadState:
        return HeadState(None, hidden, tuple(ids[1:]))

    @override
    def observe(self, state: Any, token_ids: Sequence[int], hidden: Tensor) -> HeadState:
        return HeadState(state.cache, torch.cat([state.hidden, hidden]), (*state.token_ids, *token_ids))

    @override
    @torch.inference_mode()
    def propose(self, requests: Sequence[DraftRequest], growth: Growth) -> list[Draft]:
        # A prompt of one token has no pair yet: its root cannot be scored.
        live = [place for place, request in enumerate(requests) if len(request.ids) > 1]
        drafts = [Draft(TokenTree((own.ids[-1],), (-1,), ((),), (0.0,)), own.state) for own in requests]
        if not live:
            return drafts
        asked = [requests[place] for place in live]
        trunks = [self._trunk(request.state) for request in asked]

        def score(trees: Sequence[TokenTree], nodes: Sequence[Sequence[int]]) -> list[list[Tensor]]:
            return [trunk.score(tree, own) for trunk, tree, own in zip(trunks, trees, nodes, strict=True)]

        first = [trunk.first for trunk in trunks]
        trees = grow_trees(asked, growth, source="head", first=first, score=score)
        for place, tree, trunk in zip(live, trees, trunks, strict=True):
            drafts[place] = Draft(tree, HeadState(trunk.cache, trunk.hidden[:0], ()))
        return drafts

    def _trunk(self, state: HeadState) -> _Trunk:
        """Runs the waiting rows, so that the cache is level with the text."""
        start, num = 0 if state.cache is None else len(state.cache), len(state.token_ids)
        mask = torch.cat([torch.ones(num, start, dtype=torch.bool), causal(num)], dim=1)
        x, cache = self._run(state.hidden, state.token_ids, torch.arange(start, start + num), state.cache, mask)
        return _Trunk(self, cache, x[-1:])

    def _run(
        self, hidden: Tensor, token_ids: Sequence[int], positions: Tensor, cache: HeadCache | None, mask: Tensor
    ) -> tuple[Tensor, HeadCache]:
        embedded = self._embeddings[torch.tensor(token_ids)].float()
        return self._head(hidden.float(), embedded, positions, cache, mask)

    def _scatter(self, x: Tensor) -> Tensor:
        """Logits `[m, v]` over the target's vocabulary, -inf outside the head's."""
        scores = torch.full((len(x), self._num_target), -torch.inf)
        return scores.index_copy(1, self._head.token_ids, self._head.logits(x, self._output_rows))


class _Trunk:
    """A sequence while its tree grows: nodes that were scored stay in a cache behind the text's own."""

    def __init__(self, drafter: HeadDrafter, cache: HeadCache, hidden: Tensor) -> None:
        self._drafter = drafter
        self.cache = cache
        self.hidden = hidden
        self.first = drafter._scatter(hidden)[0]
        self._grown = cache
        self._place = {0: len(cache) - 1}
        self._x = {0: hidden[0]}

    def score(self, tree: TokenTree, nodes: Sequence[int]) -> list[Tensor]:
        """Logits `[v]` after each of the nodes, whose parents were scored before."""
        if not nodes:
            return []
        length, before = len(self.cache), len(self._grown)
        for offset, node in enumerate(nodes):
            self._place[node] = before + offset
        ancestors = ancestor_mask(tree)
        mask = torch.zeros(len(nodes), before + len(nodes), dtype=torch.bool)
        mask[:, :length] = True
        for row, node in enumerate(nodes):
            for other in ancestors[node].nonzero().squeeze(1).tolist():
                mask[row, self._place[other]] = True
        hidden = torch.stack([self._x[tree.parents[node]] for node in nodes])
        # Depth 1 stands directly behind the text, whose last row is the root's.
        positions = torch.tensor([length - 1 + tree.depths[node] for node in nodes])
        x, self._grown = self._drafter._run(hidden, [tree.tokens[node] for node in nodes], positions, self._grown, mask)
        self._x |= dict(zip(nodes, x, strict=True))
        return list(self._drafter._scatter(x))
