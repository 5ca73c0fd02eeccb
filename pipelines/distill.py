"""Distillation of a draft head: texts, training, acceptance before and after on held-out prompts."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

import torch
from tqdm import tqdm

from mmspec.errors import InputError
from mmspec.pipeline import Job
from mmspec.seeding import derive
from mmspec.text.decode import TextDecoder
from mmspec.text.distill import TrainSettings, train_head
from mmspec.text.drafters.base import Drafter, NoDrafter
from mmspec.text.drafters.head import HeadDrafter
from mmspec.text.drafters.head_model import HeadConfig
from mmspec.text.growth import Growth
from mmspec.text.models import LanguageModels
from mmspec.text.prompt import Template
from mmspec.text.types import SamplingParams

log = logging.getLogger(__name__)


class Distill(Job):
    """Trains a head for any target.

    `prompts` and, where the target shall not write itself, `texts` are UTF-8 files of one entry a line.
    Texts and checkpoint live in `workspace`, so that a run that was broken off goes on.
    """

    def __init__(
        self,
        *,
        models: LanguageModels,
        growth: Growth,
        template: Template,
        prompts: str,
        texts: str | None,
        workspace: str,
        num_texts: int,
        num_held_out: int,
        batch_size: int,
        temperature: float,
        max_tokens: int,
        num_heads: int,
        intermediate_size: int,
        num_draft_tokens: int,
        train: TrainSettings,
        seed: int,
    ) -> None:
        self._models, self._growth, self._template = models, growth, template
        self._prompts, self._texts, self._workspace = prompts, texts, Path(workspace)
        self._num_texts, self._num_held_out, self._batch_size = num_texts, num_held_out, batch_size
        self._params = SamplingParams(max_tokens=max_tokens, temperature=temperature, top_p=0.95)
        self._config = HeadConfig(models.engine.hidden_size, num_heads, intermediate_size)
        self._num_draft_tokens, self._train, self._seed = num_draft_tokens, train, seed

    def run(self, folder: Path) -> None:
        """See `Job.run`."""
        prompts = read_lines(self._prompts)
        if len(prompts) <= self._num_held_out:
            raise InputError(f"{self._prompts} has {len(prompts)} prompts: expected more than num_held_out")
        held_out, prompts = prompts[: self._num_held_out], prompts[self._num_held_out :]
        ids = (
            self._own_texts(prompts)
            if self._texts is None
            else [self._models.encode(t) for t in read_lines(self._texts)]
        )
        log.info("training on %d texts, %d tokens", len(ids), sum(map(len, ids)))
        before = self._accepted(NoDrafter(), held_out)
        steps = train_head(
            self._models.engine,
            ids,
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
        after = self._accepted(HeadDrafter(head_path=str(self._workspace)), held_out)
        report = {
            "accepted_length_before": before,
            "accepted_length_after": after,
            "losses": losses[:: max(1, len(losses) // 200)],
        }
        (folder / "results.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        log.info("tokens per target pass on %d held-out prompts: %.2f before, %.2f after", len(held_out), before, after)

    def _own_texts(self, prompts: Sequence[str]) -> list[list[int]]:
        """Texts that the target writes, prompt included; what an earlier run wrote is used."""
        path = self._workspace / "texts.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        done = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
        decoder = TextDecoder(engine=self._models, drafter=NoDrafter(), growth=self._growth, acceptance="shared_noise")
        with (
            path.open("a", encoding="utf-8") as file,
            tqdm(total=self._num_texts, initial=len(done), desc="texts", unit="text") as bar,
        ):
            while len(done) < self._num_texts:
                numbers = range(len(done), min(self._num_texts, len(done) + self._batch_size))
                states = [
                    decoder.start(
                        prompts[n % len(prompts)],
                        params=self._params,
                        seed=derive(self._seed, "text", n),
                        template=self._template,
                    )
                    for n in numbers
                ]
                for state in decoder.extend(states, max_new_tokens=self._params.max_tokens, until=None):
                    done.append([*state.prompt_ids, *state.ids])
                    file.write(json.dumps(done[-1]) + "\n")
                file.flush()
                bar.update(len(done) - bar.n)
        return done

    def _accepted(self, drafter: Drafter, prompts: Sequence[str]) -> float:
        """Tokens per target pass."""
        decoder = TextDecoder(engine=self._models, drafter=drafter, growth=self._growth, acceptance="shared_noise")
        states = [
            decoder.start(prompt, params=self._params, seed=self._seed, template=self._template) for prompt in prompts
        ]
        with torch.inference_mode():
            states = decoder.extend(states, max_new_tokens=self._params.max_tokens, until=None)
        return sum(s.metrics.num_tokens for s in states) / sum(s.metrics.num_target_calls for s in states)


def read_lines(path: str) -> list[str]:
    """Entries of a UTF-8 file, one a line. Raises `InputError` where it cannot be read."""
    try:
        return [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as UTF-8 text: {error}") from error
