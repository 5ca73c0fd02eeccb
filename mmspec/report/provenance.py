"""What a result was made with: configuration, models, versions of the libraries that pixels depend on."""

import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_LIBRARIES = ("mmspec", "torch", "transformers", "diffusers", "open_clip_torch", "numpy", "pillow")
_MODEL_GROUPS = ("lm", "drafter", "diffusion", "verifier")


@dataclass(frozen=True)
class Provenance:
    """The resolved configuration and the overrides that led to it."""

    config: Mapping[str, Any]
    overrides: tuple[str, ...]

    @property
    def models(self) -> dict[str, Any]:
        """The groups that name models, as configured."""
        return {name: self.config[name] for name in _MODEL_GROUPS if name in self.config}

    @property
    def versions(self) -> dict[str, str]:
        """The versions of Python and of the libraries that a result depends on."""
        found = {name: importlib.metadata.version(name) for name in _LIBRARIES}
        return {"python": platform.python_version(), **found}
