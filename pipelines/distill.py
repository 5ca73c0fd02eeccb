"""Distillation of a draft head: texts, training, acceptance before and after on held-out prompts."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from tqdm import tqdm

from mmspec.cogen.copy import Copy
from mmspec.errors import InputError
from mmspec.pipeline import Job
from mmspec.seeding import derive
from mmspec.text.decode import TextDecoder, num_equal
from mmspec.text.distill import Text, TrainSettings, train_head
from mmspec.text.drafters.base import Drafter, NoDrafter
from mmspec.text.drafters.head import HeadDrafter
from mmspec.text.drafters.head_model import HeadConfig
from mmspec.text.growth import Growth
from mmspec.text.models import LanguageModels
from mmspec.text.prompt import beginning
from mmspec.text.state import TextState

log = logging.getLogger(__name__)

LOG_STEPS = 50
"""Steps between two lines of the log."""


class Distill(Job):
    """Trains a head for any target.

    `prompts` and, where the target shall not write itself, `texts` are UTF-8 files of one entry a line. The target
    writes under the templates of `copies`, in turn, each at the temperatures of `temperatures`, in turn.
    Texts and checkpoint live in `workspace`, so that a run that was broken off goes on.
    """

    def __init__(
        self,
        *,
        models: LanguageModels,
        growth: Growth,
        copies: dict[str, Copy],
        prompts: str,
        texts: str | None,
        workspace: str,
        num_texts: int,
        num_held_out: int,
        batch_size: int,
        temperatures: list[float],
        max_tokens: int,
        num_heads: int,
        intermediate_size: int,
        window: int,
        num_draft_tokens: int,
        train: TrainSettings,
        seed: int,
    ) -> None:
        self._models, self._growth, self._copies = models, growth, copies
        self._prompts, self._texts, self._workspace = prompts, texts, Path(workspace)
        self._num_texts, self._num_held_out, self._batch_size = num_texts, num_held_out, batch_size
        self._temperatures, self._max_tokens = temperatures, max_tokens
        self._config = HeadConfig(models.engine.hidden_size, num_heads, intermediate_size, window)
        self._num_draft_tokens, self._train, self._seed = num_draft_tokens, train, seed

    def run(self, folder: Path) -> None:
        """See `Job.run`."""
        prompts = read_lines(self._prompts)
        if len(prompts) <= self._num_held_out:
            raise InputError(f"{self._prompts} has {len(prompts)} prompts: expected more than num_held_out")
        held_out, prompts = prompts[: self._num_held_out], prompts[self._num_held_out :]
        texts = (
            self._own_texts(prompts)
            if self._texts is None
            else [Text(tuple(self._models.encode(line))) for line in read_lines(self._texts)]
        )
        log.info("training on %d texts, %d tokens", len(texts), sum(len(text.ids) - text.num_prompt for text in texts))
        before = self._accepted(NoDrafter(), held_out)
        steps = train_head(
            self._models.engine,
            texts,
            config=self._config,
            num_tokens=self._num_draft_tokens,
            settings=self._train,
            folder=self._workspace,
            seed=self._seed,
        )
        losses = []
        with tqdm(total=self._train.num_steps, desc="draft head", unit="step") as bar:
            for step, loss in steps:
                bar.update(step - bar.n)
                bar.set_postfix(loss=f"{loss:.3f}")
                losses.append(loss)
                if step % LOG_STEPS == 0:
                    log.info("step %d, loss %.3f", step, sum(losses[-LOG_STEPS:]) / len(losses[-LOG_STEPS:]))
        after = self._accepted(HeadDrafter(head_path=str(self._workspace)), held_out)
        report = {
            "accepted_length_before": before,
            "accepted_length_after": after,
            "num_texts": len(texts),
            "num_tokens": sum(len(text.ids) - text.num_prompt for text in texts),
            "losses": losses[:: max(1, len(losses) // 200)],
        }
        (folder / "results.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        log.info("tokens per target pass on %d held-out prompts: %s before, %s after", len(held_out), before, after)

    def _own_texts(self, prompts: Sequence[str]) -> list[Text]:
        """Texts that the target writes; what an earlier run wrote is used."""
        path = self._workspace / "texts.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        done = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
        decoder = TextDecoder(engine=self._models, drafter=NoDrafter(), growth=self._growth, acceptance="shared_noise")
        names = list(self._copies)
        with (
            path.open("a", encoding="utf-8") as file,
            tqdm(total=self._num_texts, initial=len(done), desc="texts", unit="text") as bar,
        ):
            while len(done) < self._num_texts:
                chosen = []
                for number in range(len(done), min(self._num_texts, len(done) + self._batch_size)):
                    name = names[number % len(names)]
                    temperature = self._temperatures[number // len(names) % len(self._temperatures)]
                    chosen.append((name, self._started(decoder, name, prompts, number, temperature)))
                grown = decoder.extend([state for _, state in chosen], max_new_tokens=self._max_tokens, until=None)
                for (name, _), state in zip(chosen, grown, strict=True):
                    num_prompt = len(state.prompt_ids)
                    done.append({"copy": name, "num_prompt": num_prompt, "ids": [*state.prompt_ids, *state.ids]})
                    file.write(json.dumps(done[-1]) + "\n")
                file.flush()
                bar.update(len(done) - bar.n)
        beginnings = {
            name: self._models.encode(beginning(copy.template, self._models.tokenizer))
            for name, copy in self._copies.items()
        }
        return [
            Text(tuple(row["ids"]), row["num_prompt"], num_equal(row["ids"], beginnings[row["copy"]])) for row in done
        ]

    def _started(
        self, decoder: TextDecoder, name: str, prompts: Sequence[str], number: int, temperature: float
    ) -> TextState:
        copy = self._copies[name]
        return decoder.start(
            prompts[number % len(prompts)],
            params=replace(copy.params(self._max_tokens), temperature=temperature),
            seed=derive(self._seed, "text", number),
            template=copy.template,
        )

    def _accepted(self, drafter: Drafter, prompts: Sequence[str]) -> dict[str, float]:
        """Tokens per target pass under the first of the copies, greedy and at its own temperature."""
        decoder = TextDecoder(engine=self._models, drafter=drafter, growth=self._growth, acceptance="shared_noise")
        copy = next(iter(self._copies.values()))
        sampled = copy.params(self._max_tokens)
        lengths = {}
        for name, params in (("greedy", replace(sampled, temperature=0.0)), ("sampled", sampled)):
            states = [decoder.start(p, params=params, seed=self._seed, template=copy.template) for p in prompts]
            with torch.inference_mode():
                states = decoder.extend(states, max_new_tokens=self._max_tokens, until=None)
            num_calls = sum(state.metrics.num_target_calls for state in states)
            lengths[name] = sum(state.metrics.num_tokens for state in states) / num_calls
        return lengths


def read_lines(path: str) -> list[str]:
    """Entries of a UTF-8 file, one a line. Raises `InputError` where it cannot be read."""
    try:
        return [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as UTF-8 text: {error}") from error
