"""Tiny, randomly initialised models with a byte tokenizer: a target and a draft that need no weights.

For tests of everything around a model. Writes nonsense, and the same nonsense for the same seed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from mmspec.seeding import derive
from mmspec.text.models import LanguageModels

NUM_BYTES = 256
SHAPE: dict[str, Any] = {
    "vocab_size": NUM_BYTES + 2,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 1024,
    "bos_token_id": NUM_BYTES + 1,
    "eos_token_id": NUM_BYTES,
    "pad_token_id": NUM_BYTES,
}
INIT_STD = 0.25
"""Large enough that a random model's choices are not near ties."""


class TinyModels(LanguageModels):
    """`LanguageModels` of a random Llama and a random draft, saved in the standard format and loaded back."""

    def __init__(self, *, seed: int) -> None:
        with tempfile.TemporaryDirectory(prefix="mmspec-tiny-") as folder:
            target = save_tiny(Path(folder, "target"), seed)
            draft = save_tiny(Path(folder, "draft"), seed + 1)
            super().__init__(
                target_model_path=str(target),
                draft_model_path=str(draft),
                engine="hf",
                dtype="float32",
                quantize="none",
            )
        self.name = "tiny"


def save_tiny(folder: Path, seed: int) -> Path:
    """Write a tiny Llama with its tokenizer."""
    from transformers import LlamaConfig

    return save_random(folder, LlamaConfig(**SHAPE), seed)


def save_random(folder: Path, config: Any, seed: int) -> Path:
    """Write a randomly initialised model of any `transformers` config, with the byte tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(derive(seed, "tiny"))
        model = AutoModelForCausalLM.from_config(config)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=INIT_STD)
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def byte_tokenizer() -> Any:
    """One id per byte, then <eos> and <bos>: any text is made of whole and broken characters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", bos_token="<bos>")
