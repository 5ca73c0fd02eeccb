"""Fits and measures the verifier's calibration on previews of known contents.

For every preview, each claim that is true of its scene and a false one beside it, in the very form and with the very
opponents that the claim extractor gives. Knows scenes, claims and margins; knows no diffusion model.
Legend: `n` claims.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from torch import Tensor

from mmspec.embedded.captions import thing
from mmspec.embedded.judge import Judge
from mmspec.embedded.lexicon import embedded_lexicon
from mmspec.embedded.scenes import Scene
from mmspec.embedded.training.phrases import questions, synonyms
from mmspec.embedded.training.previews import KnownPreviews
from mmspec.embedded.training.scenes import scene_at
from mmspec.types import Claim, ClaimKind, Verdict
from mmspec.verify.calibration import CALIBRATION_NAME, Calibration, Curve, area_under_curve, calibration_error, fit
from mmspec.verify.open_clip_scorer import OpenClipScorer
from mmspec.verify.scorer import ContrastScorer

__all__ = ["KnownMargins", "calibrate", "calibrate_folder", "known_claims", "known_margins", "quality", "retrieval"]

_CONFUSABLE_SHARE = 0.3  # of the false things: one that is easily taken for the true one
_NUM_JUDGED = 8  # a phrase is called weak on at least so many pictures of it
_WEAK_AUC = 0.75
_FALSE_PRUNES = 0.05


@dataclass(frozen=True, eq=False)
class KnownMargins:
    """Margins of claims: `phrases` `[n]`, and tensors `[n]`: `margins`, `holds` (bool), noise `levels`."""

    phrases: tuple[str, ...]
    margins: Tensor
    holds: Tensor
    levels: Tensor

    def where(self, chosen: Tensor) -> KnownMargins:
        """Those of `chosen` `[n]` bool."""
        phrases = tuple(phrase for phrase, keep in zip(self.phrases, chosen.tolist(), strict=True) if keep)
        return KnownMargins(phrases, self.margins[chosen], self.holds[chosen], self.levels[chosen])


def known_claims(scene: Scene, rng: numpy.random.Generator) -> Iterator[tuple[Claim, bool]]:
    """Every claim that is true of `scene`, each followed by a false one of the same kind."""
    say, near = _plain_words()
    asked = [question for question in questions(scene, say, rng) if question.kind != "nothing"]
    present = {q.options[q.answer] for q in asked if q.kind == "prop"}
    for question in asked:
        true = question.options[question.answer]
        false = [option for option in question.options if option != true]
        if question.kind == "prop":
            false = [option for option in say["prop"] if option not in present]
            confusable = [option for option in near[true] if option not in present]
            if confusable and rng.random() < _CONFUSABLE_SHARE:
                false = confusable
        for phrase, holds in ((true, True), (false[int(rng.integers(len(false)))], False)):
            contrasts = tuple(option for option in question.options if option != phrase)
            parent = thing(question.noun) if question.noun is not None else None
            yield Claim(phrase, ClaimKind(question.kind), "text", (0, 1), contrasts, parent), holds


@functools.cache
def _plain_words() -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """The plain phrases of each kind, and the confusable ones of each phrase."""
    say = {kind: tuple(names[0] for names in terms.values()) for kind, terms in synonyms().items()}
    return say, {entry.phrase: entry.confusable for entry in embedded_lexicon().entries}


def known_margins(
    scorer: ContrastScorer, previews: KnownPreviews, *, seed: int, judge: Judge | None = None
) -> dict[str, KnownMargins]:
    """Margins of every known claim about every preview, by kind.

    With a `judge`, only of claims whose true value it sees: what a drafter was asked for need not be there.
    """
    found: dict[str, list[tuple[str, float, bool, float]]] = {}
    for k in range(len(previews)):
        scene = scene_at(previews.seed, int(previews.indices[k]))
        claims = list(known_claims(scene, numpy.random.default_rng([seed, k])))
        pixels = previews.pictures[k].float().div(255)
        if judge is not None:
            (verdicts,) = judge.verdicts([pixels], [claim for claim, _ in claims])
            agreed = [verdict is Verdict.HELD for verdict in verdicts[::2] for _ in range(2)]  # a false one follows
            claims = [claim for claim, keep in zip(claims, agreed, strict=True) if keep]
            if not claims:
                continue
        margins = scorer.margins([pixels], [claim for claim, _ in claims])[0]
        for (claim, holds), margin in zip(claims, margins.tolist(), strict=True):
            found.setdefault(claim.kind.value, []).append((claim.phrase, margin, holds, float(previews.levels[k])))
    return {
        kind: KnownMargins(
            tuple(row[0] for row in rows), *(torch.tensor([row[column] for row in rows]) for column in (1, 2, 3))
        )
        for kind, rows in found.items()
    }


def calibrate(known: Mapping[str, KnownMargins]) -> Calibration:
    """One curve for each kind, with a point at every noise level that the previews have; phrases near chance."""
    curves, weak = {}, set()
    for kind, margins in known.items():
        points = []
        for level in margins.levels.unique().tolist():
            here = margins.where(margins.levels == level)
            points.append(fit(here.margins, here.holds, level=level))
        curves[kind] = Curve(tuple(points))
        if kind == "prop":
            weak = _weak(margins)
    return Calibration(curves, frozenset(weak))


def calibrate_folder(folder: Path, previews: KnownPreviews, *, seed: int) -> dict[str, dict[str, float]]:
    """Fit the model in `folder` on one half of `previews`, write its `calibration.json`, measure on the other half."""
    (folder / CALIBRATION_NAME).unlink(missing_ok=True)
    scorer = _scorer(folder)
    even = previews.indices % 2 == 0
    calibration = calibrate(known_margins(scorer, previews.where(even), seed=seed))
    calibration.write(folder / CALIBRATION_NAME)
    scorer = _scorer(folder)
    return quality(known_margins(scorer, previews.where(~even), seed=seed), scorer)


def _scorer(folder: Path) -> OpenClipScorer:
    """A scorer that is asked for margins and probabilities only; its thresholds do not matter."""
    return OpenClipScorer(
        path=str(folder),
        held=0.5,
        failed=0.4,
        widening=0.0,
        min_auc=0.0,
        batch_size=1,
        num_cells=1,
        device="cpu",
        dtype="float32",
    )


def _weak(known: KnownMargins) -> set[str]:
    """Phrases whose true margins do not stand out from the false ones of all phrases."""
    false = known.margins[~known.holds]
    weak = set()
    for phrase in set(known.phrases):
        own = torch.tensor([other == phrase for other in known.phrases]) & known.holds
        if int(own.sum()) >= _NUM_JUDGED and area_under_curve(known.margins[own], false) < _WEAK_AUC:
            weak.add(phrase)
    return weak


def quality(known: Mapping[str, KnownMargins], scorer: ContrastScorer) -> dict[str, dict[str, float]]:
    """Per kind, over all noise levels: AUC, calibration error, and the share of false claims caught.

    `caught` is measured at the probability below which 5 % of the true claims lie.
    """
    out = {}
    for kind, margins in known.items():
        probability = torch.tensor(
            [
                scorer.probability(ClaimKind(kind), margin, noise_level=level)
                for margin, level in zip(margins.margins.tolist(), margins.levels.tolist(), strict=True)
            ]
        )
        true, false = probability[margins.holds], probability[~margins.holds]
        limit = torch.quantile(true, _FALSE_PRUNES)
        out[kind] = {
            "auc": area_under_curve(true, false),
            "ece": calibration_error(probability, margins.holds),
            "caught": float((false < limit).float().mean()),
            "n": float(len(margins.phrases)),
        }
    return out


def retrieval(scorer: ContrastScorer, previews: KnownPreviews, captions: Sequence[str], *, group: int) -> float:
    """Share of pictures whose own caption fits best among the captions of `group` pictures."""
    right = 0
    starts = range(0, len(previews) - group + 1, group)
    for start in starts:
        pixels = [picture.float().div(255) for picture in previews.pictures[start : start + group]]
        scores = scorer.similarities(pixels, captions[start : start + group])
        right += int((scores.argmax(1) == torch.arange(group)).sum())
    return right / (group * len(starts))
