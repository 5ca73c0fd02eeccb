"""The frozen objects that flow between the parts, and nothing else.

Knows tensors by shape, dtype and range only; knows no model, no file and no library beyond torch.
Legend: `c` latent channels, `h`/`w` height and width, `n` nodes of a token tree.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mmspec.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor


@dataclass(frozen=True)
class Request:
    """What a person asks for: one prompt and its budgets.

    `max_tokens` bounds the text, `n` is the number of pairs wanted. With `image`, the path of a picture, texts are
    written for that picture; with `text`, pictures are drawn for that text. Raises `InputError` for a budget below
    one, and for an empty prompt unless one of these is given.
    """

    prompt: str
    seed: int = 0
    max_tokens: int = 60
    n: int = 1
    negative_prompt: str = ""
    image: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        if not (self.prompt.strip() or self.image or self.text.strip()):
            raise InputError('prompt is empty: say what to make, e.g. prompt="cyberpunk rainy street"')
        for name in ("max_tokens", "n"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)} is too small: expected at least 1")
        if self.image and self.text and self.n > 1:
            raise InputError(f"n={self.n} pairs cannot be made where both image and text are given: expected n=1")


# ---------------------------------------------------------------- pictures

Emphasis = tuple[tuple[str, float], ...]
"""Phrases that a picture is pulled towards, each with how strongly: 1 is the drafter's full pull, below 0 is away."""


@dataclass(frozen=True, eq=False)
class ImageDraft:
    """A picture part-way through denoising.

    `latents` is `[c, h, w]` float32 on the CPU; `step` of `num_steps` are done. `condition` is the text
    that the last step was conditioned on, `negative` what it moves away from. `state` belongs to the image adapter that
    made the draft (its scheduler copy and noise generator state) and is opaque to everybody else.
    """

    latents: Tensor
    step: int
    num_steps: int
    seed: int
    condition: str
    state: object = None
    negative: str = ""

    @property
    def finished(self) -> bool:
        """Whether every denoising step is done."""
        return self.step >= self.num_steps


@dataclass(frozen=True, eq=False)
class Preview:
    """What a draft is going to look like: the model's x0 estimate.

    `pixels` is `[3, h, w]` float32 in [0, 1]. `noise_level` in [0, 1] is the share of noise left in the
    latents it was estimated from: 1 before the first step, 0 for a finished picture.
    """

    pixels: Tensor
    noise_level: float


# ---------------------------------------------------------------- claims


class ClaimKind(enum.Enum):
    """What a claim is about; the opponents of a claim are of its own kind."""

    PLACE = "place"
    TIME = "time"
    WEATHER = "weather"
    PROP = "prop"
    COLOUR = "colour"
    COUNT = "count"
    POSITION = "position"
    OTHER = "other"


@dataclass(frozen=True)
class Claim:
    """A short phrase that prompt or text asserts about what is visible.

    `span` is the [start, end) of the words in `source` that assert it: "prompt", "text" (written by the model) or
    "given" (a text that came with the request). `contrasts` are the opponents it could be confused with. `parent`
    is the phrase of the claim it depends on: an attribute is not judged where the thing itself is missing (the rule
    of DSG, arXiv 2310.18235). `weight` is how much the person who asked wants it, 1 unless said otherwise.
    """

    phrase: str
    kind: ClaimKind
    source: str
    span: tuple[int, int]
    contrasts: tuple[str, ...] = ()
    parent: str | None = None
    weight: float = 1.0

    @property
    def asked(self) -> bool:
        """Whether the person asks for it, in the prompt or in a text of theirs."""
        return self.source != "text"


class Verdict(enum.Enum):
    """What the verifier concludes for one claim and one picture."""

    HELD = "held"
    FAILED = "failed"
    UNSURE = "unsure"
    UNJUDGED = "unjudged"


@dataclass(frozen=True, eq=False)
class ClaimScore:
    """One claim against one picture.

    `probability` in [0, 1] is calibrated for the preview's noise level. `looks_like` names the opponent
    that explains the picture best where it beats the claim, and is None for a claim that holds. `relevance` is a `[h, w]` float32 map in
    [0, 1] of where the claim is seen, or None where the verifier has none.
    """

    claim: Claim
    probability: float
    verdict: Verdict
    looks_like: str | None = None
    relevance: Tensor | None = None


