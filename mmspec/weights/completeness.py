"""Whether the hub's cache holds a whole model, or one whose download was cut off.

Knows the cache's layout (`blobs/`, and links to them below `snapshots/<commit>/`) and the files in which models list
their parts: sharded weights (`*.index.json`) and pipelines (`model_index.json`). Knows no network.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmspec.errors import WeightsError

_CONFIGS = ("config.json", "open_clip_config.json")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


def missing_files(snapshot: Path) -> list[str]:
    """What `snapshot`, a folder of the hub's cache, lacks: files by their path in it, or unfinished blobs.

    Raises `WeightsError` where a list of parts cannot be read.
    """
    return [*_unfinished_blobs(snapshot.parent.parent / "blobs"), *_absent(snapshot)]


def _unfinished_blobs(blobs: Path) -> Iterator[str]:
    """Downloads that neither this process nor a later one finished: `<etag>[.<random>].incomplete` without `<etag>`."""
    for path in sorted(blobs.glob("*.incomplete")):
        if not (blobs / path.name.partition(".")[0]).exists():
            yield f"blobs/{path.name}"


def _absent(snapshot: Path) -> Iterator[str]:
    for path in sorted(snapshot.rglob("*")):
        name = path.relative_to(snapshot)
        if not path.exists():  # a link to a blob that is not there
            yield name.as_posix()
        elif path.name.endswith(".index.json"):
            shards = dict.fromkeys(_read(path).get("weight_map", {}).values())
            yield from ((name.parent / shard).as_posix() for shard in shards if not (path.parent / shard).exists())
        elif path.name == "model_index.json":
            parts = [part for part, kind in _read(path).items() if isinstance(kind, list) and all(kind)]
            # The safety checker's weights are never fetched.
            yield from (f"{part}/" for part in parts if part != "safety_checker" and not (path.parent / part).is_dir())
        elif path.name in _CONFIGS and "safety_checker" not in name.parts and not _has_weights(path.parent):
            yield (name.parent / "*.safetensors").as_posix()


def _has_weights(folder: Path) -> bool:
    return any(path.suffix in _WEIGHTS for path in folder.iterdir())


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightsError(f"{path} is no JSON ({error}): delete {path.parent} and fetch the model again") from error
    return found
