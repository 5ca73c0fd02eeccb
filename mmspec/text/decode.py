"""The decoding loop: draft trees, verify all of them in one target pass, commit, repeat.

Knows the order of the steps; knows no model and no probability rule. A text depends on its prompt,
parameters and seed only, never on what else is in the pass.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from mmspec.errors import InputError
from mmspec.text.drafters.base import Draft, Drafter, DraftRequest, bounded
from mmspec.text.growth import Growth, RoundRecord
from mmspec.text.models import LanguageModels
from mmspec.text.policy import RECENT_ROUNDS, DraftPolicy, Watch
from mmspec.text.prompt import Template, beginning
from mmspec.text.sampling import Acceptance, Greedy, Processors, Rejection, SharedNoise
from mmspec.text.state import EndRule, TextState, Walk, walk
from mmspec.text.tree import root_only
from mmspec.text.types import FinishReason, SamplingParams, SegmentEnd, TextChunk, TextMetrics, TokenTree

log = logging.getLogger(__name__)

SENTENCE = SegmentEnd(marks=".!?", min_tokens=4)
CLAUSE = SegmentEnd(marks=".!?,;:", min_tokens=6)
ACCEPTANCES: dict[str, type[SharedNoise] | type[Rejection]] = {"shared_noise": SharedNoise, "rejection": Rejection}
"""Rules for temperature above 0, by the name that conf uses."""
RELAXED = DraftPolicy()
MAX_DRAFT_FAILURES = 3
"""After so many failures of the drafter a request goes on without it."""


class TextDecoder:
    """Grows texts with a target model, a drafter and a tree shape."""

    def __init__(
        self,
        *,
        engine: LanguageModels,
        drafter: Drafter,
        growth: Growth,
        acceptance: str,
        policy: DraftPolicy = RELAXED,
    ) -> None:
        if acceptance not in ACCEPTANCES:
            raise InputError(f"acceptance={acceptance!r} is unknown: expected one of {sorted(ACCEPTANCES)}")
        if growth.timed and not self._reproducible(acceptance):
            raise InputError(
                f"acceptance={acceptance} with a tree that follows measured times gives another text every "
                "time: choose acceptance=shared_noise, or another tree"
            )
        self.models = engine
        self._engine = engine.engine
        self._drafter = drafter
        self._growth = growth
        self._policy = policy
        self._watch = Watch(policy.timeout_s)
        self._sampled = ACCEPTANCES[acceptance]
        self._end_ids = frozenset(engine.end_ids)
        drafter.bind(engine)

    @staticmethod
    def _reproducible(acceptance: str) -> bool:
        return ACCEPTANCES[acceptance].deterministic

    def prepare(self, template: Template) -> None:
        """Compute what every text of the template begins with, so that the first one starts as soon as the others."""
        ids, num_shared = self._encode(template, "a")
        self._engine.remember(ids[:num_shared])

    def _encode(self, template: Template, prompt: str) -> tuple[list[int], int]:
        """The ids of a prompt in its template, and how many of them every prompt begins with."""
        ids = self.models.encode(template.render(self.models.tokenizer, prompt))
        return ids, num_equal(ids, self.models.encode(beginning(template, self.models.tokenizer)))

    def start(self, prompt: str, *, params: SamplingParams, seed: int, template: Template | None = None) -> TextState:
        """A text of no tokens: the prompt, prefilled. Raises `InputError` where it is empty or too long."""
        if not prompt.strip():
            raise InputError("prompt is empty: expected some text")
        if template is None:
            ids, num_shared = self.models.encode_prompt(prompt), 0
        else:
            ids, num_shared = self._encode(template, prompt)
        begun = time.perf_counter()
        ((engine_state, hidden),) = self._engine.prefill([ids], num_shared=num_shared)
        metrics = TextMetrics(prefill_s=time.perf_counter() - begun)
        draft_state, failures = None, 0
        try:
            draft_state = self._watch.call(lambda: self._drafter.start(ids, hidden))
        except Exception as error:  # a drafter may fail in any way: it costs speed only
            metrics, failures = _alert(metrics, error), MAX_DRAFT_FAILURES
        return TextState(
            prompt=prompt,
            prompt_ids=tuple(ids),
            params=params,
            seed=seed,
            ids=(),
            log_probs=(),
            decoded="",
            finished=None,
            metrics=metrics,
            engine_state=engine_state,
            draft_state=draft_state,
            acceptance=self._acceptance(params, seed),
            processors=Processors(params, end_ids=self.models.end_ids, constraint=self.models.constraint(params)),
            num_draft_failures=failures,
        )

    def _acceptance(self, params: SamplingParams, seed: int) -> Acceptance:
        return Greedy() if params.temperature == 0 else self._sampled(seed)

    def fork(self, state: TextState, *, seed: int) -> TextState:
        """The same text with a random stream of its own from here on; shares all that is stored."""
        return replace(
            state,
            seed=seed,
            acceptance=self._acceptance(state.params, seed),
            metrics=replace(state.metrics, prefill_s=0.0),
        )

    def extend(
        self,
        states: Sequence[TextState],
        *,
        max_new_tokens: int | Sequence[int],
        until: SegmentEnd | None,
        max_passes: int | None = None,
    ) -> list[TextState]:
        """Every unfinished state, grown by one segment or `max_new_tokens`; all in the same target passes.

        `max_new_tokens` is one limit for all or one for each; growth also stops after `max_passes` target passes.
        """
        limits = [max_new_tokens] * max(1, len(states)) if isinstance(max_new_tokens, int) else list(max_new_tokens)
        if min(limits, default=1) < 1 or (max_passes is not None and max_passes < 1):
            raise InputError(
                f"max_new_tokens={max_new_tokens} or max_passes={max_passes} is too small: expected at least 1"
            )
        grown = list(states)
        rules = [
            EndRule(self._end_ids, len(state.ids) + limit, until, len(state.ids))
            for state, limit in zip(states, limits, strict=False)
        ]
        live = [place for place, state in enumerate(states) if state.finished is None]
        num_passes = 0
        while live and (max_passes is None or num_passes < max_passes):
            num_passes += 1
            walks = self._round([grown[place] for place in live], [rules[place] for place in live])
            for place, step in zip(live, walks, strict=True):
                grown[place] = step.state
            live = [place for place, step in zip(live, walks, strict=True) if not step.at_end]
        return grown

    def stream(
        self, prompt: str, *, params: SamplingParams, seed: int, template: Template | None = None
    ) -> Iterator[TextChunk]:
        """One text, chunk by chunk: a chunk for every target pass that completed some text."""
        state = self.start(prompt, params=params, seed=seed, template=template)
        num_sent, num_ids_sent = 0, 0
        rule = EndRule(self._end_ids, params.max_tokens, None, 0)
        while state.finished is None:
            (step,) = self._round([state], [rule])
            state = step.state
            if len(state.text) > num_sent or state.finished is not None:
                yield TextChunk(
                    text=state.text[num_sent:],
                    token_ids=state.ids[num_ids_sent:],
                    log_probs=state.log_probs[num_ids_sent:],
                    finished=state.finished,
                    metrics=state.metrics,
                )
                num_sent, num_ids_sent = len(state.text), len(state.ids)
        log.info(
            "text: %d tokens, %.1f tokens/s, %.2f tokens per target pass, %s",
            state.metrics.num_tokens,
            state.metrics.tokens_per_s,
            state.metrics.mean_accepted_length,
            state.finished.value,
        )

    def _round(self, states: Sequence[TextState], rules: Sequence[EndRule]) -> list[Walk]:
        """One target pass for all states."""
        begun = time.perf_counter()
        proposals = self._propose(states, rules)
        drafted = time.perf_counter()
        verified = self._engine.verify(
            [state.engine_state for state in states], [proposal.tree for proposal in proposals]
        )
        with _one_thread():
            walks = [
                walk(proposal.state, proposal.tree, seen.logits, self.models.decode, rule)
                for proposal, seen, rule in zip(proposals, verified, rules, strict=True)
            ]
        engine_states = self._engine.commit(
            [state.engine_state for state in states],
            verified,
            [step.path for step in walks],
            [step.tokens[-1] for step in walks],
        )
        ended = time.perf_counter()
        finished = []
        for step, seen, engine_state in zip(walks, verified, engine_states, strict=True):
            self._growth.record(_record(step, seen.tree, len(states), drafted - begun, ended - drafted))
            state = replace(step.state, engine_state=engine_state)
            if state.finished is None and self._engine.room(engine_state) < 1:
                state = replace(state, finished=FinishReason.CONTEXT)
            if state.finished is None and state.num_draft_failures < MAX_DRAFT_FAILURES:
                try:
                    hidden = seen.hidden[list(step.path)]
                    state = replace(state, draft_state=self._drafter.observe(state.draft_state, step.tokens, hidden))
                except Exception as error:  # as above
                    state = replace(state, num_draft_failures=MAX_DRAFT_FAILURES, metrics=_alert(state.metrics, error))
            metrics = _count(state.metrics, seen.tree, len(step.tokens))
            if len(seen.tree) > 1:
                state = replace(state, recent=(*state.recent, len(step.tokens) - 1)[-RECENT_ROUNDS:])
            if (message := self._policy.alert(metrics, state.recent)) is not None:
                metrics = _alerted(metrics, message)
            metrics = replace(
                metrics,
                draft_s=metrics.draft_s + drafted - begun,
                verify_s=metrics.verify_s + ended - drafted,
                total_s=metrics.total_s + time.perf_counter() - begun,
            )
            finished.append(
                replace(step, state=replace(state, metrics=metrics), at_end=step.at_end or state.finished is not None)
            )
        return finished

    def _propose(self, states: Sequence[TextState], rules: Sequence[EndRule]) -> list[_Proposal]:
        proposals = [_Proposal(state, root_only(state.engine_state.ids[-1])) for state in states]
        wanted: list[int] = []
        requests: list[DraftRequest] = []
        for place, (state, rule) in enumerate(zip(states, rules, strict=True)):
            if state.engine_state.ahead is not None:
                continue  # the first token costs no pass, and so no draft
            # The target adds one token of its own, so a path as long as the limit would be wasted.
            max_depth = min(rule.max_ids, state.params.max_tokens) - len(state.ids) - 1
            max_nodes = min(self._growth.budget, self._engine.room(state.engine_state))
            # Else a text would depend on how many are beside it.
            if state.acceptance.deterministic and (share := self._engine.share(len(states))) < max_nodes:
                # A level more than that costs more than the few nodes that are left bring.
                max_nodes, max_depth = share, min(max_depth, share.bit_length() - 1)
            max_depth = self._policy.depth(state.metrics, state.recent, min(max_depth, self._growth.max_depth))
            if max_depth < 1 or max_nodes < 2 or state.num_draft_failures >= MAX_DRAFT_FAILURES:
                continue
            wanted.append(place)
            requests.append(
                DraftRequest(
                    ids=state.engine_state.ids,
                    num_prompt=len(state.prompt_ids),
                    state=state.draft_state,
                    acceptance=state.acceptance,
                    processors=state.processors,
                    max_nodes=max_nodes,
                    max_depth=max_depth,
                )
            )
        if not requests:
            return proposals
        for place, request, draft in zip(wanted, requests, self._draft(requests), strict=True):
            state = states[place]
            if isinstance(draft, Draft):
                proposals[place] = _Proposal(replace(state, draft_state=draft.state), draft.tree)
            else:
                proposals[place] = _Proposal(
                    replace(
                        state, num_draft_failures=state.num_draft_failures + 1, metrics=_alert(state.metrics, draft)
                    ),
                    root_only(request.ids[-1]),
                )
        return proposals

    def _draft(self, requests: Sequence[DraftRequest]) -> list[Draft | Exception]:
        """A draft for every request, or what went wrong with it."""
        try:
            drafts = self._watch.call(lambda: self._drafter.propose(requests, self._growth))
            return [self._checked(request, draft) for request, draft in zip(requests, drafts, strict=True)]
        except Exception as error:  # a drafter may fail in any way: it costs speed only
            if len(requests) == 1:
                return [error]
            return [self._draft([request])[0] for request in requests]

    def _checked(self, request: DraftRequest, draft: Draft) -> Draft:
        tree = draft.tree
        if tree.tokens[0] != request.ids[-1]:
            raise InputError(f"drafter gave a tree with root {tree.tokens[0]}: expected {request.ids[-1]}")
        if not all(0 <= token < self._engine.vocab_size for token in tree.tokens):
            raise InputError(f"drafter proposed a token outside the vocabulary of {self._engine.vocab_size}")
        return replace(draft, tree=bounded(tree, request.max_nodes))


@contextmanager
def _one_thread() -> Iterator[None]:
    """For operations on a row of logits, which are over before a second thread has woken up."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def num_equal(ids: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike.

    >>> num_equal([1, 2, 3], [1, 2, 4, 5])
    2
    """
    pairs = enumerate(zip(ids, others, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(ids), len(others)))


@dataclass(frozen=True, eq=False)
class _Proposal:
    state: TextState
    tree: TokenTree


def _alert(metrics: TextMetrics, error: Exception) -> TextMetrics:
    message = f"drafter failed: {type(error).__name__}: {error}"
    log.debug("%s", message, exc_info=error)
    return _alerted(metrics, message)


def _alerted(metrics: TextMetrics, message: str) -> TextMetrics:
    return metrics if message in metrics.alerts else replace(metrics, alerts=(*metrics.alerts, message))


def _record(step: Walk, tree: TokenTree, num_states: int, draft_s: float, verify_s: float) -> RoundRecord:
    places = [[trial.token for trial in tree.trials[node]] for node in step.path]
    return RoundRecord(
        num_states=num_states,
        num_nodes=len(tree),
        depth=max(tree.depths),
        num_committed=len(step.tokens),
        draft_s=draft_s,
        verify_s=verify_s,
        ranks=tuple(own.index(token) for own, token in zip(places, step.tokens, strict=True) if token in own),
        num_trials=tuple(len(own) for own in places),
    )


def _count(metrics: TextMetrics, tree: TokenTree, num_committed: int) -> TextMetrics:
    depth = max(tree.depths)
    size = max(depth, len(metrics.proposed))
    proposed = [*metrics.proposed, *[0] * (size - len(metrics.proposed))]
    accepted = [*metrics.accepted, *[0] * (size - len(metrics.accepted))]
    for level in range(depth):
        proposed[level] += 1
        accepted[level] += level < num_committed - 1
    return replace(
        metrics,
        num_tokens=metrics.num_tokens + num_committed,
        num_target_calls=metrics.num_target_calls + 1,
        num_drafted=metrics.num_drafted + len(tree) - 1,
        proposed=tuple(proposed),
        accepted=tuple(accepted),
    )
