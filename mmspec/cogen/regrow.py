"""Refilling the tree: survivors branch again, and a live draft is carried on instead of begun anew.

A fork leaves out what its parent is to blame for: it begins before the first segment of the parent's text
that every draft contradicts. Where a branch went for its text alone, its pictures stay: the fork takes them over,
so that a wrong sentence costs no seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmspec.cogen.agreement import text_faults
from mmspec.cogen.parts import Parts, stage
from mmspec.cogen.tree import BranchTree, Growing
from mmspec.types import Branch, Event, ImageDraft, Preview, Regrown

if TYPE_CHECKING:
    from mmspec.text.state import TextState

__all__ = ["regrow"]


def regrow(tree: BranchTree, parts: Parts, *, level: float) -> Iterator[Event]:
    """Fork the survivors, best first, until as many branches live as the budget allows.

    A child takes the drafts of an orphaned branch over, if there is one. Else it carries its parent's best draft on;
    its further drafts are that one re-noised to `level` (or to the noise it still holds) by a seed of their own. A parent whose text is finished and without fault has
    nothing left to fork; no fork is made that the token budget could not bring to its end.
    """
    parents = tree.ranked
    for number in range(tree.budget.num_branches - len(parents)):
        growing = parents[number % len(parents)]
        prefixes = _clean_prefixes(growing)
        text = prefixes[-1]
        if text.finished or tree.tokens_to_spare < tree.request.max_tokens - len(text.ids):
            continue
        if tree.orphaned:
            yield _fork(tree, parts, growing, prefixes, drafts=_taken_over(tree, tree.orphaned.pop(0)))
        else:
            yield _fork(tree, parts, growing, prefixes, drafts=_carried_on(tree, parts, growing, level=level))
    tree.orphaned.clear()


def _clean_prefixes(growing: Growing) -> tuple[TextState, ...]:
    """The states of a branch's text up to, but not into, the first segment with a fault."""
    faults = text_faults(growing.scores)
    first = min((fault.claim.span[0] for fault in faults), default=len(growing.text.text) + 1)
    states = (*growing.prefixes, growing.text)
    clean = tuple(state for state in states if len(state.text) <= first)
    return clean or states[:1]


@dataclass(frozen=True, eq=False)
class _Drafts:
    """What a fork begins with: drafts, what each is told to show, and previews of those that were looked at."""

    drafts: tuple[ImageDraft, ...]
    emphasis: tuple[str | None, ...]
    previews: dict[int, Preview]


def _taken_over(tree: BranchTree, branch_id: str) -> _Drafts:
    """The drafts that lived when their branch went."""
    gone = tree[branch_id]
    previews = {n: tree.previews[branch_id, k] for n, k in enumerate(gone.live) if (branch_id, k) in tree.previews}
    drafts = tuple(gone.branch.drafts[k] for k in gone.live)
    return _Drafts(drafts, tuple(gone.emphasis[k] for k in gone.live), previews)


def _carried_on(tree: BranchTree, parts: Parts, parent: Growing, *, level: float) -> _Drafts:
    """The parent's best draft and, once it was looked at, variations of it."""
    best = parent.branch.drafts[parent.best]
    preview = tree.previews.get((parent.branch.id, parent.best))
    drafts = [best]
    if preview is not None:
        child_id = tree.next_child_id(parent.branch.id)
        with stage("image re-noising"):
            drafts += [
                parts.images.renoise(best, max(level, preview.noise_level), seed=tree.seed("image", child_id, k))
                for k in range(1, tree.budget.num_drafts)
            ]
    told = (parent.emphasis[parent.best],) * len(drafts)
    return _Drafts(tuple(drafts), told, {} if preview is None else {0: preview})


def _fork(tree: BranchTree, parts: Parts, parent: Growing, states: tuple[TextState, ...], *, drafts: _Drafts) -> Event:
    parent_id = parent.branch.id
    child_id = tree.child_id(parent_id)
    with stage("text fork"):
        text = parts.text.fork(states[-1], seed=tree.seed("text", child_id))
    tree.previews |= {(child_id, k): preview for k, preview in drafts.previews.items()}
    claims = parts.extractor.extract(text.text, source="text")
    branch = Branch(child_id, parent_id, text.text, drafts.drafts, round=tree.round)
    tree.add(branch, text, prefixes=states[:-1], claims=claims, emphasis=drafts.emphasis)
    return Regrown(child_id, parent_id)
