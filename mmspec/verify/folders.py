"""From a model reference to a folder that plain `open_clip` loads.

open_clip's HF text tower reads the configuration of its encoder from the path in `hf_model_name`, even where
all weights are local, so that path must be absolute and on this machine. A folder whose `hf_model_name` is a
reference of `mmspec.weights` (as in the weights that ship with the package, which leave the frozen encoder
out) is put together once, in the user cache: its own weights, those of the encoder, its tokenizer.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import shutil
from pathlib import Path

from mmspec.errors import WeightsError
from mmspec.weights import resolve
from mmspec.weights.cache import building, cache_folder

__all__ = ["CONFIG_NAME", "TEXT_PREFIX", "WEIGHTS_NAME", "located", "open_clip_folder"]

CONFIG_NAME = "open_clip_config.json"
WEIGHTS_NAME = "open_clip_model.safetensors"
TEXT_PREFIX = "text.transformer."
_NAME = re.compile(r"open_clip:(?P<name>[\w.-]+)(/(?P<tag>[\w.-]+))?|(?P<bare>[\w.-]+)")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def located(reference: str) -> Path:
    """The folder that `reference` stands for, as it was saved.

    Besides the references of `mmspec.weights`, a name that open_clip knows: `ViT-B-32`, or with one of its sets of
    weights `open_clip:ViT-B-32/laion2b_s34b_b79k`. Raises `WeightsError` where there is none.
    """
    name = _NAME.fullmatch(reference)
    if name is not None and not Path(reference).is_dir():
        reference = _repository(name["name"] or name["bare"], name["tag"])
    return resolve(reference)


def open_clip_folder(reference: str) -> Path:
    """The folder of `reference` in a form that `open_clip.create_model("local-dir:...")` loads offline.

    Raises `WeightsError` when files are missing or are no open_clip folder.
    """
    folder = located(reference)
    config_path = folder / CONFIG_NAME
    if not config_path.is_file():
        raise WeightsError(f"{folder} has no {CONFIG_NAME}: expected a model folder of open_clip")
    config = json.loads(config_path.read_text(encoding="utf-8"))
    encoder = config.get("model_cfg", {}).get("text_cfg", {}).get("hf_model_name")
    if encoder is None or Path(encoder).is_absolute():
        return folder
    return _assemble(folder, config, resolve(encoder))


def _repository(name: str, tag: str | None) -> str:
    """The hub repository that open_clip lists for a model's name and, first of its list by default, its weights."""
    import open_clip

    tags = open_clip.list_pretrained_tags_by_model(name)
    if not tags:
        near = ", ".join(difflib.get_close_matches(name, open_clip.list_models(), n=3)) or "see open_clip.list_models()"
        raise WeightsError(
            f"no model at {name!r}: there is no such folder, and open_clip has no weights of that name ({near})"
        )
    if tag is not None and tag not in tags:
        raise WeightsError(f"open_clip has no weights {tag!r} of {name}: expected one of {', '.join(tags)}")
    place = open_clip.get_pretrained_cfg(name, tag or tags[0]).get("hf_hub") or ""
    if place.count("/") < 1:
        raise WeightsError(
            f"open_clip fetches {name}/{tag or tags[0]} from elsewhere than the hub: name a folder of it"
        )
    return "hub:" + "/".join(place.split("/")[:2])


def _assemble(folder: Path, config: dict, encoder: Path) -> Path:  # type: ignore[type-arg]
    from safetensors.torch import load_file, save_file

    key = hashlib.sha256()
    for part in (folder / CONFIG_NAME, folder / WEIGHTS_NAME):
        key.update(part.read_bytes())
    key.update(str(encoder.resolve()).encode())
    target = cache_folder() / "open_clip" / key.hexdigest()[:24]
    with building(target) as temporary:
        if temporary is not None:
            weights = {name: tensor.float() for name, tensor in load_file(folder / WEIGHTS_NAME).items()}
            from transformers import AutoModel

            text = AutoModel.from_pretrained(encoder, local_files_only=True).state_dict()
            weights |= {TEXT_PREFIX + name: text[name].contiguous() for name in text if not name.startswith("pooler.")}
            save_file(weights, temporary / WEIGHTS_NAME)
            config["model_cfg"]["text_cfg"] |= {
                "hf_model_name": str(encoder.resolve()),
                "hf_tokenizer_name": str(encoder.resolve()),
            }
            (temporary / CONFIG_NAME).write_text(json.dumps(config, indent=2), encoding="utf-8")
            for name in _TOKENIZER_FILES:
                if (encoder / name).is_file():
                    shutil.copy(encoder / name, temporary / name)
    return target
