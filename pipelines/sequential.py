"""The plain baseline: first the whole text, then a picture of it, and no verifier."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mmspec.cogen.budget import Budget
from mmspec.cogen.choose import choose, pairs
from mmspec.cogen.copy import Copy
from mmspec.cogen.grow import grow_drafts, grow_texts, plant
from mmspec.cogen.outcome import outcome
from mmspec.cogen.parts import Parts
from mmspec.cogen.policy import Strictness
from mmspec.cogen.tree import BranchTree
from mmspec.pipeline import Pipeline
from mmspec.types import Done, Event, Request

if TYPE_CHECKING:
    from mmspec.image.drafter import ImageDrafter
    from mmspec.text.decode import TextDecoder
    from mmspec.verify.claims import ClaimExtractor


class Sequential(Pipeline):
    """`request.n` texts, then one picture for each; nothing is verified, so nothing is called verified."""

    def __init__(
        self,
        *,
        text: TextDecoder,
        images: ImageDrafter,
        extractor: ClaimExtractor,
        policy: Strictness,
        copy: Copy,
        num_steps: int,
    ) -> None:
        self._parts = Parts(text, images, extractor)
        self._policy = policy
        self._copy = copy
        self._parts.prepare(copy)
        self._num_steps = num_steps

    def stream(self, request: Request) -> Iterator[Event]:
        """See `Pipeline.stream`."""
        self.prompt_alone(request)
        parts, steps = self._parts, self._num_steps
        budget = Budget(
            request.n, 1, steps, draft_steps=steps, steps_per_round=steps, segment_tokens=request.max_tokens
        )
        tree = BranchTree(request, budget, parts.extractor)
        plant(tree, parts, copy=self._copy)
        yield from grow_texts(tree, parts, until=None)
        yield from grow_drafts(tree, parts, step=steps)
        yield Done(outcome(tree, pairs(tree, parts, choose(tree, request.n), policy=self._policy)))
