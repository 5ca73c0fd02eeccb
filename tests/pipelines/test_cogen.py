"""Co-generation on stand-ins with planted agreements and disagreements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mmspec.cogen.agreement import text_faults
from mmspec.cogen.copy import Copy
from mmspec.cogen.policy import Strictness
from mmspec.cogen.prune import Threshold
from mmspec.cogen.schedule import Interleaved, Threaded
from mmspec.cogen.trace import TraceRecorder
from mmspec.errors import InputError, ModelError
from mmspec.text.prompt import PromptTemplate
from mmspec.types import (
    BranchState,
    Claim,
    ClaimKind,
    ClaimScore,
    Done,
    Event,
    PreviewReady,
    Pruned,
    Regrown,
    Repaired,
    Request,
    Result,
    TextGrown,
    Verdict,
)
from pipelines.cogen import CoGeneration
from tests.cogen.stand_ins import ScorerStandIn, StandIns, request, stand_in_parts

STANDARD = Strictness(max_missed_share=0.0, unsure_misses=False, max_repairs=2)


def pipeline(parts: StandIns, **changes: Any) -> CoGeneration:
    """A small co-generation over stand-in parts."""
    settings: dict[str, Any] = {
        "prune": Threshold(0.2),
        "policy": STANDARD,
        "copy": Copy(PromptTemplate("{prompt}"), {}),
        "schedule": Interleaved(),
        "num_branches": 2,
        "num_drafts": 2,
        "num_steps": 4,
        "draft_steps": 3,
        "steps_per_round": 1,
        "segment_tokens": 8,
        "segment_marks": ".",
        "repair_level": 0.5,
        "max_explained": 1,
    }
    return CoGeneration(
        text=parts.text, images=parts.images, extractor=parts.extractor, scorer=parts.scorer, **(settings | changes)
    )


def run(built: CoGeneration, prompt: str, **fields: int) -> tuple[list[Event], Result]:
    """All events and the result."""
    events = list(built.stream(request(prompt, **fields)))
    assert isinstance(events[-1], Done)
    assert sum(isinstance(event, Done) for event in events) == 1
    return events, events[-1].result


def of(kind: type, events: list[Event]) -> list[Any]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def test_draft_that_misses_a_prompt_claim_is_pruned_and_the_other_wins() -> None:
    """Glasses where the prompt asks for a mechanical eye: that draft goes, with the reason named."""
    parts = stand_in_parts(
        shows={("0", 0): ["glasses"], ("0", 1): ["mechanical eye"], ("1", 0): ["glasses"], ("1", 1): ["mechanical eye"]}
    )
    events, result = run(pipeline(parts), "a mechanical eye")
    pruned = of(Pruned, events)
    assert {(p.branch_id, p.draft_index) for p in pruned} == {("0", 0), ("1", 0)}
    assert pruned[0].reason == 'prompt asks for "mechanical eye" (0.03), looks like "glasses"'
    assert result.verified
    assert result.claims[0].claim.phrase == "mechanical eye"


def test_claim_missing_from_every_draft_is_repaired_and_the_repair_survives() -> None:
    """All drafts show glasses: the best is redrawn with the claim emphasised, and that redraw is returned."""
    parts = stand_in_parts(default_shows=["glasses"])
    events, result = run(pipeline(parts), "a mechanical eye")
    repaired = of(Repaired, events)
    assert [(r.claim, r.level) for r in repaired] == [("mechanical eye", 0.5)]
    assert result.verified
    winner = next(branch for branch in result.tree if branch.id == result.pairs[0].branch_id)
    assert any(draft.seed == result.pairs[0].seed for draft in winner.drafts)
    assert any(event.draft_index is not None for event in of(Pruned, events))


def test_drafter_that_never_shows_a_claim_leaves_it_marked_within_the_repair_budget() -> None:
    """No repair helps: as many as allowed are paid for, and the result names the failing claim."""
    parts = stand_in_parts(default_shows=["glasses"], obeys=False)
    events, result = run(pipeline(parts), "a mechanical eye")
    repaired = of(Repaired, events)
    assert [r.level for r in repaired] == [0.5, 1.0]
    assert not result.verified
    assert [score.claim.phrase for score in result.claims if score.verdict.value == "failed"] == ["mechanical eye"]


def test_text_that_every_draft_contradicts_is_pruned_and_the_tree_refilled() -> None:
    """The text says noon, no picture shows it and the prompt does not ask for it: the text branch goes."""
    parts = stand_in_parts(scripts={"0": ("Here it is at noon. ", "Still. ")}, default_shows=["robot", "at night"])
    events, result = run(pipeline(parts), "a robot at night")
    pruned = of(Pruned, events)
    assert [(p.branch_id, p.draft_index) for p in pruned] == [("0", None)]
    assert 'text says "at noon"' in pruned[0].reason
    assert [(r.parent_id, r.branch_id) for r in of(Regrown, events)] == [("1", "1.0")]
    assert result.verified
    assert "noon" not in result.text
    state = {branch.id: branch.state for branch in result.tree}
    assert state["0"] is BranchState.PRUNED


@pytest.mark.parametrize("field", ["unsure", "unjudged"])
def test_nothing_is_pruned_or_repaired_on_a_verdict_that_is_not_sure(field: str) -> None:
    """The abstain band: neither unsure nor unjudged claims cost a branch."""
    scorer = ScorerStandIn(**{field: frozenset({"mechanical eye"})})
    parts = stand_in_parts(default_shows=["glasses"], scorer=scorer)
    events, result = run(pipeline(parts), "a mechanical eye")
    assert not of(Pruned, events)
    assert not of(Repaired, events)
    assert result.verified


def test_last_branch_is_never_pruned() -> None:
    """Every text lies: one branch stays, and what fails is marked."""
    parts = stand_in_parts(default_script=("All at noon. ",), default_shows=["robot"])
    _, result = run(pipeline(parts, policy=Strictness(0.0, False, 0)), "a robot")
    assert result.text == "All at noon."
    assert not result.verified


def test_text_that_the_final_picture_denies_is_replaced_by_a_sibling() -> None:
    """The best picture's own text fails at the end; a finished sibling's text is supported and taken."""
    scorer = ScorerStandIn()
    parts = stand_in_parts(
        scripts={"0": ("A robot. ", "Rain. ", "It is at noon."), "1": ("A robot. ", "Rain. ", "It is still.")},
        shows={("1", 0): ["robot"]},
        default_shows=["robot", "at night"],
        scorer=scorer,
    )
    _, result = run(pipeline(parts, policy=Strictness(0.0, False, 0)), "a robot at night")
    assert "noon" not in result.text


def test_schedules_give_the_same_tree_text_and_pixels() -> None:
    """Threads or turns: nothing but the time may differ."""
    results: list[Result] = []
    for schedule in (Interleaved(), Threaded(threads_per_job=1)):
        parts = stand_in_parts(scripts={"0": ("Here it is at noon. ", "Still. ")}, default_shows=["robot"])
        results.append(run(pipeline(parts, schedule=schedule), "a robot and glasses")[1])
    first, second = results
    assert first.text == second.text
    assert first.image is not None
    assert second.image is not None
    assert first.image.tobytes() == second.image.tobytes()
    assert [(b.id, b.parent, b.text, b.state, b.reason) for b in first.tree] == [
        (b.id, b.parent, b.text, b.state, b.reason) for b in second.tree
    ]


def test_n_pairs_have_distinct_pictures() -> None:
    """`n=3` gives three pairs, drawn from three seeds."""
    _, result = run(pipeline(stand_in_parts()), "a robot", n=3)
    assert len(result.pairs) == 3
    assert len({pair.seed for pair in result.pairs}) == 3


def test_work_stays_within_the_budget() -> None:
    """Branches x drafts x steps bounds the denoising steps, repairs and forks included."""
    parts = stand_in_parts(default_shows=["glasses"], obeys=False)
    run(pipeline(parts, policy=Strictness(0.0, False, 50)), "a mechanical eye")
    assert sum(parts.images.batches) <= 2 * 2 * 4


def test_budget_too_small_is_one_clear_error() -> None:
    """One branch with one draft leaves nothing to prune."""
    with pytest.raises(InputError, match="leaves nothing to prune"):
        run(pipeline(stand_in_parts(), num_branches=1, num_drafts=1), "a robot")


def test_broken_draft_goes_and_the_rest_is_returned() -> None:
    """A draft whose latents are NaN is pruned; the others carry on."""
    parts = stand_in_parts(broken=[("0", 1), ("1", 0), ("1", 1)])
    events, result = run(pipeline(parts), "a robot")
    assert {(p.branch_id, p.draft_index) for p in of(Pruned, events)} == {("0", 1), ("1", 0), ("1", None)}
    assert result.image is not None


def test_all_drafts_broken_is_one_clear_error() -> None:
    """Nothing finite is left: the error names stage and step."""
    parts = stand_in_parts(broken=[(branch_id, k) for branch_id in "01" for k in (0, 1)])
    with pytest.raises(ModelError, match="not finite after step 1"):
        run(pipeline(parts), "a robot")


@pytest.mark.parametrize("schedule", [Interleaved(), Threaded(threads_per_job=1)])
@pytest.mark.parametrize("part", ["images.advance", "scorer.score", "text.extend"])
def test_model_that_raises_half_way_is_one_clear_error(
    schedule: Any, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a model raises comes out as a `ModelError` with the stage and the cause."""
    parts = stand_in_parts()
    owner, method = part.split(".")
    calls = iter(range(10))
    working = getattr(getattr(parts, owner), method)

    def fail_second_time(*arguments: Any, **named: Any) -> Any:
        if next(calls) == 1:
            raise RuntimeError("out of luck")
        return working(*arguments, **named)

    monkeypatch.setattr(getattr(parts, owner), method, fail_second_time)
    with pytest.raises(ModelError, match="failed: RuntimeError: out of luck"):
        run(pipeline(parts, schedule=schedule), "a robot")


