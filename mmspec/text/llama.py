"""The lean engine for Llama-family models on a CPU.

Same interface and, in float32, same numbers as the `transformers` engine; what it saves is overhead: fused
projections, norms folded into them, keys and values in preallocated buffers, one packed pass over all nodes
of all trees. Knows one architecture: pre-norm, rotary positions, grouped-query attention, SwiGLU, no biases.
Legend: `m` nodes in the pass, `d` hidden size, `h` key-value heads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from mmspec.errors import InputError, ModelError
from mmspec.text.attention import Part, Prompt, alone, together
from mmspec.text.engine import EngineState, TextEngine, Verified, committed_ids
from mmspec.text.kv_cache import SPARE_SLOTS, Buffer, side_by_side
from mmspec.text.linear import Int4Linear, Int8Linear, Linear, PackedLinear, PlainLinear
from mmspec.text.tree import chain, position_ids
from mmspec.text.types import TokenTree

MAX_BEGINNINGS = 8
"""Beginnings of prompts that are kept, the ones used last: about 4 MB each for a 135M model and 170 tokens."""


@dataclass(frozen=True, eq=False)
class _Layer:
    """Projections of one layer; a norm's weight is None where it is folded into what follows it."""

    attention_norm: Tensor | None
    mlp_norm: Tensor | None
    qkv: Linear
    out: Linear
    gate_up: Linear
    down: Linear