# ---------------------------------------------------------------- branches


class BranchState(enum.Enum):
    """Where a branch is in its life."""

    LIVE = "live"
    PRUNED = "pruned"
    FINISHED = "finished"


@dataclass(frozen=True, eq=False)
class Branch:
    """A text prefix with the drafts that grow beside it.

    `scores[k]` belongs to `drafts[k]`; both tuples have the same length, and `scores` is empty before the
    first verification. `reason` is set when the branch is pruned and names the failing claims.
    """

    id: str
    parent: str | None
    text: str
    drafts: tuple[ImageDraft, ...] = ()
    scores: tuple[tuple[ClaimScore, ...], ...] = ()
    state: BranchState = BranchState.LIVE
    reason: str | None = None
    round: int = 0


# ---------------------------------------------------------------- events


@dataclass(frozen=True)
class Loaded:
    """A part is ready; `seconds_s` is how long that took."""

    part: str
    seconds_s: float


@dataclass(frozen=True)
class RoundStarted:
    """A round begins with these live branches."""

    round: int
    branch_ids: tuple[str, ...]


@dataclass(frozen=True)
class TextGrown:
    """A branch's text grew by `chunk`, of `num_tokens` tokens; valid UTF-8 that concatenates to the branch's text."""

    branch_id: str
    chunk: str
    num_tokens: int


@dataclass(frozen=True, eq=False)
class PreviewReady:
    """A branch's draft was advanced and can be looked at."""

    branch_id: str
    draft_index: int
    step: int
    preview: Preview


@dataclass(frozen=True, eq=False)
class Scored:
    """A branch's draft was verified."""

    branch_id: str
    draft_index: int
    scores: tuple[ClaimScore, ...]


@dataclass(frozen=True)
class Pruned:
    """A branch, or one draft of it, goes; `reason` names the claim and what was seen instead."""

    branch_id: str
    draft_index: int | None
    reason: str


@dataclass(frozen=True)
class Regrown:
    """A surviving branch was forked into a new one."""

    branch_id: str
    parent_id: str


@dataclass(frozen=True)
class Repaired:
    """A draft was re-noised and redrawn with `claim` emphasised."""

    branch_id: str
    draft_index: int
    claim: str
    level: float


@dataclass(frozen=True, eq=False)
class Done:
    """The run is over; nothing follows."""

    result: Result


Event = Loaded | RoundStarted | TextGrown | PreviewReady | Scored | Pruned | Regrown | Repaired | Done


@dataclass(frozen=True, eq=False)
class Pair:
    """One finished text with its picture and the verdict on both."""

    branch_id: str
    text: str
    image: Image | None
    scores: tuple[ClaimScore, ...]
    verified: bool
    seed: int


@dataclass(frozen=True)
class Span:
    """When a stage of the run was at work: seconds of `time.perf_counter`."""

    name: str
    start_s: float
    end_s: float

    @property
    def seconds_s(self) -> float:
        """How long it took."""
        return self.end_s - self.start_s


@dataclass(frozen=True, eq=False)
class Result:
    """What one request gives back.

    `pairs` is best first and has at least one entry. `tree` is every branch that ever lived, in order of
    birth. `metrics` are figures whose names carry their unit (`text_s`, `num_target_calls`, ...). `spans` are when
    which stage was at work ("text", "image", "verify", ...), where the pipeline measures it.
    """

    request: Request
    pairs: tuple[Pair, ...]
    tree: tuple[Branch, ...]
    metrics: Mapping[str, float | int | str] = field(default_factory=dict)
    partial: bool = False
    spans: tuple[Span, ...] = ()

    @property
    def text(self) -> str:
        """The best pair's text."""
        return self.pairs[0].text

    @property
    def image(self) -> Image | None:
        """The best pair's picture, None for a text-only run."""
        return self.pairs[0].image

    @property
    def claims(self) -> tuple[ClaimScore, ...]:
        """The best pair's claims with their verdicts."""
        return self.pairs[0].scores

    @property
    def verified(self) -> bool:
        """Whether no claim of the best pair is contradicted."""
        return self.pairs[0].verified
