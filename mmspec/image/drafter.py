"""What an image drafter is: pictures that grow step by step, in batches of drafts at different steps.

Knows drafts and previews; knows no diffusion model. A draft is a value: advancing it makes a new one, so a branch is
forked by keeping the old.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

from PIL import Image
from torch import Tensor

from mmspec.types import Emphasis, ImageDraft, Preview

__all__ = ["ImageDrafter", "pixels_to_image"]


class ImageDrafter(abc.ABC):
    """Draws pictures of conditions. A draft's pixels do not depend on what else is in the batch (float32 tolerance)."""

    @property
    @abc.abstractmethod
    def reads_negative(self) -> bool:
        """Whether what is `negative` in `start` reaches the pictures; a model without guidance cannot move away."""

    @abc.abstractmethod
    def unread(self, condition: str) -> str:
        """The end of `condition` that is beyond the text encoder's limit; empty where all of it is read."""

    @abc.abstractmethod
    def start(
        self, conditions: Sequence[str], seeds: Sequence[int], *, num_steps: int, negative: str = ""
    ) -> list[ImageDraft]:
        """Pure noise, one draft per condition and seed, to be denoised in `num_steps` and away from `negative`.

        Raises `InputError` for a number of steps that the model cannot do.
        """

    @abc.abstractmethod
    def start_from(
        self, picture: Tensor, condition: str, seed: int, *, num_steps: int, level: float, negative: str = ""
    ) -> ImageDraft:
        """A variation of `picture` `[3, h, w]` in [0, 1], cut to shape: with noise, at the step nearest to `level`.

        Raises `InputError` for a level outside (0, 1].
        """

    @abc.abstractmethod
    def advance(
        self,
        drafts: Sequence[ImageDraft],
        num_steps: int,
        *,
        conditions: Sequence[str] | None = None,
        emphasis: Sequence[Emphasis] | None = None,
    ) -> list[ImageDraft]:
        """Denoise every draft by up to `num_steps` steps; a finished draft stays as it is.

        `conditions` replace the drafts' own from now on; `emphasis[k]` are phrases that draft `k` should show more
        (or less, where their strength is below 0).
        """

    @abc.abstractmethod
    def preview(self, drafts: Sequence[ImageDraft]) -> list[Preview]:
        """What the drafts are going to look like: the latest x0 estimates, decoded."""

    @abc.abstractmethod
    def renoise(self, draft: ImageDraft, level: float, *, seed: int) -> ImageDraft:
        """The draft's x0 estimate with fresh noise, at the step of its schedule nearest to noise `level` in (0, 1].

        Raises `InputError` for a level outside.
        """

    def finish(self, drafts: Sequence[ImageDraft]) -> list[Image.Image]:
        """All remaining steps, then the pictures at full size, RGB."""
        done = self.advance(drafts, max((draft.num_steps - draft.step for draft in drafts), default=0))
        return self.render(self.preview(done))

    def render(self, previews: Sequence[Preview]) -> list[Image.Image]:
        """Previews as RGB pictures, as large as they are."""
        return [pixels_to_image(preview.pixels) for preview in previews]


def pixels_to_image(pixels: Tensor) -> Image.Image:
    """`[3, h, w]` in [0, 1] to an 8-bit RGB picture."""
    array = pixels.clamp(0, 1).mul(255).round().byte().permute(1, 2, 0)
    return Image.fromarray(array.contiguous().cpu().numpy())
