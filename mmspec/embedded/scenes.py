"""Scenes: what one picture shows, as data, and how they are drawn at random.

Knows the vocabulary of `world`; knows neither pixels nor sentences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmspec.embedded.world import COLOURS, COUNTS, INDOOR_PLACES, NOUNS, PLACES, POSITIONS, SIZES, TIMES, WEATHERS
from mmspec.errors import InputError

ABOVE = "above"
"""A prop's position when it floats over the scene's other prop ("a robot under an umbrella")."""

_COUNT_WEIGHTS = (0.80, 0.13, 0.07)
_SIZE_WEIGHTS = (0.15, 0.45, 0.40)
_NUM_PROPS_WEIGHTS = (0.05, 0.62, 0.28, 0.05)
_WEATHER_WEIGHTS = (0.32, 0.17, 0.17, 0.17, 0.17)
_STAPLES = frozenset(
    "dragon,robot,castle,car,cat,sword,umbrella,glasses,eye,mechanical eye,spaceship,mech,knight,skull,lantern,"
    "astronaut,wizard,wolf,ship,lighthouse,street lamp,train,crystal ball,motorcycle".split(",")
)
_NOUN_NAMES = tuple(NOUNS)
_NOUN_WEIGHTS = np.array([2.0 if noun in _STAPLES else 1.0 for noun in _NOUN_NAMES])
_NOUN_WEIGHTS /= _NOUN_WEIGHTS.sum()


@dataclass(frozen=True)
class Prop:
    """One kind of thing in a scene, `count` times. `colour` None means the thing's own colours."""

    noun: str
    colour: str | None = None
    count: int = 1
    size: str = "medium"
    position: str = "centre"

    def __post_init__(self) -> None:
        _check("noun", self.noun, NOUNS)
        _check("size", self.size, SIZES)
        _check("position", self.position, (*POSITIONS, ABOVE))
        _check("count", self.count, COUNTS)
        if self.colour is not None:
            _check("colour", self.colour, COLOURS)


@dataclass(frozen=True)
class Scene:
    """What one picture shows. `time` and `weather` are None exactly in space and in a cave."""

    place: str
    time: str | None
    weather: str | None
    props: tuple[Prop, ...] = ()

    def __post_init__(self) -> None:
        _check("place", self.place, PLACES)
        if (self.place in INDOOR_PLACES) != (self.time is None) or (self.time is None) != (self.weather is None):
            raise InputError(f"place {self.place!r} with time {self.time!r} and weather {self.weather!r} do not fit")
        if self.time is not None:
            _check("time", self.time, TIMES)
            _check("weather", self.weather, WEATHERS)
        if len(self.props) > 3:
            raise InputError(f"{len(self.props)} props in a scene: expected at most 3")


def _check(what: str, value: object, allowed: object) -> None:
    if value not in allowed:  # type: ignore[operator]
        raise InputError(f"{what} {value!r} is unknown: expected one of {', '.join(map(str, allowed))}")  # type: ignore[call-overload]


def sample_scene(rng: np.random.Generator) -> Scene:
    """A random scene; staples of concept art come twice as often as other nouns."""
    place = _pick(rng, tuple(PLACES))
    indoor = place in INDOOR_PLACES
    return Scene(
        place=place,
        time=None if indoor else _pick(rng, tuple(TIMES)),
        weather=None if indoor else _pick(rng, tuple(WEATHERS), _WEATHER_WEIGHTS),
        props=sample_props(rng),
    )


def sample_props(rng: np.random.Generator) -> tuple[Prop, ...]:
    """Zero to three different props that do not hide each other."""
    num = int(rng.choice(4, p=_NUM_PROPS_WEIGHTS))
    nouns = [_NOUN_NAMES[i] for i in rng.choice(len(_NOUN_NAMES), num, replace=False, p=_NOUN_WEIGHTS)]
    places = {0: (), 1: (_pick(rng, tuple(POSITIONS)),), 2: ("left", "right"), 3: ("left", "centre", "right")}[num]
    if num == 2 and rng.random() < 0.3:
        places = ("centre", ABOVE)
    props = []
    for noun, position in zip(nouns, places, strict=True):
        colour = _pick(rng, tuple(COLOURS)) if rng.random() < 0.22 else None
        if num == 1:
            count = int(rng.choice(3, p=_COUNT_WEIGHTS)) + 1
            size = _pick(rng, tuple(SIZES), _SIZE_WEIGHTS) if count == 1 else "medium"
            position = position if count == 1 else "centre"
        else:
            count, size = 1, "medium" if num == 2 else "small"
        props.append(Prop(noun, colour, count, size, position))
    return tuple(props)


def _pick(rng: np.random.Generator, options: tuple[str, ...], weights: tuple[float, ...] | None = None) -> str:
    return options[int(rng.choice(len(options), p=weights))] if weights else options[int(rng.integers(len(options)))]
