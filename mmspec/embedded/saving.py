"""Writes the embedded models as one `diffusers` pipeline folder, which `pipeline` reads.

Knows file formats; knows neither training nor sampling.
"""

from __future__ import annotations

from pathlib import Path

from diffusers import DiffusionPipeline, FlowMatchEulerDiscreteScheduler
from safetensors.torch import save_file

from mmspec.embedded.autoencoder import Autoencoder
from mmspec.embedded.transformer import DiffusionTransformer

__all__ = ["EmbeddedPipeline", "save_pipeline"]

SHIFT = 0.5
"""Below 1, more of the steps lie where little noise is left. With 1 four steps show a thing in 74 instead of 82 % of 120
pictures and both of two things in 49 instead of 52 % of 90 (the judge's count); eight steps come out alike."""


class EmbeddedPipeline(DiffusionPipeline):
    """Names the parts for `diffusers`; the sampling itself is `mmspec.image`."""

    def __init__(
        self, vae: Autoencoder, transformer: DiffusionTransformer, scheduler: FlowMatchEulerDiscreteScheduler
    ) -> None:
        super().__init__()
        self.register_modules(vae=vae, transformer=transformer, scheduler=scheduler)


def save_pipeline(folder: Path, vae: Autoencoder, transformer: DiffusionTransformer) -> None:
    """Write a pipeline folder with float16 weights."""
    scheduler = FlowMatchEulerDiscreteScheduler(shift=SHIFT)
    EmbeddedPipeline(vae, transformer, scheduler).save_pretrained(folder)
    for name, model in (("vae", vae), ("transformer", transformer)):
        state = {
            key: value.half().contiguous() if value.is_floating_point() else value.contiguous()
            for key, value in model.state_dict().items()
        }
        save_file(state, folder / name / "diffusion_pytorch_model.safetensors", {"format": "pt"})
