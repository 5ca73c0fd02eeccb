"""Co-generation: text branches and image drafts grow together, and what disagrees is pruned early."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mmspec.cogen.budget import Budget
from mmspec.cogen.copy import Copy
from mmspec.cogen.finish import finish
from mmspec.cogen.given import plant_given
from mmspec.cogen.grow import grow, plant
from mmspec.cogen.judge import prune, verify
from mmspec.cogen.outcome import interrupted_pairs, outcome
from mmspec.cogen.parts import Parts
from mmspec.cogen.policy import Strictness
from mmspec.cogen.prune import PrunePolicy
from mmspec.cogen.regrow import regrow
from mmspec.cogen.repair import repair
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


class CoGeneration(Pipeline):
    """One prompt in, `request.n` verified pairs of text and picture out."""

    later = ("images", "scorer")

    def __init__(
        self,
        *,
        text: TextDecoder,
        images: ImageDrafter | Later[ImageDrafter],
        extractor: ClaimExtractor,
        scorer: Scorer | Later[Scorer],
        prune: PrunePolicy,
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
        max_explained: int,
    ) -> None:
        self._parts = Parts(text, images, extractor)
        self._scorer = scorer
        self._prune = prune
        self._policy = policy
        self._copy = copy
        self._parts.prepare(copy)
        self._schedule = schedule
        self._budget = Budget(num_branches, num_drafts, num_steps, draft_steps, steps_per_round, segment_tokens)
        self._until = SegmentEnd(segment_marks)
        self._level = repair_level
        self._max_explained = max_explained

    def stream(self, request: Request) -> Iterator[Event]:
        """See `Pipeline.stream`; an interruption ends the run with what was verified before it."""
        parts = self._parts
        tree = BranchTree(request, self._budget.for_request(request), parts.extractor)
        try:
            if request.image or request.text:
                yield from plant_given(tree, parts, self._scorer, copy=self._copy)
            else:
                plant(tree, parts, copy=self._copy)
            while not tree.grown:
                yield from grow(tree, parts, schedule=self._schedule, until=self._until)
                yield from verify(tree, arrived(self._scorer))
                yield from prune(tree, self._prune)
                if not request.image:
                    yield from repair(tree, parts, policy=self._policy, level=self._level)
                yield from regrow(tree, parts, level=self._level)
            pairs = yield from finish(
                tree,
                parts,
                arrived(self._scorer),
                policy=self._policy,
                level=self._level,
                max_explained=self._max_explained,
            )
        except KeyboardInterrupt:
            pairs = interrupted_pairs(tree, parts, policy=self._policy)
            if not pairs:
                raise
            yield Done(outcome(tree, pairs, partial=True))
            return
        yield Done(outcome(tree, pairs))
