"""The embedded models as one `diffusers` pipeline folder.

    model_index.json   vae/   transformer/   scheduler/

The text encoder is not in it: it is all-MiniLM-L6-v2, which comes from its own wheel. Such a folder is written by
`saving`, which needs all of `diffusers`; reading it does not, and starts a second sooner.
Knows file formats; knows neither training nor sampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler

from mmspec.embedded.autoencoder import Autoencoder
from mmspec.embedded.transformer import DiffusionTransformer
from mmspec.errors import WeightsError

__all__ = ["EmbeddedModels", "load_pipeline"]


@dataclass(frozen=True, eq=False)
class EmbeddedModels:
    """What a folder holds, in evaluation mode."""

    vae: Autoencoder
    transformer: DiffusionTransformer
    scheduler: FlowMatchEulerDiscreteScheduler


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
