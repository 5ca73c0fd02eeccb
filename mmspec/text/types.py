"""The frozen objects of the text side, and nothing else.

Knows no model and no tokenizer. Legend: `n` nodes of a token tree, `v` vocabulary, `d` hidden size.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from mmspec.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Trial:
    """One time that a drafter proposed a token at a node, in the order drawn.

    `q` is `[v]` float32: the distribution the token was really drawn from (after what was drawn before it
    was taken out, if drawn without replacement). None means a point mass: the token was chosen
    deterministically.
    """

    token: int
    q: Tensor | None = None
    source: str = ""


@dataclass(frozen=True, eq=False)
class TokenTree:
    """Candidate continuations of one sequence. Node 0 is the root: its last committed token.

    `tokens[i]` hangs below node `parents[i]` (-1 for the root only); parents come before children and no
    two siblings carry the same token. `trials[i]` are the proposals made *at* node i, in the order drawn
    and with repeats: each names a child of i. `log_confidence[i]` is the drafter's own guess, in nats, of
    the chance that the path to i is accepted; it never increases along a path.
    Raises `InputError` where one of these does not hold.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    trials: tuple[tuple[Trial, ...], ...]
    log_confidence: tuple[float, ...]

    def __post_init__(self) -> None:
        lengths = {len(self.tokens), len(self.parents), len(self.trials), len(self.log_confidence)}
        if len(lengths) != 1 or not self.tokens:
            raise InputError(f"token tree fields have lengths {sorted(lengths)}: expected one, at least 1")
        seen: set[tuple[int, int]] = set()
        for node, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            if not (parent == -1 if node == 0 else 0 <= parent < node):
                raise InputError(f"token tree node {node} has parent {parent}: parents come before children")
            if (parent, token) in seen:
                raise InputError(f"token tree node {parent} has two children with token {token}")
            seen.add((parent, token))
        for node, trials in enumerate(self.trials):
            for trial in trials:
                if (node, trial.token) not in seen:
                    raise InputError(f"trial of token {trial.token} at node {node} has no child node")

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Distance of every node from the root."""
        depths = [0] * len(self)
        for node in range(1, len(self)):
            depths[node] = depths[self.parents[node]] + 1
        return tuple(depths)

    @cached_property
    def children(self) -> tuple[Mapping[int, int], ...]:
        """For every node its children, by token."""
        children: list[dict[int, int]] = [{} for _ in self.tokens]
        for node in range(1, len(self)):
            children[self.parents[node]][self.tokens[node]] = node
        return tuple(children)


class FinishReason(enum.Enum):
    """Why a text ended."""

    EOS = "eos"
    STOP = "stop"
    LENGTH = "length"
    CONTEXT = "context"
    CONSTRAINT = "constraint"


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen; every field acts at every node, on that node's own history.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 switch those filters off.
    `repetition_penalty` divides (or multiplies) the scores of tokens of prompt and text;
    `frequency_penalty` and `presence_penalty` subtract for tokens of the text alone. `logit_bias` adds to
    the scores of token ids. `stop` strings end the text and are not part of it. `json_schema` (as JSON
    text) or `regex` is what the whole text must match.
    Raises `InputError` for a value out of range.
    """

    max_tokens: int = 100
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()
    json_schema: str | None = None
    regex: str | None = None

    def __post_init__(self) -> None:
        ranges: tuple[tuple[str, float, float, str], ...] = (
            ("max_tokens", 1, math.inf, "at least 1"),
            ("temperature", 0, 100, "0 (greedy) to 100"),
            ("top_k", 0, math.inf, "0 (off) or more"),
            ("min_p", 0, 1, "0 (off) to 1"),
            ("repetition_penalty", 0.01, 100, "0.01 to 100, 1 is off"),
            ("frequency_penalty", -100, 100, "-100 to 100"),
            ("presence_penalty", -100, 100, "-100 to 100"),
            ("min_new_tokens", 0, math.inf, "0 or more"),
        )
        for name in ("top_p", *(name for name, *_ in ranges)):
            if not isinstance(getattr(self, name), (int, float)):
                raise InputError(f"{name}={getattr(self, name)!r} is no number")
        for name, low, high, allowed in ranges:
            value = getattr(self, name)
            if not low <= value <= high:
                raise InputError(f"{name}={value} is out of range: expected {allowed}")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p={self.top_p} is out of range: expected more than 0, at most 1")
        if any(not text for text in self.stop):
            raise InputError("stop contains an empty string: every text would end at once")
        if self.json_schema is not None and self.regex is not None:
            raise InputError("json_schema and regex are both given: a text follows one grammar")
        for token, bias in self.logit_bias:
            if not math.isfinite(bias) or token < 0:
                raise InputError(f"logit_bias {token}: {bias} is not a finite number for a token id")


@dataclass(frozen=True)
class SegmentEnd:
    """Where one step of growth ends: after a token whose text ends in one of `marks`.

    A segment has at least `min_tokens` tokens, so that "In the fog," alone is not a step.
    """

    marks: str
    min_tokens: int = 1

    def __post_init__(self) -> None:
        if self.min_tokens < 1:
            raise InputError(f"min_tokens={self.min_tokens} is too small: expected at least 1")


@dataclass(frozen=True)
class TextMetrics:
    """What one request cost. Acceptance is counted per depth: of the rounds that proposed a token at depth
    d, those that accepted one.
    """

    num_tokens: int = 0
    num_target_calls: int = 0
    num_drafted: int = 0
    prefill_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    total_s: float = 0.0
    proposed: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    alerts: tuple[str, ...] = ()

    @property
    def mean_accepted_length(self) -> float:
        """Tokens committed per target pass, the bonus token included; 0 before the first pass."""
        return self.num_tokens / self.num_target_calls if self.num_target_calls else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Speed of decoding, the prefill left out; 0 before the first token."""
        return self.num_tokens / self.total_s if self.total_s else 0.0

    @property
    def acceptance(self) -> tuple[float, ...]:
        """Acceptance rate at depth 1, 2, ..."""
        return tuple(a / p if p else 0.0 for a, p in zip(self.accepted, self.proposed, strict=True))


@dataclass(frozen=True)
class TextChunk:
    """A piece of streamed text: valid UTF-8; the pieces of a request concatenate to its final text."""

    text: str
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finished: FinishReason | None
    metrics: TextMetrics
