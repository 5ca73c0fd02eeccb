"""A tiny random SigLIP in open_clip's folder format: timm's image tower with attention pooling, a text tower
without causal mask and a tokenizer of `transformers`.
"""

import json
import string
from pathlib import Path
from typing import Any

import torch

_CONFIG: dict[str, Any] = {
    "model_cfg": {
        "embed_dim": 64,
        "init_logit_bias": -10,
        "custom_text": True,
        "vision_cfg": {
            "image_size": 160,
            "timm_model_name": "test_vit",
            "timm_model_pretrained": False,
            "timm_pool": "map",
            "timm_proj": "none",
        },
        "text_cfg": {
            "context_length": 32,
            "vocab_size": 128,
            "hf_tokenizer_name": "local",
            "tokenizer_kwargs": {"clean": "canonicalize"},
            "width": 64,
            "heads": 2,
            "layers": 1,
            "no_causal_mask": True,
            "proj_bias": True,
            "pool_type": "last",
            "norm_kwargs": {"eps": 1e-6},
        },
    },
    "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "squash"},
}


def write_siglip_folder(folder: Path, *, seed: int = 0) -> Path:
    """Write it to `folder`, which must not exist."""
    from open_clip.model import CustomTextCLIP
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True)
    (folder / "open_clip_config.json").write_text(json.dumps(_CONFIG))
    words = ["<pad>", "</s>", "<unk>", *string.ascii_lowercase, *string.digits]
    tokenizer = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = CustomTextCLIP(**{key: value for key, value in _CONFIG["model_cfg"].items() if key != "custom_text"})
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return folder
