"""The trace of a run as plain data: what `trace.json` holds. Schema `mmspec.trace/2`.

Everything comes from the events, so the tree can be drawn and the run replayed from it alone.

    schema    "mmspec.trace/2"; the number rises when a field changes its meaning or goes
    request   prompt, negative_prompt, seed, max_tokens, n, image (path), text (both "" unless given)
    partial   true if the run was interrupted
    pairs     best first: branch (of the text), seed (of the picture), text, verified, claims
    branches  in order of birth: id, parent (null for a root), born_round, text, state ("live", "pruned",
              "finished"), pruned_round and reason (null unless pruned), drafts
      drafts  by index: seed, condition, step, num_steps, repair ({claim, level} or null), pruned_round,
              reason, claims (as last scored), history ([{round, claims}] for every verification)
      claims  phrase, kind, source ("prompt", "text", "given"), span ([start, end) in the source), parent, weight,
              probability, verdict ("held", "failed", "unsure", "unjudged"), looks_like (null where it holds),
              relevance (null, or `RELEVANCE_SIDE` rows of as many bytes, each row a hexadecimal string: ff
              where hiding the place harms the claim most; rows of numbers in schema 1)
    timeline  every event in order: at_s (seconds since the first event), event, and its plain fields
    spans     in order of their ends: name ("text", "image", "verify", ...), start_s, end_s (on the clock of
              `timeline`; what came before the first event is negative)
    metrics   figures whose names carry their unit

Rounds count from 0. Pixels and latents are not in the trace.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mmspec.types import (
    Branch,
    ClaimScore,
    Done,
    Event,
    Loaded,
    PreviewReady,
    Pruned,
    Regrown,
    Repaired,
    Result,
    RoundStarted,
    Scored,
    TextGrown,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SCHEMA", "TraceRecorder"]

SCHEMA = "mmspec.trace/2"

RELEVANCE_SIDE = 16

Plain = dict[str, Any]


class TraceRecorder:
    """Folds a run's events, in order, into its trace."""

    def __init__(self) -> None:
        self._started_s: float | None = None
        self._round = 0
        self._timeline: list[Plain] = []
        self._pruned: dict[tuple[str, int | None], Plain] = {}
        self._repairs: dict[tuple[str, int], Plain] = {}
        self._history: dict[tuple[str, int], list[Plain]] = {}
        self._result: Result | None = None

    def record(self, event: Event) -> None:
        """Take in the next event."""
        now_s = time.perf_counter()
        self._started_s = self._started_s if self._started_s is not None else now_s
        match event:
            case RoundStarted():
                self._round = event.round
                fields: Plain = {"event": "round", "round": event.round, "branches": list(event.branch_ids)}
            case TextGrown():
                fields = {
                    "event": "text",
                    "branch": event.branch_id,
                    "chunk": event.chunk,
                    "num_tokens": event.num_tokens,
                }
            case PreviewReady():
                fields = {
                    "event": "preview",
                    "branch": event.branch_id,
                    "draft": event.draft_index,
                    "step": event.step,
                    "noise_level": event.preview.noise_level,
                }
            case Scored():
                claims = _claims(event.scores)
                history = self._history.setdefault((event.branch_id, event.draft_index), [])
                history.append({"round": self._round, "claims": claims})
                fields = {"event": "scored", "branch": event.branch_id, "draft": event.draft_index}
            case Pruned():
                self._pruned[event.branch_id, event.draft_index] = {"pruned_round": self._round, "reason": event.reason}
                fields = {
                    "event": "pruned",
                    "branch": event.branch_id,
                    "draft": event.draft_index,
                    "reason": event.reason,
                }
            case Regrown():
                fields = {"event": "regrown", "branch": event.branch_id, "parent": event.parent_id}
            case Repaired():
                repair = {"claim": event.claim, "level": event.level}
                self._repairs[event.branch_id, event.draft_index] = repair
                fields = {"event": "repaired", "branch": event.branch_id, "draft": event.draft_index, **repair}
            case Loaded():
                fields = {"event": "loaded", "part": event.part, "seconds_s": event.seconds_s}
            case Done():
                self._result = event.result
                fields = {"event": "done"}
        self._timeline.append({"at_s": round(now_s - self._started_s, 4), **fields})

    def trace(self) -> Plain:
        """The trace, of values that JSON can hold. To be called after `Done`."""
        assert self._result is not None and self._started_s is not None, "trace() before Done"
        result = self._result
        request = result.request
        return {
            "schema": SCHEMA,
            "request": {
                "prompt": request.prompt,
                "negative_prompt": request.negative_prompt,
                "seed": request.seed,
                "max_tokens": request.max_tokens,
                "n": request.n,
                "image": request.image,
                "text": request.text,
            },
            "partial": result.partial,
            "pairs": [
                {
                    "branch": pair.branch_id,
                    "seed": pair.seed,
                    "text": pair.text,
                    "verified": pair.verified,
                    "claims": _claims(pair.scores),
                }
                for pair in result.pairs
            ],
            "branches": [self._branch(branch) for branch in result.tree],
            "timeline": self._timeline,
            "spans": [
                {
                    "name": span.name,
                    "start_s": round(span.start_s - self._started_s, 4),
                    "end_s": round(span.end_s - self._started_s, 4),
                }
                for span in result.spans
            ],
            "metrics": dict(result.metrics),
        }

    def _branch(self, branch: Branch) -> Plain:
        pruned = self._pruned.get((branch.id, None), {"pruned_round": None, "reason": branch.reason})
        return {
            "id": branch.id,
            "parent": branch.parent,
            "born_round": branch.round,
            "text": branch.text,
            "state": branch.state.value,
            **pruned,
            "drafts": [self._draft(branch, k) for k in range(len(branch.drafts))],
        }

    def _draft(self, branch: Branch, index: int) -> Plain:
        draft = branch.drafts[index]
        return {
            "index": index,
            "seed": draft.seed,
            "condition": draft.condition,
            "step": draft.step,
            "num_steps": draft.num_steps,
            "repair": self._repairs.get((branch.id, index)),
            **self._pruned.get((branch.id, index), {"pruned_round": None, "reason": None}),
            "claims": _claims(branch.scores[index]) if index < len(branch.scores) else [],
            "history": self._history.get((branch.id, index), []),
        }


def _claims(scores: Sequence[ClaimScore]) -> list[Plain]:
    return [
        {
            "phrase": score.claim.phrase,
            "kind": score.claim.kind.value,
            "source": score.claim.source,
            "span": list(score.claim.span),
            "parent": score.claim.parent,
            "weight": score.claim.weight,
            "probability": round(float(score.probability), 4),
            "verdict": score.verdict.value,
            "looks_like": score.looks_like,
            "relevance": None if score.relevance is None else _grid(score.relevance),
        }
        for score in scores
    ]


def _grid(relevance: Tensor) -> list[str]:
    """A map `[h, w]` in [0, 1] as bytes on a small square grid, a string a row."""
    from torch.nn import functional  # only here: a report is read without torch

    small = functional.adaptive_avg_pool2d(relevance[None, None], RELEVANCE_SIDE)[0, 0]
    return [bytes(row).hex() for row in (small * 255).round().clamp(0, 255).int().tolist()]
