"""Captions of scenes as people write prompts, the phrases that are true of a scene, and one-attribute swaps.

Knows words; knows no pixels. Training captions use the `names` of `world`; held-out names appear only
when asked for, so that synonyms can be tested on words that no model saw.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mmspec.embedded.scenes import ABOVE, Prop, Scene
from mmspec.embedded.world import COLOURS, COUNTS, INDOOR_PLACES, NOUNS, PLACES, POSITIONS, SIZES, TIMES, WEATHERS, Term

_STYLES = (
    "",
    "",
    "",
    "",
    "",
    "concept art of ",
    "a painting of ",
    "an illustration of ",
    "a picture of ",
    "digital art, ",
)
_QUALITY = ("", "", "", ", concept art", ", detailed", ", matte painting", ", digital art")
_PLURALE_TANTUM = frozenset({"glasses", "sunglasses"})
_BARE_PLACES = frozenset(
    "space,outer space,deep space,mountains,snowy mountains,rocky peaks,sand dunes,dunes,open water,ruins,ancient ruins,"
    "broken columns,woods,waves of the sea,starry space,sahara,highlands,alps,void among the stars,crumbling ruins".split(
        ","
    )
)
_BEFORE_NOUN = frozenset({"rainy", "snowy", "foggy", "misty", "stormy"})


@dataclass(frozen=True)
class Swap:
    """A hard negative: `scene` differs from the original in exactly one attribute, named by `kind`."""

    scene: Scene
    kind: str
    true_phrase: str
    false_phrase: str


def caption(scene: Scene, rng: np.random.Generator, *, held_out: bool = False, complete: bool = False) -> str:
    """One caption of the scene in one of many phrasings.

    Attributes are left out at random unless `complete`; colour, count and "above" are always said, since a
    model that is not told cannot know them. With `held_out`, words that no training caption uses.
    """
    say = _Words(rng, held_out)
    place = say.term(PLACES[scene.place])
    time = say.term(TIMES[scene.time]) if scene.time and (complete or rng.random() < 0.82) else ""
    keep = 0.85 if scene.weather != "clear" else 0.3
    weather = say.term(WEATHERS[scene.weather]) if scene.weather and (complete or rng.random() < keep) else ""
    props = _prop_phrases(scene, say, complete)
    if rng.random() < 0.22:
        return _keyword_list(place, time, weather, props, rng)
    if scene.props and not complete and rng.random() < 0.06:
        place = ""
    front = f"{weather} " if weather in _BEFORE_NOUN else ""
    weather = "" if front else weather
    where = _with_article(f"{front}{place}", rng) if place else ""
    tail = " ".join(rng.permutation([part for part in (time, weather) if part]).tolist())
    things = _join(props, rng)
    if not things:
        sentence = f"{where or 'a landscape'} {tail}"
    elif not where:
        sentence = f"{things} {front}{tail}"
    else:
        forms = (
            f"{things} in {where} {tail}",
            f"{where} {tail} with {things}",
            f"{things}, {where}, {tail}",
            f"{tail}, {things} in {where}",
        )
        sentence = forms[int(rng.choice(4, p=(0.5, 0.2, 0.2, 0.1)))]
    sentence = " ".join(sentence.replace(" ,", ",").split()).strip(" ,")
    style = _STYLES[int(rng.integers(len(_STYLES)))]
    starts_with_a_thing = not sentence.startswith(tuple(part for part in (time, weather) if part))
    return style + sentence if starts_with_a_thing else sentence


def phrases(scene: Scene, *, rng: np.random.Generator | None = None, held_out: bool = False) -> dict[str, list[str]]:
    """The short phrases that are true of the scene, by kind of claim; plain words without an `rng`."""
    say = _Words(rng, held_out)
    out: dict[str, list[str]] = {"place": [_with_article(say.term(PLACES[scene.place]), rng)]}
    if scene.time is not None and scene.weather is not None:
        out["time"] = [say.term(TIMES[scene.time])]
        out["weather"] = [say.term(WEATHERS[scene.weather])]
    for prop in scene.props:
        noun = say.noun(prop.noun)
        out.setdefault("prop", []).append(thing(noun))
        if prop.colour is not None:
            out.setdefault("colour", []).append(thing(f"{prop.colour} {noun}"))
        out.setdefault("count", []).append(thing(prop.noun, prop.count))
        if prop.position != ABOVE and prop.count == 1:
            out.setdefault("position", []).append(f"{thing(noun)} {say.term(POSITIONS[prop.position])}")
    return out


def swap(scene: Scene, rng: np.random.Generator, kind: str | None = None) -> Swap | None:
    """The scene with one attribute changed; None where the scene has no attribute of that `kind`."""
    kinds = ["place"] + (["time", "weather"] if scene.time else []) + (["prop"] * 2 if scene.props else [])
    kinds += [k for k, has in (("colour", any(p.colour for p in scene.props)), ("count", len(scene.props) == 1)) if has]
    kinds += ["position"] if any(p.count == 1 and p.position != ABOVE for p in scene.props) else []
    chosen = kind or kinds[int(rng.integers(len(kinds)))]
    if chosen not in kinds:
        return None
    if chosen in ("place", "time", "weather"):
        return _swap_scene(scene, chosen, rng)
    return _swap_prop(scene, chosen, rng)


def thing(noun: str, count: int = 1) -> str:
    """The noun with its article or number: "a dragon", "an owl", "glasses", "two wolves"."""
    if count > 1:
        return f"{COUNTS[count][0]} {plural(noun)}"
    if noun.split()[-1] in _PLURALE_TANTUM or noun in ("spectacles", "eyeglasses", "shades", "flames"):
        return noun
    return f"{'an' if noun[0] in 'aeiou' and not noun.startswith(('unicorn', 'ufo')) else 'a'} {noun}"


def plural(noun: str) -> str:
    """The noun's plural; regular for synonyms that have no entry of their own."""
    if noun in NOUNS:
        return NOUNS[noun].plural
    if noun.endswith("man"):
        return f"{noun[:-3]}men"
    return noun if noun.endswith("s") else f"{noun}es" if noun.endswith(("x", "ch", "sh")) else f"{noun}s"


