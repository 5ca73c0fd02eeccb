"""The embedded world's vocabulary as a lexicon of the verifier: every word that the world knows, and everyday ones.

Knows words. Held-out synonyms are in it as well: reading a word needs no training, only the plain phrase that
stands for it is shown to the model.
"""

from __future__ import annotations

from mmspec.embedded.captions import phrases, plural, thing
from mmspec.embedded.scenes import Scene
from mmspec.embedded.world import INDOOR_PLACES, NOUNS, PLACES, POSITIONS, TIMES, WEATHERS
from mmspec.types import ClaimKind
from mmspec.verify.lexicon import Attribute, Entry, Lexicon, words_of

__all__ = ["NOTHING", "embedded_lexicon"]

NOTHING = "an empty scene"

# Words that people use for a value, besides the phrasings of captions.
_EVERYDAY = {
    "neon city": "cyberpunk,neon,city,cityscape,metropolis,downtown,city street,neon lights,neon signs",
    "forest": "woodlands,forests,rainforest,jungles",
    "desert": "dune,deserts,sands",
    "sea": "seas,oceans,seashore,coast",
    "mountains": "mountain,peaks,mountaintop,mountainside,alpine valley",
    "space": "the stars,galaxies,nebula",
    "village": "villages,town",
    "cave": "caves,caverns,grottoes",
    "ruins": "ruin,ruined city",
    "volcano": "volcanoes,volcanic,lava,molten lava",
    "dawn": "dawn,sunrise,daybreak,morning,early morning,first light",
    "noon": "noon,midday,daylight,daytime,bright day,afternoon,sunny day",
    "dusk": "dusk,sunset,twilight,evening,sundown,gloaming",
    "night": "night,midnight,nighttime,nightfall,nights,moonlit,moonlight,starlit,after dark",
    "clear": "clear sky,clear skies,cloudless sky,cloudless,clear weather,blue sky",
    "rain": "rain,rainy,raining,rains,raindrops,rainfall,downpour,drizzle,drizzling,rain soaked,rainstorm",
    "snow": "snow,snowy,snowing,snows,snowfall,snowflakes,blizzard,snow covered",
    "fog": "fog,foggy,mist,misty,haze,hazy,mists",
    "storm": "storm,stormy,thunderstorm,lightning,thunder,tempest,storms",
}
_NOT_ALONE = frozenset({"waves of the sea", "by day", "by night"})  # kept whole, never shortened

_AMBIGUOUS = frozenset({"eyes", "hearts", "brains", "shades", "chests", "blades", "plane"})
"""Words that more often mean something else in a sentence than the thing that the world can draw."""

# Things that are easily taken for each other; each is a contrast that a claim of the other must beat.
_CONFUSABLE = (
    ("mechanical eye", "eye", "glasses", "sunglasses", "gear", "compass"),
    ("glasses", "sunglasses", "bicycle"),
    ("castle", "pagoda", "temple", "watchtower", "church", "house"),
    ("car", "police car", "truck", "bus"),
    ("dragon", "sea serpent", "dinosaur", "snake", "crocodile"),
    ("robot", "mech", "golem", "astronaut"),
    ("wolf", "dog", "fox", "bear"),
    ("cat", "lion", "tiger", "fox"),
    ("ship", "sailboat", "viking ship", "canoe"),
    ("sword", "axe", "hammer", "cannon"),
    ("spaceship", "flying saucer", "airship", "airplane", "satellite"),
    ("lantern", "candle", "street lamp", "light bulb", "balloon"),
    ("raven", "eagle", "owl", "parrot"),
    ("knight", "samurai", "horse", "camel"),
    ("crystal ball", "balloon", "gem", "light bulb"),
    ("tower", "lighthouse", "watchtower", "pagoda", "windmill"),
    ("horse", "unicorn", "deer", "camel"),
    ("bicycle", "motorcycle"),
    ("tent", "circus tent", "pyramid", "house"),
    ("skull", "ghost", "alien", "zombie"),
)

