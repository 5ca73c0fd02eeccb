"""Text alone: `request.n` texts of one prompt, grown side by side and shown as they grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mmspec.cogen.copy import Copy
from mmspec.cogen.weighting import read_weights
from mmspec.pipeline import Pipeline
from mmspec.seeding import derive
from mmspec.types import Branch, BranchState, Done, Event, Pair, Request, Result, RoundStarted, TextGrown

if TYPE_CHECKING:
    from mmspec.text.decode import TextDecoder
    from mmspec.text.state import TextState


class Text(Pipeline):
    """Streams the texts, all of them verified in the same target passes."""

    def __init__(self, *, text: TextDecoder, copy: Copy, chunk_passes: int) -> None:
        self._decoder = text
        self._copy = copy
        self._chunk_passes = chunk_passes
        text.prepare(copy.template)

    def stream(self, request: Request) -> Iterator[Event]:
        """See `Pipeline.stream`."""
        self.prompt_alone(request)
        ids = [str(number) for number in range(request.n)]
        seeds = [derive(request.seed, "text", branch_id) for branch_id in ids]
        first = self._decoder.start(
            read_weights(request.prompt).text,
            params=self._copy.params(request.max_tokens),
            seed=seeds[0],
            template=self._copy.template,
        )
        texts = [first, *(self._decoder.fork(first, seed=seed) for seed in seeds[1:])]
        yield RoundStarted(0, tuple(ids))
        while any(text.finished is None for text in texts):
            before = texts
            texts = self._decoder.extend(
                texts, max_new_tokens=request.max_tokens, until=None, max_passes=self._chunk_passes
            )
            for branch_id, old, new in zip(ids, before, texts, strict=True):
                if new is not old:
                    yield TextGrown(branch_id, new.text[len(old.text) :], len(new.ids) - len(old.ids))
        yield Done(_result(request, ids, seeds, texts))


def _result(request: Request, ids: list[str], seeds: list[int], texts: list[TextState]) -> Result:
    """Best first: the text that the model itself finds most likely per token."""
    order = sorted(range(len(texts)), key=lambda i: (-texts[i].log_prob / max(1, len(texts[i].ids)), i))
    pairs = tuple(Pair(ids[i], texts[i].text, None, (), False, seeds[i]) for i in order)
    tree = tuple(Branch(ids[i], None, texts[i].text, state=BranchState.FINISHED) for i in range(len(texts)))
    all_metrics = [text.metrics for text in texts]
    # Branches share their target passes, so the longest-running one's clock is the request's.
    longest = max(all_metrics, key=lambda metrics: metrics.total_s)
    num_tokens = sum(metrics.num_tokens for metrics in all_metrics)
    metrics: dict[str, float | int | str] = {
        "num_tokens": num_tokens,
        "num_target_calls": longest.num_target_calls,
        "tokens_per_s": num_tokens / longest.total_s,
        "mean_accepted_length": num_tokens / sum(metrics.num_target_calls for metrics in all_metrics),
        "acceptance_by_depth": " ".join(f"{rate:.2f}" for rate in longest.acceptance),
        "prefill_s": all_metrics[0].prefill_s,
        "draft_s": longest.draft_s,
        "verify_s": longest.verify_s,
        "text_s": all_metrics[0].prefill_s + longest.total_s,
        "finished": ", ".join(text.finished.value for text in texts if text.finished is not None),
    }
    alerts = sorted({alert for own in all_metrics for alert in own.alerts})
    if alerts:
        metrics["alerts"] = "; ".join(alerts)
    return Result(request, pairs, tree, metrics)