class _Words:
    """Chooses among the names of a term; the plain one where there is no generator."""

    def __init__(self, rng: np.random.Generator | None, held_out: bool) -> None:
        self.rng = rng
        self._held_out = held_out

    def _choose(self, names: tuple[str, ...], held_out: tuple[str, ...]) -> str:
        options = held_out if self._held_out and held_out else names
        return options[int(self.rng.integers(len(options)))] if self.rng is not None else options[0]

    def term(self, term: Term) -> str:
        return self._choose(term.names, term.held_out)

    def noun(self, name: str) -> str:
        noun = NOUNS[name]
        if self.rng is not None and not self._held_out and self.rng.random() < 0.6:
            return noun.name
        return self._choose(noun.names, noun.held_out)


def _prop_phrases(scene: Scene, say: _Words, complete: bool) -> list[str]:
    assert say.rng is not None
    out = []
    for prop in scene.props:
        noun = say.noun(prop.noun)
        size = say.term(SIZES[prop.size]) if complete or say.rng.random() < 0.6 else ""
        words = " ".join(word for word in (size, prop.colour or "", noun) if word)
        if prop.count > 1:
            number = COUNTS[prop.count][int(say.rng.integers(len(COUNTS[prop.count])))]
            phrase = f"{number} {' '.join(word for word in (prop.colour or '', plural(noun)) if word)}"
        else:
            phrase = thing(words)
        says_where = complete or say.rng.random() < (0.4 if len(scene.props) == 1 else 0.55)
        if prop.position in POSITIONS and prop.count == 1 and says_where and not _stacked(scene):
            phrase += f" {say.term(POSITIONS[prop.position])}"
        out.append(phrase)
    if _stacked(scene):
        low, high = out
        form = int(say.rng.integers(3))
        return [(f"{low} under {high}", f"{high} above {low}", f"{high} over {low}")[form]]
    return out


