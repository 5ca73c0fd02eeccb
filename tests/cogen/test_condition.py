"""What the drafts are conditioned on."""

from __future__ import annotations

from dataclasses import replace

from mmspec.cogen.condition import condition
from mmspec.types import Claim, ClaimKind


def claim(phrase: str, kind: ClaimKind = ClaimKind.PROP, source: str = "text") -> Claim:
    """A claim of the text."""
    return Claim(phrase, kind, source, (0, 1))


def test_prompt_comes_first_and_the_texts_things_follow() -> None:
    """A case by hand: place is set by the prompt, the robot is said already, hope cannot be seen."""
    prompt_claims = [claim("a robot", source="prompt"), claim("a cave", ClaimKind.PLACE, "prompt")]
    text_claims = [
        claim("a robot"),
        claim("a forest", ClaimKind.PLACE),
        claim("at night", ClaimKind.TIME),
        claim("at noon", ClaimKind.TIME),
        claim("hope", ClaimKind.OTHER),
        claim("a lantern"),
    ]
    caption = condition("a robot in a cave", prompt_claims, text_claims, max_words=24)
    assert caption == "a robot in a cave, at night, a lantern"


def test_long_prompt_is_replaced_by_its_claims() -> None:
    """5,000 words do not fit a caption."""
    claims = [claim("a robot", source="prompt"), claim("in the rain", ClaimKind.WEATHER, "prompt")]
    assert condition("word " * 5000, claims, [], max_words=24) == "a robot, in the rain"
    assert condition("word " * 5000, [], [], max_words=3) == "word word word"


def test_caption_stays_within_its_length() -> None:
    """The text's things stop where the words run out."""
    caption = condition("a robot", [], [claim(f"a very odd thing {k}") for k in range(9)], max_words=12)
    assert caption == "a robot, a very odd thing 0, a very odd thing 1"


def test_caption_names_no_more_things_than_a_picture_holds() -> None:
    """Two things of the prompt leave room for one of the text; its setting still follows."""
    prompt_claims = [claim("a robot", source="prompt"), claim("a car", source="prompt")]
    text_claims = [claim("a cat"), claim("a dog"), claim("at night", ClaimKind.TIME)]
    assert condition("a robot, a car", prompt_claims, text_claims, max_words=24) == "a robot, a car, a cat, at night"


def test_thing_is_named_once_with_its_attribute() -> None:
    """A red umbrella is not an umbrella and a red umbrella; the prompt's own robot is left as it is."""
    prompt_claims = [claim("a robot", source="prompt")]
    text_claims = [
        claim("a robot"),
        replace(claim("a blue robot", ClaimKind.COLOUR), parent="a robot"),
        claim("an umbrella"),
        replace(claim("a red umbrella", ClaimKind.COLOUR), parent="an umbrella"),
        replace(claim("an umbrella on the left", ClaimKind.POSITION), parent="an umbrella"),
    ]
    assert condition("a robot", prompt_claims, text_claims, max_words=24) == "a robot, a red umbrella"
