"""Planting the tree and one round of growth: text and pictures at the same time.

Every live branch's text grows by one segment (all of them in the same target passes) while every live draft
advances by some denoising steps (all of them in one batch). What a draft is conditioned on is fixed before
the round, so neither side waits for the other, and the order in which they finish changes nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch

from mmspec.cogen.condition import condition
from mmspec.cogen.copy import Copy
from mmspec.cogen.parts import Parts, stage
from mmspec.cogen.schedule import Schedule
from mmspec.cogen.tree import BranchTree, Growing, Key
from mmspec.errors import ModelError
from mmspec.types import Branch, Emphasis, Event, ImageDraft, Preview, PreviewReady, Pruned, RoundStarted, TextGrown

if TYPE_CHECKING:
    from mmspec.text.state import TextState
    from mmspec.text.types import SegmentEnd

__all__ = ["advance", "caption", "emphasis_of", "grow", "grow_drafts", "grow_texts", "look", "plant"]

MAX_CONDITION_WORDS = 24
"""About the longest caption that the embedded image model was trained on."""

MAX_PIECE_PASSES = 3
"""Most target passes between two updates of what a person sees."""


def plant(tree: BranchTree, parts: Parts, *, copy: Copy) -> None:
    """The first branches: one prefill of the prompt as `copy` wraps it, forked. Their first growth starts the drafts."""
    budget = tree.budget
    ids = [str(number) for number in range(budget.num_branches)]
    with stage("text prefill"), tree.clock.measure("prefill"):
        first = parts.text.start(
            tree.topic,
            params=copy.params(tree.request.max_tokens),
            seed=tree.seed("text", ids[0]),
            template=copy.template,
        )
        texts = [first, *(parts.text.fork(first, seed=tree.seed("text", branch_id)) for branch_id in ids[1:])]
    for branch_id, text in zip(ids, texts, strict=True):
        tree.add(Branch(branch_id, None, text.text), text, prefixes=(), claims=())


def grow(tree: BranchTree, parts: Parts, *, schedule: Schedule, until: SegmentEnd) -> Iterator[Event]:
    """One round of growth; the tree is changed when both sides are done."""
    yield _round_started(tree)
    text = _TextJob(tree, parts, until)
    step = min(tree.budget.draft_steps, (tree.round + 1) * tree.budget.steps_per_round)
    image = _ImageJob(tree, parts, step)
    with tree.clock.measure("grow"):
        words = text.run()
        if not any(growing.text.ids for growing in tree.live):
            yield from itertools.islice(words, len(tree.live))  # the first words, before pictures want cores too
        yield from schedule.merge([words, image.run()])
    text.apply()
    yield from image.apply()
    tree.round += 1


def grow_texts(tree: BranchTree, parts: Parts, *, until: SegmentEnd | None) -> Iterator[Event]:
    """A round in which the texts alone grow; without `until` they grow to the end of the round's tokens."""
    yield _round_started(tree)
    job = _TextJob(tree, parts, until)
    yield from job.run()
    job.apply()
    tree.round += 1


def grow_drafts(tree: BranchTree, parts: Parts, *, step: int) -> Iterator[Event]:
    """A round in which the drafts alone advance, to `step`."""
    yield _round_started(tree)
    job = _ImageJob(tree, parts, step)
    yield from job.run()
    yield from job.apply()
    tree.round += 1


def _round_started(tree: BranchTree) -> RoundStarted:
    return RoundStarted(tree.round, tuple(growing.branch.id for growing in tree.live))


