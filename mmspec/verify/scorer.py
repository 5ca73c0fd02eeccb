"""Scores claims against pictures: margins from a model, probabilities from a calibration, verdicts from thresholds.

Knows claims, previews and calibration curves; the model itself is a subclass. A claim is decided on its margin
over its opponents, never on a raw cosine, with a band in which nothing is decided, and an attribute is not judged
where its thing is missing (DSG, arXiv 2310.18235).
Legend: `n` pictures, `p` phrases, `k` claims.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mmspec.errors import InputError, ModelError
from mmspec.types import Claim, ClaimKind, ClaimScore, Preview, Verdict
from mmspec.verify.calibration import Calibration

__all__ = ["ContrastScorer", "Scorer", "Thresholds"]

_UNKNOWN = 0.5  # the probability of what nobody judged


@dataclass(frozen=True)
class Thresholds:
    """Where a probability becomes a verdict.

    HELD from `held` on, FAILED down to `failed`, UNSURE between. Both move apart by `widening` times the noise
    level, because a draft may still change. A kind with an AUC below `min_auc` at a noise level is UNJUDGED there.
    Raises `InputError` unless 0 <= failed < held <= 1.
    """

    held: float
    failed: float
    widening: float
    min_auc: float

    def __post_init__(self) -> None:
        if not 0 <= self.failed < self.held <= 1:
            raise InputError(
                f"verifier thresholds failed={self.failed}, held={self.held}: expected 0 <= failed < held <= 1"
            )
        if self.widening < 0:
            raise InputError(f"verifier widening={self.widening} is negative: expected at least 0")

    def verdict(self, probability: float, *, noise_level: float) -> Verdict:
        """The verdict on a claim that was judged."""
        if probability >= min(1.0, self.held + self.widening * noise_level):
            return Verdict.HELD
        if probability <= max(0.0, self.failed - self.widening * noise_level):
            return Verdict.FAILED
        return Verdict.UNSURE


class Scorer(abc.ABC):
    """Judges claims about pictures."""

    @abc.abstractmethod
    def score(self, previews: Sequence[Preview], claims: Sequence[Claim]) -> list[tuple[ClaimScore, ...]]:
        """One score per claim, in their order, for each preview; independent of what else is in the call.

        Raises `ModelError` for a picture that holds NaN.
        """

    @abc.abstractmethod
    def explain(self, preview: Preview, scores: Sequence[ClaimScore]) -> tuple[ClaimScore, ...]:
        """The same scores with relevance maps; costs some ten looks at the picture."""


class ContrastScorer(Scorer):
    """Scores by contrast: a claim's margin is its similarity less the log-sum-exp of its opponents'.

    A subclass supplies scaled similarities. `calibration` None takes margins as log-odds.
    """

    def __init__(self, *, thresholds: Thresholds, calibration: Calibration | None, num_cells: int) -> None:
        self._thresholds = thresholds
        self._calibration = calibration
        self._num_cells = num_cells

    @abc.abstractmethod
    def similarities(self, pixels: Sequence[Tensor], phrases: Sequence[str]) -> Tensor:
        """Scaled similarities in nats of pictures (each `[3, h, w]` in [0, 1]) and phrases -> `[n, p]` float32."""

    def score(self, previews: Sequence[Preview], claims: Sequence[Claim]) -> list[tuple[ClaimScore, ...]]:
        """See `Scorer.score`."""
        for number, preview in enumerate(previews):
            if not torch.isfinite(preview.pixels).all():
                raise ModelError(
                    f"preview {number} holds NaN or infinity: the drafter diverged, nothing can be verified"
                )
        judged = [claim for claim in dict.fromkeys(claims) if claim.contrasts]
        if not previews or not judged:
            return [tuple(self._unjudged(claim) for claim in claims) for _ in previews]
        contrast = self._contrast([preview.pixels for preview in previews], judged)
        column = {claim: k for k, claim in enumerate(judged)}
        return [
            _with_parents(
                [
                    self._one(claim, contrast, n, column[claim], preview.noise_level)
                    if claim in column
                    else self._unjudged(claim)
                    for claim in claims
                ]
            )
            for n, preview in enumerate(previews)
        ]

    def margins(self, pixels: Sequence[Tensor], claims: Sequence[Claim]) -> Tensor:
        """Margins in nats of claims with opponents about pictures (each `[3, h, w]` in [0, 1]) -> `[n, k]` float32."""
        return self._contrast(pixels, claims).margins

    def _contrast(self, pixels: Sequence[Tensor], claims: Sequence[Claim]) -> _Contrast:
        phrases = list(dict.fromkeys(phrase for claim in claims for phrase in (claim.phrase, *claim.contrasts)))
        table = self.similarities(pixels, phrases)
        column = {phrase: k for k, phrase in enumerate(phrases)}
        margins, bests, beaten = [], [], []
        for claim in claims:
            own = table[:, column[claim.phrase]]
            others = table[:, [column[phrase] for phrase in claim.contrasts]]
            margins.append(own - others.logsumexp(1))
            best = others.max(1)  # the first of equals
            bests.append(best.indices)
            beaten.append(best.values > own)
        return _Contrast(torch.stack(margins, 1), torch.stack(bests, 1), torch.stack(beaten, 1))

    def _one(self, claim: Claim, contrast: _Contrast, n: int, k: int, noise_level: float) -> ClaimScore:
        if self._is_weak(claim, noise_level):
            return self._unjudged(claim)
        probability = self.probability(claim.kind, float(contrast.margins[n, k]), noise_level=noise_level)
        verdict = self._thresholds.verdict(probability, noise_level=noise_level)
        beaten = bool(contrast.beaten[n, k]) and verdict is not Verdict.HELD
        looks_like = claim.contrasts[int(contrast.best[n, k])] if beaten else None
        return ClaimScore(claim, probability, verdict, looks_like)

    def probability(self, kind: ClaimKind, margin: float, *, noise_level: float) -> float:
        """The calibrated probability of a claim with `margin` about a picture at `noise_level`."""
        slope, offset = 1.0, 0.0
        if self._calibration is not None:
            point = self._calibration.curves[kind.value].at(noise_level)
            slope, offset = point.slope, point.offset
        return float(torch.sigmoid(torch.tensor(slope * margin + offset)))

    def _is_weak(self, claim: Claim, noise_level: float) -> bool:
        if self._calibration is None:
            return False
        curve = self._calibration.curves.get(claim.kind.value)
        if curve is None or curve.at(noise_level).auc < self._thresholds.min_auc:
            return True
        return claim.phrase in self._calibration.weak or claim.parent in self._calibration.weak

    def _unjudged(self, claim: Claim) -> ClaimScore:
        return ClaimScore(claim, _UNKNOWN, Verdict.UNJUDGED)

    def explain(self, preview: Preview, scores: Sequence[ClaimScore]) -> tuple[ClaimScore, ...]:
        """See `Scorer.explain`: how much the margin falls where a cell is blurred away (Zeiler & Fergus 2013)."""
        judged = [score.claim for score in scores if score.verdict is not Verdict.UNJUDGED]
        if not judged:
            return tuple(scores)
        margins = self.margins([preview.pixels, *_hide_cells(preview.pixels, self._num_cells)], judged)
        maps = {}
        for k, claim in enumerate(judged):
            fall = (margins[0, k] - margins[1:, k]).clamp(min=0).reshape(self._num_cells, self._num_cells)
            maps[claim] = _enlarged(fall / fall.max().clamp(min=1e-6), preview.pixels.shape[-2:])
        return tuple(replace(score, relevance=maps.get(score.claim)) for score in scores)


@dataclass(frozen=True, eq=False)
class _Contrast:
    """Per picture and claim `[n, k]`: margin, index of the best opponent, and whether that beats the claim."""

    margins: Tensor
    best: Tensor
    beaten: Tensor


def _with_parents(scores: list[ClaimScore]) -> tuple[ClaimScore, ...]:
    """The rule of dependent claims: none is judged without its thing, none fails while the thing is unsure."""
    verdicts = {score.claim.phrase: score.verdict for score in scores}
    out = []
    for score in scores:
        parent = verdicts.get(score.claim.parent) if score.claim.parent is not None else None
        if parent in (Verdict.FAILED, Verdict.UNJUDGED):
            score = replace(score, verdict=Verdict.UNJUDGED, looks_like=None)
        elif parent is Verdict.UNSURE and score.verdict is not Verdict.UNJUDGED:
            score = replace(score, verdict=Verdict.UNSURE)
        out.append(score)
    return tuple(out)


def _hide_cells(pixels: Tensor, num_cells: int) -> list[Tensor]:
    """Copies of a picture `[3, h, w]`, each with one cell of a grid faded into the picture's mean colour."""
    height, width = pixels.shape[-2:]
    mean = pixels.mean((1, 2), keepdim=True)
    y = (torch.arange(height) + 0.5) / height * num_cells
    x = (torch.arange(width) + 0.5) / width * num_cells
    out = []
    for row in range(num_cells):
        for col in range(num_cells):
            # A soft cover of about two cells: a hard edge would be a thing of its own.
            cover = torch.outer(_bump(y - row - 0.5), _bump(x - col - 0.5))
            out.append(pixels + cover * (mean - pixels))
    return out


def _bump(distance: Tensor) -> Tensor:
    return (1.5 - distance.abs()).clamp(0, 1)


def _enlarged(cells: Tensor, size: torch.Size) -> Tensor:
    enlarged = torch.nn.functional.interpolate(
        cells[None, None], size=tuple(size), mode="bilinear", align_corners=False
    )
    return enlarged[0, 0].clamp(0, 1)
