"""What can be configured: where the configuration files are, the keys outside any group, and what is allowed.

Knows names, types and signatures; knows neither the configuration library nor any model. A constructor's
signature is the schema of its part, so a key is declared once, where it is used.
"""

import difflib
import inspect
import pkgutil
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmspec.errors import InputError
from mmspec.types import Request

CONFIG_NAME = "config"
LITERAL_KEYS = ("prompt", "negative_prompt", "image", "text", "prompts")
"""Keys whose values are taken letter by letter on the command line."""

_MAX_LISTED = 16  # names that fit one line
_HYDRA_KEYS = {"_target_", "_args_", "_partial_", "_recursive_", "_convert_"}
_SCALARS = {"str": (str,), "int": (int,), "float": (float, int), "bool": (bool,), "None": (type(None),)}


class UsageError(InputError):
    """The command line or the configuration names something that does not exist or does not fit."""


_REFERENCES = {"lm": "target_model_path", "diffusion": "path", "verifier": "path"}
"""Groups whose option `folder` takes any model, and its key for the reference."""
_FOLDER = "folder"
_OPTION = re.compile(r"[a-z0-9_]*")
_REFERENCE = re.compile(r"[\w./:@~+ \\-]+")


@dataclass(frozen=True)
class Settings:
    """The keys outside any group, as `conf/config.yaml` explains them."""

    prompt: str
    negative_prompt: str
    seed: int
    n: int
    max_tokens: int
    image: str
    text: str
    output: str
    metadata: bool
    fail_on_unverified: bool
    quiet: bool
    prompts: str = ""  # results of before it say nothing of it

    def request(self) -> Request:
        """The request that these settings describe; raises `InputError` as `Request` does."""
        return Request(
            prompt=self.prompt,
            seed=self.seed,
            max_tokens=self.max_tokens,
            n=self.n,
            negative_prompt=self.negative_prompt,
            image=self.image,
            text=self.text,
        )


def conf_folder() -> Path:
    """The folder of the configuration files: inside the package in a wheel, beside it in the repository."""
    package = Path(__file__).parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def groups() -> dict[str, list[str]]:
    """Every group with its options, both sorted by name."""
    return {
        folder.name: sorted(path.stem for path in folder.glob("*.yaml"))
        for folder in sorted(conf_folder().iterdir())
        if folder.is_dir()
    }


def spelled_out(override: str) -> list[str]:
    """An override that gives a model where an option is expected, as the two that it stands for; others as they are.

    >>> spelled_out("diffusion=stabilityai/sd-turbo")
    ['diffusion=folder', "diffusion.path='stabilityai/sd-turbo'"]
    >>> spelled_out("diffusion=sd_turbo")
    ['diffusion=sd_turbo']
    """
    group, _, value = override.partition("=")
    is_option = _OPTION.fullmatch(value) is not None
    if group not in _REFERENCES or is_option or not _REFERENCE.fullmatch(value) or _FOLDER not in groups()[group]:
        return [override]
    return [f"{group}={_FOLDER}", f"{group}.{_REFERENCES[group]}='{value}'"]


def settings_of(config: Mapping[str, Any]) -> Settings:
    """The settings in a composed configuration; raises `UsageError` for a key that nothing reads."""
    known_groups = groups()
    values = {key: value for key, value in config.items() if key not in known_groups}
    _check_arguments(Settings, values, key="", also=known_groups)
    return Settings(**values)


def check_node(node: Mapping[str, Any], *, key: str) -> None:
    """Check a node with a `_target_`, and every node inside it, against the signatures of their targets.

    Raises `UsageError` naming the key, the value and what is allowed: for a target that does not exist, a
    key that it does not take or misses, and a plain value of another type than it declares.
    """
    try:
        target = pkgutil.resolve_name(node["_target_"])
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"{key}._target_={node['_target_']} cannot be imported: {error}") from error
    _check_arguments(
        target,
        {name: value for name, value in node.items() if name not in _HYDRA_KEYS},
        key=f"{key}.",
        partial=bool(node.get("_partial_")),
    )
    for name, value in node.items():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Mapping) and "_target_" in part:
                check_node(part, key=f"{key}.{name}")


def nearest(name: str, candidates: Collection[str]) -> str:
    """What to say of a name that does not exist: the nearest ones, or all where none is near."""
    near = difflib.get_close_matches(name, candidates, n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if len(candidates) > _MAX_LISTED:
        return "`python -m mmspec.run --cfg job` shows every key"
    return f"expected one of {', '.join(sorted(candidates))}"


def _check_arguments(
    target: Callable[..., object],
    values: Mapping[str, Any],
    *,
    key: str,
    also: Collection[str] = (),
    partial: bool = False,
) -> None:
    parameters = inspect.signature(target).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for name, value in values.items():
        if name in parameters:
            _check_type(f"{key}{name}", value, parameters[name].annotation)
        elif not takes_any:
            raise UsageError(f"unknown key {key}{name}: {nearest(name, [*parameters, *also])}")
    for name, parameter in parameters.items():
        needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        if needed and not partial and name not in values:
            raise UsageError(f"{key}{name} is missing: give it a value")


def _check_type(key: str, value: object, annotation: object) -> None:
    declared = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    names = [name.strip() for name in declared.split("|")]
    if not set(names) <= _SCALARS.keys():
        return  # a part, a list or a mapping: its own constructor checks it
    allowed = tuple(kind for name in names for kind in _SCALARS[name])
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        raise UsageError(f"{key}={value} is no {' or '.join(names)}")