class LlamaEngine(TextEngine):
    """A Llama model from its state dict. `dtype` is float32 or bfloat16; `quantize` names int8 parts."""

    def __init__(self, config: Any, weights: dict[str, Tensor], *, dtype: torch.dtype, quantize: str) -> None:
        check_config(config)
        self.vocab_size, self.hidden_size = int(config.vocab_size), int(config.hidden_size)
        self.max_context = int(config.max_position_embeddings)
        self._num_heads = int(config.num_attention_heads)
        self._num_kv_heads = int(config.num_key_value_heads)
        self._head_dim = int(getattr(config, "head_dim", None) or self.hidden_size // self._num_heads)
        self._group = self._num_heads // self._num_kv_heads
        self._eps = float(config.rms_norm_eps)
        self._dtype = dtype
        self._shape = (int(config.num_hidden_layers), self._num_kv_heads, self._head_dim)
        self._rotation = _rotation(config)
        body, head = _linear_kinds(dtype, quantize)
        self.pass_rows = body.pass_rows
        self._embedding = weights["model.embed_tokens.weight"].to(dtype)
        self._layers = [self._layer(weights, f"model.layers.{index}.", body) for index in range(self._shape[0])]
        self._final_norm = weights["model.norm.weight"].to(dtype)
        tied = "lm_head.weight" not in weights
        self._output = self._embedding if tied else weights["lm_head.weight"].to(dtype)
        self._head = head(self._output)
        self._beginnings: dict[tuple[int, ...], tuple[Buffer, Tensor]] = {}
        self._keeping = threading.Lock()

    @override
    def embeddings(self) -> Tensor:
        return self._embedding

    @override
    def output_weights(self) -> Tensor:
        return self._output

    def _layer(self, weights: dict[str, Tensor], prefix: str, kind: type[Linear]) -> _Layer:
        attention_norm = weights[prefix + "input_layernorm.weight"].float()
        mlp_norm = weights[prefix + "post_attention_layernorm.weight"].float()
        q, k, v, out = (weights[f"{prefix}self_attn.{name}_proj.weight"].float() for name in "qkvo")
        gate, up, down = (weights[f"{prefix}mlp.{name}_proj.weight"].float() for name in ("gate", "up", "down"))
        qkv = torch.cat([interleave(q, self._head_dim), interleave(k, self._head_dim), v])
        gate_up = torch.cat([gate, up])
        if not kind.takes_norm:
            norms = attention_norm.to(self._dtype), mlp_norm.to(self._dtype)
            return _Layer(*norms, kind(qkv), kind(out), kind(gate_up), kind(down))
        return _Layer(None, None, kind(qkv * attention_norm), kind(out), kind(gate_up * mlp_norm), kind(down))

    @override
    @torch.inference_mode()
    def prefill(self, prompts: Sequence[Sequence[int]], *, num_shared: int = 0) -> list[tuple[EngineState, Tensor]]:
        self.check_prompts(prompts)
        return [self._prefill(tuple(ids), min(num_shared, len(ids) - 1)) for ids in prompts]

    @override
    @torch.inference_mode()
    def remember(self, ids: Sequence[int]) -> None:
        if ids:
            self._beginning(tuple(ids))

    def _prefill(self, ids: tuple[int, ...], num_shared: int) -> tuple[EngineState, Tensor]:
        """The shared beginning is always a pass of its own, kept or not: so a text never depends on what came before."""
        num = len(ids) - 1
        if not num_shared:
            buffer, hidden = self._run_prompt(ids, num + SPARE_SLOTS)
            return EngineState(ids, buffer, hidden[num:]), hidden[:num]
        beginning, before = self._beginning(ids[:num_shared])
        buffer = beginning.copy(num_shared, num)
        rest = chain(ids[num_shared:])
        part = alone(buffer, rest, slice(0, len(rest)), start=num_shared, group=self._group)
        hidden = self._forward(torch.tensor(rest.tokens), torch.arange(num_shared, num + 1), [part])
        buffer.length = num + 1
        return EngineState(ids, buffer, hidden[-1:]), torch.cat([before, hidden[:-1]])

    def _beginning(self, ids: tuple[int, ...]) -> tuple[Buffer, Tensor]:
        with self._keeping:
            kept = self._beginnings.pop(ids, None) or self._run_prompt(ids, len(ids))
            self._beginnings[ids] = kept  # the last in order is the one used last
            while len(self._beginnings) > MAX_BEGINNINGS:
                self._beginnings.pop(next(iter(self._beginnings)))
        return kept

    def _run_prompt(self, ids: Sequence[int], capacity: int) -> tuple[Buffer, Tensor]:
        buffer = Buffer(self._shape, capacity, self._dtype)
        hidden = torch.zeros(0, self.hidden_size, dtype=self._dtype)
        if ids:
            prompt = Prompt(slice(0, len(ids)), buffer)
            hidden = self._forward(torch.tensor(ids), torch.arange(len(ids)), [prompt])
        buffer.length = len(ids)
        return buffer, hidden

    @override
    @torch.inference_mode()
    def verify(self, states: Sequence[EngineState], trees: Sequence[TokenTree]) -> list[Verified]:
        open_places = [place for place, pair in enumerate(zip(states, trees, strict=True)) if not _is_ready(*pair)]
        asked = self._pass([states[place] for place in open_places], [trees[place] for place in open_places])
        verified = dict(zip(open_places, asked, strict=True))
        ready: dict[int, Tensor] = {}
        for place, (state, tree) in enumerate(zip(states, trees, strict=True)):
            if state.ahead is not None and place not in verified:
                if id(state.ahead) not in ready:  # forks share it
                    ready[id(state.ahead)] = self._head(state.ahead)
                verified[place] = Verified(tree, ready[id(state.ahead)], state.ahead, state.cache)
        return [verified[place] for place in range(len(states))]

    def _pass(self, states: Sequence[EngineState], trees: Sequence[TokenTree]) -> list[Verified]:
        """The pass of those that need one."""
        if not states:
            return []
        buffers: list[Buffer] = []
        for state, tree in zip(states, trees, strict=True):
            buffer, length = state.cache, state.num_cached
            if buffer.length != length or buffer in buffers:
                buffer = buffer.copy(length, length + len(tree))
            buffer.reserve(length + len(tree), self.max_context)
            buffers.append(buffer)
        tokens = torch.tensor([token for tree in trees for token in tree.tokens])
        positions = torch.cat([position_ids(tree, state.num_cached) for state, tree in zip(states, trees, strict=True)])
        hidden = self._forward(tokens, positions, self._parts(states, trees, buffers))
        logits = self._head(hidden)
        sizes = [len(tree) for tree in trees]
        verified = []
        for tree, buffer, rows, scores in zip(trees, buffers, hidden.split(sizes), logits.split(sizes), strict=True):
            seen = Verified(tree, scores, rows, buffer)
            buffer.writer = seen
            verified.append(seen)
        return verified

    def _parts(
        self, states: Sequence[EngineState], trees: Sequence[TokenTree], buffers: Sequence[Buffer]
    ) -> list[Part]:
        """What attention is computed by; its nodes are those of all trees, one tree after another."""
        ends = list(accumulate(map(len, trees)))
        nodes = [slice(end - len(tree), end) for end, tree in zip(ends, trees, strict=True)]
        starts = [state.num_cached for state in states]
        parts: list[Part] = []
        for own in side_by_side(buffers, [start + len(tree) for start, tree in zip(starts, trees, strict=True)]):
            if len(own) == 1:
                (i,) = own
                parts.append(alone(buffers[i], trees[i], nodes[i], start=starts[i], group=self._group))
            else:
                chosen = [buffers[i] for i in own], [trees[i] for i in own], [nodes[i] for i in own]
                parts.append(together(*chosen, starts=[starts[i] for i in own], group=self._group))
        return parts

    @override
    @torch.inference_mode()
    def commit(
        self,
        states: Sequence[EngineState],
        verified: Sequence[Verified],
        paths: Sequence[Sequence[int]],
        next_tokens: Sequence[int],
    ) -> list[EngineState]:
        committed = []
        for state, seen, path, token in zip(states, verified, paths, next_tokens, strict=True):
            buffer = seen.cache
            if not _is_ready(state, seen.tree):  # else the prefill wrote what is kept
                assert buffer.writer is seen, "a pass is committed before the next one writes to its buffer"
                buffer.keep(state.num_cached, path)
                buffer.writer = None
            committed.append(EngineState(committed_ids(state, seen.tree, path, token), buffer))
        return committed

    def _forward(self, tokens: Tensor, positions: Tensor, parts: Sequence[Part]) -> Tensor:
        """Normalised last hidden states `[m, d]`; keys and values are written to the parts' slots."""
        x = self._embedding[tokens]
        rotation = self._rotation[positions][:, None]
        num_q, num_kv, dim = self._num_heads, self._num_kv_heads, self._head_dim
        norm_shape = (self.hidden_size,)
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(functional.rms_norm(x, norm_shape, layer.attention_norm, self._eps)).view(
                -1, num_q + 2 * num_kv, dim
            )
            # Pairs of a head are adjacent (see `interleave`): rotation is one complex product.
            turned = torch.view_as_complex(qkv[:, : num_q + num_kv].float().unflatten(2, (-1, 2))) * rotation
            q, k = torch.view_as_real(turned).flatten(2).to(self._dtype).split([num_q, num_kv], dim=1)
            v = qkv[:, num_q + num_kv :].to(self._dtype)
            x = layer.out.add_to(x, _attended(parts, index, q, k, v)).to(self._dtype)
            gate, up = layer.gate_up(functional.rms_norm(x, norm_shape, layer.mlp_norm, self._eps)).chunk(2, dim=1)
            x = layer.down.add_to(x, (functional.silu(gate) * up).to(self._dtype)).to(self._dtype)
        return functional.rms_norm(x, norm_shape, self._final_norm, self._eps)


def _is_ready(state: EngineState, tree: TokenTree) -> bool:
    """Whether the prefill has computed all that the tree asks for."""
    return state.ahead is not None and len(tree) == 1


def _attended(parts: Sequence[Part], layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    if len(parts) == 1:
        return parts[0].attend(layer, q, k, v)
    attended = q.new_empty(len(q), q[0].numel())
    for part in parts:
        attended[part.nodes] = part.attend(layer, q[part.nodes], k[part.nodes], v[part.nodes])
    return attended


def check_config(config: Any) -> None:
    """Raises `InputError` for an architecture that this engine does not compute."""
    unlike = {
        "model_type": config.model_type != "llama",
        "hidden_act": config.hidden_act not in ("silu", "swish"),
        "attention_bias": bool(getattr(config, "attention_bias", False)),
        "mlp_bias": bool(getattr(config, "mlp_bias", False)),
    }
    wrong = [name for name, differs in unlike.items() if differs]
    if wrong:
        given = ", ".join(f"{name}={getattr(config, name)}" for name in wrong)
        raise InputError(f"engine=llama does not compute {given}: use engine=hf")


def _linear_kinds(dtype: torch.dtype, quantize: str) -> tuple[type[Linear], type[Linear]]:
    """Kinds of the layers' projections and of the output head."""
    if dtype == torch.float32:
        plain: type[Linear] = PlainLinear
    elif dtype == torch.bfloat16:
        plain = PackedLinear
    else:
        raise InputError(f"engine=llama has no {dtype}: expected float32 or bfloat16")
    kinds: dict[str, tuple[type[Linear], type[Linear]]] = {
        "none": (plain, plain),
        "head": (plain, Int8Linear),
        "all": (Int8Linear, Int8Linear),
        "int4": (Int4Linear, Int8Linear),
    }
    if quantize not in kinds:
        raise InputError(f"quantize={quantize!r} is unknown: expected one of {sorted(kinds)}")
    if quantize == "int4" and dtype != torch.bfloat16:
        raise InputError("quantize=int4 needs dtype=bfloat16")
    return kinds[quantize]


def interleave(weight: Tensor, head_dim: int) -> Tensor:
    """Rows of each head reordered so that the two halves of a rotary pair are neighbours.

    Queries and keys are reordered alike, so their products stay the same.
    """
    heads = weight.view(-1, 2, head_dim // 2, weight.shape[1])
    return heads.transpose(1, 2).reshape_as(weight)


def _rotation(config: Any) -> Tensor:
    """Cos + i sin of every position, `[max_context, head_dim / 2]` complex64, scaling rules included."""
    positions = torch.arange(config.max_position_embeddings)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "default":
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        frequencies = 1.0 / rope["rope_theta"] ** (torch.arange(0, head_dim, 2).float() / head_dim)
        angles = torch.outer(positions.float(), frequencies)
        return torch.complex(angles.cos(), angles.sin())
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rotary = LlamaRotaryEmbedding(config)
    if "dynamic" in rotary.rope_type or "longrope" in rotary.rope_type:
        raise ModelError(f"rotary scaling {rotary.rope_type} depends on the length of the text: use engine=hf")
    cos, sin = rotary(torch.zeros(1), positions[None])
    half = cos.shape[-1] // 2
    return torch.complex(cos[0, :, :half].float(), sin[0, :, :half].float())
