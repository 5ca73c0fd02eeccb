"""Pictures alone: `request.n` of them, each from a seed of its own, and previews on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mmspec.cogen.clock import Clock
from mmspec.cogen.parts import stage
from mmspec.cogen.weighting import read_weights
from mmspec.errors import InputError
from mmspec.pipeline import Pipeline
from mmspec.seeding import derive
from mmspec.types import Branch, BranchState, Done, Event, Pair, PreviewReady, Request, Result

if TYPE_CHECKING:
    from mmspec.image.drafter import ImageDrafter


class ImageAlone(Pipeline):
    """The image side alone; nothing is verified, so nothing is called verified.

    The metric `unread_prompt` is the end of a prompt that is longer than the text encoder reads. Raises `InputError`
    for a negative prompt that the model cannot move away from.
    """

    def __init__(self, *, images: ImageDrafter, num_steps: int) -> None:
        self._images = images
        self._num_steps = num_steps

    def stream(self, request: Request) -> Iterator[Event]:
        """See `Pipeline.stream`."""
        self.prompt_alone(request)
        if request.negative_prompt and not self._images.reads_negative:
            raise InputError(
                "negative_prompt has no effect on this diffusion model, which is asked without guidance: leave it empty"
            )
        clock = Clock()
        seeds = [derive(request.seed, "image", number) for number in range(request.n)]
        prompt, negative = read_weights(request.prompt), read_weights(request.negative_prompt).text
        with stage("image start"):
            drafts = self._images.start([prompt.text] * request.n, seeds, num_steps=self._num_steps, negative=negative)
        for step in range(1, self._num_steps + 1):
            with stage("image drafting"), clock.measure("image"):
                drafts = self._images.advance(drafts, 1, emphasis=[prompt.emphasis] * request.n)
                previews = self._images.preview(drafts)
            for number, preview in enumerate(previews):
                yield PreviewReady(str(number), 0, step, preview)
        with stage("image finishing"), clock.measure("image"):
            images = self._images.finish(drafts)
        pairs = tuple(
            Pair(str(number), "", image, (), verified=False, seed=seed)
            for number, (image, seed) in enumerate(zip(images, seeds, strict=True))
        )
        tree = tuple(
            Branch(str(number), None, "", (draft,), state=BranchState.FINISHED) for number, draft in enumerate(drafts)
        )
        metrics: dict[str, float | int | str] = {**clock.metrics(), "num_draft_steps": request.n * self._num_steps}
        if unread := self._images.unread(prompt.text):
            metrics["unread_prompt"] = unread
        yield Done(Result(request, pairs, tree, metrics, spans=clock.spans))
