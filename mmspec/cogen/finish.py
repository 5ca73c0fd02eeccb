"""The end of a run: the best branches' pictures get their full steps, and text and picture are verified again.

Text that its final picture does not support is replaced by that of a sibling branch which the picture does
support, if there is one; a picture that misses a claim is redrawn while repairs are left; what then still
fails is marked. What was given stays as it is. At last the verifier says where it sees what it judged.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mmspec.cogen.agreement import agreement, text_faults
from mmspec.cogen.choose import Candidate, choose, final_text, pairs
from mmspec.cogen.grow import advance, caption, emphasis_of, look
from mmspec.cogen.judge import explain, explain_pruned, score
from mmspec.cogen.parts import Parts, stage
from mmspec.cogen.policy import Strictness
from mmspec.cogen.repair import redraw
from mmspec.cogen.tree import BranchTree
from mmspec.types import Claim, ClaimScore, Event, Pair, PreviewReady, Scored

if TYPE_CHECKING:
    from mmspec.verify.scorer import Scorer

__all__ = ["finish"]


def finish(
    tree: BranchTree, parts: Parts, scorer: Scorer, *, policy: Strictness, level: float, max_explained: int
) -> Generator[Event, None, tuple[Pair, ...]]:
    """Finish as many pairs as the request asks for, best first; explain them and `max_explained` pruned pictures."""
    return (yield from _Finish(tree, parts, scorer, policy, level).run(max_explained))


class _Finish:
    """What the steps of finishing share."""

    def __init__(self, tree: BranchTree, parts: Parts, scorer: Scorer, policy: Strictness, level: float) -> None:
        self._tree = tree
        self._parts = parts
        self._scorer = scorer
        self._policy = policy
        self._level = level

    def run(self, max_explained: int) -> Generator[Event, None, tuple[Pair, ...]]:
        chosen = yield from self._verified(choose(self._tree, self._tree.request.n))
        for place in range(len(chosen)):
            candidate = self._with_supported_text(chosen[place], taken={other.text_id for other in chosen})
            chosen[place] = yield from self._repaired(candidate)
        if max_explained:
            chosen = [self._explained(candidate) for candidate in chosen]
            explain_pruned(self._tree, self._scorer, max_explained=max_explained)
        return pairs(self._tree, self._parts, chosen, policy=self._policy)

    def _verified(self, candidates: Sequence[Candidate]) -> Generator[Event, None, list[Candidate]]:
        """Give every candidate's picture its remaining steps and score it against prompt and text."""
        tree, parts = self._tree, self._parts
        drafts = {(candidate.picture_id, candidate.index): candidate.draft(tree) for candidate in candidates}
        captions = {branch_id: caption(tree, tree[branch_id]) for branch_id, _ in drafts}
        emphasis = {(branch_id, k): emphasis_of(tree, branch_id, k) for branch_id, k in drafts}
        tree.ledger.num_reserved = 0
        if tree.picture is not None:
            looked = {key: tree.previews[key] for key in drafts}
        else:
            with stage("image finishing"), tree.clock.measure("finish"):
                advance(tree, parts, drafts, dict.fromkeys(drafts, tree.budget.num_steps), captions, emphasis)
                looked = look(parts, drafts)
            for (branch_id, k), preview in looked.items():
                tree.set_draft(branch_id, k, drafts[branch_id, k], preview)
                yield PreviewReady(branch_id, k, drafts[branch_id, k].step, preview)
        claims = [self._claims(candidate.text_id) for candidate in candidates]
        scored = []
        for candidate, seen in zip(candidates, score(tree, self._scorer, list(looked.values()), claims), strict=True):
            tree.set_scores(candidate.picture_id, {candidate.index: seen})
            yield Scored(candidate.picture_id, candidate.index, seen)
            scored.append(replace(candidate, scores=seen))
        return scored

    def _with_supported_text(self, candidate: Candidate, *, taken: set[str]) -> Candidate:
        """The candidate, with a sibling's text where the picture contradicts its own and supports the sibling's."""
        if not text_faults([candidate.scores or ()]):
            return candidate
        siblings = [
            growing.branch.id
            for growing in self._tree.all_growing
            if growing.text.finished and growing.branch.id not in taken and final_text(growing)
        ]
        preview = self._tree.previews[candidate.picture_id, candidate.index]
        claims = [self._claims(branch_id) for branch_id in siblings]
        seen = score(self._tree, self._scorer, [preview] * len(siblings), claims)
        supported = [i for i in range(len(siblings)) if not text_faults([seen[i]])]
        if not supported:
            return candidate
        best = max(supported, key=lambda i: (agreement(seen[i]), -i))
        return replace(candidate, text_id=siblings[best], scores=seen[best])

    def _repaired(self, candidate: Candidate) -> Generator[Event, None, Candidate]:
        """The candidate with its picture redrawn until nothing counts against it or nothing is left to spend."""
        tree = self._tree
        while misses := self._misses(candidate):
            if tree.picture is not None:
                break
            if len(tree.repairs) >= self._policy.max_repairs or tree.ledger.num_left < tree.budget.num_steps:
                break
            repaired = redraw(tree, self._parts, candidate.picture_id, misses[0].claim, level=self._level)
            yield repaired
            (redrawn,) = yield from self._verified([replace(candidate, index=repaired.draft_index)])
            candidate = min(candidate, redrawn, key=self._order)
        return candidate

    def _claims(self, text_id: str) -> tuple[Claim, ...]:
        growing = self._tree[text_id]
        written = () if growing.given else self._parts.extractor.extract(final_text(growing), source="text")
        return (*self._tree.asked, *written)

    def _explained(self, candidate: Candidate) -> Candidate:
        preview = self._tree.previews[candidate.picture_id, candidate.index]
        return replace(candidate, scores=explain(self._tree, self._scorer, preview, candidate.scores or ()))

    def _misses(self, candidate: Candidate) -> list[ClaimScore]:
        """The claims that count against it, what is asked for first."""
        missed = [seen for seen in candidate.scores or () if self._policy.misses(seen)]
        return sorted(missed, key=lambda seen: not seen.claim.asked)

    def _order(self, candidate: Candidate) -> tuple[int, float]:
        return (len(self._misses(candidate)), -agreement(candidate.scores or ()))
