"""llama.cpp: as what computes our own passes, and as a peer to measure against.

Knows the `llama_cpp` package alone, which is optional: `pip install 'mmspec[peers]'` compiles it.
Legend: `n` nodes, `v` vocabulary, `d` hidden size.
"""

from __future__ import annotations

import importlib.util
import logging
import weakref
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmspec.errors import InputError, ModelError, WeightsError
from mmspec.text.gguf import Cell

BATCH = 512
"""Tokens of a pass at most."""
OUTPUT_BATCH = 64
"""Tokens of a prompt at once where hidden states are wanted: logits come with them, and take room."""
NUM_CELLS = 16384
"""Tokens that can be stored for all texts together: 23 kB each for a 135M model in float16."""
NUM_SEQUENCES = 256
"""The most that llama.cpp has."""
GGML_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 30}


def available() -> bool:
    """Whether llama.cpp is installed."""
    return importlib.util.find_spec("llama_cpp") is not None


def gguf_file(folder: Path) -> Path:
    """The one `*.gguf` file in `folder`. Raises `WeightsError` where there is none, or are several."""
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        raise WeightsError(f"{folder} holds {len(files)} *.gguf files: expected one")
    return files[0]


class LlamaContext:
    """A GGUF file as a `Context`; `dtype` is that of keys and values.

    Raises `InputError` where llama.cpp is not installed or has no such dtype, `WeightsError` for a file that it cannot
    read, `ModelError` where its cache does not fit the memory.
    """

    num_sequences = NUM_SEQUENCES

    def __init__(self, file: Path, *, dtype: torch.dtype, num_cells: int = NUM_CELLS) -> None:
        if not available():
            raise InputError("engine=llama_cpp needs llama.cpp, which is not installed: pip install 'mmspec[peers]'")
        if dtype not in GGML_TYPES:
            raise InputError(f"engine=llama_cpp has no {dtype}: expected float32, float16 or bfloat16")
        import llama_cpp

        logging.getLogger("llama-cpp-python").setLevel(logging.CRITICAL)  # it tells everything; errors are told below
        self._lib: Any = llama_cpp
        self._file = file
        self.num_cells = num_cells
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(str(file).encode(), llama_cpp.llama_model_default_params())
        if not model:
            raise WeightsError(f"llama.cpp cannot read {file}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.kv_unified = num_cells, NUM_SEQUENCES, True
        params.n_batch = params.n_ubatch = BATCH
        params.type_k = params.type_v = GGML_TYPES[dtype]
        self._context = llama_cpp.llama_init_from_model(model, params)
        if not self._context:
            llama_cpp.llama_model_free(model)
            raise ModelError(f"llama.cpp cannot hold a cache of {num_cells} tokens in {dtype}")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(BATCH, 0, NUM_SEQUENCES)
        weakref.finalize(self, _free, llama_cpp, self._batch, self._context, model)
        vocab = llama_cpp.llama_model_get_vocab(model)
        self.vocab_size = int(llama_cpp.llama_vocab_n_tokens(vocab))
        self.hidden_size = int(llama_cpp.llama_model_n_embd(model))
        self.max_length = int(llama_cpp.llama_model_n_ctx_train(model))
        self.num_parameters = int(llama_cpp.llama_model_n_params(model))
        ends = llama_cpp.llama_vocab_eos(vocab), llama_cpp.llama_vocab_eot(vocab)
        self.end_ids = tuple(sorted({int(end) for end in ends if end >= 0}))
        self._gives_hidden = False

    @property
    def prompt_rows(self) -> int:
        """See `Context.prompt_rows`."""
        return OUTPUT_BATCH if self._gives_hidden else BATCH

    def weights(self) -> tuple[Tensor, Tensor]:
        """See `Context.weights`."""
        from gguf import GGUFReader, dequantize

        found = {tensor.name: tensor for tensor in GGUFReader(self._file).tensors}
        embedding = found["token_embd.weight"]
        output = found.get("output.weight", embedding)
        tensors = {
            each.name: torch.from_numpy(dequantize(each.data, each.tensor_type)).bfloat16()
            for each in (embedding, output)
        }
        self._lib.llama_set_embeddings(self._context, True)
        self._gives_hidden = True
        return tensors[embedding.name], tensors[output.name]

    def copy(self, source: int, target: int, length: int) -> None:
        """See `Memory.copy`."""
        if length:
            self._lib.llama_memory_seq_cp(self._memory, source, target, 0, length)

    def cut(self, number: int, length: int) -> None:
        """See `Memory.cut`."""
        self._lib.llama_memory_seq_rm(self._memory, number, length, -1)

    def decode(self, cells: Sequence[Cell], *, outputs: bool) -> bool:
        """See `Context.decode`. Raises `ModelError` for a pass that fails."""
        batch, wanted = self._batch, outputs or self._gives_hidden
        if len(cells) > BATCH:
            raise ModelError(f"llama.cpp takes {BATCH} tokens at once, not {len(cells)}: choose a smaller tree")
        batch.n_tokens = len(cells)
        for place, cell in enumerate(cells):
            batch.token[place], batch.pos[place], batch.logits[place] = cell.token, cell.position, wanted
            batch.n_seq_id[place] = len(cell.sequences)
            for number, sequence in enumerate(cell.sequences):
                batch.seq_id[place][number] = sequence
        num_threads = torch.get_num_threads()
        self._lib.llama_set_n_threads(self._context, num_threads, num_threads)
        code = self._lib.llama_decode(self._context, batch)
        if code not in (0, 1):
            raise ModelError(f"llama.cpp failed with code {code} on a pass of {len(cells)} tokens")
        return bool(code == 0)

    def logits(self, num: int) -> Tensor:
        """See `Context.logits`."""
        return _read(self._lib.llama_get_logits(self._context), num, self.vocab_size)

    def hidden(self, num: int) -> Tensor:
        """See `Context.hidden`."""
        if not self._gives_hidden:
            return torch.zeros(1, self.hidden_size).expand(num, -1)
        return _read(self._lib.llama_get_embeddings(self._context), num, self.hidden_size)


def _read(pointer: Any, num: int, size: int) -> Tensor:
    return torch.from_numpy(np.ctypeslib.as_array(pointer, shape=(num, size)).copy())


def _free(lib: Any, batch: Any, context: Any, model: Any) -> None:
    lib.llama_batch_free(batch)
    lib.llama_free(context)
    lib.llama_model_free(model)


class LlamaCpp:
    """llama.cpp's own decoding of the one `*.gguf` file in `folder`: what a user without an accelerator would run instead.

    Raises `WeightsError` where there is no such file, or it cannot be read.
    """

    def __init__(self, folder: Path, *, num_threads: int, context: int) -> None:
        import llama_cpp

        file = gguf_file(folder)
        try:
            self._model: Any = llama_cpp.Llama(
                str(file), n_ctx=context, n_threads=num_threads, n_threads_batch=num_threads, verbose=False
            )
        except (ValueError, OSError) as error:
            raise WeightsError(f"llama.cpp cannot read {file}: {error}") from error

    def write(self, ids: Sequence[int], num_tokens: int) -> list[int]:
        """`num_tokens` tokens behind a prompt, greedily; the end of the text is passed over."""
        drawn = self._model.generate(list(ids), temp=0.0, repeat_penalty=1.0)
        return [int(token) for token in islice(drawn, num_tokens)]