def _stacked(scene: Scene) -> bool:
    return any(prop.position == ABOVE for prop in scene.props)


def _keyword_list(place: str, time: str, weather: str, props: list[str], rng: np.random.Generator) -> str:
    bare = [phrase.removeprefix("a ").removeprefix("an ") if rng.random() < 0.6 else phrase for phrase in props]
    words = [part.removeprefix("in the ").removeprefix("at ").removeprefix("with ") for part in (time, weather) if part]
    head = rng.permutation([*bare, place]).tolist()
    return ", ".join([*head, *rng.permutation(words).tolist()]) + _QUALITY[int(rng.integers(len(_QUALITY)))]


def _with_article(words: str, rng: np.random.Generator | None) -> str:
    if words in _BARE_PLACES or (
        words.split()[0] in ("snowy", "rainy", "foggy", "misty", "stormy") and words.split(" ", 1)[1] in _BARE_PLACES
    ):
        return words
    if words in ("sea", "ocean", "open sea", "cosmos", "seaside", "high seas"):
        return f"the {words}"
    return f"the {words}" if rng is not None and rng.random() < 0.3 else thing(words)


def _join(props: list[str], rng: np.random.Generator) -> str:
    if len(props) < 3:
        return (" and " if rng.random() < 0.8 else " with ").join(props)
    return f"{', '.join(props[:-1])} and {props[-1]}"


def _swap_scene(scene: Scene, kind: str, rng: np.random.Generator) -> Swap:
    table = {"place": PLACES, "time": TIMES, "weather": WEATHERS}[kind]
    current = getattr(scene, kind)
    fits = [
        k for k in table if k != current and (kind != "place" or (k in INDOOR_PLACES) == (current in INDOOR_PLACES))
    ]
    attributes = {"place": scene.place, "time": scene.time, "weather": scene.weather}
    attributes[kind] = fits[int(rng.integers(len(fits)))]
    changed = Scene(attributes["place"] or scene.place, attributes["time"], attributes["weather"], scene.props)
    return Swap(changed, kind, phrases(scene, rng=rng)[kind][0], phrases(changed, rng=rng)[kind][0])


def _swap_prop(scene: Scene, kind: str, rng: np.random.Generator) -> Swap:
    having = [
        i
        for i, p in enumerate(scene.props)
        if (kind != "colour" or p.colour) and (kind != "position" or (p.position in POSITIONS and p.count == 1))
    ]
    index = having[int(rng.integers(len(having)))]
    prop = scene.props[index]
    present = {p.noun for p in scene.props}
    options: dict[str, list[Any]] = {
        "prop": [noun for noun in NOUNS if noun not in present],
        "colour": [colour for colour in COLOURS if colour != prop.colour],
        "count": [count for count in COUNTS if count != prop.count],
        "position": [position for position in POSITIONS if position != prop.position],
    }
    field = "noun" if kind == "prop" else kind
    value = options[kind][int(rng.integers(len(options[kind])))]
    changed = replace(prop, **{field: value})
    props = tuple(changed if i == index else p for i, p in enumerate(scene.props))
    return Swap(
        Scene(scene.place, scene.time, scene.weather, props), kind, _phrase_of(prop, kind), _phrase_of(changed, kind)
    )


def _phrase_of(prop: Prop, kind: str) -> str:
    if kind == "colour":
        return thing(f"{prop.colour} {prop.noun}")
    if kind == "count":
        return thing(prop.noun, prop.count)
    return thing(prop.noun) + (f" {POSITIONS[prop.position].names[0]}" if kind == "position" else "")
