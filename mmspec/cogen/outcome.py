"""What a run gives back: its result with the figures of what it cost, whole or interrupted."""

from __future__ import annotations

from collections.abc import Sequence

from mmspec.cogen.choose import final_text
from mmspec.cogen.parts import Parts
from mmspec.cogen.policy import Strictness
from mmspec.cogen.schedule import hidden_share
from mmspec.cogen.tree import BranchTree
from mmspec.types import BranchState, Pair, Result

__all__ = ["interrupted_pairs", "outcome"]


def outcome(tree: BranchTree, pairs: Sequence[Pair], *, partial: bool = False) -> Result:
    """The result of a run that ended with these pairs."""
    metrics: dict[str, float | int | str] = dict(figures(tree))
    if rates := tree[pairs[0].branch_id].text.metrics.acceptance:
        metrics["acceptance_by_depth"] = " ".join(f"{rate:.2f}" for rate in rates)
    return Result(tree.request, tuple(pairs), tree.branches, metrics, partial, tree.clock.spans)


def interrupted_pairs(tree: BranchTree, parts: Parts, *, policy: Strictness) -> tuple[Pair, ...]:
    """The best branch as it was last verified, its picture as its preview shows it; empty before that."""
    judged = [growing for growing in tree.ranked if growing.judged]
    if not judged:
        return ()
    best = judged[0]
    scores = best.branch.scores[best.best]
    return (
        Pair(
            branch_id=best.branch.id,
            text=final_text(best),
            image=tree.picture or parts.images.render([tree.previews[best.branch.id, best.best]])[0],
            scores=scores,
            verified=policy.verified(scores),
            seed=best.branch.drafts[best.best].seed,
        ),
    )


def figures(tree: BranchTree) -> dict[str, float | int]:
    """What the run cost, by names that carry their unit."""
    clock = tree.clock
    text_s, image_s = clock.seconds("text"), clock.seconds("image")
    return clock.metrics() | {
        "hidden_share": hidden_share(text_s, image_s, clock.seconds("grow")),
        "num_rounds": tree.round,
        "num_branches": len(tree.branches),
        "num_pruned": sum(branch.state is BranchState.PRUNED for branch in tree.branches),
        "num_pruned_drafts": tree.num_pruned_drafts,
        "num_repairs": len(tree.repairs),
        "num_draft_steps": tree.ledger.num_spent,
        "num_tokens": tree.num_tokens,
        "num_target_calls": tree.num_target_calls,
        "num_text_passes": tree.num_text_passes,
        "mean_accepted_length": tree.num_tokens / tree.num_text_passes if tree.num_text_passes else 0.0,
        "tokens_per_s": tree.num_tokens / text_s if text_s else 0.0,
    }
