"""Text features kept on disk: a phrase that was encoded once on a machine is not encoded again.

The opponents of one thing are all others, two hundred phrases, and encoding them takes longer than ten looks at twelve
pictures. Knows phrases and rows of numbers; knows no model: whoever keeps a file sees to it that it is of that very model.
Legend: `p` phrases, `d` joint width.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

__all__ = ["read_phrases", "write_phrases"]

log = logging.getLogger(__name__)

MAX_PHRASES = 20_000
"""A file grows no further: at 512 numbers a phrase it has 40 MB then."""


def read_phrases(path: Path) -> dict[str, Tensor]:
    """Features `[d]` float32 by phrase; empty where there is no file, or one that cannot be read."""
    try:
        with safe_open(path, "pt") as file:
            return dict(zip(json.loads(file.metadata()["phrases"]), file.get_tensor("features"), strict=True))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return {}


def write_phrases(path: Path, features: Mapping[str, Tensor]) -> None:
    """Keep features `[d]` by phrase, whole or not at all; a place that cannot be written is left as it is."""
    if not 0 < len(features) <= MAX_PHRASES:
        return
    content = save({"features": torch.stack(list(features.values()))}, {"phrases": json.dumps(list(features))})
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(name).replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                Path(name).unlink()
    except OSError as error:
        log.debug("text features are not kept: %s", error)
