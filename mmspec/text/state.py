"""One text in the making: its tokens, its readable text, and the walk that commits tokens to it.

Knows ids, text and stop rules; knows no model pass. Tokens are committed one by one, in order, so that
text, ids, log-probabilities and metrics are all cut at the same token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from mmspec.text.engine import EngineState
from mmspec.text.sampling import Acceptance, Processors
from mmspec.text.types import FinishReason, SamplingParams, SegmentEnd, TextMetrics, TokenTree

Decode = Callable[[list[int]], str]
REPLACEMENT = "\ufffd"
"""What a tokenizer writes for bytes that are not yet a whole character."""


@dataclass(frozen=True, eq=False)
class TextState:
    """A prompt and the text that grew from it. Immutable; a newer state never changes an older one."""

    prompt: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    decoded: str
    finished: FinishReason | None
    metrics: TextMetrics
    # What follows belongs to the decoder.
    engine_state: EngineState = field(repr=False)
    draft_state: Any = field(repr=False)
    acceptance: Acceptance = field(repr=False)
    processors: Processors = field(repr=False)
    num_draft_failures: int = 0
    recent: tuple[int, ...] = ()
    decoded_from: int = 0
    decoded_to: int = 0

    @property
    def text(self) -> str:
        """The text so far. While it may be the beginning of a stop string, its end is held back."""
        if self.finished is not None:
            return self.decoded
        return self.decoded[: len(self.decoded) - num_held(self.decoded, self.params.stop)]

    @property
    def log_prob(self) -> float:
        """Sum of the tokens' log-probabilities under the model itself (temperature 1, nothing masked)."""
        return sum(self.log_probs)


@dataclass(frozen=True, eq=False)
class Walk:
    """What a verified tree added to a text: nodes whose keys and values stay, the token after each of them,
    and the state with tokens and text updated. `at_end` says that the segment or the limit was reached.
    """

    path: tuple[int, ...]
    tokens: tuple[int, ...]
    state: TextState
    at_end: bool


@dataclass(frozen=True)
class EndRule:
    """When a text ends (end-of-text ids) and when one step of growth does (limit, segment)."""

    end_ids: frozenset[int]
    max_ids: int
    until: SegmentEnd | None
    first_id: int


def walk(state: TextState, tree: TokenTree, logits: Tensor, decode: Decode, rule: EndRule) -> Walk:
    """Commits tokens down the tree for as long as the token that is picked at a node is one of its children.

    `logits` is `[n, v]`. The last token comes from the target alone, so at least one is committed.
    """
    node = 0
    path: list[int] = []
    tokens: list[int] = []
    at_end = False
    while True:
        row = logits[node].float()
        scores = state.processors(row, state.prompt_ids, state.ids)
        token = state.acceptance.pick(scores, tree.trials[node], position=len(state.ids))
        path.append(node)
        tokens.append(token)
        log_prob = float(row[token] - row.logsumexp(0))
        state = append(state, token, log_prob, decode, rule.end_ids)
        if state.finished is None and len(state.ids) >= state.params.max_tokens:
            state = replace(state, finished=FinishReason.LENGTH)
        at_end = state.finished is not None or len(state.ids) >= rule.max_ids or segment_ended(state, rule)
        child = tree.children[node].get(token)
        if at_end or child is None:
            return Walk(tuple(path), tuple(tokens), state, at_end)
        node = child


def append(state: TextState, token: int, log_prob: float, decode: Decode, end_ids: frozenset[int]) -> TextState:
    """The state with one more token: text decoded as far as it is whole characters, stop rules applied."""
    ids, log_probs = (*state.ids, token), (*state.log_probs, log_prob)
    if token in end_ids:
        return replace(state, ids=ids, log_probs=log_probs, finished=FinishReason.EOS)
    if token in state.params.stop_token_ids:
        return replace(state, ids=ids, log_probs=log_probs, finished=FinishReason.STOP)
    before = decode(list(ids[state.decoded_from : state.decoded_to]))
    after = decode(list(ids[state.decoded_from :]))
    if after.endswith(REPLACEMENT) or len(after) < len(before):
        return replace(state, ids=ids, log_probs=log_probs)
    decoded = state.decoded + after[len(before) :]
    cut = stop_place(decoded, len(state.decoded), state.params.stop)
    return replace(
        state,
        ids=ids,
        log_probs=log_probs,
        decoded=decoded if cut is None else decoded[:cut],
        finished=None if cut is None else FinishReason.STOP,
        decoded_from=state.decoded_to,
        decoded_to=len(ids),
    )


def stop_place(text: str, num_old: int, stop: Sequence[str]) -> int | None:
    """Where the first stop string begins that is complete only now, or None.

    The search reaches back over what was there before by the longest stop string.

    >>> stop_place("so END of", 5, ("END",))
    3
    """
    if not stop:
        return None
    start = max(0, num_old - max(len(word) for word in stop) + 1)
    places = [place for word in stop if (place := text.find(word, start)) >= 0]
    return min(places, default=None)


def num_held(text: str, stop: Sequence[str]) -> int:
    """Length of the longest end of `text` that a stop string begins with.

    >>> num_held("so EN", ("END",))
    2
    """
    longest = min(max((len(word) for word in stop), default=1) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if any(word.startswith(text[-n:]) for word in stop)), 0)


def segment_ended(state: TextState, rule: EndRule) -> bool:
    """Whether the text just reached the end of a segment."""
    if rule.until is None or len(state.ids) - rule.first_id < rule.until.min_tokens:
        return False
    # Only text that the last token completed counts, not an old mark before undecoded bytes.
    return state.decoded_to == len(state.ids) and state.decoded.rstrip("\"'”’) \n").endswith(tuple(rule.until.marks))
