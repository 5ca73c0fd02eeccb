"""The embedded models as one `diffusers` pipeline folder.

    model_index.json   vae/   transformer/   scheduler/

The text encoder is not in it: it is all-MiniLM-L6-v2, which comes from its own wheel.
Knows file formats; knows neither training nor sampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import DiffusionPipeline, FlowMatchEulerDiscreteScheduler
from safetensors.torch import save_file

from mmspec.embedded.autoencoder import Autoencoder
from mmspec.embedded.transformer import DiffusionTransformer
from mmspec.errors import WeightsError

__all__ = ["EmbeddedModels", "EmbeddedPipeline", "load_pipeline", "save_pipeline"]


class EmbeddedPipeline(DiffusionPipeline):
    """Names the parts for `diffusers`; the sampling itself is `mmspec.image`."""

    def __init__(
        self, vae: Autoencoder, transformer: DiffusionTransformer, scheduler: FlowMatchEulerDiscreteScheduler
    ) -> None:
        super().__init__()
        self.register_modules(vae=vae, transformer=transformer, scheduler=scheduler)


@dataclass(frozen=True, eq=False)
class EmbeddedModels:
    """What a folder holds, in evaluation mode."""

    vae: Autoencoder
    transformer: DiffusionTransformer
    scheduler: FlowMatchEulerDiscreteScheduler


def save_pipeline(folder: Path, vae: Autoencoder, transformer: DiffusionTransformer) -> None:
    """Write a pipeline folder with float16 weights."""
    scheduler = FlowMatchEulerDiscreteScheduler()
    EmbeddedPipeline(vae, transformer, scheduler).save_pretrained(folder)
    for name, model in (("vae", vae), ("transformer", transformer)):
        state = {
            key: value.half().contiguous() if value.is_floating_point() else value.contiguous()
            for key, value in model.state_dict().items()
        }
        save_file(state, folder / name / "diffusion_pytorch_model.safetensors", {"format": "pt"})


def load_pipeline(folder: Path, *, dtype: torch.dtype) -> EmbeddedModels:
    """Read a pipeline folder.

    Raises `WeightsError` where a part is missing or does not fit.
    """
    try:
        return EmbeddedModels(
            Autoencoder.from_pretrained(folder, subfolder="vae", dtype=dtype, local_files_only=True).eval(),
            DiffusionTransformer.from_pretrained(
                folder, subfolder="transformer", dtype=dtype, local_files_only=True
            ).eval(),
            FlowMatchEulerDiscreteScheduler.from_pretrained(folder, subfolder="scheduler", local_files_only=True),
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise WeightsError(
            f"{folder} is no embedded pipeline folder ({error}): expected vae/, transformer/ and scheduler/ of diffusers"
        ) from error
