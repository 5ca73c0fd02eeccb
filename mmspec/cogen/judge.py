"""Verification and pruning: what the verifier sees in every live draft, and which branches and drafts go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mmspec.cogen.agreement import agreement, describe, draft_faults, missing_claims, text_faults
from mmspec.cogen.forbidden import denied
from mmspec.cogen.parts import stage
from mmspec.cogen.prune import PrunePolicy, Rival
from mmspec.cogen.tree import BranchTree, Growing
from mmspec.types import Claim, ClaimKind, ClaimScore, Event, Preview, Pruned, Scored

if TYPE_CHECKING:
    from mmspec.verify.scorer import Scorer

__all__ = ["prune", "score", "verify"]


def verify(tree: BranchTree, scorer: Scorer) -> Iterator[Event]:
    """Score every live draft against the claims of the prompt and of its own branch's text."""
    drafts = [(growing, k) for growing in tree.live for k in growing.live if (growing.branch.id, k) in tree.previews]
    claims = {growing.branch.id: (*tree.prompt_claims, *growing.claims) for growing, _ in drafts}
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
    tree: BranchTree, scorer: Scorer, previews: list[Preview], claims: list[tuple[Claim, ...]]
) -> list[tuple[ClaimScore, ...]]:
    """The scores of `claims[k]` on `previews[k]`: all pictures in one call to the verifier, each question asked once."""
    asked = [[tree.forbidden.get(claim, claim) for claim in own] for own in claims]
    questions = {_question(claim): claim for own in asked for claim in own}
    if not questions:
        return [() for _ in previews]
    with stage("verification"), tree.clock.measure("verify"):
        table = scorer.score(previews, list(questions.values()))
    place = {question: i for i, question in enumerate(questions)}

    def answer(row: Sequence[ClaimScore], claim: Claim) -> ClaimScore:
        if claim in tree.forbidden:
            return denied(row[place[_question(tree.forbidden[claim])]], claim)
        return replace(row[place[_question(claim)]], claim=claim)

    return [tuple(answer(row, claim) for claim in own) for row, own in zip(table, claims, strict=True)]


def _question(claim: Claim) -> tuple[str, ClaimKind, str | None, tuple[str, ...]]:
    """What the verifier is asked by a claim, whoever makes it and wherever."""
    return (claim.phrase, claim.kind, claim.parent, claim.contrasts)


def prune(tree: BranchTree, policy: PrunePolicy) -> Iterator[Event]:
    """Branches that contradict every picture of theirs go, then drafts that contradict the prompt.

    At least as many branches stay as pairs are asked for, and at least one draft in every branch.
    """
    branches = [growing for growing in tree.live if growing.judged]
    rivals = [
        Rival(agreement(growing.branch.scores[growing.best]), _branch_faults(growing, branches)) for growing in branches
    ]
    for i in policy.prune(rivals, round=tree.round - 1, keep=tree.request.n):
        reason = "; ".join(describe(fault) for fault in rivals[i].faults)
        tree.prune(branches[i].branch.id, reason)
        yield Pruned(branches[i].branch.id, None, reason)
    for growing in tree.live:
        drafts = [Rival(agreement(seen), draft_faults(seen)) for seen in growing.scores]
        for i in policy.prune(drafts, round=tree.round - 1, keep=1):
            tree.prune_draft(growing.branch.id, growing.judged[i])
            reason = "; ".join(describe(fault) for fault in drafts[i].faults)
            yield Pruned(growing.branch.id, growing.judged[i], reason)


def _branch_faults(growing: Growing, rivals: list[Growing]) -> tuple[ClaimScore, ...]:
    """What the text alone is to blame for, and what its drafts all miss while a rival branch shows it."""
    elsewhere = {fault.claim.phrase for rival in rivals if rival is not growing for fault in _shown(rival)}
    missed = missing_claims(growing.scores)
    return (*text_faults(growing.scores), *(fault for fault in missed if fault.claim.phrase in elsewhere))


def _shown(growing: Growing) -> tuple[ClaimScore, ...]:
    """The prompt's claims that some draft of the branch does not contradict."""
    missed = {fault.claim for fault in missing_claims(growing.scores)}
    return tuple(seen for seen in growing.scores[0] if seen.claim.source == "prompt" and seen.claim not in missed)
