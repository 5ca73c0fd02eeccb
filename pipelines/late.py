"""A baseline: the tree of co-generation, grown to its end with nothing pruned; the verifier sees it only then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mmspec.cogen.budget import Budget
from mmspec.cogen.copy import Copy
from mmspec.cogen.finish import finish
from mmspec.cogen.grow import grow, plant
from mmspec.cogen.judge import verify
from mmspec.cogen.outcome import outcome
from mmspec.cogen.parts import Parts
from mmspec.cogen.policy import Strictness
from mmspec.cogen.schedule import Schedule
from mmspec.cogen.tree import BranchTree
from mmspec.later import Later, arrived
from mmspec.pipeline import Pipeline
from mmspec.text.types import SegmentEnd
from mmspec.types import Done, Event, Request

if TYPE_CHECKING:
    from mmspec.image.drafter import ImageDrafter
    from mmspec.text.decode import TextDecoder
    from mmspec.verify.claims import ClaimExtractor
    from mmspec.verify.scorer import Scorer


class LateVerification(Pipeline):
    """Rounds as in co-generation, without verification, pruning, repair and regrowth in between."""

    later = ("images", "scorer")

    def __init__(
        self,
        *,
        text: TextDecoder,
        images: ImageDrafter | Later[ImageDrafter],
        extractor: ClaimExtractor,
        scorer: Scorer | Later[Scorer],
        policy: Strictness,
        copy: Copy,
        schedule: Schedule,
        num_branches: int,
        num_drafts: int,
        num_steps: int,
        draft_steps: int,
        steps_per_round: int,
        segment_tokens: int,
        segment_marks: str,
        repair_level: float,
    ) -> None:
        self._parts = Parts(text, images, extractor)
        self._scorer = scorer
        self._policy = policy
        self._copy = copy
        self._parts.prepare(copy)
        self._schedule = schedule
        self._budget = Budget(num_branches, num_drafts, num_steps, draft_steps, steps_per_round, segment_tokens)
        self._until = SegmentEnd(segment_marks)
        self._level = repair_level

    def stream(self, request: Request) -> Iterator[Event]:
        """See `Pipeline.stream`."""
        self.prompt_alone(request)
        parts = self._parts
        tree = BranchTree(request, self._budget.for_request(request), parts.extractor)
        plant(tree, parts, copy=self._copy)
        while not tree.grown:
            yield from grow(tree, parts, schedule=self._schedule, until=self._until)
        yield from verify(tree, arrived(self._scorer))
        pairs = yield from finish(
            tree, parts, arrived(self._scorer), policy=self._policy, level=self._level, max_explained=0
        )
        yield Done(outcome(tree, pairs))
