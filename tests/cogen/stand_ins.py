"""Small deterministic stand-ins for the models, with planted agreements and disagreements.

A picture here is a row of bits, one per phrase of `VOCABULARY`: whether it shows that phrase. So what a
draft shows, what a repair changes and what the verifier must find are all known exactly.
"""

# ruff: noqa: D102, ARG002 - the methods are those of the interfaces that these stand in for

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from PIL import Image

from mmspec.seeding import derive
from mmspec.text.prompt import PromptTemplate
from mmspec.text.types import FinishReason, SamplingParams, SegmentEnd, TextMetrics
from mmspec.types import Claim, ClaimKind, ClaimScore, Emphasis, ImageDraft, Preview, Request, Verdict

VOCABULARY = ("mechanical eye", "glasses", "cave", "rain", "at night", "at noon", "robot")
KINDS = {"cave": ClaimKind.PLACE, "rain": ClaimKind.WEATHER, "at night": ClaimKind.TIME, "at noon": ClaimKind.TIME}


def seed_of(root: int, stream: str, branch_id: str, index: int = 0) -> int:
    """The seed that the branch tree gives to a branch's text or draft."""
    return derive(root, f"cogen/{stream}", f"{branch_id}/{index}")


@dataclass(frozen=True, eq=False)
class TextStandInState:
    """A text that follows a script, one segment at a time."""

    text: str
    ids: tuple[int, ...]
    finished: FinishReason | None
    seed: int
    max_tokens: int
    log_prob: float = 0.0
    metrics: TextMetrics = field(default_factory=TextMetrics)


@dataclass(eq=False)
class TextStandIn:
    """Grows texts by planted scripts: `scripts[seed]` are the segments of the branch with that seed."""

    scripts: Mapping[int, Sequence[str]]
    default: Sequence[str]
    calls: list[int] = field(default_factory=list)

    def prepare(self, template: PromptTemplate) -> None:
        """Nothing to compute."""

    def start(self, prompt: str, *, params: SamplingParams, seed: int, template: PromptTemplate) -> TextStandInState:
        return TextStandInState("", (), None, seed, params.max_tokens)

    def fork(self, state: TextStandInState, *, seed: int) -> TextStandInState:
        return replace(state, seed=seed)

    def extend(
        self,
        states: Sequence[TextStandInState],
        *,
        max_new_tokens: Sequence[int],
        until: SegmentEnd | None,
        max_passes: int,
    ) -> list[TextStandInState]:
        self.calls.append(len(states))
        grown = [self._extended(state) for state in states]
        while until is None and not all(state.finished for state in grown):
            grown = [state if state.finished else self._extended(state) for state in grown]
        return grown

    def _extended(self, state: TextStandInState) -> TextStandInState:
        script = self.scripts.get(state.seed, self.default)
        done = state.text.count(".")
        text = state.text + script[done]
        over = FinishReason.EOS if done + 1 == len(script) else None
        return replace(state, text=text, ids=tuple(range(len(text.split()))), finished=over)


@dataclass(eq=False)
class ImageStandIn:
    """Draws what is planted for a draft's seed, and what it is told to emphasise if `obeys` says so."""

    shows: Mapping[int, Iterable[str]]
    default: Iterable[str]
    obeys: bool = True
    broken_seeds: frozenset[int] = frozenset()
    batches: list[int] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    emphasis: list[Emphasis] = field(default_factory=list)

    def start(
        self, conditions: Sequence[str], seeds: Sequence[int], *, num_steps: int, negative: str = ""
    ) -> list[ImageDraft]:
        return [
            ImageDraft(torch.zeros(1, 1, len(VOCABULARY)), 0, num_steps, seed, caption, negative=negative)
            for caption, seed in zip(conditions, seeds, strict=True)
        ]

    reads_negative = True

    def unread(self, condition: str) -> str:
        return ""

    def advance(
        self,
        drafts: Sequence[ImageDraft],
        num_steps: int,
        *,
        conditions: Sequence[str] | None = None,
        emphasis: Sequence[Emphasis] | None = None,
    ) -> list[ImageDraft]:
        self.batches.append(len(drafts))
        self.conditions.extend(conditions or ())
        told = emphasis or [()] * len(drafts)
        self.emphasis.extend(told)
        captions = conditions or [draft.condition for draft in drafts]
        return [self._drawn(*row, num_steps) for row in zip(drafts, captions, told, strict=True)]

    def _drawn(self, draft: ImageDraft, caption: str, told: Emphasis, num_steps: int) -> ImageDraft:
        shown = set(self.shows.get(draft.seed, self.default)) | (
            {phrase for phrase, _ in told} if self.obeys else set()
        )
        bits = torch.tensor([float(phrase in shown) for phrase in VOCABULARY])
        bits = bits * float("nan") if draft.seed in self.broken_seeds else bits
        step = min(draft.num_steps, draft.step + num_steps)
        return replace(draft, latents=bits.reshape(1, 1, -1), step=step, condition=caption)

    def preview(self, drafts: Sequence[ImageDraft]) -> list[Preview]:
        return [Preview(draft.latents.expand(3, 1, -1), 1 - draft.step / draft.num_steps) for draft in drafts]

    def renoise(self, draft: ImageDraft, level: float, *, seed: int) -> ImageDraft:
        return replace(draft, step=int(draft.num_steps * (1 - level)), seed=seed)

    def finish(self, drafts: Sequence[ImageDraft]) -> list[Image.Image]:
        assert all(draft.finished for draft in drafts)
        return self.render(self.preview(drafts))

    def render(self, previews: Sequence[Preview]) -> list[Image.Image]:
        return [Image.fromarray((preview.pixels[0] * 255).byte().numpy()).convert("RGB") for preview in previews]


