"""Single stages on a tree of stand-ins: what is asked of the verifier, where forks begin, what a repair redraws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mmspec.cogen.budget import Budget
from mmspec.cogen.copy import Copy
from mmspec.cogen.forbidden import forbidden_claims
from mmspec.cogen.grow import grow, plant
from mmspec.cogen.judge import prune, score, verify
from mmspec.cogen.policy import Strictness
from mmspec.cogen.prune import Threshold
from mmspec.cogen.regrow import regrow
from mmspec.cogen.repair import repair
from mmspec.cogen.schedule import Interleaved
from mmspec.cogen.tree import BranchTree
from mmspec.text.prompt import PromptTemplate
from mmspec.text.types import SegmentEnd
from mmspec.types import Claim, ClaimKind, Event, Preview, PreviewReady, Repaired
from tests.cogen.stand_ins import StandIns, request, stand_in_parts

BUDGET = Budget(num_branches=2, num_drafts=2, num_steps=4, draft_steps=3, steps_per_round=1, segment_tokens=8)


def planted(parts: Any, prompt: str, *, max_tokens: int = 60) -> BranchTree:
    """A tree of two branches with two drafts each."""
    tree = BranchTree(request(prompt, max_tokens=max_tokens), BUDGET, parts.extractor)
    plant(tree, parts, copy=Copy(PromptTemplate("{prompt}"), {}))
    return tree


def grown(tree: BranchTree, parts: Any) -> list[Event]:
    """One round of growth and its verification."""
    events = list(grow(tree, parts, schedule=Interleaved(), until=SegmentEnd(".")))
    return events + list(verify(tree, parts.scorer))


def test_every_picture_is_asked_each_question_once() -> None:
    """The second verification asks only about the pictures that changed, and a third one asks nothing."""
    parts = stand_in_parts()
    tree = planted(parts, "a robot")
    grown(tree, parts)
    assert parts.scorer.calls == [(4, 1)]
    list(verify(tree, parts.scorer))
    assert parts.scorer.calls == [(4, 1)]
    grown(tree, parts)
    assert parts.scorer.calls == [(4, 1), (4, 1)]


def test_new_claim_is_asked_together_with_the_thing_it_depends_on() -> None:
    """The colour of the robot cannot be judged without the robot, so both are in the second call."""
    parts = stand_in_parts()
    tree = planted(parts, "a robot")
    list(grow(tree, parts, schedule=Interleaved(), until=SegmentEnd(".")))
    preview: Preview = tree.previews["0", 0]
    robot = Claim("robot", ClaimKind.PROP, "prompt", (2, 7))
    rain = replace(robot, phrase="rain", kind=ClaimKind.COLOUR, parent="robot")
    other = replace(robot, phrase="cave")
    score(tree, parts.scorer, [preview], [[robot, other]])
    (answers,) = score(tree, parts.scorer, [preview], [[robot, other, rain]])  # type: ignore[arg-type]  # stand-ins
    assert parts.scorer.calls == [(1, 2), (1, 2)]
    assert [answer.claim for answer in answers] == [robot, other, rain]


def test_fork_begins_before_the_segment_that_is_at_fault() -> None:
    """Branch 0's second sentence lies: its fork keeps the first one alone, and its picture is carried on."""
    parts = stand_in_parts(
        scripts={"0": ("A robot. ", "It is at noon. ", "End. "), "1": ("A cave. ", "It is at noon. ", "End. ")},
        default_shows=["robot"],
    )
    tree = planted(parts, "a robot")
    grown(tree, parts)
    list(prune(tree, Threshold(0.2)))
    tree.orphaned.clear()  # nothing to take over
    grown(tree, parts)
    list(regrow(tree, parts, level=0.5))  # type: ignore[arg-type]  # stand-ins
    assert [growing.branch.id for growing in tree.live] == ["0", "0.0"]
    assert tree["0"].branch.text == "A robot. It is at noon. "
    assert tree["0.0"].branch.text == "A robot. "
    assert tree["0.0"].branch.drafts[0] is tree["0"].branch.drafts[tree["0"].best]
    assert tree["0.0"].branch.drafts[1].seed == tree.seed("image", "0.0", 1)


