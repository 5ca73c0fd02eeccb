"""Prompts that no model was trained on, drawn and judged: how often a picture shows what it was asked for.

The prompts' sentences are not those of training captions, and those of kind "synonyms" hold words that no training
caption holds. Knows scenes, an image drafter and the judge; knows no verifier.
Legend: `n` prompts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from mmspec.embedded.captions import phrases, plural, thing
from mmspec.embedded.judge import Judge
from mmspec.embedded.scenes import Scene
from mmspec.embedded.training.scenes import scene_at
from mmspec.embedded.world import COLOURS, COUNTS, NOUNS, PLACES, POSITIONS, TIMES, WEATHERS
from mmspec.image.drafter import ImageDrafter

__all__ = ["KINDS", "Prompt", "drawn", "prompts", "shown"]

KINDS = {"single": 0.4, "pair": 0.3, "synonyms": 0.3}
"""Kinds of prompts and their shares: one thing, two things, one thing in words held out of training."""

_FORMS = (
    "we see {things}; the setting: {place}, {rest}",
    "{place} {rest}, where {things} can be seen",
    "show me {things}, somewhere in {place}, {rest}",
    "scene: {place}. {rest}. main subject: {things}",
)
_TABLES: dict[str, dict[str, Any]] = {"place": PLACES, "time": TIMES, "weather": WEATHERS}
_BATCH = 32


@dataclass(frozen=True)
class Prompt:
    """A prompt for scene `index` of a set of scenes."""

    index: int
    kind: str
    scene: Scene
    text: str


def prompts(seed: int, num: int) -> list[Prompt]:
    """About `num` prompts of the scenes of set `seed`: every kind in its share, single things never small."""
    wanted = {kind: round(share * num) for kind, share in KINDS.items()}
    out: list[Prompt] = []
    index = 0
    while any(wanted.values()):
        scene = scene_at(seed, index)
        for kind in _kinds_of(scene):
            if wanted[kind]:
                wanted[kind] -= 1
                out.append(Prompt(index, kind, scene, _sentence(scene, seed, index, held_out=kind == "synonyms")))
                break
        index += 1
    return sorted(out, key=lambda prompt: list(KINDS).index(prompt.kind))


def _kinds_of(scene: Scene) -> Iterator[str]:
    if len(scene.props) == 1 and scene.props[0].size != "small":
        prop = scene.props[0]
        # A noun without a held-out word would test nothing.
        yield from ("synonyms", "single") if NOUNS[prop.noun].held_out else ("single",)
    if len(scene.props) == 2:
        yield "pair"


def _sentence(scene: Scene, seed: int, index: int, *, held_out: bool) -> str:
    rng = numpy.random.default_rng([seed, index, 7])
    said = phrases(scene, rng=rng, held_out=held_out)
    words = said["prop"]
    named = [_with_attributes(words[k], k, scene) for k in range(len(words))]
    rest = " ".join([*said.get("time", []), *said.get("weather", [])]) or "in a strange light"
    return _FORMS[int(rng.integers(len(_FORMS)))].format(things=" and ".join(named), place=said["place"][0], rest=rest)


def _with_attributes(phrase: str, k: int, scene: Scene) -> str:
    """The thing's phrase with what the scene fixes of it: colour, number, and side."""
    prop = scene.props[k]
    noun = phrase.removeprefix("an ").removeprefix("a ")
    if prop.count > 1:
        return " ".join(word for word in (COUNTS[prop.count][0], prop.colour, plural(noun)) if word)
    named = thing(f"{prop.colour} {noun}") if prop.colour is not None else phrase
    return f"{named} {POSITIONS[prop.position].names[0]}" if prop.position in POSITIONS else named


def drawn(drafter: ImageDrafter, asked: Sequence[Prompt], *, num_steps: int, seed: int) -> Tensor:
    """The finished pictures of prompts, `[n, 3, h, w]` in [0, 1]; each from a seed of its own."""
    out = []
    for start in range(0, len(asked), _BATCH):
        part = asked[start : start + _BATCH]
        seeds = [seed + prompt.index for prompt in part]
        drafts = drafter.start([prompt.text for prompt in part], seeds, num_steps=num_steps)
        out += [preview.pixels for preview in drafter.preview(drafter.advance(drafts, num_steps))]
    return torch.stack(out)


def shown(judge: Judge, asked: Sequence[Prompt], pixels: Tensor) -> list[dict[str, bool]]:
    """For every prompt, by attribute that it asks for: whether the judge sees it in its picture `[n, 3, h, w]`.

    `things`: the things asked for are the likeliest of all nouns, in a pair the two likeliest.
    """
    with torch.no_grad():
        found = judge.attributes(list(pixels))
    out = []
    for n, prompt in enumerate(asked):
        scene = prompt.scene
        right = {
            kind: list(table)[int(found[kind][n].argmax())] == getattr(scene, kind)
            for kind, table in _TABLES.items()
            if getattr(scene, kind) is not None
        }
        asked_for = {list(NOUNS).index(prop.noun) for prop in scene.props}
        likeliest = found["noun"][n, :-1].topk(len(asked_for)).indices.tolist()
        right["things"] = set(likeliest) == asked_for
        if right["things"] and len(scene.props) == 1:
            right |= _attributes_right(
                scene, {kind: int(found[kind][n].argmax()) for kind in ("colour", "count", "position")}
            )
        out.append(right)
    return out


def _attributes_right(scene: Scene, found: dict[str, int]) -> dict[str, bool]:
    """Of a single thing that is there: the attributes that its scene fixes."""
    prop = scene.props[0]
    right = {"count": found["count"] + 1 == prop.count}
    if prop.colour is not None:
        right["colour"] = list(COLOURS)[found["colour"]] == prop.colour
    if prop.count == 1 and prop.position in POSITIONS:
        right["position"] = list(POSITIONS)[found["position"]] == prop.position
    return right
