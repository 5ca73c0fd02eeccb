"""Claims read off prompts and texts: what is claimed, and above all what is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmspec.embedded.lexicon import embedded_lexicon
from mmspec.errors import InputError
from mmspec.types import ClaimKind
from mmspec.verify.claims import ClaimExtractor
from mmspec.verify.lexicon import Entry, Lexicon

EXTRACTOR = ClaimExtractor(embedded_lexicon(), name_unknown=True)


def _phrases(text: str, source: str = "text") -> list[str]:
    return [claim.phrase for claim in EXTRACTOR.extract(text, source=source)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cyberpunk rainy street", ["a neon city", "in the rain"]),
        ("Neon-lit street, mechanical eye", ["a neon city", "a mechanical eye"]),
        ("a drake above the ocean at daybreak", ["a dragon", "the sea", "at dawn"]),
        ("three dragons", ["three dragons", "a dragon"]),
        ("a red dragon", ["a red dragon", "a dragon"]),
        (
            "a castle on the left and an owl on the right",
            ["a castle", "a castle on the left", "an owl", "an owl on the right"],
        ),
        ("a robot holding an umbrella in the middle of the night", ["a robot", "an umbrella", "at night"]),
        ("noon at night", ["at noon", "at night"]),
        ("a dragon, a dragon", ["a dragon"]),
        ("她在雨中 🐉 a dragon", ["a dragon"]),
        ("not only a dragon but a robot", ["a dragon", "a robot"]),
        ('"a dragon in the rain"', ["a dragon", "in the rain"]),
        ('a 6" robot and a 5" dragon', ["a robot", "a dragon"]),
        ("the knights' castle and the dragons' sea", ["a knight", "a castle", "a dragon", "the sea"]),
    ],
)
def test_claims_are_read(text: str, expected: list[str]) -> None:
    """Longest form first, synonyms, plurals, attributes; contradictions are both reported, repetitions once."""
    assert _phrases(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("be kind", []),
        ("", []),
        ("a village, no rain", ["a village"]),
        ("a knight without glasses or crown in the fog", ["a knight", "in the fog"]),
        ("a forest with no cars, no buses and no rain", ["a forest"]),
        ("the city isn't foggy", ["a neon city"]),
        ("a cat without a hat and a dog", ["a cat", "a dog"]),
        ("snow instead of rain", ["in the snow"]),
        ("She roars like a lion.", []),
        ("I bear no grudge; to train is hard", []),
        ("the heart of the matter", []),
        ("it fills the space, a dark space", []),
        ("a woman on the bow of the boat over there", []),
        ("his heart, her eyes, the golem's brain", []),
        ("his mechanical eye", ["a mechanical eye"]),
        ("keep an eye out", []),
        ('a castle, a sign says "RED DRAGON" in the rain', ["a castle", "in the rain"]),
        ("a castle with a sign that reads “RED DRAGON”", ["a castle"]),
        ("a castle, 'the dragon's inn' on its gate, an owl", ["a castle", "an owl"]),
        ("城堡「dragon」« owl » a castle", ["a castle"]),
        ('a castle with a sign: "RED DRAG', ["a castle"]),
        ('a castle with a sign: "RED DRAGON\nan owl', ["a castle", "an owl"]),
        ('a red "INN" dragon', ["a dragon"]),
        ('no "INN", a dragon', ["a dragon"]),
    ],
)
def test_what_is_not_shown_is_not_claimed(text: str, expected: list[str]) -> None:
    """Negated, compared, quoted, figurative and abstract words make no claim."""
    assert _phrases(text) == expected


def test_claim_carries_span_opponents_and_parent() -> None:
    """By hand for one prompt."""
    text = "a blue mechanical eye"
    colour, prop = EXTRACTOR.extract(text, source="prompt")
    assert (colour.kind, colour.phrase, colour.parent) == (
        ClaimKind.COLOUR,
        "a blue mechanical eye",
        "a mechanical eye",
    )
    assert text[slice(*colour.span)] == "blue mechanical eye"
    assert "a red mechanical eye" in colour.contrasts
    assert text[slice(*prop.span)] == "mechanical eye"
    assert prop.contrasts[:2] == ("an eye", "glasses")
    assert "an empty scene" in prop.contrasts
    assert prop.phrase not in prop.contrasts
    assert (prop.source, prop.parent) == ("prompt", None)


def test_unknown_thing_of_a_prompt_is_named_without_opponents() -> None:
    """A person is told that nobody checks it; a text's own unknown words are nobody's business."""
    (claim,) = EXTRACTOR.extract("an old bonsai", source="prompt")
    assert (claim.phrase, claim.kind, claim.contrasts) == ("an old bonsai", ClaimKind.OTHER, ())
    assert EXTRACTOR.extract("an old bonsai", source="text") == ()
    given = EXTRACTOR.extract("A red boat lies below.", source="given")
    assert [claim.phrase for claim in given] == ["a red boat"]


def test_unjudged_attribute_has_no_opponents() -> None:
    """White is read, but no tint of the world: it is claimed and cannot be judged."""
    white, cat = EXTRACTOR.extract("a white cat", source="prompt")
    assert (white.kind, white.contrasts, white.parent) == (ClaimKind.COLOUR, (), cat.phrase)


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    """Whatever is typed, spans lie in the text, phrases are unique and opponents never hold the claim."""
    claims = EXTRACTOR.extract(text, source="prompt")
    assert len({(claim.kind, claim.phrase) for claim in claims}) == len(claims)
    for claim in claims:
        assert 0 <= claim.span[0] < claim.span[1] <= len(text)
        assert claim.phrase not in claim.contrasts


def test_every_word_of_the_world_is_understood() -> None:
    """Each surface form of each entry, in a sentence of its own, gives that entry's claim."""
    for entry in embedded_lexicon().entries:
        for form in entry.forms:
            assert entry.phrase in _phrases(f"we see {form}."), (form, entry.phrase)


def test_lexicon_with_an_ambiguous_form_is_refused() -> None:
    """One word cannot stand for two entries."""
    entries = (Entry(ClaimKind.PROP, "a bat", ("bat",)), Entry(ClaimKind.PROP, "a club", ("bat",)))
    with pytest.raises(InputError, match="'bat' means both"):
        Lexicon(entries)
