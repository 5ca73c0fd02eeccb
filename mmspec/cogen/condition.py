"""The caption that a draft is conditioned on: what the prompt asks for, then what the text adds.

Diffusion models are trained on captions, not on prose; so the text reaches the picture through its claims.
"""

from __future__ import annotations

from collections.abc import Sequence

from mmspec.types import Claim, ClaimKind

__all__ = ["condition"]

SETTING = frozenset({ClaimKind.PLACE, ClaimKind.TIME, ClaimKind.WEATHER})
"""Kinds of which a picture has one value at most."""

MAX_THINGS = 3
"""Small models blend the things of a picture into each other beyond this many."""


def condition(prompt: str, prompt_claims: Sequence[Claim], text_claims: Sequence[Claim], *, max_words: int) -> str:
    """The caption for one branch, of at most about `max_words` words and `MAX_THINGS` things.

    A prompt that is a caption already (no longer than `max_words`) is kept as it stands; a longer one is
    replaced by its claims. Claims of the text follow in the order in which the text makes them, one for each
    thing, except those that speak of the prompt's things, that set a place, time or weather which is set
    already, or that are not of a kind a picture shows.
    """
    words = prompt.split()
    phrases = [claim.phrase for claim in prompt_claims]
    caption = prompt.strip()
    if len(words) > max_words:
        caption = " ".join(", ".join(phrases).split()[:max_words]) if phrases else " ".join(words[:max_words])
    settled = {claim.kind for claim in prompt_claims if claim.kind in SETTING}
    things = {claim.phrase for claim in prompt_claims if claim.kind is ClaimKind.PROP}
    refined = {claim.parent for claim in text_claims}
    said = {phrase.casefold() for phrase in phrases}
    for claim in text_claims:
        thing = claim.parent or claim.phrase
        one_too_many = claim.kind not in SETTING and thing not in things and len(things) >= MAX_THINGS
        repeats = claim.phrase.casefold() in caption.casefold() or not said.isdisjoint({claim.phrase.casefold(), thing})
        if claim.kind is ClaimKind.OTHER or claim.kind in settled or claim.phrase in refined or repeats or one_too_many:
            continue
        longer = f"{caption}, {claim.phrase}"
        if len(longer.split()) > max_words:
            break
        caption = longer
        if claim.kind in SETTING:
            settled.add(claim.kind)
        else:
            things.add(thing)
            said.add(thing)
    return caption
