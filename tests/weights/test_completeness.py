"""A download that was cut off is no model; the hub's cache is laid out by hand, and the network is switched off."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mmspec.errors import WeightsError
from mmspec.weights import resolve
from mmspec.weights.completeness import missing_files

COMMIT = "0" * 40


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`org/name` in the hub client's cache: a model in two shards."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "models--org--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    (repository / "blobs").mkdir()
    for name in ("config.json", "model-1-of-2.safetensors", "model-2-of-2.safetensors"):
        _add(repository, name)
    shards = {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors", "c": "model-2-of-2.safetensors"}
    _add(repository, "model.safetensors.index.json", json.dumps({"weight_map": shards}))
    return repository


def _add(repository: Path, name: str, content: str = "{}") -> None:
    """A file as the hub client keeps it: a blob, and a link to it in the snapshot."""
    blob = repository / "blobs" / f"etag-{name.replace('/', '-').replace('.', '-')}"
    if name.endswith(".safetensors"):
        save_file({"a": torch.zeros(1)}, blob)
    else:
        blob.write_text(content, encoding="utf-8")
    link = _file(repository, name)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(blob)


def _file(repository: Path, name: str) -> Path:
    return repository / "snapshots" / COMMIT / name


def test_whole_model_resolves_offline(repository: Path) -> None:
    """Nothing is missing, and copies that are never fetched are not missed."""
    listing = {"format_version": 1, "files": {"pytorch_model.bin": {"size": 1, "blob_id": "x"}}}
    (repository / "trees").mkdir()
    (repository / "trees" / f"{COMMIT}.json").write_text(json.dumps(listing), encoding="utf-8")
    assert missing_files(repository / "snapshots" / COMMIT) == []
    assert resolve("hub:org/name") == repository / "snapshots" / COMMIT


def test_missing_shard_is_named_in_one_line(repository: Path) -> None:
    """The index lists two shards, one was fetched."""
    _file(repository, "model-2-of-2.safetensors").unlink()
    with pytest.raises(
        WeightsError, match=r"only in part on this machine \(model-2-of-2.safetensors missing\)"
    ) as caught:
        resolve("org/name")
    assert "\n" not in str(caught.value)
    assert "connect once" in str(caught.value)


def test_missing_blob_is_missed(repository: Path) -> None:
    """A link to nothing is no file."""
    (repository / "blobs" / "etag-config-json").unlink()
    assert missing_files(repository / "snapshots" / COMMIT) == ["config.json"]


@pytest.mark.parametrize("name", ["sha.incomplete", "sha.0f0f0f0f.incomplete"])
def test_unfinished_blob_is_missed_until_it_is_there(repository: Path, name: str) -> None:
    """What an interrupted download left behind counts; what a later one made up for does not."""
    (repository / "blobs" / name).write_text("half", encoding="utf-8")
    assert missing_files(repository / "snapshots" / COMMIT) == [f"blobs/{name}"]
    (repository / "blobs" / "sha").write_text("whole", encoding="utf-8")
    assert missing_files(repository / "snapshots" / COMMIT) == []


def test_missing_weights_are_missed(repository: Path) -> None:
    """A config alone is no model."""
    for name in ("model-1-of-2.safetensors", "model-2-of-2.safetensors", "model.safetensors.index.json"):
        _file(repository, name).unlink()
    assert missing_files(repository / "snapshots" / COMMIT) == ["*.safetensors"]


def test_pipeline_has_all_of_its_parts(repository: Path) -> None:
    """Parts that are listed are there with weights, but for the safety checker's and for absent ones."""
    parts = {"_class_name": "X", "unet": ["diffusers", "U"], "vae": ["diffusers", "V"], "image_encoder": [None, None]}
    _add(repository, "model_index.json", json.dumps(parts | {"safety_checker": ["a", "B"]}))
    _add(repository, "safety_checker/config.json")
    _add(repository, "unet/config.json")
    assert missing_files(repository / "snapshots" / COMMIT) == ["vae/", "unet/*.safetensors"]
    _add(repository, "unet/diffusion_pytorch_model.safetensors")
    _add(repository, "vae/config.json")
    _add(repository, "vae/diffusion_pytorch_model.safetensors")
    assert missing_files(repository / "snapshots" / COMMIT) == []


def test_unreadable_list_is_one_line(repository: Path) -> None:
    """An index that was cut off is not taken for an empty one."""
    (repository / "blobs" / "etag-model-safetensors-index-json").write_text('{"weight_map": {', encoding="utf-8")
    with pytest.raises(WeightsError, match="is no JSON"):
        resolve("hub:org/name")


def test_unfinished_model_is_downloaded_to_its_end(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the hub in reach, what is missing is fetched, and nothing is asked of the hub afterwards."""
    import huggingface_hub

    shard = _file(repository, "model-2-of-2.safetensors")
    target = shard.readlink()
    shard.unlink()
    asked = []
    local = huggingface_hub.snapshot_download

    def download(name: str, **options: object) -> object:
        if options.get("local_files_only"):
            return local(name, **options)
        asked.append(name)
        if options.get("dry_run"):
            return []
        shard.symlink_to(target)
        return str(shard.parent)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert resolve("hub:org/name") == shard.parent
    assert asked == ["org/name", "org/name"]
    assert resolve("hub:org/name") == shard.parent
    assert asked == ["org/name", "org/name"]


def test_cause_is_what_the_network_said(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub client's own words about a dry run would tell nobody what is wrong."""
    import huggingface_hub
    from huggingface_hub import constants

    local = huggingface_hub.snapshot_download

    def download(name: str, **options: object) -> object:
        if options.get("local_files_only"):
            return local(name, **options)
        raise huggingface_hub.errors.LocalEntryNotFoundError("dry run") from OSError("no route to host")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    _file(repository, "model-2-of-2.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"could not be fetched \(no route to host\)"):
        resolve("hub:org/name")
