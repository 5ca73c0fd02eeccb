"""Target and draft models as one part: engines, tokenizer, and whether the two fit together.

Knows files and `transformers`; knows no sampling. What comes out speaks ids and `TextEngine` only.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from mmspec.dtypes import dtype_named
from mmspec.errors import InputError, WeightsError
from mmspec.text.constraints import Constraint, grammar_tokenizer
from mmspec.text.engine import HFEngine, TextEngine
from mmspec.text.types import SamplingParams

log = logging.getLogger(__name__)

PLAIN_TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""Tokenizer classes that are all in their file: no model-specific code is needed to read them."""

LLAMA_KEYS = {
    "attention_bias",
    "eos_token_id",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "max_position_embeddings",
    "mlp_bias",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "rms_norm_eps",
    "rope_parameters",
    "vocab_size",
}
"""Everything that the lean engine reads of a configuration."""

RULE_OF_THUMB = (0.10, 0.15)
"""A draft model of this share of the target's parameters tends to pay (the field's rule of thumb)."""


@dataclass(frozen=True)
class PairingReport:
    """Whether a draft and a target fit: printed when both are loaded."""

    same_tokenizer: bool
    num_target_parameters: int
    num_draft_parameters: int
    target_context: int
    draft_context: int

    @property
    def ratio(self) -> float:
        """Draft parameters per target parameter."""
        return self.num_draft_parameters / self.num_target_parameters

    def __str__(self) -> str:
        low, high = RULE_OF_THUMB
        verdict = "within" if low <= self.ratio <= high else "outside"
        return (
            f"draft has {self.ratio:.1%} of the target's parameters ({verdict} the {low:.0%} to {high:.0%} rule of "
            f"thumb), contexts {self.draft_context} and {self.target_context}"
        )


class LanguageModels:
    """A target model, optionally a draft model, and their one tokenizer.

    Paths are references as `mmspec.weights.resolve` takes them. Raises `WeightsError` for files that are
    missing or broken, `InputError` for a pair that cannot work.
    """

    def __init__(
        self, *, target_model_path: str, draft_model_path: str | None, engine: str, dtype: str, quantize: str
    ) -> None:
        if engine not in ENGINES:
            raise InputError(f"engine={engine!r} is unknown: expected one of {sorted(ENGINES)}")
        number_format = dtype_named(dtype)
        folder = _folder(target_model_path)
        self.name, self.draft_name = target_model_path, draft_model_path
        self.tokenizer = _load_tokenizer(folder)
        self.num_token_ids = len(self.tokenizer)
        # A prompt that is too long is refused by the engine; the tokenizer would warn of it as well.
        self.tokenizer.model_max_length = sys.maxsize
        self.engine, end_ids, num_parameters = ENGINES[engine](folder, number_format, quantize)
        self.end_ids = end_ids
        self._grammar_tokenizer: Any = None
        self.draft_engine: TextEngine | None = None
        self.pairing: PairingReport | None = None
        if draft_model_path is not None:
            self._load_draft(_folder(draft_model_path), engine, number_format, quantize, num_parameters)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, no special tokens added."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a raw prompt, with the special tokens that the tokenizer puts in front."""
        return list(self.tokenizer.encode(text))

    def decode(self, ids: list[int]) -> str:
        """Text of ids, special tokens left out."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def constraint(self, params: SamplingParams) -> Constraint | None:
        """The grammar that `params` asks for, in this tokenizer's ids. Raises `InputError` for a bad one."""
        if params.json_schema is None and params.regex is None:
            return None
        if self._grammar_tokenizer is None:
            self._grammar_tokenizer = grammar_tokenizer(self.tokenizer, self.end_ids)
        if params.regex is not None:
            return Constraint("regex", params.regex, tokenizer=self._grammar_tokenizer)
        return Constraint("json_schema", str(params.json_schema), tokenizer=self._grammar_tokenizer)

    def _load_draft(
        self, folder: Path, engine: str, dtype: torch.dtype, quantize: str, num_target_parameters: int
    ) -> None:
        tokenizer = _load_tokenizer(folder)
        same = tokens_agree(tokenizer.get_vocab(), self.tokenizer.get_vocab())
        if not same:
            raise InputError(
                f"draft model {folder.name} has another tokenizer than the target: name a draft model "
                "of the target's own family, or none"
            )
        self.draft_engine, _, num_parameters = ENGINES[engine](folder, dtype, quantize)
        self.pairing = PairingReport(
            same, num_target_parameters, num_parameters, self.engine.max_context, self.draft_engine.max_context
        )
        log.info("pairing: %s", self.pairing)


