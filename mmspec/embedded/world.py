"""The vocabulary of the embedded world, as data: what a scene can hold and how people say it.

Every term has `names` that training captions use, the plain one first, and `held_out` names that only
the benchmarks use. Knows words and hues; knows no picture and no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Term:
    """One value of an attribute: its key, the phrasings of training captions, the held-out ones."""

    key: str
    names: tuple[str, ...]
    held_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Noun:
    """A thing that a scene can hold. `icon` is "set:name"; `tint` colours a one-colour silhouette."""

    name: str
    plural: str
    icon: str
    tint: str | None
    names: tuple[str, ...]
    held_out: tuple[str, ...]


@dataclass(frozen=True)
class Colour:
    """A named colour; `hue` in [0, 1) as in HSV."""

    name: str
    hue: float


def _terms(*terms: Term) -> dict[str, Term]:
    return {term.key: term for term in terms}


PLACES = _terms(
    Term(
        "neon city",
        (
            "neon city",
            "cyberpunk city",
            "cyberpunk street",
            "neon-lit street",
            "neon street",
            "futuristic city street",
            "city street with neon signs",
        ),
        ("futuristic metropolis", "downtown avenue with glowing billboards", "cyberpunk alley"),
    ),
    Term(
        "forest", ("forest", "woods", "woodland", "dense forest", "forest clearing", "pine forest"), ("jungle", "grove")
    ),
    Term("desert", ("desert", "sand dunes", "sandy desert", "dunes"), ("sahara", "arid wasteland")),
    Term("sea", ("sea", "ocean", "open sea", "open water", "waves of the sea"), ("seaside", "high seas")),
    Term(
        "mountains",
        ("mountains", "mountain range", "rocky peaks", "mountain valley", "snowy mountains"),
        ("alps", "highlands"),
    ),
    Term("space", ("space", "outer space", "deep space", "cosmos", "starry space"), ("galaxy", "void among the stars")),
    Term(
        "village",
        ("village", "small village", "old village", "village with cottages", "small town"),
        ("hamlet", "countryside settlement"),
    ),
    Term("cave", ("cave", "dark cave", "cavern", "underground cave"), ("grotto", "underground chamber")),
    Term("ruins", ("ruins", "ancient ruins", "ruined temple", "broken columns"), ("crumbling ruins", "fallen temple")),
    Term("volcano", ("volcano", "lava field", "volcanic land", "fiery volcano"), ("erupting mountain", "land of lava")),
)

TIMES = _terms(
    Term("dawn", ("at dawn", "at sunrise", "in the early morning"), ("at daybreak", "at first light")),
    Term(
        "noon", ("at noon", "at midday", "in bright daylight", "by day"), ("in the afternoon sun", "in full sunshine")
    ),
    Term("dusk", ("at dusk", "at sunset", "in the evening"), ("at twilight", "at sundown")),
    Term("night", ("at night", "at midnight", "by night"), ("in the dark of night", "after dark")),
)

WEATHERS = _terms(
    Term("clear", ("under a clear sky", "in clear weather", "with a cloudless sky"), ("in fair weather",)),
    Term(
        "rain",
        ("in the rain", "on a rainy day", "with rain falling", "rainy", "in heavy rain"),
        ("in a downpour", "drizzling"),
    ),
    Term("snow", ("in the snow", "with snow falling", "snowy", "in snowy weather"), ("in a blizzard", "snowfall")),
    Term("fog", ("in the fog", "foggy", "in thick mist", "misty"), ("shrouded in haze", "on a hazy day")),
    Term(
        "storm",
        ("in a storm", "in a thunderstorm", "with lightning", "stormy"),
        ("under a thundery sky", "in a tempest"),
    ),
)

SIZES = _terms(
    Term("small", ("small", "tiny", "little"), ("miniature",)),
    Term("medium", ("",)),
    Term("large", ("large", "giant", "huge", "big"), ("enormous",)),
)

POSITIONS = _terms(
    Term("left", ("on the left", "on the left side"), ("to the left",)),
    Term("centre", ("in the middle", "in the center"), ("at the centre",)),
    Term("right", ("on the right", "on the right side"), ("to the right",)),
)

COUNTS = {1: ("a",), 2: ("two", "a pair of"), 3: ("three",)}

COLOURS = {
    colour.name: colour
    for colour in (
        Colour("red", 0.0),
        Colour("orange", 0.075),
        Colour("yellow", 0.14),
        Colour("green", 0.36),
        Colour("blue", 0.61),
        Colour("purple", 0.77),
        Colour("pink", 0.91),
    )
}

INDOOR_PLACES = frozenset({"space", "cave"})
"""Places without time of day and without weather."""


def _read_nouns(path: Path) -> dict[str, Noun]:
    nouns = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, plural, icon, tint, names, held_out = (line.split("\t") + [""] * 5)[:6]
        split = tuple(word for word in names.split(",") if word)
        nouns[name] = Noun(name, plural, icon, tint or None, (name, *split), tuple(w for w in held_out.split(",") if w))
    return nouns


NOUNS = _read_nouns(Path(__file__).parent / "data" / "nouns.tsv")
