"""Ranges of pixels: bytes, [0, 1] of previews, and [-1, 1] of the autoencoder."""

from __future__ import annotations

from torch import Tensor

__all__ = ["signed_from_bytes", "signed_from_unit", "unit_from_signed"]


def unit_from_signed(pixels: Tensor) -> Tensor:
    """[-1, 1] to [0, 1], clamped."""
    return pixels.add(1).div(2).clamp(0, 1)


def signed_from_unit(pixels: Tensor) -> Tensor:
    """[0, 1] to [-1, 1]."""
    return pixels.mul(2).sub(1)


def signed_from_bytes(pixels: Tensor) -> Tensor:
    """uint8 in [0, 255] to float32 in [-1, 1]."""
    return pixels.float().div(127.5).sub(1)
