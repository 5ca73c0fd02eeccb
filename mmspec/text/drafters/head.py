"""A draft head as a drafter: its cache follows the target's hidden states, its trees its own predictions.

Row i of the head is the pair (target's hidden state at i, token i + 1) and predicts token i + 2. Rows of all
requests run together. Knows one target: the one that the head was trained for. Legend: `n` requests, `m` rows, `k`
rows of each, padded, `c` columns, `d` hidden size, `h` heads, `r` reduced vocabulary, `s` shortlist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import override

from mmspec.errors import InputError
from mmspec.text.drafters.base import Draft, Drafter, DraftRequest
from mmspec.text.drafters.grow import Children, DrawLevel, Parents, draw_dense, grow_trees
from mmspec.text.drafters.head_model import DraftHead
from mmspec.text.drafters.head_rows import HeadRows, Rows
from mmspec.text.growth import Growth
from mmspec.text.kv_cache import rounded
from mmspec.text.sampling import filter_scores
from mmspec.text.tree import root_only
from mmspec.text.types import SamplingParams, TokenTree, Trial

if TYPE_CHECKING:
    from mmspec.text.models import LanguageModels

SHORTLIST = 64
"""Likeliest tokens of a node among which its children are chosen."""


@dataclass(frozen=True, eq=False)
class HeadState:
    """Where a sequence stands: `kept` `[c, 2, h, head_dim]` are keys and values of its last rows, of which the last
    `num_kept` were run, of `num_rows` in all; `x` `[d]` is what the last one predicted.

    Rows that wait for the next proposal: parts `[i, d]` of `hidden`, and `token_ids`.
    """

    kept: Tensor
    num_kept: int
    num_rows: int
    hidden: tuple[Tensor, ...]
    token_ids: tuple[int, ...]
    x: Tensor | None


class HeadDrafter(Drafter):
    """Proposes with a trained draft head; `head_path` is a reference as `mmspec.weights.resolve` takes it."""

    def __init__(self, *, head_path: str) -> None:
        from mmspec.weights import resolve

        self.head = DraftHead.load(resolve(head_path))
        self.num_target = 0
        self._embeddings = torch.zeros(0)
        self._rows: HeadRows | None = None

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
        self._rows = HeadRows(self.head, engine.output_weights()[self.head.token_ids])

    @property
    def rows(self) -> HeadRows:
        """What runs the head; there once it has met the target."""
        assert self._rows is not None, "bind comes first"
        return self._rows

    @override
    @torch.inference_mode()
    def start(self, ids: Sequence[int], hidden: Tensor) -> HeadState:
        # Rows that no later row can see are never run.
        num_skipped = max(0, len(hidden) - self.head.config.window)
        (kept,) = self.rows.empty(1, rounded(self.head.config.window))
        state = HeadState(kept, 0, num_skipped, (hidden[num_skipped:],), tuple(ids[1 + num_skipped :]), None)
        # Here and not with the first proposal: forks of this text need not do it again.
        return _Trunks(self, [state]).states[0] if len(hidden) else state

    @override
    def observe(self, state: Any, token_ids: Sequence[int], hidden: Tensor) -> HeadState:
        return replace(state, hidden=(*state.hidden, hidden), token_ids=(*state.token_ids, *token_ids))

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
        for place, tree, state in zip(live, trees, trunks.states, strict=True):
            drafts[place] = Draft(tree, state)
        return drafts

    def _draw_shortlist(self, requests: Sequence[DraftRequest], trunks: _Trunks) -> DrawLevel:
        """Children that win the race among the likeliest tokens of each node."""

        def draw(depth: int, trees: Sequence[TokenTree], parents: Sequence[Parents]) -> list[list[Children]]:
            x = trunks.run(depth, trees, [[entry.node for entry, _ in own] for own in parents])
            values, places = self.rows.logits(x).topk(min(SHORTLIST, len(self.head.token_ids)))
            return self._race(requests, depth, parents, values, self.head.token_ids[places])

        return draw

    def _race(
        self, requests: Sequence[DraftRequest], depth: int, parents: Sequence[Parents], values: Tensor, ids: Tensor
    ) -> list[list[Children]]:
        """The tokens of each shortlist, `[m, s]` logits and ids, that win the race at their node."""
        sizes = [len(own) for own in parents]
        raced = torch.empty_like(values)
        alike: dict[SamplingParams, list[int]] = {}
        start = 0
        for request, own, near, tokens in zip(requests, sizes, values.split(sizes), ids.split(sizes), strict=True):
            if own:
                text = request.ids[request.num_prompt :]
                raced[start : start + own] = request.processors.draft_scores(near, tokens, text)
                alike.setdefault(request.processors.params, []).extend(range(start, start + own))
            start += own
        for params, rows in alike.items():
            if params.temperature > 0:
                raced[rows] = filter_scores(raced[rows], params)
        noise = [
            request.acceptance.noise(tokens, position=request.num_text + depth, size=self.num_target)
            for request, tokens in zip(requests, ids.split(sizes), strict=True)
            if len(tokens)
        ]
        raced += torch.cat(noise)
        widest = max(width for own in parents for _, width in own)
        best, places = raced.topk(min(widest, ids.shape[1]))
        shares = (best - raced.logsumexp(1, keepdim=True)).exp().tolist()
        drawn = zip(ids.gather(1, places).tolist(), shares, strict=True)
        return [[_kept(*next(drawn), width) for _, width in own] for own in parents]

    def _draw_dense(self, requests: Sequence[DraftRequest], trunks: _Trunks) -> DrawLevel:
        """Children drawn from the whole vocabulary, where their distribution or a grammar matters."""
        first = self._scatter(trunks.run(0, [], [[0] for _ in requests]))
        depths = count(1)

        def score(trees: Sequence[TokenTree], nodes: Sequence[Sequence[int]]) -> list[list[Tensor]]:
            rows = iter(self._scatter(trunks.run(next(depths), trees, nodes)))
            return [[next(rows) for _ in own] for own in nodes]

        return draw_dense(requests, source="head", first=first, score=score)

    def _scatter(self, x: Tensor) -> list[Tensor]:
        """Logits `[v]` over the target's vocabulary, -inf outside the head's."""
        scores = torch.full((len(x), self.num_target), -torch.inf)
        return list(scores.index_copy(1, self.head.token_ids, self.rows.logits(x)))

    def embed(self, token_ids: Sequence[int]) -> Tensor:
        """Embeddings `[m, d]` of tokens."""
        return self._embeddings[torch.tensor(token_ids)]


def _kept(tokens: Sequence[int], shares: Sequence[float], width: int) -> Children:
    return [(Trial(token), share) for token, share in zip(tokens, shares, strict=True) if share > 0][:width]


class _Trunks:
    """Sequences while their trees grow: nodes that were run stay in columns behind the texts' own.

    Making it runs the rows that wait, so that the states it gives are level with the texts.
    """

    def __init__(self, drafter: HeadDrafter, states: Sequence[HeadState]) -> None:
        self._drafter, self._rows = drafter, drafter.rows
        self._window = drafter.head.config.window
        self._num_kept = rounded(self._window)
        self._counts = [len(state.token_ids) for state in states]
        self._first_kept = torch.tensor([self._num_kept - state.num_kept for state in states])[:, None, None]
        self._num_rows = [state.num_rows + count for state, count in zip(states, self._counts, strict=True)]
        # Places: rows of earlier rounds, right-aligned; the waiting rows; nodes of the tree.
        self._num_trunk = self._num_kept + rounded(max(self._counts))
        self._stored = self._rows.empty(len(states), self._num_trunk)
        torch.stack([state.kept for state in states], out=self._stored[:, : self._num_kept])
        self.states = self._catch_up(states)
        self._x = torch.stack([state.x for state in self.states if state.x is not None])
        self._row_of: list[dict[int, int]] = [{0: place} for place in range(len(states))]
        self._columns: list[dict[int, list[int]]] = [{0: []} for _ in states]
        self._num_nodes = [0] * len(states)

    def run(self, depth: int, trees: Sequence[TokenTree], nodes: Sequence[Sequence[int]]) -> Tensor:
        """Predictions `[m, d]` after these nodes, tree by tree; their parents were run at the depth above."""
        if depth == 0:
            return self._x[[place for place, own in enumerate(nodes) if own]]
        self._reserve(max(map(len, nodes)))
        rows = Rows([], [], [], [])
        parents, tokens, seen = [], [], []
        num_rows = rounded(max(map(len, nodes)))
        for place, (tree, own) in enumerate(zip(trees, nodes, strict=True)):
            row_of = {}
            for number, node in enumerate(own):
                parent, column = tree.parents[node], self._num_trunk + self._num_nodes[place]
                parents.append(self._row_of[place][parent])
                path = [*self._columns[place][parent], column]
                seen += [(place, number, each) for each in path[-self._window :]]
                row_of[node], self._columns[place][node] = len(rows), path
                self._num_nodes[place] += 1
                # Depth 1 stands directly behind the text, whose last row is the root's.
                rows.add(place, number, column, self._num_rows[place] - 1 + depth)
                tokens.append(tree.tokens[node])
            self._row_of[place] = row_of
        last = self._num_kept - 1 + torch.tensor(self._counts)[:, None, None]
        mask = self._visible(last + depth, last).repeat(1, num_rows, 1)
        mask[tuple(torch.tensor(seen).T)] = True
        hidden, embedded = self._x[parents], self._drafter.embed(tokens)
        self._x = self._rows.run(hidden, embedded, rows, self._stored, mask)
        return self._x

    def _reserve(self, num_nodes: int) -> None:
        """Columns for more nodes of a tree."""
        missing = self._num_trunk + max(self._num_nodes) + num_nodes - self._stored.shape[1]
        if missing > 0:
            self._stored = torch.cat([self._stored, self._rows.empty(len(self._stored), rounded(missing))], dim=1)

    def _catch_up(self, states: Sequence[HeadState]) -> list[HeadState]:
        """Runs the waiting rows: their sequences' new states."""
        if not any(self._counts):
            return list(states)
        rows = Rows([], [], [], [])
        for place, (state, num) in enumerate(zip(states, self._counts, strict=True)):
            for number in range(num):
                rows.add(place, number, self._num_kept + number, state.num_rows + number)
        behind = self._num_kept + torch.arange(rounded(max(self._counts)))[None, :, None]
        embedded = self._drafter.embed([token for state in states for token in state.token_ids])
        hidden = torch.cat([part.bfloat16() for state in states for part in state.hidden])
        x = self._rows.run(hidden, embedded, rows, self._stored, self._visible(behind, behind))
        caught_up, end = [], 0
        for place, (state, num) in enumerate(zip(states, self._counts, strict=True)):
            end += num
            kept = self._stored[place, num : num + self._num_kept].clone()
            num_kept = min(state.num_kept + num, self._num_kept)
            own = HeadState(kept, num_kept, state.num_rows + num, (), (), x[end - 1])
            caught_up.append(own if num else state)
        return caught_up

    def _visible(self, rows: Tensor, last: Tensor) -> Tensor:
        """Which columns rows that stand at column `rows` see, up to `last`: bool `[n, k, c]`, all three broadcast."""
        columns = torch.arange(self._stored.shape[1])
        return (columns >= self._first_kept) & (columns > rows - self._window) & (columns <= last)
