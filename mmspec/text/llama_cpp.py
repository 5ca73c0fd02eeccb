"""llama.cpp as a peer to measure against: what a user without an accelerator would run instead.

Knows the `llama_cpp` package alone, which is optional (`pip install 'mmspec[peers]'` compiles it) and used by nothing
but the benchmark.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from mmspec.errors import WeightsError


def available() -> bool:
    """Whether llama.cpp is installed."""
    return importlib.util.find_spec("llama_cpp") is not None


class LlamaCpp:
    """A model of llama.cpp: the one `*.gguf` file in `folder`.

    Raises `WeightsError` where there is none, or it cannot be read.
    """

    def __init__(self, folder: Path, *, num_threads: int, context: int) -> None:
        import llama_cpp

        files = sorted(folder.glob("*.gguf"))
        if len(files) != 1:
            raise WeightsError(f"{folder} holds {len(files)} *.gguf files: expected one")
        try:
            self._model: Any = llama_cpp.Llama(
                str(files[0]),
                n_ctx=context,
                n_threads=num_threads,
                n_threads_batch=num_threads,
                verbose=False,
            )
        except (ValueError, OSError) as error:
            raise WeightsError(f"llama.cpp cannot read {files[0]}: {error}") from error

    def write(self, ids: Sequence[int], num_tokens: int) -> list[int]:
        """`num_tokens` tokens behind a prompt, greedily; the end of the text is passed over."""
        drawn = self._model.generate(list(ids), temp=0.0, repeat_penalty=1.0)
        return [int(token) for token in islice(drawn, num_tokens)]
