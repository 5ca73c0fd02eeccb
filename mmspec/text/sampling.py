"""Processors of the next-token scores, and the rules that choose a token among a tree's proposals.

Knows one node at a time: its scores, its own history, the trials made at it. Order of the processors and
their definitions follow `transformers` generate (frequency and presence penalty follow the OpenAI
definition: text alone, not the prompt). Every rule here leaves the text distributed exactly as the target's
own: greedy; shared noise (Gumbel-max coupling, arXiv 2408.07978); rejection (SpecInfer algorithm 2, of
which drawing without replacement and point masses are special cases, once each trial keeps the q that it
was really drawn from).
"""

from __future__ import annotations

import abc
import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from mmspec.errors import InputError, ModelError
from mmspec.seeding import generator
from mmspec.text.constraints import Constraint
from mmspec.text.types import SamplingParams, Trial

NUCLEUS_PROBE = 256
"""How many of the largest scores are looked at before top-p falls back to sorting the vocabulary."""


class Processors:
    """Turns a node's logits into its final scores. Built once per request."""

    def __init__(self, params: SamplingParams, *, end_ids: Sequence[int], constraint: Constraint | None = None) -> None:
        self._params = params
        self._constraint = constraint
        self.end_ids = frozenset({*end_ids, *params.stop_token_ids})
        self._end_ids = torch.tensor(sorted(self.end_ids), dtype=torch.int64)
        self._bias_ids = torch.tensor([token for token, _ in params.logit_bias], dtype=torch.int64)
        self._bias = torch.tensor([bias for _, bias in params.logit_bias], dtype=torch.float32)

    def __call__(self, logits: Tensor, prompt_ids: Sequence[int], text_ids: Sequence[int]) -> Tensor:
        """Final scores `[v]` float32: masked tokens are -inf, softmax of them is the distribution p.

        `logits` is `[v]` of any float type; `text_ids` is everything generated before this node, the path
        from the root included. For temperature 0 temperature and filters are left out: their argmax is the
        same. Raises `ModelError` for NaN logits, or where nothing is left.
        """
        params = self._params
        scores = logits.float()
        top = float(scores.max())
        if not math.isfinite(top):
            raise ModelError(f"target logits hold {top} at text position {len(text_ids)}")
        if len(self._bias_ids) and int(self._bias_ids.max()) >= len(scores):
            raise InputError(f"logit_bias names token {int(self._bias_ids.max())} of {len(scores)} tokens")
        scores = self._penalise(scores, prompt_ids, text_ids)
        if len(text_ids) < params.min_new_tokens:
            scores = scores.index_fill(0, self._end_ids, -torch.inf)
        if self._constraint is not None:
            scores = self._constrained(scores, self._constraint.allowed(text_ids), len(text_ids))
        if params.temperature > 0:
            scores = filter_scores(scores / params.temperature, params)
        return scores

    @property
    def constrained(self) -> bool:
        """Whether a grammar says what may follow."""
        return self._constraint is not None

    def draft_scores(self, logits: Tensor, token_ids: Tensor, text_ids: Sequence[int]) -> Tensor:
        """About the final scores of a few likely tokens, for a draft: `[k, s]` logits of `token_ids` `[k, s]`.

        Penalties look at `text_ids` alone; a grammar is not asked, filters are for `filter_scores`.
        """
        params = self._params
        scores = logits.float()
        if text_ids and (params.frequency_penalty or params.presence_penalty):
            counts = Counter(text_ids)
            number = torch.tensor([[counts.get(token, 0) for token in row] for row in token_ids.tolist()])
            scores = scores - params.frequency_penalty * number - params.presence_penalty * (number > 0)
        if len(text_ids) < params.min_new_tokens:
            scores = scores.masked_fill(torch.isin(token_ids, self._end_ids), -torch.inf)
        return scores / params.temperature if params.temperature > 0 else scores

    @property
    def params(self) -> SamplingParams:
        """What the request asked for."""
        return self._params

    @staticmethod
    def _constrained(scores: Tensor, allowed: Tensor, position: int) -> Tensor:
        # Vocabularies are padded: ids that the tokenizer does not have are not allowed.
        mask = torch.zeros(len(scores), dtype=torch.bool)
        size = min(len(allowed), len(scores))
        mask[:size] = allowed[:size]
        if not mask.any():
            raise ModelError(f"no token may follow at text position {position}: the constraint cannot be met")
        return scores.masked_fill(~mask, -torch.inf)

    def _penalise(self, scores: Tensor, prompt_ids: Sequence[int], text_ids: Sequence[int]) -> Tensor:
        params = self._params
        if len(self._bias_ids):
            scores = scores.index_add(0, self._bias_ids, self._bias)
        if params.repetition_penalty != 1.0:
            ids = torch.tensor(sorted({*prompt_ids, *text_ids}), dtype=torch.int64)
            seen = scores[ids]
            factor = params.repetition_penalty
            scores = scores.index_put((ids,), torch.where(seen < 0, seen * factor, seen / factor))
        if text_ids and (params.frequency_penalty or params.presence_penalty):
            counts = Counter(text_ids)
            ids = torch.tensor(list(counts), dtype=torch.int64)
            number = torch.tensor(list(counts.values()), dtype=torch.float32)
            penalty = params.frequency_penalty * number + params.presence_penalty
            scores = scores.index_add(0, ids, -penalty)
        return scores


