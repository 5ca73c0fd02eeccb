"""Tiny, randomly initialised models of several families, saved in the standard format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GemmaConfig,
    GPT2Config,
    GPTJConfig,
    GPTNeoConfig,
    LlamaConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from mmspec.text.models import LanguageModels

VOCAB = 300
ROPE: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128, "bos_token_id": 257, "eos_token_id": 256,
    "pad_token_id": 256,
}
GPT: dict[str, Any] = {"vocab_size": VOCAB, "bos_token_id": 257, "eos_token_id": 256, "pad_token_id": 256}
CONFIGS: dict[str, Any] = {
    "llama": LlamaConfig(**ROPE),
    "qwen2": Qwen2Config(**ROPE),
    "qwen3": Qwen3Config(**ROPE),
    "gemma": GemmaConfig(**ROPE),
    "gemma2": Gemma2Config(**ROPE, sliding_window=8),
    "gpt2": GPT2Config(**GPT, n_embd=32, n_layer=2, n_head=4, n_positions=128),
    "gptj": GPTJConfig(**GPT, n_embd=32, n_layer=2, n_head=4, n_positions=128, rotary_dim=4),
    "gpt_neo": GPTNeoConfig(
        **GPT, hidden_size=32, num_layers=2, num_heads=4, max_position_embeddings=128, window_size=40,
        attention_types=[[["global", "local"], 1]],
    ),
}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One id per byte, then <eos> (256) and <bos> (257): any text is made of whole and broken characters."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: index for index, symbol in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", bos_token="<bos>")


def save_model(folder: Path, family: str, seed: int, **changes: Any) -> Path:
    """A tiny model of a family; its weights are large enough that its choices are not near ties."""
    config = CONFIGS[family].__class__(**{**CONFIGS[family].to_dict(), **changes})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.25)
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Folder of a tiny model by family and seed, made once."""
    made: dict[tuple[str, int], Path] = {}

    def get(family: str, seed: int = 0) -> Path:
        if (family, seed) not in made:
            made[family, seed] = save_model(tmp_path_factory.mktemp(f"{family}-{seed}"), family, seed)
        return made[family, seed]

    return get


@pytest.fixture(scope="session")
def language_models(model_folder: Any) -> Any:
    """`LanguageModels` of a tiny target, with a draft model of another seed, built once each."""
    built: dict[tuple[str, str, int | None], LanguageModels] = {}

    def get(family: str, *, engine: str = "hf", draft_seed: int | None = None) -> LanguageModels:
        key = (family, engine, draft_seed)
        if key not in built:
            draft = None if draft_seed is None else str(model_folder(family, draft_seed))
            built[key] = LanguageModels(
                target_model_path=str(model_folder(family)), draft_model_path=draft, engine=engine, dtype="float32"
            )
        return built[key]

    return get
