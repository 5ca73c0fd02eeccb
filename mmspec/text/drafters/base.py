"""What a drafter is, and the two that hold no model of their own: none, and several merged into one.

A drafter may be wrong in any way: it changes the speed of a text and never its distribution.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor
from typing_extensions import override

from mmspec.errors import InputError
from mmspec.text.growth import Growth
from mmspec.text.sampling import Acceptance, Processors
from mmspec.text.tree import merge, prune, root_only
from mmspec.text.types import TokenTree

if TYPE_CHECKING:
    from mmspec.text.models import LanguageModels


@dataclass(frozen=True, eq=False)
class DraftRequest:
    """One sequence that wants a tree.

    `ids` is prompt and text, the last of it the root of the tree; `num_prompt` of them are the prompt.
    `state` is what this drafter returned last for the sequence. The tree has at most `max_nodes` nodes,
    root included, and at most `max_depth` levels below the root.
    """

    ids: tuple[int, ...]
    num_prompt: int
    state: Any
    acceptance: Acceptance
    processors: Processors
    max_nodes: int
    max_depth: int

    @property
    def num_text(self) -> int:
        """Tokens of the text so far: the position of the first drafted token."""
        return len(self.ids) - self.num_prompt


@dataclass(frozen=True, eq=False)
class Draft:
    """A proposed tree and the drafter's state after proposing it."""

    tree: TokenTree
    state: Any


class Drafter(abc.ABC):
    """Proposes token trees for many sequences at once. States are values and belong to the drafter."""

    @abc.abstractmethod
    def bind(self, models: LanguageModels) -> None:
        """Meets the target before the first request. Raises `InputError` for a pair that cannot work."""

    @abc.abstractmethod
    def start(self, ids: Sequence[int], hidden: Tensor) -> Any:
        """State for a prompt; `hidden` `[l, d]` are the target's hidden states of all of it but the last."""

    @abc.abstractmethod
    def observe(self, state: Any, token_ids: Sequence[int], hidden: Tensor) -> Any:
        """State after the target committed nodes.

        `hidden` `[m, d]` are the target's of these nodes, `token_ids` `[m]` the tokens that followed each.
        """

    @abc.abstractmethod
    def propose(self, requests: Sequence[DraftRequest], growth: Growth) -> list[Draft]:
        """One tree per request."""


class TokenDrafter(Drafter):
    """A drafter that looks at token ids alone and takes no notice of the target's hidden states."""

    @override
    def bind(self, models: LanguageModels) -> None:
        return

    @override
    def start(self, ids: Sequence[int], hidden: Tensor) -> Any:
        return None

    @override
    def observe(self, state: Any, token_ids: Sequence[int], hidden: Tensor) -> Any:
        return state


class NoDrafter(TokenDrafter):
    """Plain decoding."""

    @override
    def propose(self, requests: Sequence[DraftRequest], growth: Growth) -> list[Draft]:
        return [Draft(root_only(request.ids[-1]), request.state) for request in requests]


class MixedDrafter(Drafter):
    """Several drafters in one tree, merged by (parent, token); earlier ones are tried first."""

    def __init__(self, *, drafters: Sequence[Drafter]) -> None:
        self._drafters = tuple(drafters)

    @override
    def bind(self, models: LanguageModels) -> None:
        for drafter in self._drafters:
            drafter.bind(models)

    @override
    def start(self, ids: Sequence[int], hidden: Tensor) -> Any:
        return tuple(drafter.start(ids, hidden) for drafter in self._drafters)

    @override
    def observe(self, state: Any, token_ids: Sequence[int], hidden: Tensor) -> Any:
        return tuple(
            drafter.observe(own, token_ids, hidden) for drafter, own in zip(self._drafters, state, strict=True)
        )

    @override
    def propose(self, requests: Sequence[DraftRequest], growth: Growth) -> list[Draft]:
        by_drafter = [
            drafter.propose([replace(request, state=request.state[place]) for request in requests], growth)
            for place, drafter in enumerate(self._drafters)
        ]
        drafts = []
        for request, own in zip(requests, zip(*by_drafter, strict=True), strict=True):
            tree = merge([draft.tree for draft in own])
            drafts.append(Draft(bounded(tree, request.max_nodes), tuple(draft.state for draft in own)))
        return drafts


class FittingDrafter(Drafter):
    """The first of several drafters that fits the target: one that was trained for it, else one that needs nothing."""

    def __init__(self, *, drafters: Sequence[Drafter]) -> None:
        self._drafters = tuple(drafters)
        self._chosen: Drafter | None = None

    @property
    def chosen(self) -> Drafter:
        """The one that fits; known once it has met the target."""
        assert self._chosen is not None, "bind comes first"
        return self._chosen

    @override
    def bind(self, models: LanguageModels) -> None:
        reasons = []
        for drafter in self._drafters:
            try:
                drafter.bind(models)
            except InputError as error:
                reasons.append(str(error))
                continue
            self._chosen = drafter
            return
        raise InputError(f"no drafter fits the target: {'; '.join(reasons)}")

    @override
    def start(self, ids: Sequence[int], hidden: Tensor) -> Any:
        return self.chosen.start(ids, hidden)

    @override
    def observe(self, state: Any, token_ids: Sequence[int], hidden: Tensor) -> Any:
        return self.chosen.observe(state, token_ids, hidden)

    @override
    def propose(self, requests: Sequence[DraftRequest], growth: Growth) -> list[Draft]:
        return self.chosen.propose(requests, growth)


def bounded(tree: TokenTree, max_nodes: int) -> TokenTree:
    """The tree itself, or its best nodes where it is too large; a sampled tree that is too large is given
    up whole, since dropping sampled tokens by value would not be exact.
    """
    if len(tree) <= max_nodes:
        return tree
    if any(trial.q is not None for trials in tree.trials for trial in trials):
        return root_only(tree.tokens[0])
    return prune(tree, max_nodes)
