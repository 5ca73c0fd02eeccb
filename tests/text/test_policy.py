"""How far a request trusts its drafter."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from typing_extensions import override

from mmspec.errors import InputError, ModelError
from mmspec.text.decode import TextDecoder
from mmspec.text.drafters.base import Draft, DraftRequest, NoDrafter, TokenDrafter
from mmspec.text.growth import FixedGrowth, Growth
from mmspec.text.policy import DraftPolicy, Watch
from mmspec.text.tree import chain
from mmspec.text.types import SamplingParams, TextMetrics

GROWTH = FixedGrowth(tree_widths=[1, 1, 1, 1], tree_budget=5)
PARAMS = SamplingParams(max_tokens=40, min_new_tokens=40, temperature=0.9)


class Wrong(TokenDrafter):
    """Proposes as deep as it may, and counts what it was asked for; right now and then by chance alone."""

    def __init__(self) -> None:
        self.depths: list[int] = []

    @override
    def propose(self, requests: Sequence[DraftRequest], growth: Growth) -> list[Draft]:
        self.depths += [own.max_depth for own in requests]
        return [Draft(chain([own.ids[-1], *[7] * own.max_depth]), None) for own in requests]


class Hanging(TokenDrafter):
    """Never comes back until it is let go."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.num_asked = 0

    @override
    def propose(self, requests: Sequence[DraftRequest], growth: Growth) -> list[Draft]:
        self.num_asked += 1
        self.gate.wait()
        return []


def written(models: Any, drafter: TokenDrafter, policy: DraftPolicy) -> Any:
    """One text of 40 tokens."""
    decoder = TextDecoder(engine=models, drafter=drafter, growth=GROWTH, acceptance="shared_noise", policy=policy)
    (state,) = decoder.extend([decoder.start("neon", params=PARAMS, seed=4)], max_new_tokens=40, until=None)
    return state


def test_policies_differ_in_what_a_poor_drafter_may_do(language_models: Any) -> None:
    """Relaxed asks on; standard alerts and asks for one level more than was accepted; strict stops asking."""
    models = language_models("llama")
    plain = written(models, NoDrafter(), DraftPolicy())
    relaxed, standard, strict = Wrong(), Wrong(), Wrong()
    states = [
        written(models, relaxed, DraftPolicy()),
        written(models, standard, DraftPolicy(alert_rejection=0.15)),
        written(models, strict, DraftPolicy(alert_rejection=0.15, acceptance_floor=0.5)),
    ]
    assert all(state.ids == plain.ids for state in states)
    assert set(relaxed.depths[:-4]) == {4}
    assert not states[0].metrics.alerts
    assert len(relaxed.depths) == len(standard.depths)
    assert min(standard.depths[8:-4]) < 4
    assert any("15%" in alert for alert in states[1].metrics.alerts)
    assert len(strict.depths) == 8
    assert any("target alone" in alert for alert in states[2].metrics.alerts)


def test_good_drafter_is_left_alone() -> None:
    """Nine rounds in ten accept: no alert, full depth, under the standard policy and the strict one."""
    metrics, recent = TextMetrics(proposed=(10, 8), accepted=(9, 2)), (1, 2, 1, 1, 0, 1, 1, 1)
    for policy in (DraftPolicy(alert_rejection=0.15), DraftPolicy(alert_rejection=0.15, acceptance_floor=0.5)):
        assert policy.depth(metrics, recent, 6) == 6
        assert policy.alert(metrics, recent) is None
        assert policy.depth(TextMetrics(proposed=(7,), accepted=(0,)), (0,) * 7, 6) == 6  # too early to judge


def test_hanging_drafter_is_left_behind(language_models: Any) -> None:
    """One proposal is waited for; the text is that of plain decoding, and the metrics say what happened."""
    models = language_models("llama")
    drafter = Hanging()
    state = written(models, drafter, DraftPolicy(timeout_s=0.05))
    drafter.gate.set()
    assert state.ids == written(models, NoDrafter(), DraftPolicy()).ids
    assert drafter.num_asked == 1
    assert any("hangs" in alert for alert in state.metrics.alerts)


def test_watched_calls_return_raise_and_keep_the_thread_count() -> None:
    """A watched call is the call itself, in another thread with as many torch threads."""
    watch = Watch(timeout_s=60.0)
    assert watch.call(lambda: (threading.current_thread().name, torch.get_num_threads())) == (
        "mmspec-draft",
        torch.get_num_threads(),
    )
    with pytest.raises(ZeroDivisionError):
        watch.call(lambda: 1 // 0)
    gate = threading.Event()
    hasty = Watch(timeout_s=0.01)
    for _ in range(2):
        with pytest.raises(ModelError, match="hangs"):
            hasty.call(gate.wait)
    gate.set()


@pytest.mark.parametrize("fields", [{"alert_rejection": 1.5}, {"acceptance_floor": -0.1}, {"timeout_s": 0.0}])
def test_values_out_of_range_are_refused(fields: dict[str, float]) -> None:
    """Each in one line that names the key."""
    with pytest.raises(InputError, match=f"policy.drafts.{next(iter(fields))}"):
        DraftPolicy(**fields)
