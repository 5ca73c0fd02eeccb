"""Tiny, randomly initialised models of several families, saved in the standard format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import (
    Gemma2Config,
    GemmaConfig,
    GPT2Config,
    GPTJConfig,
    GPTNeoConfig,
    LlamaConfig,
    Qwen2Config,
    Qwen3Config,
)

from mmspec.text.models import LanguageModels
from mmspec.text.tiny import save_random

VOCAB = 300
ROPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "bos_token_id": 257,
    "eos_token_id": 256,
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
        **GPT,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        max_position_embeddings=128,
        window_size=40,
        attention_types=[[["global", "local"], 1]],
    ),
}


def save_model(folder: Path, family: str, seed: int) -> Path:
    """A tiny model of a family."""
    return save_random(folder, CONFIGS[family], seed)


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
                target_model_path=str(model_folder(family)),
                draft_model_path=draft,
                engine=engine,
                dtype="float32",
                quantize="none",
            )
        return built[key]

    return get
