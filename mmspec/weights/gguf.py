"""GGUF files: dequantised once, kept as a `transformers` folder in float32.

`transformers` reads a GGUF file but needs many seconds for it and refuses to save what it read. Float32,
because neither bfloat16 nor float16 holds the dequantised values (block scale times integer) exactly:
the largest error over SmolLM2's weights is 8e-3 and 2e-3, which is enough to change a greedy token.
"""

import logging
from pathlib import Path

from mmspec.errors import WeightsError

logger = logging.getLogger(__name__)


def convert_gguf(source: Path, folder: Path) -> None:
    """Write the causal language model in the GGUF file `source` as config, weights and tokenizer to `folder`.

    Raises `WeightsError` for a tokenizer that `convert_tokenizer` cannot convert.
    """
    import torch
    from transformers import AutoModelForCausalLM

    logger.info("dequantising %s to float32 (once)", source.name)
    convert_tokenizer(source, folder)
    quantised = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    config = type(quantised.config)(
        **{
            key: value
            for key, value in quantised.config.to_diff_dict().items()
            if key not in {"quantization_config", "transformers_version", "model_type"} and not key.startswith("_")
        }
    )
    with torch.device("meta"):  # no memory and no random draws for weights that are replaced at once
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantised.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = quantised.generation_config
    model.save_pretrained(folder)


def convert_tokenizer(source: Path, folder: Path) -> None:
    """Write the tokenizer in the GGUF file `source` to `folder`.

    Handles that of SmolLM alone: `transformers` drops the pre-tokenizer that a GGUF file names, so it is put back here.
    Raises `WeightsError` for a file that names another one.
    """
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    fields = GGUFReader(source).fields
    kind = fields["tokenizer.ggml.pre"].contents()
    if kind != "smollm":
        raise WeightsError(f"{source} has a tokenizer of the kind {kind!r}: expected 'smollm'; convert it elsewhere")
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.model_max_length = int(fields["llama.context_length"].contents())
    tokenizer.save_pretrained(folder)
