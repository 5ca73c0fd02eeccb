"""Training a draft head on text that the target wrote itself (or on a user's text).

Knows hidden states, tokens and the loss; knows no files but its own checkpoint. The head learns the
target's distribution over the reduced vocabulary, from the target's hidden states and, in a second pass,
from its own predictions, which is what it meets below the first level of a tree (EAGLE-3, arXiv 2503.01840,
section 3.2, with two steps). Legend: `t` tokens of a text, `d` hidden size, `r` reduced vocabulary.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from mmspec.errors import InputError
from mmspec.seeding import derive, generator
from mmspec.text.drafters.head_model import DraftHead, HeadConfig, causal
from mmspec.text.engine import TextEngine

log = logging.getLogger(__name__)

FEATURE_WEIGHT = 0.1
"""Weight of the distance between predicted and true hidden state beside the distance of distributions."""


@dataclass(frozen=True)
class TrainSettings:
    """How long and how fast. `num_steps` optimiser steps of `batch_size` texts each."""

    num_steps: int
    batch_size: int
    learning_rate: float
    warmup_steps: int
    save_every: int

    def __post_init__(self) -> None:
        if min(self.num_steps, self.batch_size, self.save_every) < 1 or self.learning_rate <= 0:
            raise InputError(f"training settings {self} hold a value that is not above 0")


@dataclass(frozen=True, eq=False)
class Example:
    """One text as the target sees it: `ids` `[t]`, and `hidden` `[t - 1, d]` of all but the last."""

    ids: Tensor
    hidden: Tensor


def frequent_tokens(texts: Sequence[Sequence[int]], num_tokens: int) -> Tensor:
    """The reduced vocabulary: the most frequent ids of the texts, ascending, `[r]` int64."""
    counts = Counter(token for ids in texts for token in ids)
    chosen = sorted(counts, key=lambda token: (-counts[token], token))[:num_tokens]
    if not chosen:
        raise InputError("there is no text to train on: expected at least one line")
    return torch.tensor(sorted(chosen), dtype=torch.int64)


def read(engine: TextEngine, ids: Sequence[int]) -> Example:
    """The target's hidden states of a text, in float16."""
    ((_, hidden),) = engine.prefill([ids])
    return Example(torch.tensor(ids, dtype=torch.int64), hidden.half().clone())


def head_loss(head: DraftHead, batch: Sequence[Example], embeddings: Tensor, output_rows: Tensor) -> Tensor:
    """Mean over two passes of the distance to the target's distribution and to its hidden states."""
    losses = [text_loss(head, example, embeddings, output_rows) for example in batch if len(example.ids) > 3]
    if not losses:
        raise InputError("every text of the batch is shorter than 4 tokens: nothing can be learnt from it")
    return torch.stack(losses).mean()


def text_loss(head: DraftHead, example: Example, embeddings: Tensor, output_rows: Tensor) -> Tensor:
    """Loss of one text. Row i holds (hidden i, token i + 1) and predicts hidden i + 1."""
    hidden = example.hidden.float()
    truth, given = hidden[1:], hidden[:-1]
    embedded = embeddings[example.ids[1:-1]].float()
    target = (truth @ output_rows.T).softmax(-1)
    num = len(given)
    positions, mask = torch.arange(num), causal(num)
    loss = torch.zeros(())
    for _ in range(2):
        predicted, _ = head(given, embedded, positions, None, mask)
        loss = loss + functional.cross_entropy(head.logits(predicted, output_rows), target)
        loss = loss + FEATURE_WEIGHT * functional.smooth_l1_loss(predicted, truth)
        # The second pass sees its own prediction of hidden i where the first saw the truth.
        given = torch.cat([hidden[:1], predicted[:-1]])
    return loss / 2


@torch.no_grad()
def agreement(head: DraftHead, examples: Sequence[Example], embeddings: Tensor, output_rows: Tensor) -> float:
    """Share of places where the head's first choice is the target's: greedy acceptance at depth 1."""
    hits = total = 0
    for example in examples:
        hidden = example.hidden.float()
        num = len(hidden) - 1
        embedded = embeddings[example.ids[1:-1]].float()
        predicted, _ = head(hidden[:-1], embedded, torch.arange(num), None, causal(num))
        choice = head.token_ids[head.logits(predicted, output_rows).argmax(-1)]
        hits += int((choice == example.ids[2:]).sum())
        total += num
    return hits / total if total else 0.0


def train_head(
    engine: TextEngine,
    texts: Sequence[Sequence[int]],
    *,
    config: HeadConfig,
    num_tokens: int,
    settings: TrainSettings,
    folder: Path,
    seed: int,
) -> Iterator[tuple[int, float]]:
    """Trains and saves a head below `folder`; yields (step, loss) after every step.

    A checkpoint there is gone on from; ending the iterator early loses what came after the last one.
    """
    # Initialisation of modules draws from the global generator: it is forked, seeded and given back.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "head"))
        head = DraftHead(config, frequent_tokens(texts, num_tokens))
    optimizer = torch.optim.AdamW(head.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    checkpoint = folder / "checkpoint.pt"
    first_step = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        head.load_state_dict(saved["head"])
        optimizer.load_state_dict(saved["optimizer"])
        first_step = int(saved["step"])
        log.info("going on from step %d of %d", first_step, settings.num_steps)
    embeddings, output_rows = engine.embeddings(), engine.output_weights()[head.token_ids].float()
    examples: dict[int, Example] = {}
    for step in range(first_step, settings.num_steps):
        chosen = torch.randint(len(texts), (settings.batch_size,), generator=generator(seed, "batch", step)).tolist()
        for place in chosen:
            if place not in examples:
                examples[place] = read(engine, texts[place])
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * schedule(step, settings)
        loss = head_loss(head, [examples[place] for place in chosen], embeddings, output_rows)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % settings.save_every == 0 or step + 1 == settings.num_steps:
            _save(checkpoint, {"head": head.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1})
            head.save(folder)
        yield step + 1, float(loss.detach())


def schedule(step: int, settings: TrainSettings) -> float:
    """Share of the learning rate: linear warm-up, then a cosine down to a tenth."""
    if step < settings.warmup_steps:
        return (step + 1) / settings.warmup_steps
    left = (step - settings.warmup_steps) / max(1, settings.num_steps - settings.warmup_steps)
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * left))


def _save(path: Path, state: dict[str, object]) -> None:
    """Written beside and moved over, so that a crash leaves the older checkpoint whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    torch.save(state, temporary)
    temporary.replace(path)
