"""Where a text quotes: words on a sign, a title, what somebody says. They are read in the picture, not seen in it.

Knows punctuation and nothing else.
"""

from __future__ import annotations

import re

__all__ = ["quoted"]

_QUOTE = re.compile(
    r"""
      (?<![\w"]) "(?=[^\s"])   [^"\n]* (?: "      | $ )  # a mark after a figure is inches
    | “                        [^”\n]* (?: ”      | $ )
    | „                        [^“”\n]* (?: [“”]  | $ )
    | «                        [^»\n]* (?: »      | $ )
    | 「                       [^」\n]* (?: 」     | $ )
    | (?<!\w) '(?=\w)          [^"\n]*? (?<=\S) ' (?!\w)  # an apostrophe stands in or after a word
    | (?<!\w) ‘(?=\w)          [^"\n]*? (?<=\S) ’ (?!\w)
    """,
    re.VERBOSE | re.MULTILINE,
)


def quoted(text: str) -> list[tuple[int, int]]:
    """The spans [start, end) of what stands in quotation marks, with the marks, in order.

    Marks that are not closed reach to the end of their line, as in a text that is still being written; single ones
    do not. A text that stands in marks as a whole quotes nothing.

    >>> quoted('a sign says "OPEN" at night')
    [(12, 18)]
    >>> quoted('"a sign at night"')
    []
    """
    spans = [match.span() for match in _QUOTE.finditer(text)]
    whole = (len(text) - len(text.lstrip()), len(text.rstrip()))
    return [] if spans == [whole] else spans
