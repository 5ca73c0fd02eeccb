"""Scores claims with any `open_clip` model from a local folder.

The one place of the verifier that imports open_clip; its scale, normalisation and preprocessing end here.
Legend: `n` pictures, `p` phrases, `d` joint width.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from mmspec.errors import ModelError, WeightsError
from mmspec.verify.calibration import CALIBRATION_NAME, Calibration
from mmspec.verify.folders import CONFIG_NAME, located, open_clip_folder
from mmspec.verify.phrases import read_phrases, write_phrases
from mmspec.verify.scorer import ContrastScorer, Thresholds
from mmspec.weights.cache import cache_folder

__all__ = ["OpenClipScorer"]

_LOGGER = logging.getLogger(__name__)

_SHORT = 16  # text tokens of nearly every claim; encoding them padded to 77 costs five times as much
_NUM_SEEN = 64  # pictures whose features are remembered
_PHRASES = 8  # that are encoded at once, filled up where there are fewer


class OpenClipScorer(ContrastScorer):
    """`path` is a reference to an open_clip folder; a `calibration.json` in it is used.

    `batch_size` pictures go through the image tower at once, filled up where there are fewer, so that a picture
    gets the same bits whatever it is scored with. `device` and `dtype` ("float32", "bfloat16", "float16") are where and how the towers run;
    similarities are float32. A model that was put together in the user cache keeps the phrases it has read there. `num_cells` is the side of the grid of relevance maps. Raises `WeightsError`
    when the folder cannot be loaded.
    """

    def __init__(
        self,
        *,
        path: str,
        held: float,
        failed: float,
        widening: float,
        min_auc: float,
        batch_size: int,
        num_cells: int,
        device: str,
        dtype: str,
    ) -> None:
        source = located(path) / CALIBRATION_NAME
        calibration = Calibration.read(source) if source.is_file() else None
        thresholds = Thresholds(held=held, failed=failed, widening=widening, min_auc=min_auc)
        super().__init__(thresholds=thresholds, calibration=calibration, num_cells=num_cells)
        self._device = torch.device(device)
        self._dtype = getattr(torch, dtype)
        self._batch_size = batch_size
        folder = open_clip_folder(path)
        self._model, self._prepare, self._tokenizer = _load(folder, device=self._device)
        self._padding = int(self._tokenizer(["a"])[0, -1])  # a full row has none: open_clip cuts without a word
        # open_clip's own text tower adds a position table of full length; a BERT takes any length.
        self._may_trim = "hf_model_name" in json.loads((folder / CONFIG_NAME).read_text())["model_cfg"]["text_cfg"]
        # By identity, with the picture itself, so that its number cannot be another's.
        self._seen: dict[int, tuple[Tensor, Tensor]] = {}
        kept = folder.is_relative_to(cache_folder())
        self._kept = folder / f"phrases-{self._device.type}-{dtype}.safetensors" if kept else None
        self._text = read_phrases(self._kept) if self._kept is not None else {}

    @torch.no_grad()
    def similarities(self, pixels: Sequence[Tensor], phrases: Sequence[str]) -> Tensor:
        """See `ContrastScorer.similarities`: cosines times the model's own scale."""
        text = self._text_features(phrases)
        image = self._image_features(pixels)
        scale = self._model.logit_scale.exp().float().cpu()
        # Not a matrix product: its last bits depend on what else is in it.
        table = torch.stack([scale * (text * row).sum(1) for row in image])
        if not torch.isfinite(table).all():
            raise ModelError("the verifier's image tower gave NaN: use dtype=float32")
        return table

    def _image_features(self, pixels: Sequence[Tensor]) -> Tensor:
        """Unit embeddings `[n, d]`; the last pictures are remembered, since a text goes on asking about its own.

        Every pass is filled up to `batch_size`: the shape decides a kernel's last bits.
        """
        seen = dict(self._seen)  # other threads may be at work
        fresh = list({id(picture): picture for picture in pixels if id(picture) not in seen}.values())
        for k in range(0, len(fresh), self._batch_size):
            part = torch.stack([self._prepare(_picture(picture)) for picture in fresh[k : k + self._batch_size]])
            padding = part[-1:].expand(self._batch_size - len(part), -1, -1, -1)
            features = self._encode(self._model.encode_image, torch.cat([part, padding]))
            for picture, row in zip(fresh[k:], features[: len(part)], strict=False):
                seen[id(picture)] = (picture, row)
        self._seen = dict(list(seen.items())[-_NUM_SEEN:])
        return torch.stack([seen[id(picture)][1] for picture in pixels])

    def _text_features(self, phrases: Sequence[str]) -> Tensor:
        """Unit embeddings `[p, d]`; each phrase is encoded once, in a pass of one of two fixed shapes."""
        fresh = [phrase for phrase in dict.fromkeys(phrases) if phrase not in self._text]
        if fresh:
            tokens = self._tokenizer(fresh)
            for k in (tokens[:, -1] != self._padding).nonzero()[:, 0].tolist():
                _LOGGER.warning("the verifier reads %d tokens, no more of: %s", tokens.shape[1], fresh[k])
            short = ~tokens[:, _SHORT:].any(1) if self._may_trim else torch.zeros(len(fresh), dtype=torch.bool)
            self._encode_phrases([fresh[k] for k in short.nonzero()[:, 0]], tokens[short, :_SHORT])
            self._encode_phrases([fresh[k] for k in (~short).nonzero()[:, 0]], tokens[~short])
            if self._kept is not None:
                write_phrases(self._kept, dict(self._text))
        return torch.stack([self._text[phrase] for phrase in phrases])

    def _encode_phrases(self, phrases: Sequence[str], tokens: Tensor) -> None:
        for k in range(0, len(phrases), _PHRASES):
            part = tokens[k : k + _PHRASES]
            filled = torch.cat([part, part[-1:].expand(_PHRASES - len(part), -1)])
            features = self._encode(self._model.encode_text, filled)[: len(part)]
            self._text.update(zip(phrases[k : k + _PHRASES], features, strict=True))

    def _encode(self, tower: Any, batch: Tensor) -> Tensor:
        with torch.autocast(self._device.type, self._dtype, enabled=self._dtype != torch.float32):
            features = tower(batch.to(self._device))
        return torch.nn.functional.normalize(features.float().cpu(), dim=-1)


def _load(folder: Path, *, device: torch.device) -> tuple[Any, Any, Any]:
    import open_clip

    name = f"local-dir:{folder}"
    try:
        # `create_model_and_transforms` would go on with random weights where none are found.
        model, prepare = open_clip.create_model_from_pretrained(name, device=device)
        tokenizer = open_clip.get_tokenizer(name)
    except (RuntimeError, ValueError, OSError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WeightsError(f"open_clip cannot load {folder}: {reason}") from error
    return model.eval().requires_grad_(False), prepare, tokenizer


def _picture(pixels: Tensor) -> Image.Image:
    """`[3, h, w]` float in [0, 1] -> RGB picture, rounded to 8 bits as a person would see it."""
    bytes_ = pixels.mul(255).round().clamp(0, 255).to(torch.uint8)
    return Image.fromarray(bytes_.permute(1, 2, 0).contiguous().numpy(), "RGB")
