"""Where a text that ran out of tokens is cut: after its last whole sentence."""

from __future__ import annotations

import re

__all__ = ["whole_sentences"]

SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*(?=\s|$)|[。！？]|\n")


def whole_sentences(text: str) -> str:
    """`text` up to the end of its last whole sentence or line; all of it where it has none.

    >>> whole_sentences("Rain falls. A robot stands under an")
    'Rain falls.'
    """
    ends = [match.end() for match in SENTENCE_END.finditer(text)]
    return text[: ends[-1]].strip() if ends else text.strip()
