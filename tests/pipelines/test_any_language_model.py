"""Co-generation over other language models than the default one, from local folders, by one override."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from mmspec.api import load
from mmspec.text.tiny import save_random
from tests.text.conftest import CONFIGS

SMALL = (
    "diffusion=tiny",
    "verifier=tiny",
    "tree=tiny",
    "drafter=small_lm",
    "pipeline.num_branches=2",
    "pipeline.num_drafts=1",
    "pipeline.segment_tokens=6",
)


@pytest.mark.parametrize(
    ("option", "target", "draft"),
    [
        ("smollm2_1b7", "llama", "llama"),
        ("qwen3", "qwen3", "qwen3"),
        ("gptj_gptneo", "gptj", "gpt_neo"),
        ("qwen3", "qwen2", "qwen2"),
        ("qwen3", "gemma", "gemma2"),
    ],
)
def test_named_options_write_and_draw(tmp_path: Path, option: str, target: str, draft: str) -> None:
    """The option's own engine and precision load folders of its families; text and picture, twice the same."""
    models = []
    for seed, (name, family) in enumerate((("target", target), ("draft", draft))):
        config = copy.deepcopy(CONFIGS[family])
        config.max_position_embeddings = 2048  # co-generation's prompts are some hundred bytes
        models.append(f"lm.{name}_model_path={save_random(tmp_path / name, config, seed)}")
    pipe = load("cogen", overrides=[f"lm={option}", *models, *SMALL])
    first, second = (pipe("a robot in the rain", seed=3, max_tokens=12) for _ in range(2))
    assert first.text and first.text == second.text
    assert first.image is not None and second.image is not None
    assert first.image.tobytes() == second.image.tobytes()


def test_a_folder_is_named_by_one_word(tmp_path: Path) -> None:
    """`lm=some/folder`, and the drafter that fits where there is no draft model."""
    config = copy.deepcopy(CONFIGS["gpt2"])
    config.n_positions = 2048
    folder = save_random(tmp_path / "my-model", config, 0)
    small = [override for override in SMALL if not override.startswith("drafter=")]
    assert load("cogen", overrides=[f"lm={folder}", *small])("a robot in the rain", seed=3, max_tokens=12).text