def filter_scores(scores: Tensor, params: SamplingParams) -> Tensor:
    """Top-k, then top-p, then min-p, each on what the one before left: `[..., v]` float32 to the same.

    Equal to the warpers of `transformers`, without sorting the vocabulary where the nucleus is small.
    """
    if 0 < params.top_k < scores.shape[-1]:
        threshold = scores.topk(params.top_k).values[..., -1:]
        scores = scores.masked_fill(scores < threshold, -torch.inf)
    if params.top_p < 1.0:
        scores = _nucleus(scores, params.top_p)
    if params.min_p > 0:
        probs = scores.softmax(-1)
        scores = scores.masked_fill(probs < params.min_p * probs.amax(-1, keepdim=True), -torch.inf)
    return scores


def _nucleus(scores: Tensor, top_p: float) -> Tensor:
    log_total = scores.logsumexp(-1, keepdim=True)
    size = scores.shape[-1]
    values, ids = scores.topk(min(NUCLEUS_PROBE, size))
    if ids.shape[-1] < size and bool(((values - log_total).exp().sum(-1) < top_p).any()):
        values, ids = scores.sort(descending=True, stable=True)
    probs = (values - log_total).exp()
    # A token stays while the mass before it is below top_p, so the token that crosses it is in.
    kept = values.masked_fill((probs.cumsum(-1) - probs) >= top_p, -torch.inf)
    return torch.full_like(scores, -torch.inf).scatter_(-1, ids, kept)


class Acceptance(abc.ABC):
    """How a draft's tokens are drawn, and how the target's distribution picks a token at a node.

    `position` is the index of the token in the text, so that the randomness of a token does not depend on
    how many rounds it took to get there. An instance belongs to one request.
    """

    deterministic: bool
    """Whether the text does not depend on what was proposed, so that proposals may be dropped by value."""

    @abc.abstractmethod
    def draw(self, scores: Tensor, num_children: int, *, position: int, key: str) -> list[tuple[Trial, float]]:
        """Proposals at a node with draft scores `[v]` float32, in trial order, each with a confidence in
        [0, 1]. Fewer than `num_children` where the support is smaller. `key` names the node.
        """

    def noise(self, token_ids: Tensor, *, position: int, size: int) -> Tensor:
        """What `pick` adds to the scores of the tokens `token_ids` `[k, s]` of a vocabulary of `size`, float32, before
        it compares them; for rules that are `deterministic`.
        """
        raise NotImplementedError(f"{type(self).__name__} draws from the whole vocabulary")

    @abc.abstractmethod
    def pick(self, scores: Tensor, trials: Sequence[Trial], *, position: int) -> int:
        """The token that is committed at a node whose final target scores are `[v]` float32."""


class Greedy(Acceptance):
    """Temperature 0: the argmax, lowest id on ties. Children are the draft's most likely tokens."""

    deterministic = True

    @override
    def draw(self, scores: Tensor, num_children: int, *, position: int, key: str) -> list[tuple[Trial, float]]:
        probs, ids = scores.softmax(0).topk(min(num_children, len(scores)))
        return [(Trial(token), prob) for token, prob in zip(ids.tolist(), probs.tolist(), strict=True) if prob > 0]

    @override
    def noise(self, token_ids: Tensor, *, position: int, size: int) -> Tensor:
        return torch.zeros(token_ids.shape)

    @override
    def pick(self, scores: Tensor, trials: Sequence[Trial], *, position: int) -> int:
        return int(scores.argmax())


