"""A trained draft head made ready for use: bf16 products with the norms folded into them, int8 for its vocabulary.

Knows rows, their places and who sees whom; knows no tree. Every row gives the same bits whatever rows run beside it:
products are those of `mmspec.text.linear`, attention reads whole blocks. Legend: `m` rows of all sequences, `n`
sequences, `c` columns (places of keys and values) of each, `d` hidden size, `h` heads, `r` reduced vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from mmspec.text.drafters.head_model import ROPE_BASE, DraftHead
from mmspec.text.linear import Int8Linear, PackedLinear
from mmspec.text.llama import interleave

EPS = torch.finfo(torch.float32).eps  # of the norms, as in training


@dataclass(eq=False)
class Rows:
    """Rows of one pass, sequence by sequence: row i is row `numbers[i]` of sequence `places[i]`, its keys and values
    go to column `columns[i]`, and it stands at `positions[i]`.
    """

    places: list[int]
    numbers: list[int]
    columns: list[int]
    positions: list[int]

    def add(self, place: int, number: int, column: int, position: int) -> None:
        """One more row."""
        self.places.append(place)
        self.numbers.append(number)
        self.columns.append(column)
        self.positions.append(position)

    def __len__(self) -> int:
        return len(self.places)


class HeadRows:
    """Runs rows of a head; `output_rows` `[r, d]` are the target's for the tokens that the head can propose."""

    def __init__(self, head: DraftHead, output_rows: Tensor) -> None:
        d = head.config.hidden_size
        self.num_heads, self.head_dim = head.config.num_heads, d // head.config.num_heads
        join, qkv = head.join.weight.detach(), head.qkv.weight.detach()
        norms = torch.cat([head.norm_token.weight.detach(), head.norm_hidden.weight.detach()])
        self._join = PackedLinear(join * norms)
        q, k, v = qkv.split(d)
        turned = torch.cat([interleave(q, self.head_dim), interleave(k, self.head_dim), v])
        self._qkv = PackedLinear(turned * head.norm_attention.weight.detach())
        self._out = PackedLinear(head.out.weight.detach())
        self._gate_up = PackedLinear(head.gate_up.weight.detach() * head.norm_mlp.weight.detach())
        self._down = PackedLinear(head.down.weight.detach())
        self._output = Int8Linear(output_rows.float() * head.norm_out.weight.detach())
        half = self.head_dim // 2
        self._frequency = ROPE_BASE ** (-torch.arange(half, dtype=torch.float32) / half)

    def empty(self, num_sequences: int, num_columns: int) -> Tensor:
        """Room for keys and values, `[n, c, 2, h, head_dim]` bf16."""
        return torch.zeros(num_sequences, num_columns, 2, self.num_heads, self.head_dim, dtype=torch.bfloat16)

    def run(self, hidden: Tensor, embedded: Tensor, rows: Rows, stored: Tensor, mask: Tensor) -> Tensor:
        """Predicted hidden states `[m, d]` bf16; keys and values are written to `stored` `[n, c, 2, h, head_dim]`.

        `hidden` and `embedded` are `[m, d]`, see `DraftHead.forward`. `mask` `[n, k, c]` bool says which columns each
        row of a sequence sees; `k` and `c` are whole blocks.
        """
        joined = torch.cat([_normed(embedded.bfloat16()), _normed(hidden.bfloat16())], dim=1)
        x = self._join(joined)
        qkv = self._qkv(_normed(x)).view(len(rows), 3, self.num_heads, self.head_dim)
        angle = torch.tensor(rows.positions, dtype=torch.float32)[:, None] * self._frequency
        rotation = torch.polar(torch.ones_like(angle), angle)[:, None, None]
        turned = torch.view_as_complex(qkv[:, :2].float().unflatten(3, (-1, 2))) * rotation
        q, k = torch.view_as_real(turned).flatten(3).bfloat16().unbind(1)
        num_sequences, num_rows, num_columns = mask.shape
        columns = torch.tensor([p * num_columns + c for p, c in zip(rows.places, rows.columns, strict=True)])
        stored.view(-1, *stored.shape[2:]).index_copy_(0, columns, torch.stack([k, qkv[:, 2]], dim=1))
        places = torch.tensor([p * num_rows + r for p, r in zip(rows.places, rows.numbers, strict=True)])
        asked = q.new_zeros(num_sequences * num_rows, *q.shape[1:]).index_copy_(0, places, q)
        keys, values = stored.unbind(2)
        bias = torch.zeros(mask.shape, dtype=torch.bfloat16).masked_fill_(~mask, -torch.inf)
        attended = functional.scaled_dot_product_attention(
            asked.view(num_sequences, num_rows, *q.shape[1:]).transpose(1, 2),
            keys.transpose(1, 2),
            values.transpose(1, 2),
            attn_mask=bias[:, None],
        )
        x = self._out.add_to(x, attended.transpose(1, 2).reshape(num_sequences * num_rows, -1)[places])
        gate, up = self._gate_up(_normed(x)).chunk(2, dim=1)
        return self._down.add_to(x, functional.silu(gate) * up)

    def logits(self, x: Tensor) -> Tensor:
        """Logits `[m, r]` float32 over the head's own vocabulary, of predicted hidden states."""
        return self._output(_normed(x))


def _normed(x: Tensor) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], None, EPS)
