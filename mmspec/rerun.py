"""Run the same thing again: `python -m mmspec.rerun PATH [key=value ...]`.

PATH is one of our pictures, a `trace.json` or a result folder. What runs is the resolved configuration that was
stored with it, so that neither new defaults nor new files change a replay. Overrides of keys outside any group
and of `pipeline.*` change that configuration; one that chooses another option of a group, or a key inside one,
composes anew from the overrides of the first run.

Exit codes are those of `mmspec.run`.
"""

import copy
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mmspec.configuration import LITERAL_KEYS, Settings, UsageError, groups, nearest, settings_of
from mmspec.errors import InputError
from mmspec.run import answer, guarded, literal, title

if TYPE_CHECKING:
    from mmspec.report import Provenance

__all__ = ["Stored", "main", "read_stored", "rerun", "with_overrides"]

_USAGE = (
    "usage: python -m mmspec.rerun PATH [key=value ...], where PATH is an image.png, a trace.json or a result folder"
)
_TRACE = "trace.json"
_PNG_SIGNATURE = b"\x89PNG"


@dataclass(frozen=True)
class Stored:
    """What a result says about how it was made: the resolved configuration, the overrides that led to it, and
    the versions of the libraries.
    """

    config: Mapping[str, Any]
    overrides: tuple[str, ...]
    versions: Mapping[str, str]


def main() -> int:
    """Replay what the arguments name; returns the exit code."""
    return guarded(lambda started_s: rerun(sys.argv[1:], started_s))


def rerun(arguments: Sequence[str], started_s: float) -> int:
    """Replay and leave a result folder; returns the exit code. Raises `MmspecError` as a run does."""
    if not arguments or "=" in arguments[0] or arguments[0] in ("-h", "--help"):
        raise UsageError(_USAGE)
    stored = read_stored(Path(arguments[0]).expanduser())
    config, overrides = with_overrides(stored, arguments[1:])

    from mmspec.report import Provenance, terminal

    provenance = Provenance(config=config, overrides=overrides)
    settings = settings_of(config)
    if warning := _other_versions(stored, provenance):
        sys.stderr.write(warning + "\n")
    screen = terminal(quiet=settings.quiet)
    try:
        screen.start(title(settings, pipeline="again"))
        output = Path(settings.output).expanduser().absolute()
        return answer(config["pipeline"], settings, provenance, output, screen, started_s).code
    finally:
        screen.close()


def read_stored(path: Path) -> Stored:
    """What the picture, trace or result folder at `path` says; raises `InputError` if it is none of ours."""
    try:
        if path.is_dir():
            path = path / _TRACE
        with path.open("rb") as file:
            is_picture = file.read(len(_PNG_SIGNATURE)) == _PNG_SIGNATURE
        found = _of_picture(path) if is_picture else json.loads(path.read_text(encoding="utf-8"))
        stored = Stored(dict(found["config"]), tuple(found["overrides"]), dict(found["versions"]))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{path} does not say how it was made: expected an image.png written with metadata=true, a trace.json or a "
            "result folder of mmspec"
        ) from error
    if not isinstance(stored.config.get("pipeline"), Mapping):
        raise InputError(f"{path} holds a configuration without a pipeline: it cannot be run again")
    return stored


def with_overrides(stored: Stored, overrides: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The configuration to run, and the overrides that lead to it; raises `UsageError` for what is unknown."""
    # What was said letter by letter is said again from the configuration: a list of overrides has lost its escapes.
    others = [text for text in stored.overrides if text.lstrip("+").partition("=")[0] not in LITERAL_KEYS]
    words = [literal(f"{key}={stored.config[key]}") for key in LITERAL_KEYS if stored.config.get(key)]
    together = (*words, *others, *(literal(text) for text in overrides))
    if any(_chooses(text) for text in overrides):
        from mmspec.api import compose, plain

        return plain(compose(together)), together
    config = copy.deepcopy(dict(stored.config))
    for text in overrides:
        _change(config, text)
    return config, together


def _chooses(override: str) -> bool:
    """Whether an override reaches into a group, whose parts stand in several places of a resolved configuration."""
    key = override.lstrip("+~").partition("=")[0]
    return not key.startswith("pipeline.") and re.split(r"[.@]", key)[0] in groups()


def _change(config: dict[str, Any], override: str) -> None:
    key, is_pair, value = override.partition("=")
    *parents, name = key.split(".")
    node: Any = config
    for parent in parents:
        node = node.get(parent) if isinstance(node, dict) else None
    if not is_pair or not isinstance(node, dict) or name not in node:
        known = node if isinstance(node, dict) else config
        raise UsageError(f"unknown key {key}: {nearest(name, known)}")
    is_text = key in Settings.__annotations__ and Settings.__annotations__[key] is str
    try:
        node[name] = value if is_text else yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UsageError(f"cannot read {override!r}: expected key=value") from error


def _other_versions(stored: Stored, provenance: "Provenance") -> str:
    now = provenance.versions
    other = [
        f"{name} {was} (now {now.get(name, 'none')})" for name, was in stored.versions.items() if now.get(name) != was
    ]
    return f"warning: made with {', '.join(other)}: pixels may differ" if other else ""


def _of_picture(path: Path) -> dict[str, Any]:
    from PIL import Image

    from mmspec.report.png import read_own

    with Image.open(path) as image:
        return read_own(image)


if __name__ == "__main__":
    sys.exit(main())
