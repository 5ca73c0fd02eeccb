"""What a prompt or a text claims to be visible: short phrases with their opponents, read off with a lexicon.

Knows words and the lexicon it is given; knows no picture and no model. One noun phrase a claim, because a CLIP
reads a longer text as a bag of words; attributes depend on their thing (the rule of DSG, arXiv 2310.18235).
What is negated ("no rain", "without glasses"), compared ("like a dragon"), quoted (the words on a sign) or a turn of
phrase ("the heart of the city") is not claimed. A thing that the lexicon does not know becomes a claim of kind OTHER without opponents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mmspec.types import Claim, ClaimKind
from mmspec.verify.lexicon import Attribute, Entry, Lexicon, words_of
from mmspec.verify.quotes import quoted
from mmspec.verify.words import (
    ABSTRACT,
    ABSTRACT_NOUNS,
    AUXILIARIES,
    BODY,
    DETERMINERS,
    FUNCTION_WORDS,
    NEGATING_PAIRS,
    NEGATORS,
    PHRASES,
    PLAIN_VERBS,
    POSSESSIVES,
    PREPOSITIONS,
    RESUMING,
    ROOM,
    STOPS,
    VERBS_TOO,
)

__all__ = ["ClaimExtractor"]

_TOKEN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?|\d+|[.,;:!?()\n\"“”—–]")
_PLAIN = re.compile(r"[a-z]{3,}")
_MAX_MODIFIERS = 3
_MAX_DISTANCE = 7  # words between a thing and the "on the left" that places it


@dataclass(frozen=True)
class _Word:
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class _Match:
    """Entry `entry` in words [first, last); the noun phrase around it begins at word `head`."""

    entry: Entry
    first: int
    last: int
    head: int


class ClaimExtractor:
    """Reads claims with a lexicon, the longest surface form first.

    With `name_unknown`, things of a prompt or of a given text that the lexicon does not know come out as claims of kind OTHER, so that
    a person is told that nobody checks them.
    """

    def __init__(self, lexicon: Lexicon, *, name_unknown: bool) -> None:
        self._lexicon = lexicon
        self._name_unknown = name_unknown

    def extract(self, text: str, *, source: str) -> tuple[Claim, ...]:
        """The claims of `text`, in the order of their words, each phrase once; `source` is
        "prompt", "given" (a text of the user's own) or "text".
        """
        words = _split(text)
        found = list(self._matches(words))
        matches = [match for match in found if not _negated(words, match) and not _figurative(words, match)]
        claims: dict[tuple[ClaimKind, str], Claim] = {}
        for number in range(len(matches)):
            for claim in self._claims(words, matches, number, source):
                claims.setdefault((claim.kind, claim.phrase), claim)
        if self._name_unknown and source != "text":
            for claim in _unknown(words, found, source):
                claims.setdefault((claim.kind, claim.phrase), claim)
        return tuple(sorted(claims.values(), key=lambda claim: claim.span))

    def vocabulary(self, *, source: str) -> tuple[Claim, ...]:
        """A claim for everything that the lexicon knows a phrase for, without attributes; their spans are empty."""
        lexicon = self._lexicon
        return tuple(
            Claim(entry.phrase, entry.kind, source, (0, 0), lexicon.opponents(entry)) for entry in lexicon.entries
        )

    def _matches(self, words: list[_Word]) -> Iterator[_Match]:
        k = 0
        while k < len(words):
            for length in range(min(self._lexicon.max_words, len(words) - k), 0, -1):
                entry = self._lexicon.entry(tuple(word.text for word in words[k : k + length]))
                if entry is not None:
                    yield _Match(entry, k, k + length, _head(words, k))
                    k += length
                    break
            else:
                k += 1

    def _claims(self, words: list[_Word], matches: list[_Match], number: int, source: str) -> Iterator[Claim]:
        match = matches[number]
        entry = match.entry
        span = (words[match.first].start, words[match.last - 1].end)
        yield Claim(entry.phrase, entry.kind, source, span, self._lexicon.opponents(entry))
        if entry.kind is not ClaimKind.PROP:
            return
        for kind in (ClaimKind.COLOUR, ClaimKind.COUNT):
            for attribute in self._lexicon.attributes_of(kind):
                at = _find(words, attribute.forms, match.head, match.first)
                if at is not None:
                    yield self._dependent(attribute, entry, source, (words[at].start, span[1]))
        for attribute in self._lexicon.attributes_of(ClaimKind.POSITION):
            begin, end = _clause_after(words, matches, number)
            at = _find(words, attribute.forms, begin, end, not_before="of")
            if at is not None:
                yield self._dependent(attribute, entry, source, (span[0], words[min(at + 2, end - 1)].end))

    def _dependent(self, attribute: Attribute, entry: Entry, source: str, span: tuple[int, int]) -> Claim:
        def phrase_of(other: Attribute) -> str:
            phrase = other.phrase.format(noun=entry.noun, plural=entry.plural, a_noun=entry.phrase)
            needs_article = other.kind is ClaimKind.COLOUR and entry.phrase != entry.noun
            return f"{'an' if phrase[0] in 'aeiou' else 'a'} {phrase}" if needs_article else phrase

        same_kind = self._lexicon.attributes_of(attribute.kind)
        contrasts = tuple(phrase_of(other) for other in same_kind if other.judged and other is not attribute)
        return Claim(
            phrase_of(attribute),
            attribute.kind,
            source,
            span,
            contrasts if attribute.judged else (),
            parent=entry.phrase,
        )


def _split(text: str) -> list[_Word]:
    """Words and marks; of what is quoted, a single mark in its place."""
    for start, end in quoted(text):
        text = text[:start] + '"'.ljust(end - start) + text[end:]
    return [_Word(m.group().lower().replace("’", "'"), m.start(), m.end()) for m in _TOKEN.finditer(text)]


def _head(words: list[_Word], first: int) -> int:
    """Where the noun phrase begins that ends in word `first`: its modifiers, without the determiner."""
    k = first
    while k > 0 and first - k < _MAX_MODIFIERS:
        before = words[k - 1].text
        if (before in FUNCTION_WORDS and before != "of") or not before[0].isalnum() or before.endswith("'s"):
            break
        if before == "of" and (k < 2 or words[k - 2].text not in ("pair", "couple", "dozens")):
            break
        k -= 1
    return k


def _find(words: list[_Word], forms: tuple[str, ...], begin: int, end: int, *, not_before: str = "") -> int | None:
    """Where one of `forms` stands in words [begin, end)."""
    for form in forms:
        wanted = words_of(form)
        for k in range(begin, end - len(wanted) + 1):
            after = words[k + len(wanted)].text if k + len(wanted) < len(words) else ""
            if tuple(word.text for word in words[k : k + len(wanted)]) == wanted and after != (not_before or None):
                return k
    return None


def _clause_after(words: list[_Word], matches: list[_Match], number: int) -> tuple[int, int]:
    """The words in which a place "on the left" belongs to match `number`: up to the next thing or full stop."""
    begin = matches[number].last
    end = min(len(words), begin + _MAX_DISTANCE)
    following = [m.head for m in matches[number + 1 :] if m.entry.kind is ClaimKind.PROP]
    if following:
        end = min(end, max(begin, following[0]))
    for k in range(begin, end):
        if words[k].text in STOPS:
            return begin, k
    return begin, end


def _negated(words: list[_Word], match: _Match) -> bool:
    """Whether a negator governs the match: nothing between them but words of the same list."""
    own = words[match.first].text
    if own in PREPOSITIONS and match.first and not _is_negator(words[match.first - 1].text):
        return False
    k = match.first - 1
    while k >= 0 and words[k].text not in STOPS:
        text = words[k].text
        if _is_negator(text):
            return not (text == "not" and k + 1 < len(words) and words[k + 1].text == "only")
        if k > 0 and (words[k - 1].text, text) in NEGATING_PAIRS:
            return True
        if text in RESUMING or (text in PREPOSITIONS and k > 0 and not _is_negator(words[k - 1].text)):
            return False
        if text == "and" and k + 1 < len(words) and words[k + 1].text in DETERMINERS:
            return False
        if text == "," and not (k + 1 < len(words) and words[k + 1].text in ("no", "or", "nor", "and")):
            return False
        k -= 1
    return False


def _is_negator(text: str) -> bool:
    return text in NEGATORS or text.endswith("n't")


def _figurative(words: list[_Word], match: _Match) -> bool:
    texts = [word.text for word in words]
    before = texts[match.head - 1] if match.head else ""
    two_before = texts[match.head - 2] if match.head > 1 else ""
    word = texts[match.last - 1]
    after = texts[match.last] if match.last < len(texts) else ""
    if match.last - match.first == 1 and word in ROOM and before in DETERMINERS | POSSESSIVES:
        return True
    if match.entry.kind is ClaimKind.PROP:
        if before == "like" or (before in DETERMINERS and two_before in ("like", "as")):
            return True
        if word in VERBS_TOO and match.head == match.first and before in AUXILIARIES - {"and", "then"}:
            return True
        if match.last - match.first == 1 and word in BODY and (before in POSSESSIVES or before.endswith("'s")):
            return True
    if word in ABSTRACT and after == "of":
        return True
    return any(_overlaps(texts, phrase, match) for phrase in PHRASES)


def _overlaps(texts: list[str], phrase: tuple[str, ...], match: _Match) -> bool:
    """Whether the turn of phrase stands in the text so that it covers the match."""
    for k in range(max(0, match.last - len(phrase)), match.first + 1):
        if tuple(texts[k : k + len(phrase)]) == phrase:
            return True
    return False


def _unknown(words: list[_Word], matches: list[_Match], source: str) -> Iterator[Claim]:
    """Things with an article that the lexicon does not know: "a bonsai", "an old violinist"."""
    taken = {k for match in matches for k in range(match.head, match.last)}
    for k, word in enumerate(words):
        if word.text not in ("a", "an") or k + 1 in taken:
            continue
        end = k + 1
        while end < len(words) and end - k <= _MAX_MODIFIERS and _plain(words[end].text) and end not in taken:
            end += 1
        last = end - 1
        at_border = end == len(words) or end not in taken
        if last > k and at_border and words[last].text not in ABSTRACT_NOUNS:
            phrase = " ".join(w.text for w in words[k:end])
            probe = Entry(ClaimKind.OTHER, phrase, ())
            if not _negated(words, _Match(probe, k, end, k)):
                yield Claim(phrase, ClaimKind.OTHER, source, (words[k].start, words[last].end))


def _plain(text: str) -> bool:
    return text not in FUNCTION_WORDS and text not in PLAIN_VERBS and _PLAIN.fullmatch(text) is not None