class ExtractorStandIn:
    """Finds the phrases of `VOCABULARY` that a text holds."""

    def vocabulary(self, *, source: str) -> tuple[Claim, ...]:
        return self.extract(" ".join(VOCABULARY), source=source)

    def extract(self, text: str, *, source: str) -> tuple[Claim, ...]:
        found = [(text.find(phrase), phrase) for phrase in VOCABULARY if phrase in text]
        return tuple(
            Claim(phrase, KINDS.get(phrase, ClaimKind.PROP), source, (at, at + len(phrase)))
            for at, phrase in sorted(found)
        )


@dataclass(eq=False)
class ScorerStandIn:
    """Reads the bits; phrases in `unsure` fall into the abstain band, phrases in `unjudged` are not judged."""

    unsure: frozenset[str] = frozenset()
    unjudged: frozenset[str] = frozenset()
    calls: list[tuple[int, int]] = field(default_factory=list)
    explained: list[tuple[str, ...]] = field(default_factory=list)

    def score(self, previews: Sequence[Preview], claims: Sequence[Claim]) -> list[tuple[ClaimScore, ...]]:
        self.calls.append((len(previews), len(claims)))
        return [tuple(self._judged(preview, claim) for claim in claims) for preview in previews]

    def _judged(self, preview: Preview, claim: Claim) -> ClaimScore:
        bits = preview.pixels[0, 0]
        if claim.phrase in self.unjudged:
            return ClaimScore(claim, 0.5, Verdict.UNJUDGED)
        if claim.phrase in self.unsure:
            return ClaimScore(claim, 0.5, Verdict.UNSURE)
        if bits[VOCABULARY.index(claim.phrase)] > 0.5:
            return ClaimScore(claim, 0.95, Verdict.HELD)
        seen = [phrase for phrase, bit in zip(VOCABULARY, bits, strict=False) if bit > 0.5]
        return ClaimScore(claim, 0.03, Verdict.FAILED, looks_like=seen[0] if seen else None)

    def explain(self, preview: Preview, scores: Sequence[ClaimScore]) -> tuple[ClaimScore, ...]:
        self.explained.append(tuple(score.claim.phrase for score in scores))
        return tuple(replace(score, relevance=torch.ones(4, 4)) for score in scores)


@dataclass(frozen=True, eq=False)
class StandIns:
    """All four of them."""

    text: TextStandIn
    images: ImageStandIn
    extractor: ExtractorStandIn
    scorer: ScorerStandIn


def stand_in_parts(
    *,
    scripts: Mapping[str, Sequence[str]] | None = None,
    default_script: Sequence[str] = ("It rests here. ", "All is still. "),
    shows: Mapping[tuple[str, int], Iterable[str]] | None = None,
    default_shows: Iterable[str] = VOCABULARY,
    obeys: bool = True,
    broken: Iterable[tuple[str, int]] = (),
    scorer: ScorerStandIn | None = None,
    seed: int = 0,
) -> StandIns:
    """Parts with scripts by branch id, and pictures by (branch id, draft index)."""
    text = TextStandIn({seed_of(seed, "text", i): s for i, s in (scripts or {}).items()}, default_script)
    images = ImageStandIn(
        {seed_of(seed, "image", i, k): shown for (i, k), shown in (shows or {}).items()},
        default_shows,
        obeys,
        frozenset(seed_of(seed, "image", i, k) for i, k in broken),
    )
    return StandIns(text, images, ExtractorStandIn(), scorer or ScorerStandIn())


def request(prompt: str, **fields: int) -> Request:
    """A request for a prompt."""
    return Request(prompt, **fields)  # type: ignore[arg-type]  # only int fields are passed
