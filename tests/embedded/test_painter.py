"""The painter: deterministic, inside the picture, and different where the scene differs."""

import numpy as np
import pytest

from mmspec.embedded.painter import Painter
from mmspec.embedded.scenes import Prop, Scene, sample_scene
from mmspec.embedded.world import NOUNS, PLACES, WEATHERS
from mmspec.errors import InputError


@pytest.fixture(scope="module")
def painter() -> Painter:
    """One painter for all tests: its overlays take a moment."""
    return Painter(64)


def test_same_scene_and_seed_give_the_same_pixels(painter: Painter) -> None:
    """A second painter, after other pictures, paints the same bytes."""
    scene = Scene("neon city", "night", "rain", (Prop("robot"), Prop("umbrella", position="above")))
    first = np.asarray(painter.paint(scene, seed=7))
    other = Painter(64)
    other.paint(Scene("space", None, None), seed=1)
    assert np.array_equal(first, np.asarray(other.paint(scene, seed=7)))
    assert not np.array_equal(first, np.asarray(painter.paint(scene, seed=8)))


def test_boxes_lie_inside_the_picture_and_are_one_per_thing(painter: Painter) -> None:
    """Every prop, counted, has one box with positive area inside [0, 1]."""
    rng = np.random.default_rng(3)
    for seed in range(120):
        scene = sample_scene(rng)
        boxes = painter.painting(scene, seed=seed).boxes
        assert len(boxes) == sum(prop.count for prop in scene.props)
        assert all(0 <= left < right <= 1 and 0 <= top < bottom <= 1 for left, top, right, bottom in boxes)


@pytest.mark.parametrize("place", PLACES)
def test_every_place_is_painted_in_every_weather(painter: Painter, place: str) -> None:
    """Weathers of one place differ visibly: mean pixel distance of more than 3 of 255 on the same seed."""
    if place in ("space", "cave"):
        pictures = [painter.paint(Scene(place, None, None), seed=seed) for seed in (0, 1)]
    else:
        pictures = [painter.paint(Scene(place, "noon", weather), seed=0) for weather in WEATHERS]
    arrays = [np.asarray(picture, np.float32) for picture in pictures]
    for i, first in enumerate(arrays):
        for second in arrays[i + 1 :]:
            assert np.abs(first - second).mean() > 3


def test_a_prop_is_seen_inside_its_box_and_nowhere_else(painter: Painter) -> None:
    """Painting the same backdrop with and without a prop changes pixels in the box and its shadow only."""
    bare = np.asarray(painter.paint(Scene("desert", "noon", "clear"), seed=5), np.int32)
    painting = painter.painting(Scene("desert", "noon", "clear", (Prop("castle", position="left"),)), seed=5)
    changed = np.abs(np.asarray(painting.image, np.int32) - bare).max(-1) > 8
    left, top, right, bottom = (round(64 * v) for v in painting.boxes[0])
    inside = changed[top:bottom, left:right].mean()
    outside = changed.copy()
    outside[top : bottom + 4, max(0, left - 1) : right + 1] = False
    assert inside > 0.4
    assert outside.mean() < 0.01


def test_colour_moves_the_hue_of_the_prop(painter: Painter) -> None:
    """A blue dragon is bluer than a red one, which is redder, inside the box."""
    means = {}
    for colour in ("red", "blue"):
        painting = painter.painting(Scene("space", None, None, (Prop("dragon", colour, size="large"),)), seed=2)
        left, top, right, bottom = (round(64 * v) for v in painting.boxes[0])
        means[colour] = np.asarray(painting.image, np.float32)[top:bottom, left:right].mean((0, 1))
    assert means["red"][0] > means["blue"][0] + 30
    assert means["blue"][2] > means["red"][2] + 30


def test_every_noun_has_an_icon(painter: Painter) -> None:
    """No tile of the atlas is empty."""
    for noun in NOUNS:
        painter.paint(Scene("space", None, None, (Prop(noun),)), seed=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Prop("dragoon"),
        lambda: Prop("dragon", colour="mauve"),
        lambda: Prop("dragon", count=9),
        lambda: Scene("space", "noon", "clear"),
        lambda: Scene("desert", None, None),
        lambda: Scene("desert", "noon", "hail"),
    ],
)
def test_an_impossible_scene_is_refused(make) -> None:
    """The error is one line and names the value."""
    with pytest.raises(InputError) as error:
        make()
    assert "\n" not in str(error.value)
