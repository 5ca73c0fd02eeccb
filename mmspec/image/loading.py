"""From a model reference to a `diffusers` pipeline that is ready to draw: precision, place, scheduler, LoRA.

Knows file formats and devices; knows no drawing. The safety checker of a folder is not loaded: it would paint pictures
black, which the verifier then takes for a mismatch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mmspec.dtypes import dtype_named
from mmspec.errors import InputError, WeightsError
from mmspec.weights import resolve

__all__ = ["Lora", "Placement", "load_pipeline", "loras_of"]

_OFFLOADS = ("none", "model", "sequential")
_LORA_KEYS = {"path", "weight"}
_UNCHECKED: dict[str, object] = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
_KINDS: dict[str, dict[str, object]] = {
    "StableDiffusionPipeline": _UNCHECKED,
    "LatentConsistencyModelPipeline": _UNCHECKED,
    "StableDiffusionXLPipeline": {"add_watermarker": False},
    "FluxPipeline": {},
}


@dataclass(frozen=True)
class Placement:
    """Where and how a model computes.

    `vae_dtype` None is `dtype`; float32 where float16 gives black pictures (SDXL). `offload` "model" keeps on the device
    what is in use, "sequential" single layers: slower, for small GPUs. Raises `InputError` for what does not go together.
    """

    device: str
    dtype: str
    vae_dtype: str | None
    offload: str

    def __post_init__(self) -> None:
        try:
            kind = torch.device(self.device).type
        except RuntimeError as error:
            raise InputError(
                f"diffusion.device={self.device!r} is no device: expected cpu, cuda, cuda:1 or mps"
            ) from error
        for name, value in (("dtype", self.dtype), ("vae_dtype", self.vae_dtype or self.dtype)):
            dtype_named(value, key=f"diffusion.{name}", device=kind)
        if self.offload not in _OFFLOADS:
            raise InputError(f"diffusion.offload={self.offload!r} is unknown: expected one of {', '.join(_OFFLOADS)}")
        if self.offload != "none" and kind == "cpu":
            raise InputError(
                f"diffusion.offload={self.offload} needs a GPU: set diffusion.device=cuda, or offload=none"
            )
        if "float16" in (self.dtype, self.vae_dtype) and kind == "cpu":
            raise InputError("float16 on a CPU is slow and overflows: set diffusion.dtype to float32 or bfloat16")


@dataclass(frozen=True)
class Lora:
    """A low-rank adapter at `path`, a reference for `mmspec.weights` or a .safetensors file, times `weight`."""

    path: str
    weight: float


def loras_of(entries: Sequence[str | Mapping[str, Any]]) -> list[Lora]:
    """Adapters as they are configured: a path, or `{path: ..., weight: ...}`. Raises `InputError` for anything else.

    >>> loras_of(["ink.safetensors", {"path": "org/pixel-art", "weight": 0.8}])[1]
    Lora(path='org/pixel-art', weight=0.8)
    """
    out = []
    for entry in entries:
        fields: Mapping[str, Any] = {"path": entry} if isinstance(entry, str) else entry
        if not isinstance(fields, Mapping) or "path" not in fields or not _LORA_KEYS.issuperset(fields):
            raise InputError(f"diffusion.loras has {entry!r}: expected a path, or {{path: ..., weight: 1.0}}")
        out.append(Lora(str(fields["path"]), float(fields.get("weight", 1.0))))
    return out


def load_pipeline(path: str, placement: Placement, *, scheduler: str | None, loras: Sequence[Lora]) -> Any:
    """The pipeline in the folder that `path` stands for, with `scheduler` (a class of diffusers) in place of its own.

    Raises `WeightsError` for a missing or foreign folder or adapter, `InputError` for an unknown scheduler.
    """
    from diffusers import DiffusionPipeline

    folder = resolve(path)
    kind = _kind(folder)
    try:
        pipeline = DiffusionPipeline.from_pretrained(
            folder, dtype=dtype_named(placement.dtype, device=placement.device), local_files_only=True, **_KINDS[kind]
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise WeightsError(f"{folder} cannot be read as a {kind}: {_first_line(error)}") from error
    if scheduler is not None:
        pipeline.scheduler = _scheduler(scheduler, pipeline.scheduler.config)
    for number, lora in enumerate(loras):
        _fuse(pipeline, lora, name=f"lora{number}")
    if placement.vae_dtype is not None:
        pipeline.vae.to(dtype_named(placement.vae_dtype, device=placement.device))
    pipeline.set_progress_bar_config(disable=True)
    return _placed(pipeline, placement)


def _kind(folder: Path) -> str:
    index = folder / "model_index.json"
    if not index.is_file():
        raise WeightsError(f"{folder} has no model_index.json: expected a pipeline folder of diffusers")
    kind = json.loads(index.read_text(encoding="utf-8")).get("_class_name")
    if kind not in _KINDS:
        raise WeightsError(f"{folder} holds a {kind}: expected one of {', '.join(_KINDS)}")
    return kind


def _scheduler(name: str, config: Mapping[str, Any]) -> Any:
    import diffusers

    kind = getattr(diffusers, name, None) if name.endswith("Scheduler") else None
    if kind is None:
        raise InputError(f"diffusion.scheduler={name} is no scheduler of diffusers: for example EulerDiscreteScheduler")
    return kind.from_config(config)


def _fuse(pipeline: Any, lora: Lora, *, name: str) -> None:
    """Add an adapter into the weights: drawing then costs what it costs without."""
    source = Path(lora.path).expanduser()
    try:
        if source.is_file():
            pipeline.load_lora_weights(source.parent, weight_name=source.name, adapter_name=name)
        else:
            pipeline.load_lora_weights(resolve(lora.path), adapter_name=name)
        pipeline.fuse_lora(lora_scale=lora.weight, adapter_names=[name])
        pipeline.unload_lora_weights()
    except ImportError as error:
        raise WeightsError("LoRA adapters are read with peft: pip install 'mmspec[lora]'") from error
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise WeightsError(f"{lora.path} does not fit as a LoRA of this model: {_first_line(error)}") from error


def _placed(pipeline: Any, placement: Placement) -> Any:
    try:
        if placement.offload == "model":
            pipeline.enable_model_cpu_offload(device=placement.device)
        elif placement.offload == "sequential":
            pipeline.enable_sequential_cpu_offload(device=placement.device)
        else:
            pipeline.to(placement.device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"diffusion.device={placement.device} cannot be used: {_first_line(error)}") from error
    return pipeline


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
