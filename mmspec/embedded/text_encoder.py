"""Captions to features with a frozen sentence encoder (all-MiniLM-L6-v2 by default).

Knows words and a BERT from `transformers`; knows no picture.
Legend: `l` tokens of a caption, `w` width of the encoder (384).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mmspec.weights import resolve

__all__ = ["PaddedText", "TextEncoder", "TextFeatures", "pad_features"]

_LOGGER = logging.getLogger(__name__)
_MAX_TOKENS = 256  # what all-MiniLM-L6-v2 was trained to read; captions of the transformer's training have about 40


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """One caption: `tokens` `[l, w]` and their mean `pooled` `[w]`, scaled to unit length; float32."""

    tokens: Tensor
    pooled: Tensor


@dataclass(frozen=True, eq=False)
class PaddedText:
    """Captions side by side: `tokens` `[n, l, w]`, zero beyond `lengths` `[n]` int64; `pooled` `[n, w]`."""

    tokens: Tensor
    lengths: Tensor
    pooled: Tensor


class TextEncoder:
    """Encodes captions; `path` is a reference to a BERT folder of `transformers`.

    `tokenizer` is the folder's own; `max_tokens` of it are read, its special tokens included.
    """

    def __init__(self, path: str, *, dtype: torch.dtype = torch.float32) -> None:
        from transformers import AutoModel, AutoTokenizer

        folder = resolve(path)
        self._set_up(
            AutoTokenizer.from_pretrained(folder, local_files_only=True),
            AutoModel.from_pretrained(folder, local_files_only=True, dtype=dtype),
        )

    @classmethod
    def from_models(cls, tokenizer: Any, model: Any) -> TextEncoder:
        """An encoder over a `transformers` tokenizer and BERT that are loaded already."""
        encoder = cls.__new__(cls)
        encoder._set_up(tokenizer, model)
        return encoder

    def _set_up(self, tokenizer: Any, model: Any) -> None:
        self.tokenizer, self._model = tokenizer, model.eval()
        self.max_tokens: int = min(_MAX_TOKENS, model.config.max_position_embeddings)

    @torch.no_grad()
    def encode(self, captions: Sequence[str], *, batch_size: int = 1) -> list[TextFeatures]:
        """Features in the order of `captions`. A caption over `max_tokens` is cut, with a warning in the log.

        One by one by default, so that a caption's features do not depend on its neighbours.
        """
        ids = [self.tokenizer(caption, verbose=False)["input_ids"] for caption in captions]
        for caption, row in zip(captions, ids, strict=True):
            if len(row) > self.max_tokens:
                _LOGGER.warning("the picture is drawn from the first %d tokens of %r", self.max_tokens, caption)
        order = sorted(range(len(ids)), key=lambda k: len(ids[k]))
        out: list[TextFeatures | None] = [None] * len(ids)
        for start in range(0, len(order), batch_size):
            part = order[start : start + batch_size]
            rows = [
                torch.tensor(ids[k][: self.max_tokens - 1] + ids[k][-1:] if len(ids[k]) > self.max_tokens else ids[k])
                for k in part
            ]
            lengths = torch.tensor([len(row) for row in rows])
            padded = pad_sequence(rows, batch_first=True)
            mask = torch.arange(padded.shape[1])[None] < lengths[:, None]
            hidden = self._model(input_ids=padded, attention_mask=mask.long()).last_hidden_state.float()
            for k, states, length in zip(part, hidden, lengths.tolist(), strict=True):
                tokens = states[:length]
                out[k] = TextFeatures(tokens.clone(), torch.nn.functional.normalize(tokens.mean(0), dim=0))
        return [features for features in out if features is not None]


def pad_features(features: Sequence[TextFeatures]) -> PaddedText:
    """Put captions side by side."""
    return PaddedText(
        pad_sequence([f.tokens for f in features], batch_first=True),
        torch.tensor([len(f.tokens) for f in features]),
        torch.stack([f.pooled for f in features]),
    )