@pytest.mark.parametrize("schedule", [Interleaved(), Threaded(threads_per_job=1)])
def test_interruption_returns_what_was_verified_marked_partial(schedule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the second round: the best branch of the first is given back."""
    parts = stand_in_parts()
    calls = iter(range(10))
    working = parts.scorer.score

    def interrupt(*arguments: Any) -> Any:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return working(*arguments)

    monkeypatch.setattr(parts.scorer, "score", interrupt)
    _, result = run(pipeline(parts, schedule=schedule), "a robot")
    assert result.partial
    assert result.image is not None
    assert result.text == "It rests here. All is still."


def test_interruption_before_anything_was_verified_passes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to give back yet."""
    parts = stand_in_parts()

    def interrupt(*arguments: Any, **named: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(parts.images, "advance", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(pipeline(parts), "a robot")


def test_what_the_negative_prompt_forbids_is_pruned() -> None:
    """The verifier is asked about the glasses, and a draft that shows them goes."""
    parts = stand_in_parts(shows={("0", 0): ["robot", "glasses"]}, default_shows=["robot"])
    events = list(pipeline(parts).stream(Request("a robot", negative_prompt="glasses")))
    pruned = of(Pruned, events)
    assert [(p.branch_id, p.draft_index) for p in pruned] == [("0", 0)]
    assert pruned[0].reason == 'prompt asks for "no glasses" (0.05), looks like "glasses"'
    assert of(Done, events)[0].result.verified


def test_prompt_without_a_visual_claim_gives_a_pair() -> None:
    """For "be kind" nothing can be judged, nothing is pruned, a pair comes out."""
    events, result = run(pipeline(stand_in_parts(default_script=("Be kind. ",))), "be kind")
    assert not of(Pruned, events)
    assert result.claims == ()
    assert result.image is not None


def test_contradictory_prompt_is_marked() -> None:
    """No picture shows noon and night at once: the run ends, and says so."""
    parts = stand_in_parts(default_shows=["at night"], obeys=False)
    _, result = run(pipeline(parts), "at noon at night")
    assert not result.verified


@pytest.mark.parametrize("prompt", ["🤖 in the 雨", "robot " * 5000, "ロボット"])
def test_unusual_prompts_run(prompt: str) -> None:
    """Emoji, CJK and 5,000 words: a pair, and a caption that stays short."""
    parts = stand_in_parts()
    run(pipeline(parts), prompt)
    assert all(len(caption.split()) <= 24 for caption in parts.images.conditions)


def test_events_tell_the_whole_story() -> None:
    """Chunks concatenate to each branch's text, and every draft that was advanced was shown."""
    events, result = run(pipeline(stand_in_parts()), "a robot")
    for branch in result.tree:
        if branch.parent is None:
            assert "".join(e.chunk for e in of(TextGrown, events) if e.branch_id == branch.id) == branch.text
    shown = {(e.branch_id, e.draft_index) for e in of(PreviewReady, events)}
    assert shown == {(branch.id, k) for branch in result.tree for k in range(len(branch.drafts))}


def test_branch_alone_equals_branch_among_others() -> None:
    """Branch 0 writes and draws the same whether one or three others grow beside it."""
    script = {"0": ("A robot. ", "It is at night. ")}
    texts: list[Mapping[str, Any]] = []
    for num_branches in (1, 4):
        _, result = run(pipeline(stand_in_parts(scripts=script), num_branches=num_branches), "a robot")
        branch = result.tree[0]
        texts.append({"text": branch.text, "seeds": [draft.seed for draft in branch.drafts]})
    assert texts[0] == texts[1]


def test_trace_holds_every_branch_and_why_it_went() -> None:
    """The trace is plain data and names branches, drafts, claims and reasons."""
    parts = stand_in_parts(scripts={"0": ("Here it is at noon. ", "Still. ")}, default_shows=["robot", "at night"])
    events, result = run(pipeline(parts), "a robot at night")
    recorder = TraceRecorder()
    for event in events:
        recorder.record(event)
    trace = recorder.trace()
    gone = trace["branches"][0]
    assert gone["state"] == "pruned"
    assert gone["pruned_round"] == 0
    assert "at noon" in gone["reason"]
    assert trace["pairs"][0]["seed"] == result.pairs[0].seed
    assert gone["drafts"][0]["history"][0]["claims"][0]["phrase"] == "robot"


def test_trace_says_where_claims_fail_and_hold() -> None:
    """The pair's claims and those that cost a picture its life have small maps; the others have none."""
    parts = stand_in_parts(
        shows={("0", 0): ["glasses"], ("1", 0): ["glasses"], ("0", 1): ["mechanical eye"], ("1", 1): ["mechanical eye"]}
    )
    events, result = run(pipeline(parts, max_explained=1), "a mechanical eye")
    recorder = TraceRecorder()
    for event in events:
        recorder.record(event)
    trace = recorder.trace()
    grid = trace["pairs"][0]["claims"][0]["relevance"]
    assert [len(grid), grid[0]] == [16, "ff" * 16]
    dead = [branch["drafts"][0]["claims"][0] for branch in trace["branches"]]
    assert [claim["relevance"] is not None for claim in dead] == [True, False]
    assert result.claims[0].relevance is not None
    run(pipeline(parts, max_explained=0), "a mechanical eye")
    assert parts.scorer.explained == [("mechanical eye",)] * 2


def test_weights_steer_the_picture_and_reach_nobody_else() -> None:
    """Language model, claims and caption get the plain prompt; every step is pulled towards what weighs more."""
    parts = stand_in_parts()
    _, result = run(pipeline(parts), "a (robot:1.5) in the rain")
    assert set(parts.images.emphasis) == {(("robot", 0.5),)}
    assert set(parts.images.conditions) == {"a robot in the rain"}
    assert {s.claim.phrase: s.claim.weight for s in result.claims} == {"robot": 1.5, "rain": 1.0}


def test_repair_is_pulled_towards_what_it_repairs_beside_the_weights() -> None:
    """The redrawn picture has both."""
    parts = stand_in_parts(default_shows=["glasses", "robot"])
    run(pipeline(parts), "a (robot:1.5), a mechanical eye")
    assert (("robot", 0.5), ("mechanical eye", 1.0)) in parts.images.emphasis


def test_thing_named_by_its_last_word_is_the_one_asked_for() -> None:
    """In a text about a mechanical eye, "the eye" is that one: no text goes for it."""
    asked = Claim("a big robot", ClaimKind.PROP, "prompt", (0, 5))
    said = Claim("a robot", ClaimKind.PROP, "text", (4, 9))
    scores = [ClaimScore(asked, 0.9, Verdict.HELD), ClaimScore(said, 0.02, Verdict.FAILED)]
    assert text_faults([scores]) == ()
    assert text_faults([[scores[1]]]) == (scores[1],)


def test_emptied_prompt_of_emoji_still_answers() -> None:
    """Nothing to claim and nothing to weigh: a pair, not verified against anything."""
    _, result = run(pipeline(stand_in_parts()), "🙂 (🙂:1.5)")
    assert result.claims == ()
    assert result.image is not None
