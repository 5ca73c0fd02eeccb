"""Budgets, strictness, copy templates and the cut at a sentence's end."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmspec.cogen.budget import Budget
from mmspec.cogen.copy import Copy, copy_from_file
from mmspec.cogen.policy import Strictness
from mmspec.cogen.sentences import whole_sentences
from mmspec.errors import InputError
from mmspec.text.prompt import CompletionTemplate, PromptTemplate
from mmspec.types import Claim, ClaimKind, ClaimScore, Request, Verdict


def scores(verdicts: str) -> list[ClaimScore]:
    """One claim for every letter: h(eld), f(ailed), u(nsure), n(ot judged)."""
    letters = {"h": Verdict.HELD, "f": Verdict.FAILED, "u": Verdict.UNSURE, "n": Verdict.UNJUDGED}
    claim = Claim("rain", ClaimKind.WEATHER, "prompt", (0, 4))
    return [ClaimScore(claim, 0.5, letters[letter]) for letter in verdicts]


RELAXED, STANDARD, STRICT = Strictness(0.15, False, 1), Strictness(0.0, False, 4), Strictness(0.0, True, 8)


@pytest.mark.parametrize(
    ("verdicts", "relaxed", "standard", "strict"),
    [
        ("hhhh", True, True, True),
        ("hhhu", True, True, False),
        ("hhhn", True, True, True),
        ("hhhhhhf", True, False, False),
        ("hhhf", False, False, False),
        ("", True, True, True),
    ],
)
def test_what_each_policy_calls_verified(verdicts: str, relaxed: bool, standard: bool, strict: bool) -> None:
    """One miss in seven is fine when relaxed; strict does not take unsure for held."""
    seen = scores(verdicts)
    assert [policy.verified(seen) for policy in (RELAXED, STANDARD, STRICT)] == [relaxed, standard, strict]


def test_budget_grows_with_the_pairs_asked_for() -> None:
    """Four pairs get three branches more than one pair."""
    budget = Budget(4, 2, 8, 6, 2, 20)
    assert budget.max_draft_steps == 64
    assert budget.for_request(Request("a robot", n=4)).num_branches == 7


@pytest.mark.parametrize(
    "field", ["num_branches", "num_drafts", "num_steps", "draft_steps", "steps_per_round", "segment_tokens"]
)
def test_budget_below_one_is_refused(field: str) -> None:
    """The error names the knob."""
    values = {
        "num_branches": 4,
        "num_drafts": 2,
        "num_steps": 8,
        "draft_steps": 6,
        "steps_per_round": 2,
        "segment_tokens": 20,
    }
    with pytest.raises(InputError, match=f"{field}=0"):
        Budget(**(values | {field: 0}))


def test_more_draft_steps_than_steps_are_refused() -> None:
    """A draft cannot go further than its picture."""
    with pytest.raises(InputError, match="draft_steps=9 is more than num_steps=8"):
        Budget(4, 2, 8, 9, 2, 20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rain falls. A robot stands under an", "Rain falls."),
        ('He said "Stop!" and then', 'He said "Stop!"'),
        ("OPEN ALL NIGHT\nNOODLES AND", "OPEN ALL NIGHT"),
        ("no end in sight", "no end in sight"),
        ("雨が降る。ロボットは", "雨が降る。"),
        ("A 3.5 m robot stands", "A 3.5 m robot stands"),
    ],
)
def test_text_is_cut_after_its_last_whole_sentence(text: str, expected: str) -> None:
    """Sentence or line end; a text without one is left alone."""
    assert whole_sentences(text) == expected


def test_unknown_sampling_field_of_a_template_is_refused() -> None:
    """A misspelt knob does not pass silently."""
    with pytest.raises(InputError, match="temprature"):
        Copy(PromptTemplate("{prompt}"), {"temprature": 0.5})


def test_sampling_fields_as_they_are_configured() -> None:
    """Lists and mappings become what the decoder takes; beside a grammar nothing else ends a text."""
    fields = {"stop": ["\n"], "stop_token_ids": [7], "logit_bias": [[345, -2]]}
    params = Copy(PromptTemplate("{prompt}"), fields).params(9)
    assert (params.stop, params.stop_token_ids, params.logit_bias) == (("\n",), (7,), ((345, -2.0),))
    params = Copy(PromptTemplate("{prompt}"), fields | {"json_schema": {"type": "object"}}).params(9)
    assert (params.stop, params.json_schema) == ((), '{"type": "object"}')
    with pytest.raises(InputError, match="misshapen"):
        Copy(PromptTemplate("{prompt}"), {"logit_bias": [345]})


def test_template_file_of_the_user(tmp_path: Path) -> None:
    """The file's text is the template; a file without a place for the prompt, or none, is refused."""
    path = tmp_path / "mine.txt"
    path.write_text("Haiku about {prompt}\n", encoding="utf-8")
    assert copy_from_file(str(path), {}, continued=False).template == PromptTemplate("Haiku about {prompt}")
    assert copy_from_file(str(path), {}, continued=True).template == CompletionTemplate("Haiku about {prompt}")
    path.write_text("Haiku", encoding="utf-8")
    with pytest.raises(InputError, match="prompt"):
        copy_from_file(str(path), {}, continued=False)
    with pytest.raises(InputError, match=r"copy\.path"):
        copy_from_file(str(tmp_path / "none.txt"), {}, continued=True)
