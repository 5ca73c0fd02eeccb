"""A draft head as a drafter: its cache follows the target's hidden states, its trees its own predictions.

Row i of the head is the pair (target's hidden state at i, token i + 1) and predicts token i + 2. Rows of all
requests run together, padded to one shape. Knows one target: the one that the head was trained for.
Legend: `n` requests, `m` rows, `l` cached rows, `d` hidden size, `r` reduced vocabulary, `s` shortlist.
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
from mmspec.text.drafters.grow import Children, DrawLevel, Parents, draw_dense, grow_trees
from mmspec.text.drafters.head_model import DraftHead, HeadCache, causal
from mmspec.text.growth import Growth
from mmspec.text.linear import Int8Linear
from mmspec.text.tree import root_only
from mmspec.text.types import TokenTree, Trial

if TYPE_CHECKING:
    from mmspec.text.models import LanguageModels

SHORTLIST = 64
"""Likeliest tokens of a node among which its children are chosen."""

_NOWHERE = -(10**9)  # the position of a padded row: outside every window


@dataclass(frozen=True, eq=False)
class HeadState:
    """Rows in the cache, and rows that wait for the next proposal: parts `[k, d]` of `hidden`, and `token_ids`."""

    cache: HeadCache
    hidden: tuple[Tensor, ...]
    token_ids: tuple[int, ...]


class HeadDrafter(Drafter):
    """Proposes with a trained draft head; `head_path` is a reference as `mmspec.weights.resolve` takes it."""

    def __init__(self, *, head_path: str) -> None:
        from mmspec.weights import resolve

        self.head = DraftHead.load(resolve(head_path))
        self.num_target = 0
        self._embeddings = torch.zeros(0)
        self._output: Int8Linear | None = None

    @override
    def bind(self, models: LanguageModels) -> None:
        engine, config = models.engine, self.head.config
        if engine.hidden_size != config.hidden_size or int(self.head.token_ids.max()) >= engine.vocab_size:
            raise InputError(
                f"the draft head is for hidden size {config.hidden_size} and token ids up to "
                f"{int(self.head.token_ids.max())}: the target has {engine.hidden_size} and {engine.vocab_size}"
            )
        self.num_target = engine.vocab_size
        self._embeddings = engine.embeddings()
        self._output = Int8Linear(engine.output_weights()[self.head.token_ids])

    @override
    def start(self, ids: Sequence[int], hidden: Tensor) -> HeadState:
        # Rows that no later row can see are never run.
        num_skipped = max(0, len(hidden) - self.head.config.window)
        empty = torch.zeros(self.head.config.num_heads, 0, self.head.config.hidden_size // self.head.config.num_heads)
        return HeadState(HeadCache(empty, empty, num_skipped), (hidden[num_skipped:],), tuple(ids[1 + num_skipped :]))

    @override
    def observe(self, state: Any, token_ids: Sequence[int], hidden: Tensor) -> HeadState:
        return HeadState(state.cache, (*state.hidden, hidden), (*state.token_ids, *token_ids))

    @override
    @torch.inference_mode()
    def propose(self, requests: Sequence[DraftRequest], growth: Growth) -> list[Draft]:
        # A prompt of one token has no pair yet: its root cannot be scored.
        live = [place for place, request in enumerate(requests) if len(request.ids) > 1]
        drafts = [Draft(root_only(own.ids[-1]), own.state) for own in requests]
        if not live:
            return drafts
        asked = [requests[place] for place in live]
        trunks = _Trunks(self, [request.state for request in asked])
        quick = all(own.acceptance.deterministic and not own.processors.constrained for own in asked)
        draw = self._draw_shortlist(asked, trunks) if quick else self._draw_dense(asked, trunks)
        trees = grow_trees(asked, growth, source="head", draw=draw)
        for place, tree, cache in zip(live, trees, trunks.caches, strict=True):
            drafts[place] = Draft(tree, HeadState(cache, (), ()))
        return drafts

    def _draw_shortlist(self, requests: Sequence[DraftRequest], trunks: _Trunks) -> DrawLevel:
        """Children that win the race among the likeliest tokens of each node."""

        def draw(depth: int, trees: Sequence[TokenTree], parents: Sequence[Parents]) -> list[list[Children]]:
            x = trunks.run(depth, trees, [[entry.node for entry, _ in own] for own in parents])
            values, places = self.logits(x).topk(min(SHORTLIST, len(self.head.token_ids)))
            ids = self.head.token_ids[places]
            drawn: list[list[Children]] = []
            start = 0
            for request, own in zip(requests, parents, strict=True):
                rows = slice(start, start + len(own))
                start += len(own)
                drawn.append(self._race(request, depth, own, values[rows], ids[rows]) if own else [])
            return drawn

        return draw

    def _race(self, request: DraftRequest, depth: int, parents: Parents, values: Tensor, ids: Tensor) -> list[Children]:
        scores = request.processors.shortlist(values, ids, request.ids[request.num_prompt :])
        position = request.num_text + depth
        raced = request.acceptance.race(scores, ids, position=position, size=self.num_target)
        width = min(max(width for _, width in parents), ids.shape[1])
        best, places = raced.topk(width)
        shares = (best - raced.logsumexp(1, keepdim=True)).exp().tolist()
        tokens = ids.gather(1, places).tolist()
        return [
            [(Trial(token), share) for token, share in zip(own, chances, strict=True) if share > 0][:wanted]
            for own, chances, (_, wanted) in zip(tokens, shares, parents, strict=True)
        ]

    def _draw_dense(self, requests: Sequence[DraftRequest], trunks: _Trunks) -> DrawLevel:
        """Children drawn from the whole vocabulary, where their distribution or a grammar matters."""
        first = self._scatter(trunks.run(0, [], [[0] for _ in requests]))

        def score(trees: Sequence[TokenTree], nodes: Sequence[Sequence[int]]) -> list[list[Tensor]]:
            rows = iter(self._scatter(trunks.run(1, trees, nodes)))
            return [[next(rows) for _ in own] for own in nodes]

        return draw_dense(requests, source="head", first=first, score=score)

    def logits(self, x: Tensor) -> Tensor:
        """Logits `[m, r]` float32 over the head's own vocabulary."""
        assert self._output is not None, "bind comes before propose"
        return self._output(self.head.norm_out(x))

    def _scatter(self, x: Tensor) -> list[Tensor]:
        """Logits `[v]` over the target's vocabulary, -inf outside the head's."""
        scores = torch.full((len(x), self.num_target), -torch.inf)
        return list(scores.index_copy(1, self.head.token_ids, self.logits(x)))

    def embed(self, token_ids: Tensor) -> Tensor:
        """Embeddings of tokens, float32."""
        return self._embeddings[token_ids].float()