class SharedNoise(Acceptance):
    """Target and draft race with the same noise: token = argmax of score + Gumbel noise of (seed, position).

    The text is the one that plain sampling with this seed gives, whatever was drafted (in bfloat16 but for near-ties:
    a tree sums in another order than a chain): proposals change its speed only, so trees may be merged, pruned and re-ranked freely. Chance of agreement at a node with one
    child is at least (1 - tv) / (1 + tv), tv the total variation between draft and target
    (arXiv 2408.07978, theorem 1).
    """

    deterministic = True

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._uniform: dict[int, Tensor] = {}

    @override
    def noise(self, token_ids: Tensor, *, position: int, size: int) -> Tensor:
        uniform = self._uniform.get(position)
        if uniform is None or len(uniform) < size:
            # float64: the winner has u near 1, where float32 has few values left.
            uniform = torch.rand(size, generator=generator(self._seed, "text", position), dtype=torch.float64)
            self._uniform = {p: n for p, n in self._uniform.items() if abs(p - position) < 32}
            self._uniform[position] = uniform
        return uniform[token_ids].log_().neg_().log_().neg_().float()

    def _raced(self, scores: Tensor, position: int) -> tuple[Tensor, Tensor]:
        """Scores of the tokens that can be picked, with their noise, and which they are."""
        ids = scores.isfinite().nonzero().squeeze(1)
        return scores[ids] + self.noise(ids, position=position, size=len(scores)), ids

    @override
    def draw(self, scores: Tensor, num_children: int, *, position: int, key: str) -> list[tuple[Trial, float]]:
        raced, ids = self._raced(scores, position)
        values, places = raced.topk(min(num_children, len(raced)))
        shares = (values - raced.logsumexp(0)).exp()
        chosen = ids[places].tolist()
        return [(Trial(token), share) for token, share in zip(chosen, shares.tolist(), strict=True) if share > 0]

    @override
    def pick(self, scores: Tensor, trials: Sequence[Trial], *, position: int) -> int:
        raced, ids = self._raced(scores, position)
        return int(ids[raced.argmax()])


class Rejection(Acceptance):
    """Speculative sampling: trials are accepted with min(1, p/q), refusals leave the residual.

    Draft tokens are drawn without replacement: each trial's q is the rest after the earlier draws.
    """

    deterministic = False

    def __init__(self, seed: int) -> None:
        self._seed = seed

    @override
    def draw(self, scores: Tensor, num_children: int, *, position: int, key: str) -> list[tuple[Trial, float]]:
        source = generator(self._seed, "draft", f"{position}/{key}")
        q = scores.softmax(0)
        drawn: list[tuple[Trial, float]] = []
        for _ in range(num_children):
            total = q.sum()
            if not total > 0:
                break
            q = q / total
            token = draw_token(q, source)
            drawn.append((Trial(token, q), float(q[token])))
            q = q.index_fill(0, torch.tensor([token]), 0.0)
        return drawn

    @override
    def pick(self, scores: Tensor, trials: Sequence[Trial], *, position: int) -> int:
        source = generator(self._seed, "text", position)
        return accept_trials(scores.softmax(0), trials, source)


def accept_trials(p: Tensor, trials: Sequence[Trial], source: torch.Generator) -> int:
    """The token picked by rejection among `trials`, in the order drawn; distributed exactly as p.

    `p` is `[v]` float32, summing to 1. A trial x ~ q is accepted when u < p(x)/q(x), strictly; else
    p becomes N(relu(p - q)), which for a point mass is N(p without x). Where rounding leaves no residual,
    p restricted to the tokens not yet refused takes its place.
    """
    refused: list[int] = []
    for trial in trials:
        token = trial.token
        u = float(torch.rand(1, generator=source))
        chance = float(p[token]) if trial.q is None else float(p[token] / trial.q[token])
        if u < chance:
            return token
        refused.append(token)
        outside = torch.tensor(refused, dtype=torch.int64)
        residual = p.index_fill(0, outside[-1:], 0.0) if trial.q is None else (p - trial.q).relu()
        if not residual.sum() > 0:
            residual = p.index_fill(0, outside, 0.0)
        if not residual.sum() > 0:
            # All of p's mass was refused, by rounding alone: it differs from 1 by an ulp.
            return int(p.argmax())
        p = residual / residual.sum()
    return draw_token(p, source)


def draw_token(p: Tensor, source: torch.Generator) -> int:
    """One token id from unnormalised weights `[v]` float32 by the inverse of their cumulative sum.

    Strict: a token of weight 0 is never drawn, whatever the coin.
    """
    support = p.nonzero().squeeze(1)
    cumulative = p[support].double().cumsum(0)
    coin = torch.rand(1, generator=source, dtype=torch.float64) * cumulative[-1]
    place = int(torch.searchsorted(cumulative, coin, right=True))
    return int(support[min(place, len(support) - 1)])
