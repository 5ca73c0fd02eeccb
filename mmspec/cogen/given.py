"""Both directions: a picture that texts are written for, and a text that pictures are drawn for.

What is given is never changed, pruned or replaced: a given picture selects among texts, a given text among pictures.
Knows files and trees; knows no model but through the parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from PIL import Image

from mmspec.cogen.copy import Copy
from mmspec.cogen.grow import plant
from mmspec.cogen.parts import Parts, stage
from mmspec.cogen.tree import BranchTree
from mmspec.image.pictures import open_picture, unit_pixels
from mmspec.later import Later, arrived
from mmspec.text.types import FinishReason, TextMetrics
from mmspec.types import Branch, ClaimKind, Event, ImageDraft, Preview, PreviewReady, TextGrown, Verdict

if TYPE_CHECKING:
    from mmspec.verify.scorer import Scorer

__all__ = ["GivenText", "plant_given", "spoken"]

MAX_SIDE = 512
"""The verifier looks at a given picture at this size at most."""

MAX_THINGS = 2
"""Of the things that the verifier sees in a picture, a text is asked to speak of so many."""


@dataclass(frozen=True, eq=False)
class GivenText:
    """A text that is there already, in the shape of a `TextState` that is finished."""

    text: str
    ids: tuple[int, ...] = ()
    finished: FinishReason = FinishReason.EOS
    log_prob: float = 0.0
    metrics: TextMetrics = field(default_factory=TextMetrics)


def plant_given(tree: BranchTree, parts: Parts, scorer: Scorer | Later[Scorer], *, copy: Copy) -> Iterator[Event]:
    """The first branches of a request with a picture or a text of its own.

    Raises `InputError` for a file that holds no picture.
    """
    request = tree.request
    preview = None
    if request.image:
        tree.picture = open_picture(request.image, key="image")
        small = tree.picture.copy()
        small.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.LANCZOS)
        preview = Preview(unit_pixels(small), noise_level=0.0)
    if request.text:
        # Duck-typed on purpose: nothing but the decoder makes text states, and it has nothing to decode here.
        tree.add(Branch("0", None, request.text), GivenText(request.text), prefixes=(), claims=(), given=True)  # type: ignore[arg-type]
        yield TextGrown("0", request.text, 0)
    else:
        if preview is not None and not tree.topic.strip():
            tree.topic = _described(preview, parts, arrived(scorer))
        plant(tree, parts, copy=copy)
    if preview is not None:
        steps = tree.budget.num_steps
        for growing in tree.live:
            draft = ImageDraft(preview.pixels, steps, steps, request.seed, condition="")
            tree.add_draft(growing.branch.id, draft, emphasis=None)
            tree.set_draft(growing.branch.id, 0, draft, preview)
            yield PreviewReady(growing.branch.id, 0, steps, preview)


def _described(preview: Preview, parts: Parts, scorer: Scorer) -> str:
    """A prompt for a picture that came without one: what the verifier sees there, surest first."""
    claims = parts.extractor.vocabulary(source="prompt")
    with stage("verification"):
        (scores,) = scorer.score([preview], claims)
    held = sorted((seen for seen in scores if seen.verdict is Verdict.HELD), key=lambda seen: -seen.probability)
    seen_of = {kind: [seen.claim.phrase for seen in held if seen.claim.kind is kind] for kind in ClaimKind}
    return spoken(
        seen_of[ClaimKind.PROP][:MAX_THINGS],
        seen_of[ClaimKind.PLACE][:1],
        [*seen_of[ClaimKind.TIME][:1], *seen_of[ClaimKind.WEATHER][:1]],
    )


def spoken(things: list[str], places: list[str], conditions: list[str]) -> str:
    """Phrases as a person would say them in one: a small model goes on with a list by listing again.

    >>> spoken(["a robot", "an owl"], ["a forest"], ["at dawn", "in the fog"])
    'a robot and an owl in a forest at dawn, in the fog'
    >>> spoken([], [], [])
    'a picture'
    """
    scene = " in ".join(filter(None, [" and ".join(things), *places])) or "a picture"
    return " ".join([scene, ", ".join(conditions)]).strip()
