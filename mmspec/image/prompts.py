"""Long prompts: read in pieces where the text encoder allows it, and said where they are cut.

Knows tokenizers of `transformers`; knows no model. Legend: `k` pieces, `l` tokens of a piece.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["pieces", "readable"]


def pieces(tokenizer: Any, text: str) -> Tensor:
    """The token ids of `text` in as many full inputs of a CLIP tokenizer as it takes, `[k, l]` int64.

    Each begins and ends as an input of its own and is padded; a new one begins between words. CLIP reads at most 75
    tokens at a time, but a UNet attends to any number of them (common practice in the field since 2022).
    """
    room = tokenizer.model_max_length - 2
    rows: list[list[int]] = [tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]]
    if len(rows[0]) > room:
        rows = [[]]
        for word in text.split():
            ids = tokenizer(word, add_special_tokens=False, verbose=False)["input_ids"]
            for start in range(0, len(ids), room):
                part = ids[start : start + room]
                if len(rows[-1]) + len(part) > room:
                    rows.append([])
                rows[-1] += part
    padding = tokenizer.pad_token_id
    whole = [[tokenizer.bos_token_id, *row, tokenizer.eos_token_id] + [padding] * (room - len(row)) for row in rows]
    return torch.tensor(whole)


def readable(tokenizer: Any, text: str, *, max_tokens: int) -> str:
    """The beginning of `text` that fits `max_tokens` of a fast tokenizer, its special tokens included."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    room = max_tokens - tokenizer.num_special_tokens_to_add()
    offsets = encoded["offset_mapping"]
    return text if len(offsets) <= room else text[: offsets[room - 1][1]]
