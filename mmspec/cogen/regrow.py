"""Refilling the tree: survivors branch again, and a live draft is carried on instead of begun anew.

A fork leaves out what its parent is to blame for: it begins before the first segment of the parent's text
that every draft contradicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mmspec.cogen.agreement import text_faults
from mmspec.cogen.parts import Parts, stage
from mmspec.cogen.tree import BranchTree, Growing
from mmspec.types import Branch, Event, Regrown

if TYPE_CHECKING:
    from mmspec.text.state import TextState

__all__ = ["regrow"]


def regrow(tree: BranchTree, parts: Parts, *, level: float) -> Iterator[Event]:
    """Fork the survivors, best first, until as many branches live as the budget allows.

    A child carries its parent's best draft on; its further drafts are that one re-noised to `level` (or to
    the noise it still holds) by a seed of their own. A parent whose text is finished and without fault has
    nothing left to fork; no fork is made that the token budget could not bring to its end.
    """
    parents = tree.ranked
    for number in range(tree.budget.num_branches - len(parents)):
        growing = parents[number % len(parents)]
        prefixes = _clean_prefixes(growing)
        text = prefixes[-1]
        if text.finished or tree.tokens_to_spare < tree.request.max_tokens - len(text.ids):
            continue
        yield _fork(tree, parts, growing, prefixes, level=level)


def _clean_prefixes(growing: Growing) -> tuple[TextState, ...]:
    """The states of a branch's text up to, but not into, the first segment with a fault."""
    faults = text_faults(growing.scores)
    first = min((fault.claim.span[0] for fault in faults), default=len(growing.text.text) + 1)
    states = (*growing.prefixes, growing.text)
    clean = tuple(state for state in states if len(state.text) <= first)
    return clean or states[:1]


def _fork(tree: BranchTree, parts: Parts, parent: Growing, states: tuple[TextState, ...], *, level: float) -> Event:
    parent_id = parent.branch.id
    child_id = tree.child_id(parent_id)
    with stage("text fork"):
        text = parts.text.fork(states[-1], seed=tree.seed("text", child_id))
    best = parent.branch.drafts[parent.best]
    preview = tree.previews.get((parent_id, parent.best))
    drafts = [best]
    if preview is not None:
        with stage("image re-noising"):
            drafts += [
                parts.images.renoise(best, max(level, preview.noise_level), seed=tree.seed("image", child_id, k))
                for k in range(1, tree.budget.num_drafts)
            ]
        tree.previews[child_id, 0] = preview
    claims = parts.extractor.extract(text.text, source="text")
    branch = Branch(child_id, parent_id, text.text, tuple(drafts), round=tree.round)
    emphasis = parent.emphasis[parent.best]
    tree.add(branch, text, prefixes=states[:-1], claims=claims, emphasis=emphasis)
    return Regrown(child_id, parent_id)
