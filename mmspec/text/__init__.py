"""The text side: token-tree speculation that is exact for its target model."""

from mmspec.text.types import (
    FinishReason,
    SamplingParams,
    SegmentEnd,
    TextChunk,
    TextMetrics,
    TokenTree,
    Trial,
)

__all__ = ["FinishReason", "SamplingParams", "SegmentEnd", "TextChunk", "TextMetrics", "TokenTree", "Trial"]