def test_no_fork_is_made_that_the_token_budget_cannot_finish() -> None:
    """Nothing to spare after both branches spent their share and one more: the tree stays as it is."""
    parts = stand_in_parts(scripts={"0": ("All at noon. ", "End. ")}, default_shows=["robot"])
    tree = planted(parts, "a robot", max_tokens=10)
    grown(tree, parts)
    list(prune(tree, Threshold(0.2)))
    assert [growing.branch.id for growing in tree.live] == ["1"]
    tree.num_tokens = 3 * 10
    assert list(regrow(tree, parts, level=0.5)) == []  # type: ignore[arg-type]  # stand-ins


@pytest.mark.parametrize(("num_rounds", "expected"), [(1, []), (3, [0.5])])
def test_repair_waits_until_the_picture_is_clearer_than_the_level_it_goes_back_to(
    num_rounds: int, expected: list[float]
) -> None:
    """At noise 0.75 nothing is redrawn from 0.5; at 0.25 it is."""
    parts: StandIns = stand_in_parts(default_shows=["glasses"])
    tree = planted(parts, "a mechanical eye")
    for _ in range(num_rounds):
        grown(tree, parts)
    events = list(repair(tree, parts, policy=Strictness(0.0, False, 4), level=0.5))  # type: ignore[arg-type]  # stand-ins
    assert [event.level for event in events if isinstance(event, Repaired)] == expected


def test_negative_prompt_forbids_a_thing_with_its_attribute_alone() -> None:
    """A negative "red robot" forbids red robots, not robots."""
    robot = Claim("a robot", ClaimKind.PROP, "prompt", (4, 9))
    red_robot = replace(robot, phrase="a red robot", kind=ClaimKind.COLOUR, parent="a robot")
    assert [(no.phrase, claim) for no, claim in forbidden_claims([robot, red_robot]).items()] == [
        ("no red robot", red_robot)
    ]


def test_first_look_costs_one_step_of_one_draft() -> None:
    """Before the other drafts begin, the first one is shown after its first step; no step is taken twice."""
    parts = stand_in_parts()
    tree = planted(parts, "a robot")
    looks = [event for event in grown(tree, parts) if isinstance(event, PreviewReady)]
    assert [(e.branch_id, e.draft_index, e.step) for e in looks] == [
        ("0", 0, 1), ("0", 0, 1), ("0", 1, 1), ("1", 0, 1), ("1", 1, 1),
    ]  # fmt: skip
    assert parts.images.batches == [1, 3]
    grown(tree, parts)
    assert parts.images.batches == [1, 3, 4]


def test_wrong_sentence_costs_no_picture() -> None:
    """Branch 0 goes for its text alone: the fork of branch 1 takes over both of its drafts, none is re-noised."""
    parts = stand_in_parts(scripts={"0": ("It is at noon. ", "End. ")}, default_shows=["robot"])
    tree = planted(parts, "a robot")
    grown(tree, parts)
    list(prune(tree, Threshold(0.2)))
    assert tree.orphaned == ["0"]
    list(regrow(tree, parts, level=0.5))  # type: ignore[arg-type]  # stand-ins
    assert tree.orphaned == []
    child = tree["1.0"].branch
    assert [draft.seed for draft in child.drafts] == [draft.seed for draft in tree["0"].branch.drafts]
    assert [tree.previews["1.0", k] for k in (0, 1)] == [tree.previews["0", k] for k in (0, 1)]


def test_picture_at_fault_is_not_taken_over() -> None:
    """Branch 0 misses what the prompt asks for: nobody wants its drafts."""
    parts = stand_in_parts(shows={("0", 0): [], ("0", 1): []}, default_shows=["robot"])
    tree = planted(parts, "a robot")
    grown(tree, parts)
    list(prune(tree, Threshold(0.2)))
    assert tree["0"].branch.reason is not None
    assert tree.orphaned == []
