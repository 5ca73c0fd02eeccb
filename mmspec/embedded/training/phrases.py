"""The phrases that a picture of the embedded world can be asked for, encoded once by the frozen encoder.

Knows the vocabulary and sentence embeddings; knows no picture. Each question is a set of options of one kind,
of which exactly one is true of a scene: the ten places, or "a red dragon" in each of seven colours.
Legend: `p` phrases, `w` width of the sentence encoder.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from torch import Tensor

from mmspec.embedded.captions import phrases, thing
from mmspec.embedded.scenes import Prop, Scene
from mmspec.embedded.world import COLOURS, COUNTS, INDOOR_PLACES, NOUNS, PLACES, POSITIONS, TIMES, WEATHERS

__all__ = [
    "NOTHING",
    "PhraseTable",
    "Question",
    "how_many",
    "mean_pooled",
    "mean_tokens",
    "questions",
    "scene_with",
    "synonyms",
]

NOTHING = "an empty scene"
"""The opponent of every prop that beats whatever is not there, so that scores mean the same in every picture."""

_NUM_DRAWS = 40  # enough to meet every phrasing of a term


@dataclass(frozen=True)
class Question:
    """Options of one kind, `answer` the index of the true one; options in `left_out` are neither true nor false.

    `noun` is the thing that a colour, a count or a position is of.
    """

    kind: str
    options: tuple[str, ...]
    answer: int
    left_out: tuple[int, ...] = ()
    noun: str | None = None


@functools.cache
def synonyms() -> dict[str, dict[str, tuple[str, ...]]]:
    """For place, time, weather and prop: the training phrases of every term, the plain one first."""
    out: dict[str, dict[str, tuple[str, ...]]] = {"place": {}, "time": {}, "weather": {}, "prop": {}}
    for kind, table in (("place", PLACES), ("time", TIMES), ("weather", WEATHERS)):
        for key in table:
            scene = scene_with(kind, key)
            drawn = [phrases(scene, rng=numpy.random.default_rng(k))[kind][0] for k in range(_NUM_DRAWS)]
            out[kind][key] = tuple(dict.fromkeys([phrases(scene)[kind][0], *sorted(drawn)]))
    out["prop"] = {noun: tuple(thing(name) for name in entry.names) for noun, entry in NOUNS.items()}
    return out


def scene_with(kind: str, key: str) -> Scene:
    """A scene without props whose place, time or weather (`kind`) is `key`."""
    values = {"place": "sea", "time": "noon", "weather": "clear", kind: key}
    if values["place"] in INDOOR_PLACES:
        return Scene(values["place"], None, None)
    return Scene(values["place"], values["time"], values["weather"])


def questions(scene: Scene, say: Mapping[str, Sequence[str]], rng: numpy.random.Generator) -> list[Question]:
    """Every question about `scene`; `say[kind]` are the options of place, time, weather and prop as phrased now."""
    out = [Question("place", tuple(say["place"]), list(PLACES).index(scene.place))]
    if scene.time is not None and scene.weather is not None:
        out.append(Question("time", tuple(say["time"]), list(TIMES).index(scene.time)))
        out.append(Question("weather", tuple(say["weather"]), list(WEATHERS).index(scene.weather)))
    nouns = list(NOUNS)
    present = [nouns.index(prop.noun) for prop in scene.props]
    options = (*say["prop"], NOTHING)
    # Each prop is an opponent of the others, which makes the scores of all that are there alike.
    out += [Question("prop", options, index) for index in present]
    out.append(Question("nothing", options, len(nouns), tuple(present)))
    for prop in scene.props:
        out += _prop_questions(prop, rng)
    return out


def _prop_questions(prop: Prop, rng: numpy.random.Generator) -> list[Question]:
    """The questions about one prop's colour, count and position, in one of the noun's names."""
    names = NOUNS[prop.noun].names
    name = names[0] if rng.random() < 0.7 else names[int(rng.integers(len(names)))]
    out = []
    if prop.colour is not None:
        options = tuple(thing(f"{colour} {name}") for colour in COLOURS)
        out.append(Question("colour", options, list(COLOURS).index(prop.colour), noun=prop.noun))
    numbers = tuple(how_many(prop.noun, count) for count in COUNTS)
    out.append(Question("count", numbers, list(COUNTS).index(prop.count), noun=prop.noun))
    if prop.count == 1 and prop.position in POSITIONS:
        way = int(rng.integers(2))
        options = tuple(f"{thing(name)} {term.names[way]}" for term in POSITIONS.values())
        out.append(Question("position", options, list(POSITIONS).index(prop.position), noun=prop.noun))
    return out


def how_many(noun: str, count: int) -> str:
    """The noun with a number that is said even for one: "one dragon", "two dragons", "three dragons"."""
    return f"one {noun}" if count == 1 else thing(noun, count)


class PhraseTable:
    """Sentence embeddings `[p, w]` float32 of every training phrase, before the projection."""

    def __init__(self, text_folder: Path) -> None:
        words = {phrase for table in synonyms().values() for names in table.values() for phrase in names}
        words.add(NOTHING)
        for noun, entry in NOUNS.items():
            words |= {how_many(noun, count) for count in COUNTS}
            for name in entry.names:
                words |= {thing(f"{colour} {name}") for colour in COLOURS}
                words |= {f"{thing(name)} {way}" for term in POSITIONS.values() for way in term.names[:2]}
        self._rows = {phrase: row for row, phrase in enumerate(sorted(words))}
        self._embeddings = mean_pooled(list(self._rows), text_folder=text_folder)

    def rows(self, words: Sequence[str]) -> Tensor:
        """Row of each phrase, `[n]` int64."""
        return torch.tensor([self._rows[word] for word in words])

    def embeddings(self, rows: Tensor) -> Tensor:
        """`[n]` -> `[n, w]`."""
        return self._embeddings[rows]


@torch.no_grad()
def mean_pooled(words: Sequence[str], *, text_folder: Path, batch_size: int = 128) -> Tensor:
    """Mean of the encoder's last hidden states over each phrase's tokens `[n, w]`, as open_clip's mean pooler does."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(text_folder, local_files_only=True)
    encoder = AutoModel.from_pretrained(text_folder, local_files_only=True).eval()
    order = sorted(range(len(words)), key=lambda k: len(words[k]))
    out = torch.empty(len(words), encoder.config.hidden_size)
    for start in range(0, len(order), batch_size):
        part = order[start : start + batch_size]
        batch = tokenizer([words[k] for k in part], padding=True, truncation=True, max_length=64, return_tensors="pt")
        hidden = encoder(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        out[part] = (hidden * mask).sum(1) / mask.sum(1)
    return out


def mean_tokens(tokens: numpy.ndarray, starts: numpy.ndarray) -> Tensor:
    """Mean of each caption's token features: `[all tokens, w]` and `[n + 1]` -> `[n, w]` float32."""
    rows = [torch.from_numpy(tokens[a:b].astype(numpy.float32)).mean(0) for a, b in itertools.pairwise(starts)]
    return torch.stack(rows)
