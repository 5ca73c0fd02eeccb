"""The branch tree of one request: every branch that ever lived, and what the living ones need to grow.

A branch's drafts keep their index for life, so that an event can name them; `live` says which still count.
Knows no model: stages read and write it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mmspec.cogen.agreement import agreement, best_draft, coverage, draft_faults, text_faults
from mmspec.cogen.budget import Budget, StepLedger
from mmspec.cogen.clock import Clock
from mmspec.cogen.forbidden import forbidden_claims
from mmspec.cogen.weighting import read_weights
from mmspec.seeding import derive
from mmspec.types import Branch, BranchState, Claim, ClaimKind, ClaimScore, ImageDraft, Preview, Request

if TYPE_CHECKING:
    from PIL.Image import Image

    from mmspec.text.state import TextState
    from mmspec.verify.claims import ClaimExtractor

__all__ = ["BranchTree", "Growing", "Key", "Question"]

COVERAGE_WEIGHT = 0.1
"""Worth, in agreement, of a text that speaks of everything the prompt asks for."""

FLUENCY_WEIGHT = 0.1
"""Worth, in agreement, of one nat of mean log-probability of the text's tokens."""

Key = tuple[str, int]
"""Names a draft: the id of its branch and its index there."""

Question = tuple[str, ClaimKind, str | None, tuple[str, ...]]
"""What a claim asks of a picture: phrase, kind, the thing it depends on, opponents."""


@dataclass(frozen=True, eq=False)
class Growing:
    """A branch with what it needs to grow.

    `text` is its text state and `prefixes` are the ones before each of its segments, so that a fork can
    leave a segment out; `claims` are made by its text. `live` are the indices of its live drafts, `judged`
    of those that the last verification saw, all against the same claims. `emphasis[k]` is the claim that
    draft `k` was told to show, if it is a repair.
    A `given` text came with the request and stays as it is.
    """

    branch: Branch
    text: TextState
    prefixes: tuple[TextState, ...]
    claims: tuple[Claim, ...]
    live: tuple[int, ...]
    judged: tuple[int, ...]
    emphasis: tuple[str | None, ...]
    given: bool = False

    @property
    def scores(self) -> tuple[tuple[ClaimScore, ...], ...]:
        """Scores of the judged drafts, in the order of `judged`."""
        return tuple(self.branch.scores[k] for k in self.judged)

    @property
    def best(self) -> int:
        """Index of the best judged draft; of the first live one where none was judged."""
        return self.judged[best_draft(self.scores)] if self.judged else self.live[0]

    @property
    def rank(self) -> tuple[int, int, float]:
        """Sorts branches best first: the prompt's claims that are missed, the text's, then merit.

        Merit is agreement; between branches that agree about as well, it prefers the text that speaks of what
        the prompt asks for, and that the language model itself finds likely: an odd text seldom makes sense.
        """
        if not self.judged:
            return (0, 0, 0.0)
        best = self.branch.scores[self.best]
        fluency = self.text.log_prob / max(1, len(self.text.ids))
        merit = agreement(best) + COVERAGE_WEIGHT * coverage(best) + FLUENCY_WEIGHT * fluency
        return (len(draft_faults(best)), len(text_faults(self.scores)), -merit)


