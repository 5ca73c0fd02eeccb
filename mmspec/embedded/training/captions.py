"""Encoded captions on disk: the text side of a training set, fixed by its seed, length and number of variants.

Knows captions, the text encoder and files; knows no picture. Tokens are stored without padding, in float16: a caption
takes about 13 kB.
Legend: `n` captions, `l` tokens of a caption, `w` width of the encoder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mmspec.embedded.text_encoder import PaddedText, TextEncoder
from mmspec.embedded.training.scenes import caption_at
from mmspec.errors import InputError

__all__ = ["EncodedCaptions", "encode_captions"]

_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class EncodedCaptions:
    """Features of `num_variants` captions for each of `num_scenes` scenes, variant by variant.

    `tokens` `[all tokens, w]` and `pooled` `[n, w]` float16, `starts` `[n + 1]` int64: where captions begin in `tokens`.
    """

    num_scenes: int
    num_variants: int
    tokens: numpy.ndarray
    pooled: numpy.ndarray
    starts: numpy.ndarray

    def batch(self, scenes: Tensor, variants: Tensor) -> PaddedText:
        """Features of one caption per scene; both arguments `[n]` int64."""
        rows = (variants * self.num_scenes + scenes).tolist()
        parts = [torch.from_numpy(self.tokens[self.starts[k] : self.starts[k + 1]]) for k in rows]
        pooled = torch.from_numpy(self.pooled[rows])
        return PaddedText(pad_sequence(parts, batch_first=True), torch.tensor([len(p) for p in parts]), pooled)


def encode_captions(
    folder: Path, encoder: TextEncoder, *, seed: int, num_scenes: int, num_variants: int
) -> EncodedCaptions:
    """Encode the captions of scenes 0 .. `num_scenes` - 1 of `seed`; a set that is there already is only opened.

    Raises `InputError` where `folder` holds another set.
    """
    description = {"seed": seed, "num_scenes": num_scenes, "num_variants": num_variants}
    done = folder / "set.json"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        lengths: list[int] = []
        with (folder / "tokens.bin").open("wb") as tokens, (folder / "pooled.bin").open("wb") as pooled:
            for variant in range(num_variants):
                for start in range(0, num_scenes, _CHUNK):
                    indices = range(start, min(start + _CHUNK, num_scenes))
                    captions = [caption_at(seed, index, variant=variant) for index in indices]
                    for features in encoder.encode(captions, batch_size=128):
                        tokens.write(features.tokens.half().numpy().tobytes())
                        pooled.write(features.pooled.half().numpy().tobytes())
                        lengths.append(len(features.tokens))
        numpy.save(folder / "starts.npy", numpy.concatenate([[0], numpy.cumsum(lengths)]))
        done.write_text(json.dumps(description))
    if (found := json.loads(done.read_text())) != description:
        raise InputError(f"{folder} holds {found}, expected {description}: choose another folder")
    starts = numpy.load(folder / "starts.npy")
    num_captions = num_scenes * num_variants
    pooled_rows = numpy.memmap(folder / "pooled.bin", numpy.float16, mode="c").reshape(num_captions, -1)
    width = pooled_rows.shape[1]
    token_rows = numpy.memmap(folder / "tokens.bin", numpy.float16, mode="c").reshape(-1, width)
    return EncodedCaptions(num_scenes, num_variants, token_rows, pooled_rows, starts)
