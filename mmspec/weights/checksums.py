"""Whether the files of a model folder are what they should be.

A folder may hold a `SHA256SUMS` file in the format of the tool `sha256sum`; then every file it lists is
compared. Hashing half a gigabyte takes about a second, so a folder that was compared once is not compared
again until a size or a modification time changes; the record of that lives in the user cache.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path

from safetensors import SafetensorError, safe_open

from mmspec.errors import WeightsError
from mmspec.weights.cache import cache_folder

CHECKSUMS_NAME = "SHA256SUMS"
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_WEIGHTS_SUFFIXES = {".safetensors", ".bin", ".pt", ".pth", ".gguf"}


def write_checksums(folder: Path) -> None:
    """Write `SHA256SUMS` for every file below `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS_NAME)
    lines = [f"{_sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
    (folder / CHECKSUMS_NAME).write_text("".join(lines), encoding="utf-8")


def check_folder(folder: Path, *, remedy: str) -> None:
    """Check every weights file below `folder`, and every file that its `SHA256SUMS` lists.

    Raises `WeightsError` naming the first file that is missing, empty, a git-lfs pointer, cut short or
    different from its checksum; `remedy` ends the message and says what to do about it.
    """
    expected = _read_checksums(folder, remedy=remedy)
    found = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.suffix in _WEIGHTS_SUFFIXES and path.is_file()
    }
    paths = {name: folder / name for name in expected} | found
    for path in paths.values():
        if not path.is_file():
            raise WeightsError(f"{path} is missing: {remedy}")
    stamp = {name: [path.stat().st_size, path.stat().st_mtime_ns] for name, path in paths.items()}
    record = _record_path(folder)
    if _read_record(record) == {"checksums": expected, "files": stamp}:
        return
    for name, path in paths.items():
        _check_form(path, remedy=remedy)
        if name in expected and (actual := _sha256(path)) != expected[name]:
            raise WeightsError(f"{path} is corrupt (sha256 {actual[:12]}…, expected {expected[name][:12]}…): {remedy}")
    _write_record(record, {"checksums": expected, "files": stamp})


def check_file(path: Path, *, sha256: str, remedy: str) -> None:
    """Raise `WeightsError` unless the file's SHA-256 is `sha256`."""
    if (actual := _sha256(path)) != sha256:
        raise WeightsError(f"{path.name} is corrupt (sha256 {actual[:12]}…, expected {sha256[:12]}…): {remedy}")


def _check_form(path: Path, *, remedy: str) -> None:
    size = path.stat().st_size
    if size == 0:
        raise WeightsError(f"{path} is empty (0 bytes): {remedy}")
    with path.open("rb") as file:
        if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise WeightsError(f"{path} is a git-lfs pointer, not the weights ({size} bytes): run `git lfs pull` there")
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, framework="np"):
                pass
        except SafetensorError as error:
            raise WeightsError(f"{path} is corrupt or cut short ({size:,} bytes; {error}): {remedy}") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_checksums(folder: Path, *, remedy: str) -> dict[str, str]:
    path = folder / CHECKSUMS_NAME
    if not path.is_file():
        return {}
    sums = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        digest, separator, name = line.partition("  ")
        if len(digest) != hashlib.sha256().digest_size * 2 or not separator:
            raise WeightsError(f"{path} has a line that is no checksum ({line[:40]!r}): {remedy}")
        sums[name] = digest
    return sums


def _record_path(folder: Path) -> Path:
    return cache_folder() / "checked" / f"{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:32]}.json"


def _read_record(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no record, or one cut short: check again
        return None


def _write_record(path: Path, record: object) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with contextlib.suppress(OSError):  # a read-only or full cache costs a second at the next start, no more
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(record), encoding="utf-8")
        temporary.replace(path)
