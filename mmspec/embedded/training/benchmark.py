"""Prompts that no model was trained on, drawn and judged: how often a picture shows what it was asked for.

The prompts' sentences are not those of training captions, and those of kind "synonyms" hold words that no training
caption holds. Knows scenes, an image drafter and the judge; knows no verifier.
Legend: `n` prompts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn import functional

from mmspec.embedded.autoencoder import Autoencoder
from mmspec.embedded.captions import phrases, plural, thing
from mmspec.embedded.judge import Judge
from mmspec.embedded.pixels import signed_from_bytes
from mmspec.embedded.scenes import Scene
from mmspec.embedded.training.autoencoder import psnr
from mmspec.embedded.training.previews import (
    KnownPreviews,
    bytes_of,
    draw_previews,
    painted_previews,
    reconstruct,
    redraw,
)
from mmspec.embedded.training.scenes import PaintedScenes, scene_at
from mmspec.embedded.world import COLOURS, COUNTS, NOUNS, PLACES, POSITIONS, TIMES, WEATHERS
from mmspec.image.drafter import ImageDrafter
from mmspec.seeding import derive

__all__ = ["KINDS", "Drawing", "Prompt", "draw", "fidelity", "known_pictures", "prompts", "rates", "shown"]

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
_LATE = 0.4  # share of the steps from which on previews count as late


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


@dataclass(frozen=True, eq=False)
class Drawing:
    """The finished pictures of prompts, `[n, 3, h, w]` in [0, 1], and the seconds that one step of one picture took."""

    asked: Sequence[Prompt]
    pixels: Tensor
    step_s: float

    def known(self, seed: int, *, size: int) -> KnownPreviews:
        """The pictures with the scenes of set `seed` that they were asked to show, without those of held-out words."""
        kept = [k for k, prompt in enumerate(self.asked) if prompt.kind != "synonyms"]
        indices = torch.tensor([self.asked[k].index for k in kept])
        return KnownPreviews(seed, indices, torch.zeros(len(kept)), bytes_of(self.pixels[kept], size=size))


def draw(drafter: ImageDrafter, asked: Sequence[Prompt], *, num_steps: int, seed: int) -> Drawing:
    """Draw every prompt from a seed of its own."""
    pixels, spent_s = [], 0.0
    for start in range(0, len(asked), _BATCH):
        part = asked[start : start + _BATCH]
        seeds = [derive(seed, "benchmark", prompt.index) for prompt in part]
        drafts = drafter.start([prompt.text for prompt in part], seeds, num_steps=num_steps)
        started = time.perf_counter()
        done = drafter.advance(drafts, num_steps)
        spent_s += time.perf_counter() - started
        pixels += [preview.pixels for preview in drafter.preview(done)]
    return Drawing(asked, torch.stack(pixels), spent_s / (len(asked) * num_steps))


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


def rates(asked: Sequence[Prompt], right: Sequence[dict[str, bool]]) -> dict[str, dict[str, float]]:
    """Share of right pictures by kind of prompt and attribute; `n` is the number of prompts of the kind."""
    out: dict[str, dict[str, float]] = {}
    for kind in dict.fromkeys(prompt.kind for prompt in asked):
        rows = [row for prompt, row in zip(asked, right, strict=True) if prompt.kind == kind]
        names = dict.fromkeys(name for row in rows for name in row)
        out[kind] = {name: mean(row[name] for row in rows if name in row) for name in names} | {"n": len(rows)}
    return out


def known_pictures(
    drafter: ImageDrafter, autoencoder: Autoencoder, scenes: PaintedScenes, *, num_steps: int, size: int
) -> dict[str, KnownPreviews]:
    """Pictures of known contents by how they were made, at `size`.

    `paintings`, `autoencoder`, `redrawn` (finished by the drafter from up to half of the noise), and the drafter's previews
    at every noise level of its schedule of `num_steps`, singly and from 40 % of the steps on.
    """
    indices, seed = torch.arange(len(scenes)), scenes.seed
    known = {
        "paintings": painted_previews(scenes, indices, size=size),
        "autoencoder": reconstruct(autoencoder, scenes, indices, size=size),
        "redrawn": redraw(
            drafter, autoencoder, scenes, indices, num_steps=num_steps, max_level=0.5, size=size, seed=seed
        ),
    }
    previews = draw_previews(drafter, autoencoder, scenes, indices, num_steps=num_steps, size=size, seed=seed)
    levels = previews.levels.unique()  # rising: the last step's level is the first
    late = levels[min(num_steps - math.ceil(_LATE * num_steps), len(levels) - 1)]
    known["previews from 40 % of the steps on"] = previews.where(previews.levels <= late)
    for level in levels.tolist():
        known[f"previews at noise level {level:.3f}"] = previews.where(previews.levels == level)
    return known


@torch.no_grad()
def fidelity(autoencoder: Autoencoder, scenes: PaintedScenes) -> dict[str, float]:
    """Mean PSNR in dB of painted scenes after the autoencoder, at the size that it reads and at the size that it draws."""
    full, half = [], []
    for part in torch.arange(len(scenes)).split(_BATCH):
        large = signed_from_bytes(scenes.batch(part))
        small = functional.avg_pool2d(large, 2)
        pixels = autoencoder.decode(autoencoder.encode(small)).clamp(-1, 1)
        full.append(psnr(pixels, large))
        half.append(psnr(functional.avg_pool2d(pixels, 2), small))
    return {"psnr_64_db": float(torch.cat(half).mean()), "psnr_128_db": float(torch.cat(full).mean())}


def _attributes_right(scene: Scene, found: dict[str, int]) -> dict[str, bool]:
    """Of a single thing that is there: the attributes that its scene fixes."""
    prop = scene.props[0]
    right = {"count": found["count"] + 1 == prop.count}
    if prop.colour is not None:
        right["colour"] = list(COLOURS)[found["colour"]] == prop.colour
    if prop.count == 1 and prop.position in POSITIONS:
        right["position"] = list(POSITIONS)[found["position"]] == prop.position
    return right
