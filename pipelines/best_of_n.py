"""A baseline: several complete pairs, and the verifier picks among them when all is paid for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mmspec.cogen.budget import Budget
from mmspec.cogen.choose import choose, pairs
from mmspec.cogen.copy import Copy
from mmspec.cogen.grow import grow_drafts, grow_texts, plant
from mmspec.cogen.judge import verify
from mmspec.cogen.outcome import outcome
from mmspec.cogen.parts import Parts
from mmspec.cogen.policy import Strictness
from mmspec.cogen.tree import BranchTree
from mmspec.errors import InputError
from mmspec.pipeline import Pipeline
from mmspec.types import Done, Event, Request

if TYPE_CHECKING:
    from mmspec.image.drafter import ImageDrafter
    from mmspec.text.decode import TextDecoder
    from mmspec.verify.claims import ClaimExtractor
    from mmspec.verify.scorer import Scorer


class BestOfN(Pipeline):
    """`num_branches` texts with `num_drafts` pictures each, all of them finished; the best `request.n` come back."""

    def __init__(
        self,
        *,
        text: TextDecoder,
        images: ImageDrafter,
        extractor: ClaimExtractor,
        scorer: Scorer,
        policy: Strictness,
        copy: Copy,
        num_branches: int,
        num_drafts: int,
        num_steps: int,
    ) -> None:
        self._parts = Parts(text, images, extractor)
        self._scorer = scorer
        self._policy = policy
        self._copy = copy
        self._parts.prepare(copy)
        self._num_branches = num_branches
        self._num_drafts = num_drafts
        self._num_steps = num_steps

    def stream(self, request: Request) -> Iterator[Event]:
        """See `Pipeline.stream`. Raises `InputError` where there are fewer candidates than pairs wanted."""
        self.prompt_alone(request)
        parts, steps = self._parts, self._num_steps
        if self._num_branches * self._num_drafts < request.n:
            raise InputError(
                f"num_branches={self._num_branches} x num_drafts={self._num_drafts} is less than n={request.n}"
            )
        budget = Budget(self._num_branches, self._num_drafts, steps, steps, steps, segment_tokens=request.max_tokens)
        tree = BranchTree(request, budget, parts.extractor)
        plant(tree, parts, copy=self._copy)
        yield from grow_texts(tree, parts, until=None)
        yield from grow_drafts(tree, parts, step=steps)
        yield from verify(tree, self._scorer)
        yield Done(outcome(tree, pairs(tree, parts, choose(tree, request.n), policy=self._policy)))
