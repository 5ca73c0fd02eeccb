"""Which pairs a run gives back, and how a chosen candidate becomes one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmspec.cogen.agreement import agreement, draft_faults
from mmspec.cogen.parts import Parts, stage
from mmspec.cogen.policy import Strictness
from mmspec.cogen.sentences import whole_sentences
from mmspec.cogen.tree import BranchTree, Growing
from mmspec.text.types import FinishReason
from mmspec.types import ClaimScore, ImageDraft, Pair

__all__ = ["Candidate", "choose", "final_text", "pairs"]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A pair in the making: draft `index` of branch `picture_id`, beside the text of branch `text_id`.

    `scores` is None until somebody has verified it.
    """

    picture_id: str
    index: int
    text_id: str
    scores: tuple[ClaimScore, ...] | None = None

    def draft(self, tree: BranchTree) -> ImageDraft:
        """The draft of its picture."""
        return tree[self.picture_id].branch.drafts[self.index]


def choose(tree: BranchTree, n: int) -> list[Candidate]:
    """The best `n` candidates with distinct pictures: the best of each live branch first, then what is left.

    For a given picture, the best branches with distinct texts.
    """
    if tree.picture is not None:
        distinct = {final_text(growing): growing for growing in reversed(tree.ranked)}
        best = [growing for growing in tree.ranked if distinct[final_text(growing)] is growing]
        return [_candidate(growing, 0) for growing in best[:n]]
    chosen: list[Candidate] = []
    seeds: set[int] = set()
    waiting = [(growing, _ranked_drafts(growing)) for growing in tree.ranked]
    while waiting and len(chosen) < n:
        still_waiting = []
        for growing, drafts in waiting:
            fresh = [k for k in drafts if growing.branch.drafts[k].seed not in seeds]
            if not fresh or len(chosen) == n:
                continue
            chosen.append(_candidate(growing, fresh[0]))
            seeds.add(growing.branch.drafts[fresh[0]].seed)
            still_waiting.append((growing, fresh[1:]))
        waiting = still_waiting
    return chosen


def pairs(tree: BranchTree, parts: Parts, candidates: Sequence[Candidate], *, policy: Strictness) -> tuple[Pair, ...]:
    """The candidates' pictures at full size beside their texts, verified ones first, then by agreement.

    What nobody has verified has no scores and is not called verified.
    """

    def verified(candidate: Candidate) -> bool:
        return candidate.scores is not None and policy.verified(candidate.scores)

    ranked = sorted(candidates, key=lambda candidate: (not verified(candidate), -agreement(candidate.scores or ())))
    drafts = [candidate.draft(tree) for candidate in ranked]
    if tree.picture is not None:
        images = [tree.picture] * len(drafts)
    else:
        with stage("image finishing"), tree.clock.measure("finish"):
            images = parts.images.finish(drafts)
    for candidate in ranked:
        tree.finish(candidate.text_id)
    return tuple(
        Pair(
            branch_id=candidate.text_id,
            text=final_text(tree[candidate.text_id]),
            image=image,
            scores=candidate.scores or (),
            verified=verified(candidate),
            seed=draft.seed,
        )
        for candidate, draft, image in zip(ranked, drafts, images, strict=True)
    )


def final_text(growing: Growing) -> str:
    """A branch's text as it is given back: whole sentences where its length cut it off, and a capital to begin with.

    A template's opening words are not part of the text, so it may begin in the middle of a sentence. A given text
    is given back as it is.
    """
    if growing.given:
        return growing.text.text
    cut_off = growing.text.finished in (FinishReason.LENGTH, FinishReason.CONTEXT)
    text = whole_sentences(growing.text.text) if cut_off else growing.text.text.strip()
    return text[:1].upper() + text[1:]


def _candidate(growing: Growing, k: int) -> Candidate:
    branch = growing.branch
    return Candidate(branch.id, k, branch.id, branch.scores[k] if growing.judged else None)


def _ranked_drafts(growing: Growing) -> list[int]:
    """Indices of a branch's drafts, best first; all live ones where none was judged."""
    scores = growing.branch.scores

    def order(k: int) -> tuple[int, float, int]:
        return (len(draft_faults(scores[k])), -agreement(scores[k]), k)

    return sorted(growing.judged, key=order) or list(growing.live)