class BranchTree:
    """All branches of one request, in order of birth.

    `topic` is what the texts are about: the plain prompt, unless somebody sets another. `picture` is the given one.
    `orphaned` are the branches that went this round for their text alone: their pictures are without fault.
    """

    def __init__(self, request: Request, budget: Budget, extractor: ClaimExtractor) -> None:
        self.request = request
        self.budget = budget
        prompt, negative = read_weights(request.prompt), read_weights(request.negative_prompt)
        self.topic = prompt.text
        self.negative = negative.text
        self.emphasis = prompt.emphasis
        self.picture: Image | None = None
        self.from_prompt = tuple(map(prompt.weighted, extractor.extract(prompt.text, source="prompt")))
        self.from_given = extractor.extract(request.text, source="given")
        forbidden = map(negative.weighted, extractor.extract(negative.text, source="prompt"))
        self.forbidden = forbidden_claims(tuple(forbidden))
        self.ledger = StepLedger(
            budget.max_draft_steps, num_reserved=request.n * (budget.num_steps - budget.draft_steps)
        )
        self.clock = Clock()
        self.round = 0
        self.repairs: list[str] = []
        self.num_pruned_drafts = 0
        self.pruned_drafts: list[Key] = []
        self.orphaned: list[str] = []
        self.num_tokens = 0
        self.num_target_calls = 0
        self.num_text_passes = 0
        self.previews: dict[Key, Preview] = {}
        self.answers: dict[Preview, dict[Question, ClaimScore]] = {}
        self._growing: dict[str, Growing] = {}
        self._num_children: dict[str, int] = {}

    @property
    def asked(self) -> tuple[Claim, ...]:
        """What the person asks for, in the prompt and in a given text, and what the negative prompt forbids."""
        return (*self.from_prompt, *self.from_given, *self.forbidden)

    def __getitem__(self, branch_id: str) -> Growing:
        return self._growing[branch_id]

    @property
    def branches(self) -> tuple[Branch, ...]:
        """Every branch that ever lived, in order of birth."""
        return tuple(growing.branch for growing in self._growing.values())

    @property
    def all_growing(self) -> tuple[Growing, ...]:
        """The same with what they need to grow, the pruned ones too."""
        return tuple(self._growing.values())

    @property
    def live(self) -> list[Growing]:
        """The branches that still grow, in order of birth."""
        return [growing for growing in self._growing.values() if growing.branch.state is BranchState.LIVE]

    @property
    def ranked(self) -> list[Growing]:
        """The live branches, best first; ties in order of birth."""
        return sorted(self.live, key=lambda growing: growing.rank)

    @property
    def grown(self) -> bool:
        """Whether no live branch can grow any more: texts are finished, drafts wait to be chosen."""
        return all(growing.text.finished for growing in self.live) and not self.targets(self.budget.draft_steps)

    @property
    def undrafted(self) -> dict[Key, int]:
        """The drafts that live branches are still to start, with their seeds."""
        return {
            (growing.branch.id, k): self.seed("image", growing.branch.id, k)
            for growing in self.live
            if not growing.branch.drafts
            for k in range(self.budget.num_drafts)
        }

    @property
    def tokens_to_spare(self) -> int:
        """Tokens of the text budget that the live branches cannot use up.

        The budget is one full text for every branch that may live at once, and one more.
        """
        max_tokens = self.request.max_tokens
        needed = sum(max_tokens - len(growing.text.ids) for growing in self.live if not growing.text.finished)
        return (self.budget.num_branches + 1) * max_tokens - self.num_tokens - needed

    def targets(self, step: int) -> dict[Key, int]:
        """The live drafts that have a way to go to `step`, as many as the budget pays for, and how far.

        A draft that nobody has looked at yet goes one step at least, and so does one that is still to be started.
        """
        drafts = {(g.branch.id, k): g.branch.drafts[k] for g in self.live for k in g.live}
        targets = {key: step if key in self.previews else max(step, draft.step + 1) for key, draft in drafts.items()}
        behind = {k: targets[k] for k, draft in drafts.items() if draft.step < targets[k] and not draft.finished}
        behind |= dict.fromkeys(self.undrafted, max(step, 1))
        return dict(list(behind.items())[: self.ledger.num_left])

    def child_id(self, parent_id: str) -> str:
        """The id of the next child: the parent's id and how many children it had, as in "0.1"."""
        child_id = self.next_child_id(parent_id)
        self._num_children[parent_id] = self._num_children.get(parent_id, 0) + 1
        return child_id

    def next_child_id(self, parent_id: str) -> str:
        """The id that `child_id` will give."""
        return f"{parent_id}.{self._num_children.get(parent_id, 0)}"

    def seed(self, stream: str, branch_id: str, index: int = 0) -> int:
        """The seed of a branch's text ("text") or of its draft number `index` ("image")."""
        return derive(self.request.seed, f"cogen/{stream}", f"{branch_id}/{index}")

    def add(
        self,
        branch: Branch,
        text: TextState,
        *,
        prefixes: Sequence[TextState],
        claims: Sequence[Claim],
        emphasis: Sequence[str | None] = (),
        given: bool = False,
    ) -> None:
        """A branch is born; all its drafts live, and draft `k` is told to show `emphasis[k]`."""
        live = tuple(range(len(branch.drafts)))
        told = tuple(emphasis)
        assert len(told) == len(live), "an emphasis, or None, for every draft"
        self._growing[branch.id] = Growing(
            branch, text, tuple(prefixes), tuple(claims), live=live, judged=(), emphasis=told, given=given
        )

    def add_draft(self, branch_id: str, draft: ImageDraft, *, emphasis: str | None) -> int:
        """One more live draft for a branch; its index."""
        growing = self._growing[branch_id]
        index = len(growing.branch.drafts)
        branch = replace(growing.branch, drafts=(*growing.branch.drafts, draft))
        self._growing[branch_id] = replace(
            growing, branch=branch, live=(*growing.live, index), emphasis=(*growing.emphasis, emphasis)
        )
        return index

    def set_text(self, branch_id: str, text: TextState, claims: Sequence[Claim]) -> None:
        """A branch's text has grown."""
        growing = self._growing[branch_id]
        self.num_tokens += len(text.ids) - len(growing.text.ids)
        self._growing[branch_id] = replace(
            growing,
            branch=replace(growing.branch, text=text.text),
            text=text,
            prefixes=(*growing.prefixes, growing.text),
            claims=tuple(claims),
        )

    def set_draft(self, branch_id: str, index: int, draft: ImageDraft, preview: Preview) -> None:
        """A draft has advanced."""
        growing = self._growing[branch_id]
        drafts = list(growing.branch.drafts)
        drafts[index] = draft
        self._growing[branch_id] = replace(growing, branch=replace(growing.branch, drafts=tuple(drafts)))
        self.answers.pop(self.previews.get((branch_id, index), preview), None)
        self.previews[branch_id, index] = preview

    def set_scores(self, branch_id: str, scores: dict[int, tuple[ClaimScore, ...]]) -> None:
        """These drafts of a branch were verified; the others keep the scores they had."""
        growing = self._growing[branch_id]
        known = dict(enumerate(growing.branch.scores)) | scores
        merged = tuple(known.get(k, ()) for k in range(len(growing.branch.drafts)))
        self._growing[branch_id] = replace(
            growing, branch=replace(growing.branch, scores=merged), judged=tuple(sorted(scores))
        )

    def prune(self, branch_id: str, reason: str) -> None:
        """A branch goes, with all its drafts."""
        growing = self._growing[branch_id]
        branch = replace(growing.branch, state=BranchState.PRUNED, reason=reason)
        if growing.judged:
            self.pruned_drafts.append((branch_id, growing.best))
        self._growing[branch_id] = replace(growing, branch=branch)

    def prune_draft(self, branch_id: str, index: int) -> None:
        """One draft of a branch goes."""
        growing = self._growing[branch_id]
        self._growing[branch_id] = replace(
            growing,
            live=tuple(k for k in growing.live if k != index),
            judged=tuple(k for k in growing.judged if k != index),
        )
        self.num_pruned_drafts += 1
        self.pruned_drafts.append((branch_id, index))

    def finish(self, branch_id: str) -> None:
        """A branch was chosen for the result."""
        growing = self._growing[branch_id]
        self._growing[branch_id] = replace(growing, branch=replace(growing.branch, state=BranchState.FINISHED))