def tokens_agree(draft: Mapping[str, int], target: Mapping[str, int]) -> bool:
    """Whether every id that both vocabularies use is the same token; one may have more tokens at its end.

    >>> tokens_agree({"a": 0, "b": 1}, {"a": 0, "b": 1, "<extra>": 2}), tokens_agree({"a": 0}, {"b": 0})
    (True, False)
    """
    token_of = {number: token for token, number in target.items()}
    return all(token_of.get(number, token) == token for token, number in draft.items())


def _folder(reference: str) -> Path:
    from mmspec.weights import resolve

    return resolve(reference)


def _load_tokenizer(folder: Path) -> Any:
    try:
        if _read_json(folder / "tokenizer_config.json").get("tokenizer_class") in PLAIN_TOKENIZERS:
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast.from_pretrained(folder)
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise WeightsError(f"no tokenizer can be read in {folder}: {_first_line(error)}") from error


def _load_hf(folder: Path, dtype: torch.dtype, quantize: str) -> tuple[TextEngine, tuple[int, ...], int]:
    from transformers import AutoModelForCausalLM

    if quantize != "none":
        raise InputError(f"quantize={quantize!r} is for engine=llama: engine=hf takes quantize=none")
    with _readable(folder):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return HFEngine(model), _end_ids(model.generation_config.eos_token_id), model.num_parameters()


def _load_llama(folder: Path, dtype: torch.dtype, quantize: str) -> tuple[TextEngine, tuple[int, ...], int]:
    from safetensors.torch import load_file

    from mmspec.text.llama import LlamaEngine, check_config

    with _readable(folder):
        config = _llama_config(folder)
        check_config(config)
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise FileNotFoundError("no *.safetensors file in it")
        weights: dict[str, Tensor] = {}
        for file in files:
            weights |= load_file(file)
        engine = LlamaEngine(config, weights, dtype=dtype, quantize=quantize)
    eos = _read_json(folder / "generation_config.json").get("eos_token_id", config.eos_token_id)
    return engine, _end_ids(eos), sum(weight.numel() for weight in weights.values())


def _load_gguf(folder: Path, dtype: torch.dtype, quantize: str) -> tuple[TextEngine, tuple[int, ...], int]:
    from mmspec.text.gguf import GgufEngine
    from mmspec.text.llama_cpp import LlamaContext, gguf_file

    if quantize != "none":
        raise InputError(f"quantize={quantize!r} is for engine=llama: with engine=llama_cpp the file decides, so none")
    context = LlamaContext(gguf_file(folder), dtype=dtype)
    return GgufEngine(context), context.end_ids, context.num_parameters


def _llama_config(folder: Path) -> Any:
    """The model's configuration; a file that leaves nothing to defaults is read without `transformers`' classes.

    Those import torchvision and with it the compiler of torch, which takes longer than loading the model.
    """
    values = _read_json(folder / "config.json")
    rope = values.get("rope_parameters") or {}
    if values.get("model_type") == "llama" and values.keys() >= LLAMA_KEYS and rope.get("rope_type") == "default":
        return SimpleNamespace(**values)
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder)


def _read_json(path: Path) -> dict[str, Any]:
    """What a JSON file holds, nothing where there is none."""
    if not path.exists():
        return {}
    values = json.loads(path.read_text(encoding="utf-8"))
    return values if isinstance(values, dict) else {}


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Whatever goes wrong in reading model files, said in one line."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise WeightsError(f"no causal language model can be read in {folder}: {_first_line(error)}") from error


def _end_ids(eos: int | list[int] | None) -> tuple[int, ...]:
    if eos is None:
        return ()
    return (eos,) if isinstance(eos, int) else tuple(eos)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


Loader = Callable[[Path, torch.dtype, str], tuple[TextEngine, tuple[int, ...], int]]
ENGINES: dict[str, Loader] = {"hf": _load_hf, "llama": _load_llama, "llama_cpp": _load_gguf}
"""Engines by the name that conf/lm uses."""
