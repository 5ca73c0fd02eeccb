"""A converted GGUF file gives the values that the gguf library reads, and the tokenizer that it names."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from mmspec.errors import WeightsError
from mmspec.weights.gguf import convert_gguf

_WIDTH, _HEADS, _FEED_FORWARD = 64, 2, 96
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_TEMPLATE = "{% for message in messages %}{{ '<|im_start|>' + message['content'] + '<|im_end|>' }}{% endfor %}"


def _byte_letters() -> list[str]:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return list(bytes_to_unicode().values())


def _write_gguf(path: Path, *, pre: str) -> dict[str, np.ndarray]:
    """A llama of one layer, its matrices quantised to Q4_1; gives them as the gguf library dequantises them."""
    rng = np.random.default_rng(0)
    tokens = [*_SPECIAL, *_byte_letters(), "ĠĠ", "12", "th"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("toy")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(_WIDTH)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(_SPECIAL) + [1] * (len(tokens) - len(_SPECIAL)))
    writer.add_token_merges(["Ġ Ġ", "1 2", "t h"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(_TEMPLATE)
    shapes = {
        "token_embd": (len(tokens), _WIDTH),
        "blk.0.attn_q": (_WIDTH, _WIDTH),
        "blk.0.attn_k": (_WIDTH, _WIDTH),
        "blk.0.attn_v": (_WIDTH, _WIDTH),
        "blk.0.attn_output": (_WIDTH, _WIDTH),
        "blk.0.ffn_gate": (_FEED_FORWARD, _WIDTH),
        "blk.0.ffn_up": (_FEED_FORWARD, _WIDTH),
        "blk.0.ffn_down": (_WIDTH, _FEED_FORWARD),
    }
    kind = gguf.GGMLQuantizationType.Q4_1
    dequantised = {}
    for name, shape in shapes.items():
        packed = gguf.quantize(rng.normal(0, 0.1, shape).astype(np.float32), kind)
        dequantised[name] = gguf.dequantize(packed, kind)
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=kind)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(_WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return dequantised


def test_converted_folder_holds_the_dequantised_values_and_a_working_tokenizer(tmp_path: Path) -> None:
    """Weights are exactly those of the gguf library; digits stand alone, as SmolLM's tokenizer wants it."""
    expected = _write_gguf(tmp_path / "toy.gguf", pre="smollm")
    folder = tmp_path / "folder"
    folder.mkdir()
    convert_gguf(tmp_path / "toy.gguf", folder)

    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    assert model.generation_config.eos_token_id == 2
    assert model.lm_head.weight is model.model.embed_tokens.weight
    weights = model.state_dict()
    for name, key in (("token_embd", "model.embed_tokens"), ("blk.0.ffn_down", "model.layers.0.mlp.down_proj")):
        assert torch.equal(weights[f"{key}.weight"], torch.from_numpy(expected[name]))
    # GGUF keeps the two halves of a rotary pair side by side, transformers keeps them apart.
    paired = torch.from_numpy(expected["blk.0.attn_q"]).view(_HEADS, _WIDTH // _HEADS // 2, 2, _WIDTH)
    apart = paired.transpose(1, 2).reshape(_WIDTH, _WIDTH)
    assert torch.equal(weights["model.layers.0.self_attn.q_proj.weight"], apart)

    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "it's  12 th, 世界 🙂\n"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer.tokenize("a  12th") == ["a", "ĠĠ", "1", "2", "th"]
    assert (
        tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "<|im_start|>hi<|im_end|>"
    )
    assert tokenizer.model_max_length == 128


def test_file_with_another_tokenizer_is_refused(tmp_path: Path) -> None:
    """What would be converted wrongly is not converted."""
    _write_gguf(tmp_path / "toy.gguf", pre="qwen2")
    with pytest.raises(WeightsError, match="'qwen2'"):
        convert_gguf(tmp_path / "toy.gguf", tmp_path)
