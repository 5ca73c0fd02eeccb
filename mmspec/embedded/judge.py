"""A judge for benchmarks: reads a picture's attributes without a word of language, and shares nothing with the verifier.

Who prunes must not grade. So the judge has an image tower of its own (group norms and residual blocks, no CLIP),
trained on the painter's ground truth with other scenes and another seed; the verifier and the pipelines never see it.
Knows pixels and the world's vocabulary. Legend: `n` pictures, `c` channels, `q` questions about a thing in a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.modeling_utils import ModelMixin
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from mmspec.embedded.captions import phrases, thing
from mmspec.embedded.scenes import Scene
from mmspec.embedded.world import COLOURS, COUNTS, INDOOR_PLACES, NOUNS, PLACES, POSITIONS, TIMES, WEATHERS
from mmspec.errors import WeightsError
from mmspec.types import Claim, ClaimKind, Verdict
from mmspec.weights import resolve

__all__ = ["Attributes", "Judge", "Reading", "attribute_phrases", "scene_phrases"]

_SIZE = 64
_SCENE_KINDS = {"place": PLACES, "time": TIMES, "weather": WEATHERS}


@dataclass(frozen=True, eq=False)
class Reading:
    """Logits: `scene` by kind `[n, values]`, `nouns` `[n, nouns + 1]` (last: nothing else), `cells` `[n, 64, c]`."""

    scene: dict[str, Tensor]
    nouns: Tensor
    cells: Tensor


@dataclass(frozen=True, eq=False)
class Attributes:
    """Logits about things: `colour` `[q, 7]`, `count` `[q, 3]`, `position` `[q, 3]`."""

    colour: Tensor
    count: Tensor
    position: Tensor


class _Block(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.first = nn.Conv2d(channels, out, 3, stride=stride, padding=1)
        self.middle = nn.GroupNorm(8, out)
        self.second = nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(channels, out, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm(x))
        return self.skip(y) + self.second(functional.relu(self.middle(self.first(y))))


class Judge(ModelMixin, ConfigMixin):
    """Convolutional classifier of 64x64 pictures with one head a question.

    `channels` are the widths at a half, a quarter and an eighth of the side, each divisible by 8.
    """

    @register_to_config  # type: ignore[untyped-decorator]  # diffusers ships no types
    def __init__(self, channels: tuple[int, int, int] = (48, 96, 192)) -> None:
        super().__init__()
        a, b, c = channels
        self.tower = nn.Sequential(
            nn.PixelUnshuffle(2),
            nn.Conv2d(12, a, 3, padding=1),
            _Block(a, b, 2),
            _Block(b, c, 2),
            _Block(c, c, 1),
            nn.GroupNorm(8, c),
            nn.ReLU(),
        )
        self.positions = nn.Parameter(torch.randn((_SIZE // 8) ** 2, c) * 0.1)
        self.scene = nn.ModuleDict({kind: nn.Linear(2 * c, len(table)) for kind, table in _SCENE_KINDS.items()})
        self.nouns = nn.Linear(c, len(NOUNS) + 1)
        self.queries = nn.Embedding(len(NOUNS), c)
        self.things = nn.Sequential(nn.Linear(3 * c, c), nn.ReLU())
        self.colour = nn.Linear(c, len(COLOURS))
        self.count = nn.Linear(c, len(COUNTS))
        self.position = nn.Linear(c, len(POSITIONS))

    @classmethod
    def load(cls, path: str) -> Judge:
        """The judge at `path`, a reference for `mmspec.weights` ("builtin:judge"), in float32 and evaluation mode.

        Raises `WeightsError` where there is none.
        """
        folder = resolve(path)
        try:
            return cls.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
        except (OSError, ValueError, RuntimeError) as error:
            raise WeightsError(
                f"{folder} holds no judge ({str(error).splitlines()[0]}): expected one of pipeline=train_judge"
            ) from error

    def save(self, folder: Path) -> None:
        """Write config and float16 weights."""
        self.save_pretrained(folder)
        state = {key: value.half().contiguous() for key, value in self.state_dict().items()}
        save_file(state, folder / "diffusion_pytorch_model.safetensors", {"format": "pt"})

    def forward(self, pixels: Tensor) -> Reading:
        """Read pictures `[n, 3, 64, 64]` in [0, 1]."""
        cells = self.tower(pixels * 2 - 1).flatten(2).transpose(1, 2)
        pooled = torch.cat([cells.mean(1), cells.amax(1)], 1)
        # A noun is where it is seen best: soft maximum over the cells.
        nouns = self.nouns(cells).logsumexp(1)
        return Reading({kind: head(pooled) for kind, head in self.scene.items()}, nouns, cells)

    @torch.no_grad()
    def attributes(self, pixels: Sequence[Tensor]) -> dict[str, Tensor]:
        """What pictures (each `[3, h, w]` in [0, 1]) show, as probabilities in the order of the world's vocabulary.

        `place` `[n, 10]`, `time` `[n, 4]`, `weather` `[n, 5]`; `noun` `[n, nouns + 1]`, the last one "nothing"; of the
        likeliest noun `colour` `[n, 7]`, `count` `[n, 3]` and `position` `[n, 3]`.
        """
        reading = self(_resized(pixels))
        found = self.describe(reading, torch.arange(len(pixels)), reading.nouns[:, :-1].argmax(1))
        logits = {**reading.scene, "noun": reading.nouns, **vars(found)}
        return {kind: values.softmax(1) for kind, values in logits.items()}

    def describe(self, reading: Reading, pictures: Tensor, nouns: Tensor) -> Attributes:
        """What thing `nouns` `[q]` is like in pictures number `pictures` `[q]`, both int64."""
        cells = reading.cells[pictures]
        query = self.queries(nouns)
        weights = (torch.einsum("qlc,qc->ql", cells, query) / cells.shape[-1] ** 0.5).softmax(1)
        seen = torch.einsum("ql,qlc->qc", weights, cells)
        where = weights @ self.positions
        hidden = self.things(torch.cat([seen, where, query], 1))
        return Attributes(self.colour(hidden), self.count(hidden), self.position(hidden))

    @torch.no_grad()
    def verdicts(self, pixels: Sequence[Tensor], claims: Sequence[Claim]) -> list[list[Verdict]]:
        """For every picture (`[3, h, w]` in [0, 1]) and claim: HELD, FAILED, or UNJUDGED where the world has no word.

        Exclusive kinds hold where the claimed value is the likeliest one, a thing where it is likelier than nothing.
        An attribute of a thing that is not there fails.
        """
        reading = self(_resized(pixels))
        return [[self._verdict(reading, n, claim) for claim in claims] for n in range(len(pixels))]

    def _verdict(self, reading: Reading, n: int, claim: Claim) -> Verdict:
        kind = claim.kind.value
        if kind in _SCENE_KINDS:
            options = scene_phrases(kind)
            if claim.phrase not in options:
                return Verdict.UNJUDGED
            return _held(int(reading.scene[kind][n].argmax()) == options.index(claim.phrase))
        things = {thing(name): k for k, name in enumerate(NOUNS)}
        noun = things.get(claim.phrase if claim.kind is ClaimKind.PROP else claim.parent or "")
        if noun is None:
            return Verdict.UNJUDGED
        present = bool(reading.nouns[n, noun] > reading.nouns[n, -1])
        if claim.kind is ClaimKind.PROP:
            return _held(present)
        options = attribute_phrases(kind, list(NOUNS)[noun])
        if claim.phrase not in options:
            return Verdict.UNJUDGED
        found = self.describe(reading, torch.tensor([n]), torch.tensor([noun]))
        return _held(present and int(getattr(found, kind)[0].argmax()) == options.index(claim.phrase))


def scene_phrases(kind: str) -> list[str]:
    """The plain phrase of every value of place, time or weather, in the order of the vocabulary."""
    out = []
    for key in _SCENE_KINDS[kind]:
        values = {"place": "sea", "time": "noon", "weather": "clear", kind: key}
        indoor = values["place"] in INDOOR_PLACES
        scene = Scene(values["place"], None if indoor else values["time"], None if indoor else values["weather"])
        out.append(phrases(scene)[kind][0])
    return out


def attribute_phrases(kind: str, noun: str) -> list[str]:
    """The plain phrase of every value of a thing's colour, count or position, in the order of the vocabulary."""
    if kind == ClaimKind.COLOUR.value:
        return [thing(f"{colour} {noun}") for colour in COLOURS]
    if kind == ClaimKind.COUNT.value:
        return [f"one {noun}" if count == 1 else thing(noun, count) for count in COUNTS]
    return [f"{thing(noun)} {term.names[0]}" for term in POSITIONS.values()]


def _resized(pixels: Sequence[Tensor]) -> Tensor:
    """Pictures at the judge's size, `[n, 3, 64, 64]`."""
    rows = [functional.interpolate(p[None].float(), size=(_SIZE, _SIZE), mode="area") for p in pixels]
    return torch.cat(rows).clamp(0, 1)


def _held(yes: bool) -> Verdict:
    return Verdict.HELD if yes else Verdict.FAILED
