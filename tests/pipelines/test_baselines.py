"""The baselines on stand-ins: what they skip, and what it costs them."""

from __future__ import annotations

from typing import Any

import pytest

from mmspec.cogen.copy import Copy
from mmspec.cogen.policy import Strictness
from mmspec.cogen.schedule import Interleaved
from mmspec.errors import InputError
from mmspec.pipeline import Pipeline
from mmspec.text.prompt import PromptTemplate
from mmspec.types import Done, Event, PreviewReady, Pruned, Repaired, Result, Scored
from pipelines.best_of_n import BestOfN
from pipelines.image import ImageAlone
from pipelines.late import LateVerification
from pipelines.sequential import Sequential
from tests.cogen.stand_ins import ScorerStandIn, StandIns, request, stand_in_parts

POLICY = Strictness(0.0, False, 2)
COPY = Copy(PromptTemplate("{prompt}"), {})


def run(built: Pipeline, prompt: str, **fields: int) -> tuple[list[Event], Result]:
    """All events and the result."""
    events = list(built.stream(request(prompt, **fields)))
    assert isinstance(events[-1], Done)
    return events, events[-1].result


def late(parts: StandIns) -> LateVerification:
    """A small tree that is verified when it is grown."""
    return LateVerification(
        text=parts.text,
        images=parts.images,
        extractor=parts.extractor,
        scorer=parts.scorer,
        policy=POLICY,
        copy=COPY,
        schedule=Interleaved(),
        num_branches=2,
        num_drafts=2,
        num_steps=4,
        draft_steps=3,
        steps_per_round=1,
        segment_tokens=8,
        segment_marks=".",
        repair_level=0.5,
    )


def sequential(parts: StandIns) -> Sequential:
    """A text, then a picture in four steps."""
    return Sequential(
        text=parts.text, images=parts.images, extractor=parts.extractor, policy=POLICY, copy=COPY, num_steps=4
    )


def best_of_n(parts: StandIns, **changes: Any) -> BestOfN:
    """Two texts with two pictures each."""
    settings: dict[str, Any] = {"policy": POLICY, "copy": COPY, "num_branches": 2, "num_drafts": 2, "num_steps": 4}
    return BestOfN(
        text=parts.text, images=parts.images, extractor=parts.extractor, scorer=parts.scorer, **(settings | changes)
    )


def test_sequential_draws_what_its_text_says_and_verifies_nothing() -> None:
    """The caption holds the robot of the finished text; no score, no claim to be verified."""
    parts = stand_in_parts(default_script=("Look. ", "There is a robot. "))
    events, result = run(sequential(parts), "a cave")
    assert set(parts.images.conditions) == {"a cave, robot"}
    assert not [event for event in events if isinstance(event, Scored)]
    assert result.claims == ()
    assert not result.verified
    assert parts.images.batches == [1, 1, 1, 1]


def test_best_of_n_finishes_everything_and_lets_the_verifier_pick() -> None:
    """One of four pictures shows the eye: it is picked, after 2 x 2 x 4 steps and one verification."""
    parts = stand_in_parts(shows={("1", 1): ["mechanical eye"]}, default_shows=["glasses"])
    _, result = run(best_of_n(parts), "a mechanical eye")
    assert sum(parts.images.batches) == 16
    assert parts.scorer.calls == [(4, 1)]
    assert result.verified
    assert result.pairs[0].branch_id == "1"


def test_best_of_n_refuses_more_pairs_than_candidates() -> None:
    """Five pairs of four candidates cannot be."""
    with pytest.raises(InputError, match="less than n=5"):
        run(best_of_n(stand_in_parts()), "a robot", n=5)


def test_late_verification_prunes_nothing_and_scores_at_the_end() -> None:
    """The same tree as co-generation: two verifications, of all drafts and of the chosen one, then repairs."""
    parts = stand_in_parts(shows={("1", 0): ["mechanical eye"]}, default_shows=["glasses"], scorer=ScorerStandIn())
    events, result = run(late(parts), "a mechanical eye")
    assert not [event for event in events if isinstance(event, Pruned | Repaired)]
    assert parts.scorer.calls == [(4, 1), (1, 1)]
    assert result.verified
    assert result.pairs[0].branch_id == "1"


def test_picture_alone_equals_the_picture_among_others() -> None:
    """Picture k of n depends on the seed and k only, and every step is shown."""
    alone_events, alone = run(ImageAlone(images=stand_in_parts().images, num_steps=4), "a robot")
    _, among = run(ImageAlone(images=stand_in_parts().images, num_steps=4), "a robot", n=3)
    assert [event.step for event in alone_events if isinstance(event, PreviewReady)] == [1, 2, 3, 4]
    assert alone.pairs[0].seed == among.pairs[0].seed
    assert len({pair.seed for pair in among.pairs}) == 3
