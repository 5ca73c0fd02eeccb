"""Every way in which a model folder can be damaged is said in one line that names the file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mmspec.errors import WeightsError
from mmspec.weights import check_folder, checksums, write_checksums


def test_intact_folder_passes(model: Path) -> None:
    """What was written is accepted, with and without checksums."""
    check_folder(model, remedy="-")
    write_checksums(model)
    check_folder(model, remedy="-")


def _flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _point_to_lfs(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 538090408\n", encoding="utf-8")


def _say_no(path: Path) -> None:
    path.write_text("<html>403 Forbidden</html>", encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_flip_a_byte, "corrupt (sha256 "),
        (_cut, "corrupt or cut short ("),
        (_empty, "is empty (0 bytes)"),
        (_point_to_lfs, "is a git-lfs pointer"),
        (_say_no, "corrupt or cut short ("),
        (Path.unlink, "is missing"),
    ],
)
def test_damage_is_named(model: Path, damage: Callable[[Path], None], said: str) -> None:
    """The message names the file and what is wrong with it, and is one line."""
    write_checksums(model)
    path = model / "model.safetensors"
    damage(path)
    with pytest.raises(WeightsError) as caught:
        check_folder(model, remedy="fetch it again")
    message = str(caught.value)
    assert str(path) in message
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize("damage", [_cut, _empty, _point_to_lfs])
def test_damage_is_seen_without_checksums(model: Path, damage: Callable[[Path], None]) -> None:
    """A foreign folder has no checksums; a broken weights file is seen all the same."""
    damage(model / "model.safetensors")
    with pytest.raises(WeightsError, match=r"model\.safetensors"):
        check_folder(model, remedy="fetch it again")


def test_checked_folder_is_not_hashed_again_until_it_changes(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second check costs no hashing; a changed file is hashed and refused."""
    write_checksums(model)
    check_folder(model, remedy="-")
    hashed = []
    real = checksums._sha256
    monkeypatch.setattr(checksums, "_sha256", lambda path: hashed.append(path) or real(path))
    check_folder(model, remedy="-")
    assert hashed == []
    _flip_a_byte(model / "model.safetensors")
    with pytest.raises(WeightsError, match="corrupt"):
        check_folder(model, remedy="-")


def test_broken_checksums_file_is_an_error(model: Path) -> None:
    """A line that is no checksum is not skipped."""
    (model / "SHA256SUMS").write_text("not a checksum\n", encoding="utf-8")
    with pytest.raises(WeightsError, match="no checksum"):
        check_folder(model, remedy="-")


def test_unwritable_cache_costs_only_time(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no record can be kept, the check still passes."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("MMSPEC_CACHE", str(tmp_path / "file" / "cache"))
    write_checksums(model)
    check_folder(model, remedy="-")