_COLOURS = {
    "red": "red,crimson,scarlet,ruby",
    "orange": "orange,amber",
    "yellow": "yellow,golden,gold",
    "green": "green,emerald,lime",
    "blue": "blue,azure,cobalt,navy",
    "purple": "purple,violet",
    "pink": "pink,magenta",
}
_UNJUDGED_COLOURS = ("white", "black", "grey", "gray", "brown", "silver", "turquoise", "teal")
_COUNTS = {"one": "one,single,lone,1", "two": "two,2,pair of,couple of", "three": "three,3"}
_UNJUDGED_COUNTS = {"four": "four,4", "five": "five,5", "six": "six,6", "several": "several", "many": "many,dozens of"}
_POSITION_FORMS = {
    "left": "on the left,to the left,on the left side,at left,on the left hand side",
    "centre": "in the middle,in the center,in the centre,at the center,at the centre,in the foreground center",
    "right": "on the right,to the right,on the right side,at right,on the right hand side",
}


def embedded_lexicon() -> Lexicon:
    """The lexicon of everything that the embedded models were trained on."""
    entries = [
        Entry(kind, phrase, tuple(sorted(_scene_forms(key, term.names + term.held_out))))
        for kind, table in ((ClaimKind.PLACE, PLACES), (ClaimKind.TIME, TIMES), (ClaimKind.WEATHER, WEATHERS))
        for key, term in table.items()
        for phrase in [_scene_phrase(kind, key)]
    ]
    entries += [_noun_entry(name) for name in NOUNS]
    return Lexicon(tuple(entries), tuple(_attributes()), nothing=NOTHING)


def _scene_phrase(kind: ClaimKind, key: str) -> str:
    return phrases(_scene_with(kind.value, key))[kind.value][0]


def _scene_with(kind: str, key: str) -> Scene:
    values = {"place": "sea", "time": "noon", "weather": "clear", kind: key}
    if values["place"] in INDOOR_PLACES:
        return Scene(values["place"], None, None)
    return Scene(values["place"], values["time"], values["weather"])


def _scene_forms(key: str, names: tuple[str, ...]) -> set[str]:
    forms = set(names) | set(_EVERYDAY[key].split(","))
    for name in names:
        words = words_of(name)
        if name not in _NOT_ALONE and words[0] in ("in", "at", "on", "with", "under", "a", "the"):
            rest = words[2:] if len(words) > 2 and words[1] in ("a", "the", "an") else words[1:]
            forms.add(" ".join(rest))
    return forms


def _noun_entry(name: str) -> Entry:
    noun = NOUNS[name]
    names = noun.names + noun.held_out
    forms = dict.fromkeys([*names, *(plural(other) for other in names), noun.plural])
    forms = {form: None for form in forms if form not in _AMBIGUOUS}
    group = next((group for group in _CONFUSABLE if group[0] == name), ())
    near = [other for other in group if other != name]
    near += [g[0] for g in _CONFUSABLE if name in g[1:]]
    return Entry(
        ClaimKind.PROP, thing(name), tuple(forms), noun=name, plural=noun.plural,
        confusable=tuple(dict.fromkeys(thing(other) for other in near)),
    )  # fmt: skip


def _attributes() -> list[Attribute]:
    out = [
        Attribute(ClaimKind.COLOUR, f"{colour} {{noun}}", tuple(forms.split(","))) for colour, forms in _COLOURS.items()
    ]
    out += [Attribute(ClaimKind.COLOUR, f"{colour} {{noun}}", (colour,), judged=False) for colour in _UNJUDGED_COLOURS]
    for number, forms in _COUNTS.items():
        noun = "{noun}" if number == "one" else "{plural}"
        out.append(Attribute(ClaimKind.COUNT, f"{number} {noun}", tuple(forms.split(","))))
    for number, forms in _UNJUDGED_COUNTS.items():
        out.append(Attribute(ClaimKind.COUNT, f"{number} {{plural}}", tuple(forms.split(",")), judged=False))
    for position, term in POSITIONS.items():
        ways = (*term.names, *term.held_out, *_POSITION_FORMS[position].split(","))
        out.append(Attribute(ClaimKind.POSITION, f"{{a_noun}} {term.names[0]}", tuple(dict.fromkeys(ways))))
    return out
