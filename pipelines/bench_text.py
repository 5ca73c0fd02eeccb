"""Our decoding beside that of `transformers`, same model files, same prompts, one run."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mmspec.dtypes import dtype_named
from mmspec.pipeline import Job
from mmspec.seeding import derive
from mmspec.text.bench import Method, Row, as_results, measure, write
from mmspec.text.decode import TextDecoder
from mmspec.text.drafters.base import Drafter, NoDrafter
from mmspec.text.growth import Growth
from mmspec.text.llama_cpp import LlamaCpp, available
from mmspec.text.models import LanguageModels
from mmspec.text.prompt import Template
from mmspec.text.types import SamplingParams

log = logging.getLogger(__name__)


class BenchText(Job):
    """Greedy answers of `max_tokens` tokens to `prompts`: baselines first, then our modes with each of `drafters`.

    `concurrency` names the numbers of requests at once; `transformers` answers them one after another. Its assisted
    generation is a row where the language models hold a draft model. Where llama.cpp is installed and `gguf` names a folder
    with the model's file, llama.cpp's own decoding is a row, and our modes are measured once more with its passes.
    """

    def __init__(
        self,
        *,
        models: LanguageModels,
        drafters: Mapping[str, Drafter],
        growths: Mapping[str, Growth],
        template: Template,
        prompts: Sequence[str],
        max_tokens: int,
        repeats: int,
        concurrency: Sequence[int],
        baseline_dtypes: Sequence[str],
        gguf: str | None,
    ) -> None:
        self._models, self._drafters, self._growths, self._template = models, drafters, growths, template
        self._prompts, self._repeats, self._concurrency = tuple(prompts), repeats, tuple(concurrency)
        self._params = SamplingParams(max_tokens=max_tokens, min_new_tokens=max_tokens, temperature=0.0)
        self._baseline_dtypes, self._gguf = tuple(baseline_dtypes), gguf

    def run(self, folder: Path) -> None:
        """See `Job.run`."""
        rows: list[Row] = []
        for name, method in [*self._baselines(), *self._peers()]:
            self._add(rows, name, method, 1)
        ours = self._modes("mmspec", lambda: self._models)
        if (gguf := self._gguf_folder()) is not None:
            ours |= self._modes("mmspec (llama.cpp)", lambda: on_llama_cpp(gguf))
        for number in self._concurrency:
            for name, method in ours.items():
                self._add(rows, name, method, number)
        write(rows, folder)
        log.info("%s", json.dumps(as_results(rows)))

    def _add(self, rows: list[Row], name: str, method: Method, number: int) -> None:
        rows.append(measure(name, method, self._prompts, num_concurrent=number, repeats=self._repeats))
        log.info(
            "%s x%d: %.1f tokens/s, %.2f tokens per pass",
            name,
            number,
            rows[-1].tokens_per_s,
            rows[-1].mean_accepted_length,
        )

    def _modes(self, name: str, load: Callable[[], LanguageModels]) -> dict[str, Method]:
        """Our modes over one engine; each drafter has it to itself, as it may ask for more than others need."""
        models = load()
        methods = {f"{name} autoregressive": self._ours(models, NoDrafter(), next(iter(self._growths.values())))}
        for source, drafter in self._drafters.items():
            models, own = load(), copy.copy(drafter)
            for mode, growth in self._growths.items():
                methods[f"{name} {mode}, {source}"] = self._ours(models, own, growth)
        return methods

    def _ours(self, models: LanguageModels, drafter: Drafter, growth: Growth) -> Method:
        # A growth that learns from what it measures shall not learn from another drafter.
        growth = copy.deepcopy(growth)
        decoder = TextDecoder(engine=models, drafter=drafter, growth=growth, acceptance="shared_noise")

        def run(prompts: Sequence[str]) -> tuple[int, int]:
            states = [
                decoder.start(prompt, params=self._params, seed=derive(0, "bench", index), template=self._template)
                for index, prompt in enumerate(prompts)
            ]
            states = decoder.extend(states, max_new_tokens=self._params.max_tokens, until=None)
            return sum(s.metrics.num_tokens for s in states), sum(s.metrics.num_target_calls for s in states)

        return run

    def _baselines(self) -> list[tuple[str, Method]]:
        from transformers import AutoModelForCausalLM

        from mmspec.weights import resolve

        methods: list[tuple[str, Method]] = []
        for dtype in self._baseline_dtypes:
            model = AutoModelForCausalLM.from_pretrained(resolve(self._models.name), dtype=dtype_named(dtype)).eval()
            methods.append((f"transformers {dtype}", self._generate(model, {})))
            methods.append(
                (f"transformers {dtype} prompt lookup", self._generate(model, {"prompt_lookup_num_tokens": 5}))
            )
            if self._models.draft_name is not None:
                assistant = AutoModelForCausalLM.from_pretrained(
                    resolve(self._models.draft_name), dtype=dtype_named(dtype)
                )
                methods.append(
                    (f"transformers {dtype} assisted", self._generate(model, {"assistant_model": assistant.eval()}))
                )
        return methods

    def _gguf_folder(self) -> Path | None:
        from mmspec.weights import resolve

        return resolve(self._gguf) if self._gguf is not None and available() else None

    def _peers(self) -> list[tuple[str, Method]]:
        if (folder := self._gguf_folder()) is None:
            return []
        model = LlamaCpp(
            folder, num_threads=torch.get_num_threads(), context=min(2048, self._models.engine.max_context)
        )

        def run(prompts: Sequence[str]) -> tuple[int, int]:
            return sum(len(model.write(self._ids(prompt), self._params.max_tokens)) for prompt in prompts), 0

        return [("llama.cpp, same GGUF", run)]

    def _ids(self, prompt: str) -> list[int]:
        return self._models.encode(self._template.render(self._models.tokenizer, prompt))

    def _generate(self, model: Any, options: dict[str, Any]) -> Method:
        def run(prompts: Sequence[str]) -> tuple[int, int]:
            written = 0
            for prompt in prompts:
                ids = torch.tensor([self._ids(prompt)])
                num = self._params.max_tokens
                output = model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    do_sample=False,
                    max_new_tokens=num,
                    min_new_tokens=num,
                    **options,
                )
                written += output.shape[1] - ids.shape[1]
            return written, 0

        return run


def on_llama_cpp(folder: Path) -> LanguageModels:
    """The model in a folder with its GGUF file and tokenizer, computed by llama.cpp."""
    return LanguageModels(
        target_model_path=str(folder), draft_model_path=None, engine="llama_cpp", dtype="float16", quantize="none"
    )
