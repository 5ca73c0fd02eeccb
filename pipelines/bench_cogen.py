"""Co-generation beside its baselines: contradictions by an independent judge, wall time, counted compute."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from mmspec.cogen.comparison import Run, compared, contradicted, held_out_prompts, matching_grid, summary, write
from mmspec.cogen.copy import Copy
from mmspec.cogen.policy import Strictness
from mmspec.cogen.prune import PrunePolicy
from mmspec.cogen.schedule import Schedule
from mmspec.embedded.judge import Judge
from mmspec.embedded.pipeline import load_pipeline
from mmspec.embedded.training.planted import caught, planted_pairs
from mmspec.embedded.training.previews import draw_previews, reconstruct
from mmspec.embedded.training.scenes import paint_scenes
from mmspec.image.drafter import ImageDrafter
from mmspec.image.pictures import unit_pixels
from mmspec.pipeline import Job, Pipeline
from mmspec.text.bench import machine
from mmspec.text.decode import TextDecoder
from mmspec.types import Done, PreviewReady, Request, Result, TextGrown
from mmspec.verify.claims import ClaimExtractor
from mmspec.verify.scorer import Scorer
from mmspec.weights import resolve
from pipelines.best_of_n import BestOfN
from pipelines.cogen import CoGeneration
from pipelines.late import LateVerification
from pipelines.sequential import Sequential

__all__ = ["BenchCoGeneration"]

log = logging.getLogger(__name__)

_ORDERS = (("sequential", "cogen", "best_of_n", "late"), ("cogen", "sequential", "late", "best_of_n"))
_WARM_UP = "A bear and a bicycle"


class BenchCoGeneration(Job):
    """Files: `runs.jsonl` (a line per pair), `results.json`, `table.md`, `plot.png`.

    With a `workspace`, runs go there and those that are there already are not repeated. The first `limit` prompts are
    taken, all of them for None. `best_of_n` gets at least as many denoising steps and text passes as co-generation
    took for the same prompt and seed. `num_planted` 0 leaves the planted mismatches out.
    """

    def __init__(
        self,
        *,
        text: TextDecoder,
        images: ImageDrafter,
        extractor: ClaimExtractor,
        scorer: Scorer,
        prune: PrunePolicy,
        policy: Strictness,
        copy: Copy,
        schedule: Schedule,
        tree: dict[str, Any],
        max_explained: int,
        judge: str,
        autoencoder: str,
        workspace: str | None,
        limit: int | None,
        seeds: list[int],
        max_tokens: int,
        num_planted: int,
        scenes_seed: int,
        num_workers: int,
    ) -> None:
        self._extractor, self._scorer, self._images = extractor, scorer, images
        self._steps = int(tree["num_steps"])
        common: dict[str, Any] = {
            "text": text,
            "images": images,
            "extractor": extractor,
            "policy": policy,
            "copy": copy,
        }
        checked = common | {"scorer": scorer}
        self._candidates = checked | {"num_steps": self._steps}
        self._pipelines: dict[str, Pipeline] = {
            "sequential": Sequential(**common, num_steps=self._steps),
            "cogen": CoGeneration(**checked, **tree, prune=prune, schedule=schedule, max_explained=max_explained),
            "late": LateVerification(**checked, **tree, schedule=schedule),
        }
        self._judge = Judge.load(judge)
        self._autoencoder = autoencoder
        self._workspace = workspace
        self._asked = [(prompt, seed) for prompt in held_out_prompts()[:limit] for seed in seeds]
        self._max_tokens = max_tokens
        self._num_planted, self._scenes_seed, self._num_workers = num_planted, scenes_seed, num_workers

    def run(self, folder: Path) -> None:
        """See `Job.run`."""
        place = Path(self._workspace) if self._workspace else folder
        place.mkdir(parents=True, exist_ok=True)
        runs = self._all_runs(place / "runs.jsonl")
        by_method = {name: [run for run in runs if run.method == name] for name in _ORDERS[0]}
        rows = [{"method": name, "figures": summary(own)} for name, own in by_method.items() if own]
        rows += [
            {"method": f"cogen / {name}", "figures": compared(by_method["cogen"], own)}
            for name, own in by_method.items()
            if own and name != "cogen"
        ]
        if self._num_planted:
            rows += self._planted(place)
        results = {"machine": machine(), "rows": rows}
        write(results, folder)
        log.info("%s", json.dumps(results))

    def _all_runs(self, path: Path) -> list[Run]:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        done = [Run(**json.loads(line) | {"claims": tuple(map(tuple, json.loads(line)["claims"]))}) for line in lines]
        known = {(run.method, run.prompt, run.seed): run for run in done}
        asked = {(prompt, seed) for prompt, seed in self._asked}
        if any((name, *pair) not in known for pair in asked for name in _ORDERS[0]):
            self._made("cogen", Request(_WARM_UP, max_tokens=self._max_tokens), known)
        for number, (prompt, seed) in enumerate(self._asked):
            for name in _ORDERS[number % 2]:
                if (name, prompt, seed) in known:
                    continue
                run = self._made(name, Request(prompt, seed=seed, max_tokens=self._max_tokens), known)
                known[name, prompt, seed] = run
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(run)) + "\n")
            log.info("%d of %d prompts: %s, seed %d", number + 1, len(self._asked), prompt, seed)
        return [run for (_, prompt, seed), run in known.items() if (prompt, seed) in asked]

    def _made(self, name: str, request: Request, known: dict[tuple[str, str, int], Run]) -> Run:
        pipeline = self._pipelines[name] if name in self._pipelines else self._matched(request, known)
        began = time.perf_counter()
        first: dict[type, float] = {}
        result = None
        for event in pipeline.stream(request):
            first.setdefault(type(event), time.perf_counter() - began)
            if isinstance(event, Done):
                result = event.result
        total_s = time.perf_counter() - began
        assert result is not None
        metrics: dict[str, Any] = dict(result.metrics)
        return Run(
            method=name,
            prompt=request.prompt,
            seed=request.seed,
            text=result.text,
            claims=self._judged(result),
            verified=result.verified,
            total_s=total_s,
            first_text_s=first[TextGrown],
            first_preview_s=first[PreviewReady],
            verify_s=metrics.get("verify_s", 0.0) + metrics.get("explain_s", 0.0),
            **{
                key: metrics[key]
                for key in (
                    "hidden_share", "num_draft_steps", "num_target_calls", "num_text_passes", "num_tokens",
                    "num_branches", "num_pruned", "num_pruned_drafts",
                )
            },
        )  # fmt: skip

    def _matched(self, request: Request, known: dict[tuple[str, str, int], Run]) -> Pipeline:
        """Best of n that may spend at least what co-generation spent on this request."""
        cost = known["cogen", request.prompt, request.seed]
        alone = known["sequential", request.prompt, request.seed]
        texts, pictures = matching_grid(cost, num_steps=self._steps, passes_per_text=alone.num_text_passes)
        return BestOfN(**self._candidates, num_branches=texts, num_drafts=pictures)

    def _judged(self, result: Result) -> tuple[tuple[str, str, str], ...]:
        assert result.image is not None
        claims = self._extractor.extract(result.request.prompt, source="prompt")
        claims += self._extractor.extract(result.text, source="text")
        return contradicted(claims, self._judge.verdicts([unit_pixels(result.image)], claims)[0])

    def _planted(self, place: Path) -> list[dict[str, Any]]:
        """The verifier on pictures of known contents, finished ones and drafts at every noise level."""
        vae = load_pipeline(resolve(self._autoencoder), dtype=torch.float32).vae
        num_scenes = 2 * self._num_planted  # not every scene has what is to be swapped
        scenes = paint_scenes(
            place / "scenes", seed=self._scenes_seed, num_scenes=num_scenes, size=128, num_workers=self._num_workers
        )
        every = torch.arange(num_scenes)
        pictures = {
            "finished": reconstruct(vae, scenes, every, size=128),
            "drafts": draw_previews(
                self._images, vae, scenes, every, num_steps=self._steps, size=128, seed=self._scenes_seed
            ),
        }
        rows = []
        for name, known in pictures.items():
            found = caught(planted_pairs(self._scorer, self._extractor, known, num=self._num_planted))
            rows += [{"method": f"planted, {name}, {kind}", "figures": figures} for kind, figures in found.items()]
        return rows
