"""The end of a run: the best branches' pictures get their full steps, and text and picture are verified again.

Text that its final picture does not support is replaced by that of a sibling branch which the picture does
support, if there is one; a picture that misses a claim is redrawn while repairs are left; what then still
fails is marked.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mmspec.cogen.agreement import agreement, draft_faults, text_faults
from mmspec.cogen.grow import advance, caption
from mmspec.cogen.judge import score
from mmspec.cogen.parts import Parts, stage
from mmspec.cogen.policy import Strictness
from mmspec.cogen.repair import redraw
from mmspec.cogen.sentences import whole_sentences
from mmspec.cogen.tree import BranchTree, Growing
from mmspec.text.types import FinishReason
from mmspec.types import Claim, ClaimScore, Event, Pair, PreviewReady, Scored

if TYPE_CHECKING:
    from mmspec.types import ImageDraft, Preview

__all__ = ["finish"]


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A pair in the making: draft `index` of branch `picture_id`, beside the text of branch `text_id`."""

    picture_id: str
    index: int
    text_id: str
    scores: tuple[ClaimScore, ...] = ()

    def misses(self, policy: Strictness) -> list[ClaimScore]:
        """The claims that count against it, the prompt's first."""
        return sorted((s for s in self.scores if policy.misses(s)), key=lambda s: s.claim.source != "prompt")


def finish(
    tree: BranchTree, parts: Parts, *, policy: Strictness, level: float
) -> Generator[Event, None, tuple[Pair, ...]]:
    """Finish as many pairs as the request asks for, best first."""
    chosen = [_Candidate(branch_id, k, branch_id) for branch_id, k in choose(tree, tree.request.n)]
    chosen = yield from _verify_finished(tree, parts, chosen)
    for position in range(len(chosen)):
        taken = {other.text_id for other in chosen}
        candidate = _with_supported_text(tree, parts, chosen[position], taken)
        chosen[position] = yield from _repaired(tree, parts, candidate, policy=policy, level=level)
    chosen.sort(key=lambda candidate: (not policy.verified(candidate.scores), -agreement(candidate.scores)))
    drafts = [_draft(tree, candidate) for candidate in chosen]
    with stage("image finishing"), tree.clock.measure("finish"):
        images = parts.images.finish(drafts)
    for candidate in chosen:
        tree.finish(candidate.text_id)
    return tuple(
        Pair(
            branch_id=candidate.text_id,
            text=final_text(tree[candidate.text_id]),
            image=image,
            scores=candidate.scores,
            verified=policy.verified(candidate.scores),
            seed=draft.seed,
        )
        for candidate, draft, image in zip(chosen, drafts, images, strict=True)
    )


def choose(tree: BranchTree, n: int) -> list[tuple[str, int]]:
    """The best `n` (branch, draft) of distinct pictures: the best of each branch first, then what is left."""
    ranked = tree.ranked
    by_branch = [_ranked_drafts(growing) for growing in ranked]
    chosen: list[tuple[str, int]] = []
    seeds: set[int] = set()
    for depth in range(max(len(drafts) for drafts in by_branch)):
        for growing, drafts in zip(ranked, by_branch, strict=True):
            already = any(branch_id == growing.branch.id for branch_id, _ in chosen)
            fresh = [k for k in drafts if growing.branch.drafts[k].seed not in seeds]
            if len(chosen) < n and fresh and (depth > 0 or not already):
                chosen.append((growing.branch.id, fresh[0]))
                seeds.add(growing.branch.drafts[fresh[0]].seed)
    return chosen


def final_text(growing: Growing) -> str:
    """A branch's text as it is given back: whole sentences where its length cut it off."""
    if growing.text.finished in (FinishReason.LENGTH, FinishReason.CONTEXT):
        return whole_sentences(growing.text.text)
    return growing.text.text.strip()


