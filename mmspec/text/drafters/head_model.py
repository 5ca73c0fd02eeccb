"""The draft head: one transformer layer over the target's hidden states and the next token's embedding.

Knows tensors only. Source: EAGLE, arXiv 2401.15077, section 3.2, with the reduced output vocabulary of
EAGLE-3, arXiv 2503.01840. Embeddings and output rows are the target's own, so the file holds the layer
alone. What proposes with a trained head is `head_rows`. Legend: `m` rows, `d` hidden size, `h` heads, `r` reduced
vocabulary.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmspec.errors import InputError, WeightsError

WEIGHTS_FILE, CONFIG_FILE = "head.safetensors", "head.json"
ROPE_BASE = 10_000.0


@dataclass(frozen=True)
class HeadConfig:
    """Shape of a draft head. `hidden_size` is the target's; a row sees itself and the `window` - 1 before it."""

    hidden_size: int
    num_heads: int
    intermediate_size: int
    window: int = 64

    def __post_init__(self) -> None:
        if self.hidden_size % (2 * self.num_heads):
            raise InputError(f"hidden_size={self.hidden_size} does not split into {self.num_heads} heads of even size")
        if self.window < 1:
            raise InputError(f"window={self.window} is too small: a row sees itself at least")


class DraftHead(nn.Module):
    """Predicts the target's next hidden state, and from it the next token.

    `token_ids` `[r]` are the tokens it can propose.
    """

    token_ids: Tensor

    def __init__(self, config: HeadConfig, token_ids: Tensor) -> None:
        super().__init__()
        self.config = config
        d, wide = config.hidden_size, config.intermediate_size
        self.register_buffer("token_ids", token_ids)
        self.join = nn.Linear(2 * d, d, bias=False)
        self.norm_token, self.norm_hidden = nn.RMSNorm(d), nn.RMSNorm(d)
        self.norm_attention, self.norm_mlp, self.norm_out = nn.RMSNorm(d), nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate_up, self.down = nn.Linear(d, 2 * wide, bias=False), nn.Linear(wide, d, bias=False)

    def forward(self, hidden: Tensor, embedded: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """The next hidden states `[..., m, d]`.

        `hidden` `[..., m, d]` are the target's, or predicted, at the place before each token; `embedded` of
        the same shape are the tokens' embeddings; `positions` `[..., m]` int; `mask` `[..., m, m]` bool says
        who sees whom.
        """
        x, q, k, v = self._project(hidden, embedded, positions)
        return self._mix(x, functional.scaled_dot_product_attention(q, k, v, attn_mask=mask.unsqueeze(-3)))

    def unroll(self, hidden: Tensor, embedded: Tensor, num_depths: int) -> list[Tensor]:
        """Predictions `[n, m, d]` at every depth of a tree, of all rows at once, for training.

        At depth 1 row i runs on the target's own hidden state; at depth s on what row i - 1 predicted at depth
        s - 1. As in use, it sees the target's rows up to i - s + 1 and the rows of its own path above
        (EAGLE-3, arXiv 2503.01840, section 3.2). `hidden` and `embedded` are `[n, m, d]`.
        """
        num = hidden.shape[1]
        positions = torch.arange(num)
        distance = positions[:, None] - positions[None]
        given, predictions = hidden, []
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for depth in range(num_depths):
            x, q, k, v = self._project(given, embedded, positions)
            keys.append(k)
            values.append(v)
            seen = (distance >= depth) & (distance < self.config.window)
            scores = (q @ keys[0].transpose(-2, -1)).masked_fill(~seen, -torch.inf)
            path = [(_shifted(keys[r], depth - r), _shifted(values[r], depth - r)) for r in range(1, depth + 1)]
            own = [(q * key).sum(-1, keepdim=True) for key, _ in path]
            weights = (torch.cat([scores, *own], dim=-1) * q.shape[-1] ** -0.5).softmax(-1)
            attended = weights[..., :num] @ values[0]
            for place, (_, value) in enumerate(path):
                attended = attended + weights[..., num + place, None] * value
            predicted = self._mix(x, attended)
            predictions.append(predicted)
            given = torch.cat([hidden[:, :1], predicted[:, :-1]], dim=1)
        return predictions

    def _project(self, hidden: Tensor, embedded: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The joined rows, and their queries, keys and values `[..., h, m, head_dim]`."""
        x = self.join(torch.cat([self.norm_token(embedded), self.norm_hidden(hidden.float())], dim=-1)).float()
        q, k, v = self.qkv(self.norm_attention(x)).unflatten(-1, (3, self.config.num_heads, -1)).unbind(-3)
        q, k = (rotate(part, positions).transpose(-3, -2) for part in (q, k))
        return x, q, k, v.transpose(-3, -2)

    def _mix(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.out(attended.transpose(-3, -2).flatten(-2))
        gate, up = self.gate_up(self.norm_mlp(x.float())).chunk(2, dim=-1)
        mixed: Tensor = x + self.down(functional.silu(gate) * up)
        return mixed

    def logits(self, x: Tensor, output_rows: Tensor) -> Tensor:
        """Logits `[..., m, r]` over the reduced vocabulary; `output_rows` `[r, d]` are the target's."""
        return self.norm_out(x.float()) @ output_rows.T

    def save(self, folder: Path) -> None:
        """Write the head, in half precision."""
        import json

        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        tensors = {
            name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in self.state_dict().items()
        }
        save_file(tensors, folder / WEIGHTS_FILE)
        (folder / CONFIG_FILE).write_text(json.dumps(asdict(self.config), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> DraftHead:
        """Read a head. Raises `WeightsError` where it is missing or broken."""
        import json

        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            config = HeadConfig(**json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8")))
            tensors = load_file(folder / WEIGHTS_FILE)
            head = cls(config, tensors["token_ids"])
            head.load_state_dict(tensors)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise WeightsError(f"no draft head can be read in {folder}: {str(error).splitlines()[0]}") from error
        return head.float().eval()


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary positions: `x` `[..., m, h, head_dim]` turned by `positions` `[..., m]`, halves as pairs."""
    half = x.shape[-1] // 2
    frequency = ROPE_BASE ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = (positions[..., None].float() * frequency)[..., None, :]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1)


def _shifted(rows: Tensor, by: int) -> Tensor:
    """Row i - `by` in place of row i of `[..., m, head_dim]`; the first ones repeat row 0, which nobody learns from."""
    return torch.cat([rows[..., :1, :].expand(*rows.shape[:-2], by, -1), rows[..., : rows.shape[-2] - by, :]], dim=-2)


def causal(num_rows: int) -> Tensor:
    """`[m, m]` bool: every row sees itself and those before."""
    return torch.ones(num_rows, num_rows, dtype=torch.bool).tril()
