"""Training a draft head on text that the target wrote itself (or on a user's text).

Knows hidden states, tokens and the loss; knows no files but its own checkpoint. The head learns the
target's distribution over the reduced vocabulary, at the first depth of a tree from the target's hidden
states and below it from its own predictions, as it will be used (EAGLE-3, arXiv 2503.01840, section 3.2).
Legend: `n` texts, `t` tokens of a text, `m` rows, `d` hidden size, `r` reduced vocabulary.
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

from mmspec.dtypes import autocast
from mmspec.errors import InputError
from mmspec.seeding import derive, generator
from mmspec.text.drafters.head_model import DraftHead, HeadConfig, causal
from mmspec.text.engine import TextEngine
from mmspec.text.tree import chain

log = logging.getLogger(__name__)

FEATURE_WEIGHT = 0.1
"""Weight of the distance between predicted and true hidden state beside the distance of distributions."""

DEPTH_DECAY = 0.8
"""Weight of a depth of the tree in the loss against the one above it."""


@dataclass(frozen=True)
class TrainSettings:
    """How long and how fast: `num_steps` optimiser steps of `batch_size` texts, `num_depths` levels of a tree.

    The last `num_context` tokens of a prompt are seen with each text.
    """

    num_steps: int
    batch_size: int
    learning_rate: float
    warmup_steps: int
    save_every: int
    num_depths: int = 3
    num_context: int = 16

    def __post_init__(self) -> None:
        if (
            min(self.num_steps, self.batch_size, self.save_every, self.num_depths, self.num_context) < 1
            or self.learning_rate <= 0
        ):
            raise InputError(f"training settings {self} hold a value that is not above 0")


@dataclass(frozen=True)
class Text:
    """Tokens to learn from. The first `num_prompt` are given, and nothing is learnt from them; of these, the first
    `num_shared` begin other texts too.
    """

    ids: tuple[int, ...]
    num_prompt: int = 1
    num_shared: int = 0


@dataclass(frozen=True, eq=False)
class Example:
    """The end of a text as the target sees it.

    `ids` `[t]`, `hidden` `[t - 1, d]` of all but the last; the first `num_context` tokens are not learnt.
    """

    ids: Tensor
    hidden: Tensor
    num_context: int


def frequent_tokens(texts: Sequence[Text], num_tokens: int) -> Tensor:
    """The reduced vocabulary: the most frequent ids of what is learnt, ascending, `[r]` int64."""
    counts = Counter(token for text in texts for token in text.ids[text.num_prompt :])
    chosen = sorted(counts, key=lambda token: (-counts[token], token))[:num_tokens]
    if not chosen:
        raise InputError("there is no text to train on: expected at least one line")
    return torch.tensor(sorted(chosen), dtype=torch.int64)


def read(engine: TextEngine, texts: Sequence[Text], num_context: int) -> list[Example]:
    """The target's hidden states of texts, in float16, with at most `num_context` tokens of their prompts.

    What begins other texts too is taken from what the engine keeps; the rest of all texts is one pass.
    """
    num_given = [max(1, text.num_shared) for text in texts]
    begun = [
        engine.prefill([text.ids[:given]], num_shared=given - 1)[0]
        for text, given in zip(texts, num_given, strict=True)
    ]
    rest = [chain(text.ids[given - 1 : -1]) for text, given in zip(texts, num_given, strict=True)]
    verified = engine.verify([state for state, _ in begun], rest)
    examples = []
    for text, (_, before), seen in zip(texts, begun, verified, strict=True):
        start = max(0, text.num_prompt - num_context)
        hidden = torch.cat([before, seen.hidden])[start:].half().clone()
        examples.append(Example(torch.tensor(text.ids[start:]), hidden, text.num_prompt - start))
    return examples


def head_loss(
    head: DraftHead, batch: Sequence[Example], embeddings: Tensor, output_rows: Tensor, num_depths: int
) -> Tensor:
    """Distance to the target's distributions and hidden states, the mean over depths and tokens.

    Row i holds (hidden i, token i + 1) and predicts hidden i + 1, which decides token i + 2.
    """
    batch = [example for example in batch if len(example.ids) > max(3, example.num_context)]
    if not batch:
        raise InputError("every text of the batch is too short: nothing can be learnt from it")
    num = max(len(example.ids) for example in batch) - 2
    hidden = torch.zeros(len(batch), num + 1, head.config.hidden_size)
    tokens = torch.zeros(len(batch), num, dtype=torch.int64)
    learnt = torch.zeros(len(batch), num, dtype=torch.bool)
    for place, example in enumerate(batch):
        length = len(example.ids) - 2
        hidden[place, : length + 1] = example.hidden.float()
        tokens[place, :length] = example.ids[1:-1]
        learnt[place, max(0, example.num_context - 2) : length] = True
    truth = hidden[:, 1:][learnt]
    loss, total = torch.zeros(()), 0.0
    with autocast():
        target = (truth @ output_rows.T).float().softmax(-1)
        for depth, rows in enumerate(head.unroll(hidden[:, :-1], embeddings[tokens].float(), num_depths)):
            predicted = rows[learnt]
            scores = head.logits(predicted, output_rows).float()
            distance = functional.cross_entropy(scores, target)
            distance = distance + FEATURE_WEIGHT * functional.smooth_l1_loss(predicted.float(), truth)
            loss, total = loss + DEPTH_DECAY**depth * distance, total + DEPTH_DECAY**depth
    return loss / total


@torch.no_grad()
def agreement(head: DraftHead, examples: Sequence[Example], embeddings: Tensor, output_rows: Tensor) -> float:
    """Share of learnt places where the head's first choice is the text's token: greedy acceptance at depth 1."""
    hits = total = 0
    for example in examples:
        hidden = example.hidden.float()
        num = len(hidden) - 1
        embedded = embeddings[example.ids[1:-1]].float()
        mask = causal(num).triu(1 - head.config.window)
        predicted = head(hidden[:-1], embedded, torch.arange(num), mask)
        choice = head.token_ids[head.logits(predicted, output_rows).argmax(-1)]
        first = max(0, example.num_context - 2)
        hits += int((choice == example.ids[2:])[first:].sum())
        total += num - first
    return hits / total if total else 0.0


def train_head(
    engine: TextEngine,
    texts: Sequence[Text],
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
    # Texts of like length go together: a batch is padded to its longest.
    by_length = sorted(range(len(texts)), key=lambda place: len(texts[place].ids) - texts[place].num_prompt)
    num_starts = max(1, len(texts) - settings.batch_size + 1)
    for step in range(first_step, settings.num_steps):
        start = int(torch.randint(num_starts, (1,), generator=generator(seed, "batch", step)))
        chosen = by_length[start : start + settings.batch_size]
        if unread := [place for place in chosen if place not in examples]:
            read_now = read(engine, [texts[place] for place in unread], settings.num_context)
            examples.update(zip(unread, read_now, strict=True))
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * schedule(step, settings)
        batch = [examples[place] for place in chosen]
        loss = head_loss(head, batch, embeddings, output_rows, settings.num_depths)
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