class _TextJob:
    """Grows every unfinished live text by one segment; `grown` holds the new states when it is done."""

    def __init__(self, tree: BranchTree, parts: Parts, until: SegmentEnd | None) -> None:
        self._tree = tree
        self._parts = parts
        self._until = until
        self._before = {g.branch.id: g.text for g in tree.live if not g.text.finished}
        self.grown = dict(self._before)

    def run(self) -> Iterator[Event]:
        limits = {i: len(state.ids) + self._tree.budget.segment_tokens for i, state in self.grown.items()}
        growing = list(self.grown)
        # One pass at first, and one token of a text that is still empty (for which nothing is drafted), so that there
        # is something to read at once.
        num_passes = 1
        while growing:
            begun = {branch_id: self.grown[branch_id] for branch_id in growing}
            self._extend(
                begun, [limits[i] - len(state.ids) if state.ids else 1 for i, state in begun.items()], num_passes
            )
            num_passes = min(num_passes + 1, MAX_PIECE_PASSES)
            for branch_id, old in begun.items():
                new = self.grown[branch_id]
                yield TextGrown(branch_id, new.text[len(old.text) :], len(new.ids) - len(old.ids))
                if new.finished or len(new.ids) >= limits[branch_id] or self._ended(branch_id):
                    growing.remove(branch_id)

    def _extend(self, states: Mapping[str, TextState], max_new_tokens: list[int], num_passes: int) -> None:
        with stage("text decoding"), self._tree.clock.measure("text"):
            extended = self._parts.text.extend(
                list(states.values()), max_new_tokens=max_new_tokens, until=self._until, max_passes=num_passes
            )
        self.grown.update(zip(states, extended, strict=True))
        calls = [
            new.metrics.num_target_calls - old.metrics.num_target_calls
            for old, new in zip(states.values(), extended, strict=True)
        ]
        # A target pass serves every branch that still grows, so the longest branch's count is the engine's.
        self._tree.num_target_calls += max(calls)
        self._tree.num_text_passes += sum(calls)

    def _ended(self, branch_id: str) -> bool:
        """Whether the segment ended with the last token of a piece."""
        return self._until is not None and self.grown[branch_id].text.rstrip("\"'”’) \n").endswith(
            tuple(self._until.marks)
        )

    def apply(self) -> None:
        """Write the new states, and the claims that their texts make, to the tree."""
        for branch_id, state in self.grown.items():
            claims = self._parts.extractor.extract(state.text, source="text")
            self._tree.set_text(branch_id, state, claims)


class _ImageJob:
    """Advances drafts to `step`, one step a batch, and starts those of branches that have none yet.

    `drafts` and `previews` hold what became of them.
    """

    def __init__(self, tree: BranchTree, parts: Parts, step: int) -> None:
        self._tree = tree
        self._parts = parts
        self._targets = tree.targets(step)
        self._seeds = tree.undrafted
        self._growing = {growing.branch.id: growing for growing in tree.live}
        self._started: dict[Key, ImageDraft] = {}
        self.drafts: dict[Key, ImageDraft] = {}
        self.previews: dict[Key, Preview] = {}

    def run(self) -> Iterator[Event]:
        if not self._targets:
            return
        with self._tree.clock.measure("load_wait"):
            _ = self._parts.images
        captions = {i: caption(self._tree, growing) for i, growing in self._growing.items()}
        with stage("image drafting"), self._tree.clock.measure("image"):
            self._start(captions)
            self.drafts = {(i, k): self._draft(i, k) for i, k in self._targets}
            emphasis = {(i, k): emphasis_of(self._tree, i, k) for i, k in self.drafts}
            early = self._first_look(captions, emphasis)
        yield from early
        with stage("image drafting"), self._tree.clock.measure("image"):
            advance(self._tree, self._parts, self.drafts, self._targets, captions, emphasis)
            self.previews = look(self._parts, self.drafts)
        for (branch_id, k), preview in self.previews.items():
            yield PreviewReady(branch_id, k, self.drafts[branch_id, k].step, preview)

    def _first_look(self, captions: Mapping[str, str], emphasis: Mapping[Key, Emphasis]) -> list[Event]:
        """Of drafts that begin, one goes ahead by one step, so that there is something to look at, at once."""
        key = next((key for key in self._seeds if key in self.drafts), None)
        if key is None:
            return []
        ahead = {key: self.drafts[key]}
        advance(self._tree, self._parts, ahead, {key: 1}, captions, emphasis)
        self.drafts |= ahead
        return [PreviewReady(*key, ahead[key].step, look(self._parts, ahead)[key])]

    def _start(self, captions: Mapping[str, str]) -> None:
        """Fresh drafts from noise."""
        if self._seeds:
            conditions, seeds = [captions[i] for i, _ in self._seeds], list(self._seeds.values())
            drafts = self._parts.images.start(
                conditions,
                seeds,
                num_steps=self._tree.budget.num_steps,
                negative=self._tree.negative,
            )
            self._started = dict(zip(self._seeds, drafts, strict=True))

    def _draft(self, branch_id: str, k: int) -> ImageDraft:
        started = self._started.get((branch_id, k))
        return started if started is not None else self._growing[branch_id].branch.drafts[k]

    def apply(self) -> Iterator[Event]:
        """Write drafts and previews to the tree; what is no longer finite goes."""
        for (branch_id, _), draft in self._started.items():
            self._tree.add_draft(branch_id, draft, emphasis=None)
        for (branch_id, k), draft in self.drafts.items():
            self._tree.set_draft(branch_id, k, draft, self.previews[branch_id, k])
        yield from _drop_broken(self._tree, self.drafts)


