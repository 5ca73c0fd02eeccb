"""Tuning: measures this machine and this drafter, and writes the best tree as a file for `tree=`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from mmspec.cogen.copy import Copy
from mmspec.pipeline import Job
from mmspec.seeding import derive
from mmspec.text.decode import TextDecoder
from mmspec.text.drafters.base import Drafter
from mmspec.text.models import LanguageModels
from mmspec.text.planned import PlannedGrowth
from mmspec.text.tune import RecordingGrowth, summarise, time_passes

log = logging.getLogger(__name__)


class Tune(Job):
    """Starts with a wide tree of depth 3, measures, searches, and writes `tuned.yaml`.

    Acceptance depends on what is written and how freely: it is measured on texts of `copy`.
    """

    def __init__(
        self,
        *,
        models: LanguageModels,
        drafter: Drafter,
        copy: Copy,
        prompts: Sequence[str],
        max_tokens: int,
        start_widths: Sequence[int],
        sizes: Sequence[int],
        repeats: int,
        tree_depth: int,
        tree_budget: int,
        seed: int,
    ) -> None:
        self._models, self._drafter, self._template, self._prompts = models, drafter, copy.template, tuple(prompts)
        self._params = copy.params(max_tokens)
        self._growth = RecordingGrowth(tree_widths=start_widths, tree_budget=max(sizes))
        self._sizes, self._repeats = tuple(sizes), repeats
        self._tree_depth, self._tree_budget, self._seed = tree_depth, tree_budget, seed

    def run(self, folder: Path) -> None:
        """See `Job.run`."""
        decoder = TextDecoder(
            engine=self._models, drafter=self._drafter, growth=self._growth, acceptance="shared_noise"
        )
        for number, prompt in enumerate(self._prompts):
            state = decoder.start(
                prompt, params=self._params, seed=derive(self._seed, "tune", number), template=self._template
            )
            (state,) = decoder.extend([state], max_new_tokens=self._params.max_tokens, until=None)
            log.info("%s: %.2f tokens per target pass", prompt, state.metrics.mean_accepted_length)
        passes = time_passes(self._models.engine, state.prompt_ids, sizes=self._sizes, repeats=self._repeats)
        measured = summarise(self._growth.records, passes)
        fields: dict[str, Any] = {
            "acceptance": [round(share, 4) for share in measured.acceptance],
            "draft_s": round(measured.draft_s, 6),
            "verify_s": {size: round(seconds, 6) for size, seconds in measured.verify_s.items()},
            "tree_depth": self._tree_depth,
            "tree_budget": self._tree_budget,
        }
        plan = PlannedGrowth(**fields).plan
        path = folder / "tuned.yaml"
        text = "# Measured by pipeline=tune. Copy into conf/tree and choose it with tree=tuned.\n"
        text += yaml.safe_dump({"_target_": "mmspec.text.planned.PlannedGrowth", **fields}, sort_keys=False)
        path.write_text(text, encoding="utf-8")
        log.info(
            "best tree: %d nodes, depth %d, %.2f tokens per pass expected, %.1f ms per token; written to %s",
            plan.num_nodes,
            plan.depth,
            plan.expected_length,
            1e3 * plan.seconds_per_token,
            path,
        )
