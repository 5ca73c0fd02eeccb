"""Resolving a model reference to a local folder."""

import re
from collections.abc import Callable
from pathlib import Path

from mmspec.errors import WeightsError
from mmspec.weights.checksums import CHECKSUMS_NAME, check_folder
from mmspec.weights.hub import hub_folder
from mmspec.weights.wheels import wheel_folder

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?")
_BUILTIN = Path(__file__).parent.parent / "embedded" / "weights"


def resolve(reference: str) -> Path:
    """The local folder that `reference` stands for, fetched first if need be, its files checked.

    A folder that exists wins over a hub id of the same spelling. Raises `WeightsError` when the files are
    missing, unreachable or corrupt.
    """
    scheme, _, name = reference.partition(":")
    if scheme in _SCHEMES:
        return _SCHEMES[scheme](name)
    folder = Path(reference).expanduser()
    if folder.is_dir():
        if not any(folder.iterdir()):
            raise WeightsError(f"{folder} is empty: expected a folder with a model's config and weights")
        check_folder(folder, remedy="fetch this model again")
        return folder
    if _HUB_ID.fullmatch(reference):
        return hub_folder(reference)
    raise WeightsError(
        f"no model at {reference!r}: there is no such folder; expected a folder, hub:org/name, wheel:NAME or builtin:NAME"
    )


def _builtin_folder(name: str) -> Path:
    folder = _BUILTIN / name
    if not (folder / CHECKSUMS_NAME).is_file():
        shipped = ", ".join(sorted(path.parent.name for path in _BUILTIN.glob(f"*/{CHECKSUMS_NAME}"))) or "none"
        raise WeightsError(f"no built-in model {name!r} (shipped: {shipped}): check the name or reinstall mmspec")
    check_folder(folder, remedy="reinstall mmspec")
    return folder


_SCHEMES: dict[str, Callable[[str], Path]] = {"hub": hub_folder, "wheel": wheel_folder, "builtin": _builtin_folder}
