"""A reference leads to a folder, or to one line that says what to do."""

from pathlib import Path

import pytest

from mmspec.errors import WeightsError
from mmspec.weights import references, resolve, write_checksums
from mmspec.weights.hub import needed
from tests.weights.conftest import write_model


def test_folder_is_itself(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An absolute and a relative folder resolve to themselves."""
    assert resolve(str(model)) == model
    monkeypatch.chdir(model.parent)
    assert resolve("./model").samefile(model)


def test_folder_wins_over_a_hub_id_of_the_same_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`org/name` is a folder where there is such a folder."""
    folder = write_model(tmp_path / "org" / "name")
    monkeypatch.chdir(tmp_path)
    assert resolve("org/name").samefile(folder)


@pytest.mark.parametrize("reference", ["nowhere", "./nowhere", "/nowhere/at/all", "a b/c", ""])
def test_nothing_there(reference: str) -> None:
    """What is neither a folder nor a hub id is said so, with the forms that exist."""
    with pytest.raises(WeightsError, match="hub:org/name, wheel:NAME or builtin:NAME"):
        resolve(reference) if reference else resolve("no such folder")


def test_empty_folder_is_no_model(tmp_path: Path) -> None:
    """An empty folder is refused here, not deep inside a loader."""
    (tmp_path / "hollow").mkdir()
    with pytest.raises(WeightsError, match="hollow is empty"):
        resolve(str(tmp_path / "hollow"))


def test_builtin_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that ship with the package are found by name and compared with their checksums."""
    monkeypatch.setattr(references, "_BUILTIN", tmp_path / "shipped")
    folder = write_model(tmp_path / "shipped" / "toy")
    write_checksums(folder)
    assert resolve("builtin:toy") == folder
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(WeightsError, match="reinstall mmspec"):
        resolve("builtin:toy")
    with pytest.raises(WeightsError, match=r"no built-in model 'other' \(shipped: toy\)"):
        resolve("builtin:other")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub client's cache, empty, with the network switched off."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_hub_repository_in_the_cache_needs_no_network(hub: Path) -> None:
    """What was fetched once resolves offline."""
    commit = "0" * 40
    repository = hub / "models--org--name"
    folder = write_model(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit, encoding="utf-8")
    assert resolve("hub:org/name").samefile(folder)
    assert resolve("org/name").samefile(folder)


@pytest.mark.parametrize("reference", ["hub:org/name", "org/name", "hub:org/name@v1"])
def test_hub_out_of_reach_says_what_to_do(hub: Path, reference: str) -> None:
    """Offline and not cached: one line."""
    with pytest.raises(WeightsError, match="connect once, or name a folder") as caught:
        resolve(reference)
    assert "\n" not in str(caught.value)


def test_only_what_a_folder_is_loaded_from_is_fetched() -> None:
    """Stable Diffusion's repository is 40 GB, its float32 pipeline 4; an open_clip model has its weights in one form."""
    pipeline = ["model_index.json", "vae/config.json", "vae/a.safetensors", "README.md"]
    other = ["v1-5-pruned.ckpt", "v1-5-pruned.safetensors", "vae/a.bin", "vae/a.fp16.safetensors", "unet/a.non_ema.bin"]
    assert needed([*pipeline, *other, "safety_checker/model.safetensors", "vae/onnx/a.onnx"]) == pipeline
    clip = ["open_clip_config.json", "open_clip_model.safetensors", "tokenizer.json"]
    assert needed([*clip, "open_clip_pytorch_model.bin", "tf_model.h5"]) == clip
    assert needed(["config.json", "pytorch_model.bin"]) == ["config.json", "pytorch_model.bin"]
