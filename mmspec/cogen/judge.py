"""Verification and pruning: what the verifier sees in every live draft, and which branches and drafts go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mmspec.cogen.agreement import agreement, describe, draft_faults, missing_claims, text_faults
from mmspec.cogen.forbidden import denied
from mmspec.cogen.parts import stage
from mmspec.cogen.prune import PrunePolicy, Rival
from mmspec.cogen.tree import BranchTree, Growing, Question
from mmspec.types import Claim, ClaimScore, Event, Preview, Pruned, Scored, Verdict

if TYPE_CHECKING:
    from mmspec.verify.scorer import Scorer

__all__ = ["explain", "explain_pruned", "prune", "score", "verify"]


def verify(tree: BranchTree, scorer: Scorer) -> Iterator[Event]:
    """Score every live draft against the claims of the prompt and of its own branch's text."""
    drafts = [(growing, k) for growing in tree.live for k in growing.live if (growing.branch.id, k) in tree.previews]
    claims = {growing.branch.id: (*tree.asked, *growing.claims) for growing, _ in drafts}
    previews = [tree.previews[growing.branch.id, k] for growing, k in drafts]
    scores = score(tree, scorer, previews, [claims[growing.branch.id] for growing, _ in drafts])
    per_branch: dict[str, dict[int, tuple[ClaimScore, ...]]] = {}
    for (growing, k), seen in zip(drafts, scores, strict=True):
        per_branch.setdefault(growing.branch.id, {})[k] = seen
    for branch_id, seen_by_draft in per_branch.items():
        tree.set_scores(branch_id, seen_by_draft)
        for k, seen in seen_by_draft.items():
            yield Scored(branch_id, k, seen)


def score(
    tree: BranchTree, scorer: Scorer, previews: Sequence[Preview], claims: Sequence[Sequence[Claim]]
) -> list[tuple[ClaimScore, ...]]:
    """The scores of `claims[k]` on `previews[k]`.

    All pictures go to the verifier in one call, and no picture is asked the same question twice in its life.
    """
    asked = [[tree.forbidden.get(claim, claim) for claim in own] for own in claims]
    open_questions = [_unanswered(tree, preview, own) for preview, own in zip(previews, asked, strict=True)]
    waiting = list({preview: None for preview, questions in zip(previews, open_questions, strict=True) if questions})
    union = {_question(claim): claim for questions in open_questions for claim in questions}
    if waiting:
        with stage("verification"), tree.clock.measure("verify"):
            table = scorer.score(waiting, list(union.values()))
        for preview, row in zip(waiting, table, strict=True):
            tree.answers[preview] = tree.answers.get(preview, {}) | dict(zip(union, row, strict=True))

    def answer(preview: Preview, claim: Claim) -> ClaimScore:
        if claim in tree.forbidden:
            return denied(tree.answers[preview][_question(tree.forbidden[claim])], claim)
        return replace(tree.answers[preview][_question(claim)], claim=claim)

    return [tuple(answer(preview, claim) for claim in own) for preview, own in zip(previews, claims, strict=True)]


def explain(tree: BranchTree, scorer: Scorer, preview: Preview, scores: Sequence[ClaimScore]) -> tuple[ClaimScore, ...]:
    """The same scores with maps of where the verifier sees them, the judged ones."""
    asked = [replace(seen, claim=tree.forbidden.get(seen.claim, seen.claim)) for seen in scores]
    with stage("verification"), tree.clock.measure("explain"):
        explained = scorer.explain(preview, asked)
    return tuple(replace(old, relevance=new.relevance) for old, new in zip(scores, explained, strict=True))


def explain_pruned(tree: BranchTree, scorer: Scorer, *, max_explained: int) -> None:
    """Add those maps to what failed on the first `max_explained` pictures that were pruned."""
    for branch_id, k in tree.pruned_drafts[:max_explained]:
        scores = tree[branch_id].branch.scores[k]
        failed = [seen for seen in scores if seen.verdict is Verdict.FAILED]
        maps = dict(zip(failed, explain(tree, scorer, tree.previews[branch_id, k], failed), strict=True))
        tree.set_scores(branch_id, {k: tuple(maps.get(seen, seen) for seen in scores)})


def _unanswered(tree: BranchTree, preview: Preview, claims: Sequence[Claim]) -> list[Claim]:
    """The claims that this picture was not asked about, with the things that their verdict depends on."""
    known = tree.answers.get(preview, {})
    fresh = [claim for claim in claims if _question(claim) not in known]
    parents = {claim.parent for claim in fresh}
    return fresh + [claim for claim in claims if claim.phrase in parents and claim not in fresh]


def _question(claim: Claim) -> Question:
    """What the verifier is asked by a claim, whoever makes it and wherever."""
    return (claim.phrase, claim.kind, claim.parent, claim.contrasts)


def prune(tree: BranchTree, policy: PrunePolicy) -> Iterator[Event]:
    """Branches that contradict every picture of theirs go, then drafts that contradict the prompt.

    At least as many branches stay as pairs are asked for, and at least one draft in every branch; of a given text,
    which is a single branch, as many drafts as pairs are asked for.
    """
    branches = [growing for growing in tree.live if growing.judged]
    rivals = [
        Rival(agreement(growing.branch.scores[growing.best]), _branch_faults(growing, branches)) for growing in branches
    ]
    for i in policy.prune(rivals, round=tree.round - 1, keep=tree.request.n):
        reason = "; ".join(describe(fault) for fault in rivals[i].faults)
        tree.prune(branches[i].branch.id, reason)
        if not any(fault.claim.asked for fault in rivals[i].faults):
            tree.orphaned.append(branches[i].branch.id)
        yield Pruned(branches[i].branch.id, None, reason)
    num_kept = tree.request.n if tree.request.text else 1
    for growing in tree.live:
        drafts = [Rival(agreement(seen), draft_faults(seen)) for seen in growing.scores]
        for i in policy.prune(drafts, round=tree.round - 1, keep=num_kept):
            tree.prune_draft(growing.branch.id, growing.judged[i])
            reason = "; ".join(describe(fault) for fault in drafts[i].faults)
            yield Pruned(growing.branch.id, growing.judged[i], reason)


def _branch_faults(growing: Growing, rivals: Sequence[Growing]) -> tuple[ClaimScore, ...]:
    """What the text alone is to blame for, and what its drafts all miss while a rival's draft shows it for sure."""
    elsewhere = {
        seen.claim.phrase
        for rival in rivals
        if rival is not growing
        for scores in rival.scores
        for seen in scores
        if seen.claim.asked and seen.verdict is Verdict.HELD
    }
    missed = missing_claims(growing.scores)
    return (*text_faults(growing.scores), *(fault for fault in missed if fault.claim.phrase in elsewhere))
