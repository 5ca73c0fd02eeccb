r"""Prompt weights as people write them: `(word:1.3)`, `(word)` for 1.1, `\(` for a parenthesis that is meant.

The syntax of AUTOMATIC1111's web UI without its square brackets. The plain prompt is what language model and
verifier read; a weight pulls the picture towards its words (or away, below 1), and makes the claims in them count
more or less. Whatever is not well formed is plain text. Knows characters; knows no model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mmspec.types import Claim, Emphasis

__all__ = ["WeightedPrompt", "read_weights"]

PAREN_WEIGHT = 1.1
"""What a pair of parentheses without a number is worth; nested ones multiply."""

_ESCAPED = re.compile(r"\\([()\\])")
_WEIGHT = re.compile(r":\s*(\d+(?:\.\d*)?|\.\d+)\s*\)")


@dataclass(frozen=True)
class WeightedPrompt:
    """A prompt without its weights. Character `k` of `text` stood at `offsets[k]` and weighs `weights[k]`.

    `emphasis` are the pieces that weigh more or less than 1, with how much more (`(rain:1.3)` is ("rain", 0.3)).
    """

    text: str
    offsets: tuple[int, ...]
    weights: tuple[float, ...]
    emphasis: Emphasis

    def weighted(self, claim: Claim) -> Claim:
        """A claim of the plain prompt with the weight of its words, and its span in the prompt as it was typed."""
        start, end = claim.span
        inside = self.weights[start:end]
        weight = max(inside, key=lambda w: abs(w - 1.0), default=1.0)
        span = (self.offsets[start], self.offsets[end - 1] + 1) if inside else claim.span
        return replace(claim, span=span, weight=weight)


def read_weights(prompt: str) -> WeightedPrompt:
    r"""Read a prompt.

    >>> read_weights(r"a (red:1.3) car, rain \(heavy\), (fog").text
    'a red car, rain (heavy), (fog'
    >>> read_weights("a ((red) car:1.5) at night").emphasis
    (('red', 0.65), ('car', 0.5))
    """
    closing, opening = _brackets(prompt)
    text: list[str] = []
    offsets: list[int] = []
    weights: list[float] = []
    stack = [1.0]
    k = 0
    while k < len(prompt):
        if k in opening:
            stack.append(stack[-1] * opening[k])
            k += 1
        elif k in closing:
            stack.pop()
            k = closing[k]
        else:
            escaped = _ESCAPED.match(prompt, k)
            text.append(escaped[1] if escaped else prompt[k])
            offsets.append(k + (1 if escaped else 0))
            weights.append(stack[-1])
            k += 2 if escaped else 1
    emphasis = tuple(_pieces(text, weights))
    return WeightedPrompt("".join(text), tuple(offsets), tuple(weights), emphasis)


def _brackets(prompt: str) -> tuple[dict[int, int], dict[int, float]]:
    """Where weights end, with the position behind each, and where they begin, with what each multiplies by.

    An end is the colon before the number, or the parenthesis alone.
    """
    closing: dict[int, int] = {}
    opening: dict[int, float] = {}
    open_at: list[int] = []
    k = 0
    while k < len(prompt):
        if _ESCAPED.match(prompt, k):
            k += 2
            continue
        number = _WEIGHT.match(prompt, k) if open_at else None
        if prompt[k] == "(":
            open_at.append(k)
        elif number is not None or (prompt[k] == ")" and open_at):
            begin, end = open_at.pop(), number.end() if number else k + 1
            inside = prompt[begin + 1 : k]
            if inside.strip() and not _malformed(inside, has_number=number is not None):
                opening[begin] = float(number[1]) if number else PAREN_WEIGHT
                closing[k] = end
            k = end
            continue
        k += 1
    return closing, opening


def _malformed(inside: str, *, has_number: bool) -> bool:
    """Whether what stands between parentheses looks like a weight that is no number: "(rain:high)", "(rain:-1)"."""
    return not has_number and re.search(r":[^\s:()]*\s*$", inside) is not None


def _pieces(text: list[str], weights: list[float]) -> Iterator[tuple[str, float]]:
    start = 0
    for k in range(1, len(text) + 1):
        if k < len(text) and weights[k] == weights[start]:
            continue
        piece = "".join(text[start:k]).strip(" ,.;:")
        if weights[start] != 1.0 and any(char.isalnum() for char in piece):
            yield piece, round(weights[start] - 1.0, 4)
        start = k
