"""From a model reference to a folder that plain `open_clip` loads.

open_clip's HF text tower reads the configuration of its encoder from the path in `hf_model_name`, even where
all weights are local, so that path must be absolute and on this machine. A folder whose `hf_model_name` is a
reference of `mmspec.weights` (as in the weights that ship with the package, which leave the frozen encoder
out) is put together once, in the user cache: its own weights, those of the encoder, its tokenizer.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from mmspec.errors import WeightsError
from mmspec.weights import resolve
from mmspec.weights.cache import building, cache_folder

__all__ = ["CONFIG_NAME", "TEXT_PREFIX", "WEIGHTS_NAME", "open_clip_folder"]

CONFIG_NAME = "open_clip_config.json"
WEIGHTS_NAME = "open_clip_model.safetensors"
TEXT_PREFIX = "text.transformer."
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def open_clip_folder(reference: str) -> Path:
    """The folder of `reference` in a form that `open_clip.create_model("local-dir:...")` loads offline.

    Raises `WeightsError` when files are missing or are no open_clip folder.
    """
    folder = resolve(reference)
    config_path = folder / CONFIG_NAME
    if not config_path.is_file():
        raise WeightsError(f"{folder} has no {CONFIG_NAME}: expected a model folder of open_clip")
    config = json.loads(config_path.read_text(encoding="utf-8"))
    encoder = config.get("model_cfg", {}).get("text_cfg", {}).get("hf_model_name")
    if encoder is None or Path(encoder).is_absolute():
        return folder
    return _assemble(folder, config, resolve(encoder))


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
