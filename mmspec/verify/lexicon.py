"""What a verifier can be asked about, in words: entries by kind, their surface forms and their opponents.

Knows words as data; knows no sentence and no picture. An entry is one value of an attribute (the place "neon
city") or one kind of thing ("a dragon"). All other entries of its kind are its opponents.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from mmspec.errors import InputError
from mmspec.types import ClaimKind

__all__ = ["Attribute", "Entry", "Lexicon", "words_of"]


@functools.lru_cache(maxsize=4096)
def words_of(text: str) -> tuple[str, ...]:
    """Lower-case words of a phrase; hyphens separate.

    >>> words_of("Neon-lit street")
    ('neon', 'lit', 'street')
    """
    return tuple(re.findall(r"[a-z0-9]+(?:'[a-z]+)?", text.lower()))


@dataclass(frozen=True)
class Entry:
    """One value or thing. `phrase` is what the model is asked, `forms` are the words that mean it in a text.

    For a thing, `noun` and `plural` make the phrases of its colour, count and position; `confusable` are
    phrases it is easily taken for, which come first among its opponents.
    """

    kind: ClaimKind
    phrase: str
    forms: tuple[str, ...]
    noun: str = ""
    plural: str = ""
    confusable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attribute:
    """One value of colour, count or position: its surface forms and the phrase it makes of a thing.

    `phrase` is a template over `{a_noun}` ("an owl"), `{noun}` and `{plural}`. What is not `judged` is read, so
    that it can be reported, but no model here can tell.
    """

    kind: ClaimKind
    phrase: str
    forms: tuple[str, ...]
    judged: bool = True


@dataclass(frozen=True)
class Lexicon:
    """All entries and attributes. `nothing` is an opponent of every thing: a picture without it.

    Raises `InputError` where two entries share a surface form.
    """

    entries: tuple[Entry, ...]
    attributes: tuple[Attribute, ...] = ()
    nothing: str = "an empty scene"
    _by_form: dict[tuple[str, ...], Entry] = field(init=False, repr=False, compare=False)
    _opponents: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_form: dict[tuple[str, ...], Entry] = {}
        for entry in self.entries:
            for form in entry.forms:
                words = words_of(form)
                if by_form.setdefault(words, entry) is not entry:
                    raise InputError(
                        f"{form!r} means both {by_form[words].phrase!r} and {entry.phrase!r} in the lexicon"
                    )
        object.__setattr__(self, "_by_form", by_form)
        object.__setattr__(self, "_opponents", {entry.phrase: self._opponents_of(entry) for entry in self.entries})

    def _opponents_of(self, entry: Entry) -> tuple[str, ...]:
        others = [other.phrase for other in self.entries if other.kind is entry.kind and other is not entry]
        nothing = [self.nothing] if entry.kind is ClaimKind.PROP else []
        return tuple(dict.fromkeys([*entry.confusable, *others, *nothing]))

    def entry(self, words: tuple[str, ...]) -> Entry | None:
        """The entry that these very words mean."""
        return self._by_form.get(words)

    @property
    def max_words(self) -> int:
        """Words of the longest surface form."""
        return max(map(len, self._by_form))

    def opponents(self, entry: Entry) -> tuple[str, ...]:
        """Phrases of the same kind that are not `entry`, the confusable ones first."""
        return self._opponents[entry.phrase]

    def attributes_of(self, kind: ClaimKind) -> Iterable[Attribute]:
        """The attributes of one kind."""
        return (attribute for attribute in self.attributes if attribute.kind is kind)
