"""Planted mismatches: a picture of known contents beside a text that is wrong in exactly one attribute.

Both texts of a scene, the true and the wrong one, are whole captions from which the claims are extracted as in a run;
a pair counts as pruned where one claim fails. Knows scenes, claims and a verifier; knows no diffusion model.
Legend: `n` pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from mmspec.embedded.captions import caption, swap
from mmspec.embedded.training.previews import KnownPreviews
from mmspec.embedded.training.scenes import scene_at
from mmspec.types import ClaimScore, Preview, Verdict
from mmspec.verify.claims import ClaimExtractor
from mmspec.verify.scorer import Scorer

__all__ = ["SWAPS", "PlantedPairs", "caught", "planted_pairs"]

SWAPS = ("place", "time", "weather", "prop", "colour", "count", "position")
"""The attributes that are swapped, in turn."""

_FALSE_PRUNES = 0.05


@dataclass(frozen=True, eq=False)
class PlantedPairs:
    """`kinds` `[n]` of what is wrong; the surest fault of the wrong and of the true text, `[n]` float32 (1: none), and
    whether each fails by the verifier's own thresholds, `[n]` bool.
    """

    kinds: tuple[str, ...]
    wrong: Tensor
    true: Tensor
    wrong_fails: Tensor
    true_fails: Tensor


def planted_pairs(scorer: Scorer, extractor: ClaimExtractor, pictures: KnownPreviews, *, num: int) -> PlantedPairs:
    """Judge up to `num` pairs of a picture and its two texts."""
    rows = list(_judged(scorer, extractor, pictures, num))
    kinds, *columns = zip(*rows, strict=True)
    return PlantedPairs(tuple(kinds), *(torch.tensor(column) for column in columns))


def _judged(
    scorer: Scorer, extractor: ClaimExtractor, pictures: KnownPreviews, num: int
) -> Iterator[tuple[str, float, float, bool, bool]]:
    made = 0
    for k in range(len(pictures)):
        scene = scene_at(pictures.seed, int(pictures.indices[k]))
        rng = numpy.random.default_rng([pictures.seed, k])
        planted = swap(scene, rng, SWAPS[made % len(SWAPS)])
        if planted is None:
            continue
        preview = Preview(pictures.pictures[k].float() / 255, float(pictures.levels[k]))
        judged = []
        for content in (planted.scene, scene):
            text = caption(content, numpy.random.default_rng([pictures.seed, k, 1]), complete=True)
            (scores,) = scorer.score([preview], extractor.extract(text, source="text"))
            judged.append(scores)
        wrong, true = judged
        yield planted.kind, _surest_fault(wrong), _surest_fault(true), _fails(wrong), _fails(true)
        made += 1
        if made == num:
            return


def _surest_fault(scores: Sequence[ClaimScore]) -> float:
    """The lowest probability of a judged claim."""
    return min((seen.probability for seen in scores if seen.verdict is not Verdict.UNJUDGED), default=1.0)


def _fails(scores: Sequence[ClaimScore]) -> bool:
    return any(seen.verdict is Verdict.FAILED for seen in scores)


def caught(pairs: PlantedPairs) -> dict[str, dict[str, float]]:
    """Shares of wrong texts caught, for every kind and for all.

    `caught` at the probability below which 5 % of the true texts fall; `pruned` and `falsely_pruned` by the verifier's
    own thresholds; `n` pairs.
    """
    limit = torch.quantile(pairs.true, _FALSE_PRUNES)
    out = {}
    for kind in ("all", *SWAPS):
        here = torch.tensor([kind in ("all", other) for other in pairs.kinds])
        if not here.any():
            continue
        out[kind] = {
            "caught": float((pairs.wrong[here] < limit).float().mean()),
            "pruned": float(pairs.wrong_fails[here].float().mean()),
            "falsely_pruned": float(pairs.true_fails[here].float().mean()),
            "n": float(here.sum()),
        }
    return out
