"""What a result was made with: configuration, models, versions of the libraries that pixels depend on."""

import importlib.metadata
import platform
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmspec.configuration import LITERAL_KEYS

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

    def command(self, request: Mapping[str, Any]) -> str:
        """The shell command that makes the same again; `request` is the trace's."""
        others = [text for text in self.overrides if text.lstrip("+").partition("=")[0] not in LITERAL_KEYS]
        asked = [f"{key}={request[key]}" for key in LITERAL_KEYS if request.get(key)]
        return shlex.join(["python", "-m", "mmspec.run", *asked, *others])

    @property
    def versions(self) -> dict[str, str]:
        """The versions of Python and of the libraries that a result depends on."""
        found = {name: importlib.metadata.version(name) for name in _LIBRARIES}
        return {"python": platform.python_version(), **found}
