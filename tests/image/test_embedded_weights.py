"""The drafter as it ships: its own weights, in the dtype of its conf."""

from __future__ import annotations

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from mmspec.configuration import conf_folder
from mmspec.image.embedded import EmbeddedDrafter
from mmspec.types import Emphasis, ImageDraft

CONDITIONS = [
    "a red car in a snowy village at noon",
    "neon city street at night, rain, a robot with an umbrella, fog, a cat",
    "a dragon",
    "a lighthouse, storm, sea",
    "",
    "two owls in old ruins at dusk",
]
NUM_DRAFTS = 12


@pytest.fixture(scope="module")
def drafter() -> EmbeddedDrafter:
    """The drafter of conf/diffusion/embedded.yaml."""
    made: EmbeddedDrafter = instantiate(OmegaConf.load(conf_folder() / "diffusion" / "embedded.yaml"))
    return made


@pytest.mark.skipif(
    not torch.backends.cpu.get_cpu_capability().startswith("AVX512"),
    reason="without AVX-512 a product of one row is added in another order than that of several",
)
@pytest.mark.parametrize("num_threads", [1, 2])
def test_pixels_do_not_depend_on_the_batch_at_all(drafter: EmbeddedDrafter, num_threads: int) -> None:
    """A draft alone equals, bit for bit, the same draft among others at other steps, emphasised or not."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        drafts: list[ImageDraft] = []
        for k in range(NUM_DRAFTS):
            negative = "a tree" if k % 4 == 3 else ""
            (draft,) = drafter.start([CONDITIONS[k % len(CONDITIONS)]], [k], num_steps=4, negative=negative)
            drafts += drafter.advance([draft], k % 3)
        emphasis: list[Emphasis] = [(("an owl", 1.0), ("rain", 0.5)) if k % 5 == 1 else () for k in range(NUM_DRAFTS)]
        alone = [drafter.advance([draft], 2, emphasis=[own])[0] for draft, own in zip(drafts, emphasis, strict=True)]
        pixels = [drafter.preview([draft])[0].pixels for draft in alone]
        for num in (2, 3, 5, 8, NUM_DRAFTS):
            together = drafter.advance(drafts[:num], 2, emphasis=emphasis[:num])
            for k, (draft, preview) in enumerate(zip(together, drafter.preview(together), strict=True)):
                assert torch.equal(draft.latents, alone[k].latents), (num, k)
                assert torch.equal(preview.pixels, pixels[k]), (num, k)
    finally:
        torch.set_num_threads(before)