class _Trunks:
    """Sequences while their trees grow: nodes that were run stay in a cache beside the texts' own.

    Making it runs the rows that wait, so that `caches` are level with the texts.
    """

    def __init__(self, drafter: HeadDrafter, states: Sequence[HeadState]) -> None:
        self._drafter = drafter
        self._window = drafter.head.config.window
        self.caches, last = self._catch_up(states)
        self._x: list[dict[int, Tensor]] = [{0: x} for x in last]
        self._trunk, self._trunk_positions = _padded(self.caches)
        self._grown = HeadCache(self._trunk.keys[:, :, :0], self._trunk.values[:, :, :0], 0)
        self._columns: list[dict[int, int]] = [{} for _ in states]

    def run(self, depth: int, trees: Sequence[TokenTree], nodes: Sequence[Sequence[int]]) -> Tensor:
        """Predictions `[m, d]` after these nodes, tree by tree; their parents were run before."""
        if depth == 0:
            return torch.stack([x[0] for x, own in zip(self._x, nodes, strict=True) if own])
        num_rows, before = max(map(len, nodes)), len(self._grown)
        hidden = torch.zeros(len(nodes), num_rows, self._drafter.head.config.hidden_size)
        token_ids = torch.zeros(len(nodes), num_rows, dtype=torch.int64)
        positions = torch.zeros(len(nodes), num_rows, dtype=torch.int64)
        seen = torch.zeros(len(nodes), num_rows, before + num_rows, dtype=torch.bool)
        # A padded row sees itself, or its softmax would be over nothing.
        seen[:, :, before:] = torch.eye(num_rows, dtype=torch.bool)
        for place, (tree, own, columns) in enumerate(zip(trees, nodes, self._columns, strict=True)):
            for row, node in enumerate(own):
                columns[node] = before + row
                hidden[place, row] = self._x[place][tree.parents[node]]
                token_ids[place, row] = tree.tokens[node]
                # Depth 1 stands directly behind the text, whose last row is the root's.
                positions[place, row] = self.caches[place].num_rows - 1 + tree.depths[node]
                parent = tree.parents[node]
                while parent > 0:
                    seen[place, row, columns[parent]] = True
                    parent = tree.parents[parent]
        mask = torch.cat([self._visible(positions, self._trunk_positions), seen], dim=2)
        keys = torch.cat([self._trunk.keys, self._grown.keys], dim=2)
        values = torch.cat([self._trunk.values, self._grown.values], dim=2)
        x, cache = self._drafter.head(
            hidden, self._drafter.embed(token_ids), positions, HeadCache(keys, values, 0), mask
        )
        self._grown = cache.last(before + num_rows)
        for place, own in enumerate(nodes):
            self._x[place] |= dict(zip(own, x[place], strict=False))
        return torch.cat([x[place, : len(own)] for place, own in enumerate(nodes)])

    def _catch_up(self, states: Sequence[HeadState]) -> tuple[list[HeadCache], list[Tensor]]:
        """Runs the waiting rows: caches, and the last prediction `[d]` of every sequence."""
        num_rows = max(len(state.token_ids) for state in states)
        hidden = torch.zeros(len(states), num_rows, self._drafter.head.config.hidden_size)
        token_ids = torch.zeros(len(states), num_rows, dtype=torch.int64)
        for place, state in enumerate(states):
            length = len(state.token_ids)
            hidden[place, :length] = torch.cat(state.hidden).float()
            token_ids[place, :length] = torch.tensor(state.token_ids)
        starts = torch.tensor([state.cache.num_rows for state in states])
        positions = starts[:, None] + torch.arange(num_rows)
        cache, cached_positions = _padded([state.cache for state in states])
        own = causal(num_rows).expand(len(states), -1, -1) & self._visible(positions, positions)
        mask = torch.cat([self._visible(positions, cached_positions), own], dim=2)
        x, ran = self._drafter.head(hidden, self._drafter.embed(token_ids), positions, cache, mask)
        caches, last = [], []
        for place, state in enumerate(states):
            length, num_cached = len(state.token_ids), len(state.cache)
            rows = slice(len(cache) - num_cached, len(cache) + length)
            num_ever = state.cache.num_rows + length
            caches.append(HeadCache(ran.keys[place, :, rows], ran.values[place, :, rows], num_ever).last(self._window))
            last.append(x[place, length - 1])
        return caches, last

    def _visible(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Which columns at positions `[n, l]` lie in the windows of rows at positions `[n, m]`: `[n, m, l]`."""
        distance = rows[:, :, None] - columns[:, None]
        return (distance >= 0) & (distance < self._window)


def _padded(caches: Sequence[HeadCache]) -> tuple[HeadCache, Tensor]:
    """Several caches as one `[n, h, l, head_dim]`, filled up in front, and the positions `[n, l]` of their rows."""
    longest = max(map(len, caches))
    positions = torch.full((len(caches), longest), _NOWHERE)
    shape = (len(caches), caches[0].keys.shape[0], longest, caches[0].keys.shape[2])
    keys, values = torch.zeros(shape), torch.zeros(shape)
    for place, cache in enumerate(caches):
        start = longest - len(cache)
        keys[place, :, start:], values[place, :, start:] = cache.keys, cache.values
        positions[place, start:] = torch.arange(cache.num_rows - len(cache), cache.num_rows)
    return HeadCache(keys, values, 0), positions