def caption(tree: BranchTree, growing: Growing) -> str:
    """What a branch's drafts are conditioned on now."""
    if not tree.topic.strip():
        return condition(tree.request.text, tree.from_given, (), max_words=MAX_CONDITION_WORDS)
    added = (*tree.from_given, *growing.claims)
    return condition(tree.topic, tree.from_prompt, added, max_words=MAX_CONDITION_WORDS)


def emphasis_of(tree: BranchTree, branch_id: str, index: int) -> Emphasis:
    """What a draft is pulled towards: the prompt's weights, and fully what it is to repair."""
    told = tree[branch_id].emphasis
    phrase = told[index] if index < len(told) else None  # a draft that is still to be started repairs nothing
    return tree.emphasis if phrase is None else (*tree.emphasis, (phrase, 1.0))


def advance(
    tree: BranchTree,
    parts: Parts,
    drafts: dict[Key, ImageDraft],
    targets: Mapping[Key, int],
    captions: Mapping[str, str],
    emphasis: Mapping[Key, Emphasis],
) -> None:
    """Bring every draft of `drafts`, in place, to its target: one denoising step a batch, within the budget.

    Branches that carry the same draft on under the same caption share its steps for as long as that lasts.
    """
    while behind := [key for key, draft in drafts.items() if draft.step < targets[key]]:
        sharing: dict[tuple[int, str, Emphasis], list[Key]] = {}
        for key in behind:
            same = (id(drafts[key]), captions[key[0]], emphasis[key])
            sharing.setdefault(same, []).append(key)
        batch = list(sharing)[: tree.ledger.num_left]
        if not batch:
            break
        advanced = parts.images.advance(
            [drafts[sharing[same][0]] for same in batch],
            1,
            conditions=[caption for _, caption, _ in batch],
            emphasis=[phrases for _, _, phrases in batch],
        )
        tree.ledger.num_spent += len(batch)
        for same, draft in zip(batch, advanced, strict=True):
            drafts.update(dict.fromkeys(sharing[same], draft))


def look(parts: Parts, drafts: Mapping[Key, ImageDraft]) -> dict[Key, Preview]:
    """Previews of drafts; branches that share a draft share its preview."""
    distinct = {id(draft): draft for draft in drafts.values()}
    previews = dict(zip(distinct, parts.images.preview(list(distinct.values())), strict=True))
    return {key: previews[id(draft)] for key, draft in drafts.items()}


def _drop_broken(tree: BranchTree, drafts: Mapping[Key, ImageDraft]) -> Iterator[Event]:
    """Drafts whose latents are no longer finite go; a branch that loses its last one goes with it."""
    for (branch_id, k), draft in drafts.items():
        if torch.isfinite(draft.latents).all():
            continue
        reason = f"latents are not finite after step {draft.step}"
        if tree[branch_id].live != (k,):
            tree.prune_draft(branch_id, k)
            yield Pruned(branch_id, k, reason)
        elif len(tree.live) > 1:
            tree.prune(branch_id, reason)
            yield Pruned(branch_id, None, reason)
        else:
            raise ModelError(f"image drafting: the last draft's {reason} (round {tree.round})")
