"""The metadata in our PNG files, for other tools and for ourselves.

`parameters` is the text chunk that the tools of the trade read (the format of A1111's web UI): the prompt,
a line `Negative prompt: ...`, and one last line of `Key: value` pairs, in which a value that holds a comma,
a colon or a newline is a JSON string. A prompt that has a line of its own beginning with "Negative prompt:"
would be cut there by every reader, so such a line is written behind a zero-width space.
`mmspec` is our own chunk, JSON of schema `mmspec.png/1`: all that is needed to run the same thing again.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from mmspec.report.provenance import Provenance

SCHEMA = "mmspec.png/1"
OWN_KEY = "mmspec"
PARAMETERS_KEY = "parameters"

_NEGATIVE = "Negative prompt:"
_GUARD = "\u200b"
_GUARDED_LINE = re.compile(rf"^(\s*)({_GUARD}*{_NEGATIVE})", re.MULTILINE)
# What the vocabulary of the press calls a picture made by a trained model.
_SOURCE_TYPE = "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"


def png_info(trace: Mapping[str, Any], index: int, *, size: tuple[int, int], provenance: Provenance) -> PngInfo:
    """Both chunks for the picture of pair `index` of a trace, `size` pixels wide and high."""
    request, pair = trace["request"], trace["pairs"][index]
    steps = _num_steps(trace, pair["branch"])
    versions = provenance.versions
    pairs = {
        **({"Steps": steps} if steps else {}),
        "Seed": pair["seed"],
        "Size": f"{size[0]}x{size[1]}",
        "RNG": "CPU",
        "Verified": pair["verified"],
        "Version": f"mmspec {versions['mmspec']}",
    }
    own = {
        "schema": SCHEMA,
        "prompt": request["prompt"],
        "negative_prompt": request["negative_prompt"],
        "seed": request["seed"],
        "pair": index,
        "picture_seed": pair["seed"],
        "text": pair["text"],
        "verified": pair["verified"],
        "partial": trace["partial"],
        "claims": pair["claims"],
        "pruned": [
            {"branch": branch["id"], "reason": branch["reason"]} for branch in trace["branches"] if branch["reason"]
        ],
        "config": provenance.config,
        "overrides": provenance.overrides,
        "models": provenance.models,
        "versions": versions,
        "rand_device": "cpu",
        "digital_source_type": _SOURCE_TYPE,
    }
    info = PngInfo()
    info.add_text(PARAMETERS_KEY, format_parameters(request["prompt"], request["negative_prompt"], pairs))
    info.add_itxt(OWN_KEY, json.dumps(own, ensure_ascii=False))
    return info


def read_own(image: Image.Image) -> dict[str, Any]:
    """Our own chunk of an opened PNG, as it was written."""
    return json.loads(image.info[OWN_KEY])


def format_parameters(prompt: str, negative_prompt: str, pairs: Mapping[str, object]) -> str:
    """The `parameters` chunk. `pairs` needs three entries or more, or readers take its line for prompt."""
    lines = [_guarded(prompt)]
    if negative_prompt:
        lines.append(f"{_NEGATIVE} {_guarded(negative_prompt)}")
    lines.append(", ".join(f"{key}: {_quoted(value)}" for key, value in pairs.items()))
    return "\n".join(lines)


def _guarded(prompt: str) -> str:
    return _GUARDED_LINE.sub(rf"\1{_GUARD}\2", prompt)


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if re.search(r"[,:\n]", text) else text


def _num_steps(trace: Mapping[str, Any], branch_id: str) -> int:
    branch = next(branch for branch in trace["branches"] if branch["id"] == branch_id)
    return max((draft["num_steps"] for draft in branch["drafts"]), default=0)
