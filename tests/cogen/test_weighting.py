"""Prompt weights: what is a weight, what is plain text, and what a weight does to a claim."""

from __future__ import annotations

import pytest

from mmspec.cogen.agreement import agreement
from mmspec.cogen.weighting import read_weights
from mmspec.types import Claim, ClaimKind, ClaimScore, Verdict


@pytest.mark.parametrize(
    ("prompt", "text", "emphasis"),
    [
        ("cyberpunk rainy street", "cyberpunk rainy street", ()),
        ("a (red:1.3) car", "a red car", (("red", 0.3),)),
        ("(fog)", "fog", (("fog", 0.1),)),
        ("((fog))", "fog", (("fog", 0.21),)),
        ("(a (red) car:1.5), rain", "a red car, rain", (("a", 0.5), ("red", 0.65), ("car", 0.5))),
        ("(rain:0.5)", "rain", (("rain", -0.5),)),
        ("(rain: .5 )", "rain", (("rain", -0.5),)),
        (r"a sign \(old\)", "a sign (old)", ()),
        (r"(a sign \(old\):1.2)", "a sign (old)", (("a sign (old)", 0.2),)),
        (r"a \\ b", "a \\ b", ()),
        ("(🤖 雨:1.5)", "🤖 雨", (("🤖 雨", 0.5),)),
    ],
)
def test_weights_are_read(prompt: str, text: str, emphasis: tuple[tuple[str, float], ...]) -> None:
    """The plain prompt, and the pieces that weigh something else than 1."""
    read = read_weights(prompt)
    assert read.text == text
    assert read.emphasis == emphasis


@pytest.mark.parametrize(
    "prompt",
    [
        "(fog",
        "fog)",
        "()",
        "( )",
        "(rain:high)",
        "(rain:-1)",
        "(rain:)",
        "(rain:1.2.3)",
        "be kind :)",
        "[fog]",
        "a:1.3",
    ],
)
def test_what_is_malformed_is_plain_text(prompt: str) -> None:
    """Nothing is guessed: it stays in the prompt, letter by letter."""
    read = read_weights(prompt)
    assert read.text == prompt
    assert read.emphasis == ()


def test_offsets_lead_back_to_what_was_typed() -> None:
    """Every character of the plain prompt stood where it says."""
    prompt = r"a (red \(dark\):1.3) car, ((two) owls), (fog"
    read = read_weights(prompt)
    assert "".join(prompt[k] for k in read.offsets) == read.text


def test_claim_takes_the_weight_of_its_words_and_their_place() -> None:
    """The claim "fog" of "(fog:1.4)" weighs 1.4 and is highlighted where it was typed."""
    prompt = "a castle in (fog:1.4)"
    read = read_weights(prompt)
    start = read.text.index("fog")
    claim = read.weighted(Claim("in the fog", ClaimKind.WEATHER, "prompt", (start, start + 3)))
    assert claim.weight == 1.4
    assert prompt[slice(*claim.span)] == "fog"


def test_weight_counts_in_the_agreement() -> None:
    """What weighs nothing does not count; what weighs three times counts three times."""
    fog = Claim("in the fog", ClaimKind.WEATHER, "prompt", (0, 3))
    castle = Claim("a castle", ClaimKind.PROP, "prompt", (4, 10))

    def mean(weight: float) -> float:
        heavy = read_weights(f"(fog:{weight})").weighted(fog)
        return agreement([ClaimScore(heavy, 0.9, Verdict.HELD), ClaimScore(castle, 0.1, Verdict.FAILED)])

    assert mean(1.0) == pytest.approx(0.5)
    assert mean(3.0) == pytest.approx(0.7)
    assert mean(0.0) == pytest.approx(0.1)
