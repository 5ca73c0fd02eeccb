"""The user cache: where fetched models are kept, and how a folder gets there whole or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs
from filelock import FileLock

from mmspec.errors import WeightsError


def cache_folder() -> Path:
    """The folder that everything fetched is kept below: `$MMSPEC_CACHE`, else the platform's user cache."""
    chosen = os.environ.get("MMSPEC_CACHE")
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("mmspec")


@contextlib.contextmanager
def building(folder: Path) -> Iterator[Path | None]:
    """Give a temporary folder that becomes `folder` when the block ends well and vanishes otherwise.

    Gives None when another process finished `folder` while this one waited for it. One process at a time
    builds; an interrupted one leaves nothing that a later one would take for finished. Raises
    `WeightsError` where the cache cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / ".lock"):
            if folder.exists():
                yield None
                return
            for leftover in folder.parent.glob(f".{folder.name}-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            try:
                yield temporary
                temporary.chmod(0o755)  # mkdtemp's 0700 would lock other users of a shared cache out
                temporary.replace(folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise WeightsError(
            f"cannot write to the model cache {folder.parent} ({error.strerror or error}): "
            "make room or set MMSPEC_CACHE to a folder with about 1 GB free"
        ) from error
