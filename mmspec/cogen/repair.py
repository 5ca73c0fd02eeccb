"""Repair: what every draft misses is drawn again, with the missing claim emphasised.

First the best draft goes back to an earlier noise level, which keeps its composition; then another seed
begins from noise. What remains missing after that is left to other text branches, which pruning and
regrowing bring in. Each redraw is a draft beside the old one, so the verifier can refuse it.
"""

from __future__ import annotations

from collections.abc import Iterator

from mmspec.cogen.agreement import missing_claims
from mmspec.cogen.grow import caption
from mmspec.cogen.parts import Parts, stage
from mmspec.cogen.policy import Strictness
from mmspec.cogen.tree import BranchTree
from mmspec.types import Claim, ClaimScore, Event, Repaired

__all__ = ["missing_everywhere", "redraw", "repair"]


def repair(tree: BranchTree, parts: Parts, *, policy: Strictness, level: float) -> Iterator[Event]:
    """Redraw the best branch's best draft for the surest of the prompt's claims that every draft misses.

    Nothing is redrawn before the best draft is clearer than noise `level`: it may still show the claim by
    itself. At most one redraw a round, so that its outcome is seen before the next is paid for, and at most
    `policy.max_repairs` in a run.
    """
    missing = missing_everywhere(tree)
    if not missing or len(tree.repairs) >= policy.max_repairs or tree.ledger.num_left == 0:
        return
    best = tree.ranked[0]
    if tree.previews[best.branch.id, best.best].noise_level < level:
        yield redraw(tree, parts, best.branch.id, missing[0].claim, level=level)


def missing_everywhere(tree: BranchTree) -> list[ClaimScore]:
    """The prompt's claims that every judged draft of every live branch contradicts, surest first."""
    judged = [growing for growing in tree.live if growing.judged]
    missing = [{fault.claim: fault for fault in missing_claims(growing.scores)} for growing in judged]
    everywhere = (
        [fault for claim, fault in missing[0].items() if all(claim in rest for rest in missing[1:])] if missing else []
    )
    return sorted(everywhere, key=lambda fault: fault.probability)


def redraw(tree: BranchTree, parts: Parts, branch_id: str, claim: Claim, *, level: float) -> Repaired:
    """One more draft of a branch, told to show `claim` (unless it is one that forbids).

    The first redraw for a claim starts from the best draft at noise `level`; each later one from another
    seed, at level 1.
    """
    phrase = claim.phrase
    growing = tree[branch_id]
    again = phrase in tree.repairs
    index = len(growing.branch.drafts)
    seed = tree.seed("image", branch_id, index)
    with stage("repair"):
        if again:
            (draft,) = parts.images.start(
                [caption(tree, growing)],
                [seed],
                num_steps=tree.budget.num_steps,
                negative=tree.negative,
            )
        else:
            draft = parts.images.renoise(growing.branch.drafts[growing.best], level, seed=seed)
    tree.add_draft(branch_id, draft, emphasis=None if claim in tree.forbidden else phrase)
    tree.repairs.append(phrase)
    return Repaired(branch_id, index, phrase, 1.0 if again else level)
