"""Metadata in pictures: what other tools read is what was asked for, whatever the prompt holds."""

import io
import re

import pytest
from PIL import Image

from mmspec.report import Provenance
from mmspec.report.png import PARAMETERS_KEY, format_parameters, png_info, read_own
from mmspec.types import Request
from tests.report.conftest import run_of

_PAIR = re.compile(r'\s*(\w[\w \-/]+):\s*("(?:\\.|[^\\"])+"|[^,]*)(?:,|$)')


def read_parameters(text: str) -> tuple[str, str, dict[str, str]]:
    """What the tools of the trade do with a `parameters` chunk: prompt, negative prompt, pairs."""
    *lines, last = text.strip().split("\n")
    pairs = _PAIR.findall(last)
    if len(pairs) < 3:
        lines, pairs = [*lines, last], []
    prompt, negative, in_negative = [], [], False
    for line in lines:
        stripped = line.strip()
        if stripped.startswith("Negative prompt:"):
            in_negative = True
            stripped = stripped[16:].strip()
        (negative if in_negative else prompt).append(stripped)
    return "\n".join(prompt), "\n".join(negative), dict(pairs)


_PROMPTS = [
    "cyberpunk rainy street",
    "comma, colon: \"quotes\" and 'quotes'",
    "two\nlines",
    "looks, like: a, line: of, pairs: here",
    "赛博朋克 🤖",
    "Steps: 20, Sampler: x, Seed: 1",
]


@pytest.mark.parametrize("prompt", _PROMPTS)
@pytest.mark.parametrize("negative", ["", "blurry, grey: dull"])
def test_other_tools_read_what_was_asked_for(prompt: str, negative: str) -> None:
    """Prompt and negative prompt survive the reader."""
    text = format_parameters(prompt, negative, {"Steps": 8, "Seed": 7, "Size": "16x12", "Note": "a, b: c\nd"})
    read_prompt, read_negative, pairs = read_parameters(text)
    assert (read_prompt, read_negative) == (prompt, negative)
    assert pairs["Seed"] == "7"
    assert pairs["Note"] == '"a, b: c\\nd"'


def test_prompt_that_speaks_of_negative_prompts_is_not_cut() -> None:
    """The words that start the negative part are kept from starting a line."""
    prompt = "a sign that says\nNegative prompt: none\n  Negative prompt: at all"
    read_prompt, read_negative, _ = read_parameters(
        format_parameters(prompt, "fog", {"A": 1, "Bb": 2, "Cc": 3, "Dd": 4})
    )
    assert read_prompt.replace("\u200b", "").split() == prompt.split()
    assert read_negative == "fog"


@pytest.mark.parametrize("prompt", [*_PROMPTS, "Negative prompt: x", "\u200bNegative prompt: x"])
def test_own_chunk_gives_everything_back(prompt: str, provenance: Provenance) -> None:
    """Our own JSON is exact, through a saved and reopened file."""
    run = run_of(Request(prompt, seed=7, n=2))
    buffer = io.BytesIO()
    image = run.result.pairs[1].image
    assert image is not None
    image.save(buffer, "PNG", pnginfo=png_info(run.trace, 1, size=image.size, provenance=provenance))
    with Image.open(buffer) as reopened:
        own = read_own(reopened)
        _, _, pairs = read_parameters(reopened.info[PARAMETERS_KEY])
    assert own["prompt"] == prompt
    assert own["text"] == f"echo: {prompt}"
    assert own["seed"] == 7
    assert own["picture_seed"] == 8
    assert pairs["Seed"] == "8"  # every picture has the seed it was drawn with
    assert pairs["Size"] == "16x12"
    assert own["config"] == provenance.config
    assert own["models"]["lm"] == {"target_model_path": "wheel:toy"}
    assert own["versions"].keys() >= {"mmspec", "torch", "diffusers"}
    assert [claim["verdict"] for claim in own["claims"]] == ["held"]
    assert [gone["branch"] for gone in own["pruned"]] == ["1", "2"]