def _ranked_drafts(growing: Growing) -> list[int]:
    """Indices of a branch's drafts, best first; all live ones where none was judged."""
    scores = growing.branch.scores

    def order(k: int) -> tuple[int, float, int]:
        return (len(draft_faults(scores[k])), -agreement(scores[k]), k)

    return sorted(growing.judged, key=order) or list(growing.live)


def _draft(tree: BranchTree, candidate: _Candidate) -> ImageDraft:
    return tree[candidate.picture_id].branch.drafts[candidate.index]


def _claims(tree: BranchTree, parts: Parts, text_id: str) -> tuple[Claim, ...]:
    return (*tree.prompt_claims, *parts.extractor.extract(final_text(tree[text_id]), source="text"))


def _verify_finished(
    tree: BranchTree, parts: Parts, candidates: Sequence[_Candidate]
) -> Generator[Event, None, list[_Candidate]]:
    """Give every candidate's picture its remaining steps and score it against prompt and text."""
    keys = [(candidate.picture_id, candidate.index) for candidate in candidates]
    drafts = {key: _draft(tree, candidate) for key, candidate in zip(keys, candidates, strict=True)}
    captions = {branch_id: caption(tree, tree[branch_id]) for branch_id, _ in keys}
    emphasis = {(branch_id, k): tree[branch_id].emphasis[k] for branch_id, k in keys}
    tree.ledger.num_reserved = 0
    with stage("image finishing"), tree.clock.measure("finish"):
        advance(tree, parts, drafts, dict.fromkeys(drafts, tree.budget.num_steps), captions, emphasis)
        previews: list[Preview] = parts.images.preview(list(drafts.values()))
    for (branch_id, k), preview in zip(drafts, previews, strict=True):
        tree.set_draft(branch_id, k, drafts[branch_id, k], preview)
        yield PreviewReady(branch_id, k, drafts[branch_id, k].step, preview)
    claims = [_claims(tree, parts, candidate.text_id) for candidate in candidates]
    scored = [
        replace(candidate, scores=seen)
        for candidate, seen in zip(candidates, score(tree, parts, previews, claims), strict=True)
    ]
    for candidate in scored:
        yield Scored(candidate.picture_id, candidate.index, candidate.scores)
    return scored


def _with_supported_text(tree: BranchTree, parts: Parts, candidate: _Candidate, taken: set[str]) -> _Candidate:
    """The candidate, with a sibling's text where the picture contradicts its own and supports the sibling's."""
    if not text_faults([candidate.scores]):
        return candidate
    siblings = [
        growing
        for growing in tree.all_growing
        if growing.text.finished and growing.branch.id not in taken and final_text(growing)
    ]
    if not siblings:
        return candidate
    preview = tree.previews[candidate.picture_id, candidate.index]
    claims = [_claims(tree, parts, growing.branch.id) for growing in siblings]
    seen = score(tree, parts, [preview] * len(siblings), claims)
    supported = [i for i in range(len(siblings)) if not text_faults([seen[i]])]
    if not supported:
        return candidate
    best = max(supported, key=lambda i: (agreement(seen[i]), -i))
    return replace(candidate, text_id=siblings[best].branch.id, scores=seen[best])


def _repaired(
    tree: BranchTree, parts: Parts, candidate: _Candidate, *, policy: Strictness, level: float
) -> Generator[Event, None, _Candidate]:
    """The candidate with its picture redrawn until nothing counts against it or no repair is left."""
    while (misses := candidate.misses(policy)) and len(tree.repairs) < policy.max_repairs:
        if tree.ledger.num_left < tree.budget.num_steps:
            break
        repaired = redraw(tree, parts, candidate.picture_id, misses[0].claim.phrase, level=level)
        yield repaired
        (redrawn,) = yield from _verify_finished(tree, parts, [replace(candidate, index=repaired.draft_index)])
        if _order(redrawn, policy) < _order(candidate, policy):
            candidate = redrawn
    return candidate


def _order(candidate: _Candidate, policy: Strictness) -> tuple[int, float]:
    return (len(candidate.misses(policy)), -agreement(candidate.scores))
