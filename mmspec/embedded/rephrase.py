"""Words that the embedded transformer never read, said in words that it did: "a citadel at daybreak", "a castle at dawn".

The verifier reads both as the same claims; so that the picture means them too, the drafter's captions are put into the
vocabulary of training. Knows the world's tables of words; knows no model. Other unknown words are left to the text encoder.
"""

from __future__ import annotations

import functools
import re

from mmspec.embedded.captions import plural
from mmspec.embedded.world import NOUNS, PLACES, TIMES, WEATHERS

__all__ = ["rephrased"]


def rephrased(caption: str) -> str:
    """`caption` with every held-out word of the world's tables replaced by the plain one; the rest as it was.

    >>> rephrased("An automaton near two citadels, cyberpunk alley, at daybreak")
    'A robot near two castles, neon city, at dawn'
    >>> rephrased("a red castle at night")
    'a red castle at night'
    """
    return _pattern().sub(_replaced, caption)


@functools.cache
def _plain() -> dict[str, str]:
    """Held-out words and the plain ones in their place; forms that some caption of training has stay themselves."""
    terms = [*PLACES.values(), *TIMES.values(), *WEATHERS.values()]
    table = {other: term.names[0] for term in terms for other in term.held_out}
    for noun in NOUNS.values():
        for other in noun.held_out:
            table |= {other: noun.name, plural(other): noun.plural}
    trained = {name for term in terms for name in term.names} | {name for noun in NOUNS.values() for name in noun.names}
    return {word: plain for word, plain in table.items() if word not in trained}


@functools.cache
def _pattern() -> re.Pattern[str]:
    """The longest of the words, with the article before it, which may have to change."""
    words = "|".join(re.escape(word) for word in sorted(_plain(), key=len, reverse=True))
    return re.compile(rf"\b(?:(?P<article>an?) )?(?P<word>{words})\b", re.IGNORECASE)


def _replaced(match: re.Match[str]) -> str:
    plain = _plain()[match["word"].lower()]
    article = match["article"]
    if article is None:
        return plain
    fitting = "an" if plain[0] in "aeiou" and not plain.startswith("unicorn") else "a"
    return f"{fitting.capitalize() if article[0] == 'A' else fitting} {plain}"
