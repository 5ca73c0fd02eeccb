"""Captions: true of the scene, held-out words kept out of training, swaps that change one thing."""

import numpy as np

from mmspec.embedded.captions import caption, phrases, plural, swap, thing
from mmspec.embedded.scenes import Prop, Scene, sample_scene
from mmspec.embedded.world import COLOURS, NOUNS, PLACES, TIMES, WEATHERS

_ALL_TERMS = [*PLACES.values(), *TIMES.values(), *WEATHERS.values(), *NOUNS.values()]


def _scenes(num: int, seed: int) -> list[Scene]:
    rng = np.random.default_rng(seed)
    return [sample_scene(rng) for _ in range(num)]


def test_articles_and_plurals() -> None:
    """The hand-written cases that naive rules get wrong."""
    assert [thing(noun) for noun in ("owl", "unicorn", "ufo", "glasses", "axe", "robot")] == [
        "an owl", "a unicorn", "a ufo", "glasses", "an axe", "a robot"
    ]  # fmt: skip
    assert [plural(noun) for noun in ("wolf", "deer", "snowman", "horseman", "torch", "drake")] == [
        "wolves", "deer", "snowmen", "horsemen", "torches", "drakes"
    ]  # fmt: skip


def test_a_complete_caption_names_every_prop_colour_and_number() -> None:
    """Whatever the phrasing, what the picture shows is said."""
    rng = np.random.default_rng(0)
    for scene in _scenes(300, 1):
        text = caption(scene, rng, complete=True)
        for prop in scene.props:
            names = NOUNS[prop.noun].names
            assert any(name in text or plural(name) in text for name in names), (text, scene)
            assert prop.colour is None or prop.colour in text
            assert prop.count == 1 or any(number in text for number in ("two", "pair", "three"))
        assert any(name in text for name in PLACES[scene.place].names)


def test_training_captions_never_use_held_out_words() -> None:
    """No held-out name that is not part of a training name appears in 2,000 training captions."""
    rng = np.random.default_rng(0)
    text = " | ".join(f" {caption(scene, rng)} " for scene in _scenes(2000, 2))
    training = " ".join(f" {name} " for term in _ALL_TERMS for name in term.names)
    for term in _ALL_TERMS:
        for name in term.held_out:
            if f" {name}" not in training:
                assert f" {name} " not in text, name


def test_held_out_captions_use_them() -> None:
    """Asked for, the other words do come."""
    rng = np.random.default_rng(0)
    scene = Scene("neon city", "night", "rain", (Prop("robot"),))
    texts = {caption(scene, rng, held_out=True, complete=True) for _ in range(30)}
    assert any("droid" in text or "automaton" in text for text in texts)


def test_a_swap_changes_exactly_one_attribute() -> None:
    """And its phrases tell the two scenes apart."""
    rng = np.random.default_rng(4)
    seen = set()
    for scene in _scenes(400, 5):
        swapped = swap(scene, rng)
        assert swapped is not None
        seen.add(swapped.kind)
        changed = [f for f in ("place", "time", "weather") if getattr(scene, f) != getattr(swapped.scene, f)]
        for before, after in zip(scene.props, swapped.scene.props, strict=True):
            changed += [
                f for f in ("noun", "colour", "count", "size", "position") if getattr(before, f) != getattr(after, f)
            ]
        assert changed == [{"prop": "noun"}.get(swapped.kind, swapped.kind)]
        assert swapped.true_phrase != swapped.false_phrase
    assert seen == {"place", "time", "weather", "prop", "colour", "count", "position"}


def test_phrases_are_the_scene_in_plain_words() -> None:
    """One hand-computed case."""
    scene = Scene("sea", "dusk", "storm", (Prop("ship", "red", 2), Prop("owl", position="left")))
    assert phrases(scene) == {
        "place": ["the sea"],
        "time": ["at dusk"],
        "weather": ["in a storm"],
        "prop": ["a ship", "an owl"],
        "colour": ["a red ship"],
        "count": ["two ships", "an owl"],
        "position": ["an owl on the left"],
    }
    assert set(COLOURS) >= {"red", "blue"}


def test_a_style_prefix_is_followed_by_a_thing() -> None:
    """No caption reads "concept art of at noon" or "a painting of , a cat"."""
    rng = np.random.default_rng(0)
    for scene in _scenes(1500, 6):
        text = caption(scene, rng)
        if " of " in text and text.split(" of ")[0] in ("concept art", "a painting", "an illustration", "a picture"):
            rest = text.split(" of ", 1)[1]
            assert rest.split()[0] not in ("at", "in", "with", "under", "by", ","), text
        assert text == text.strip(" ,") and "  " not in text and " ," not in text, text
