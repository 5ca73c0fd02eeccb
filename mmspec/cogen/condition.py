"""The caption that a draft is conditioned on: what the prompt asks for, then what the text adds.

Diffusion models are trained on captions, not on prose; so the text reaches the picture through its claims.
"""

from __future__ import annotations

from collections.abc import Sequence

from mmspec.types import Claim, ClaimKind

__all__ = ["condition"]

SETTING = frozenset({ClaimKind.PLACE, ClaimKind.TIME, ClaimKind.WEATHER})
"""Kinds of which a picture has one value at most."""


def condition(prompt: str, prompt_claims: Sequence[Claim], text_claims: Sequence[Claim], *, max_words: int) -> str:
    """The caption for one branch, of at most about `max_words` words.

    A prompt that is a caption already (no longer than `max_words`) is kept as it stands; a longer one is
    replaced by its claims. Claims of the text follow in the order in which the text makes them, except
    those that repeat the prompt, that set a place, time or weather which is set already, or that are not
    of a kind a picture shows.
    """
    words = prompt.split()
    phrases = [claim.phrase for claim in prompt_claims]
    caption = prompt.strip()
    if len(words) > max_words:
        caption = " ".join(", ".join(phrases).split()[:max_words]) if phrases else " ".join(words[:max_words])
    settled = {claim.kind for claim in prompt_claims if claim.kind in SETTING}
    said = {phrase.casefold() for phrase in phrases}
    for claim in text_claims:
        repeats = claim.phrase.casefold() in said or claim.phrase.casefold() in caption.casefold()
        if claim.kind is ClaimKind.OTHER or claim.kind in settled or repeats:
            continue
        longer = f"{caption}, {claim.phrase}"
        if len(longer.split()) > max_words:
            break
        caption = longer
        said.add(claim.phrase.casefold())
        if claim.kind in SETTING:
            settled.add(claim.kind)
    return caption
