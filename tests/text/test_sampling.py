"""Acceptance rules against a vector of exact outputs, and wrong variants that the same test rejects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mmspec.errors import InputError, ModelError
from mmspec.seeding import generator
from mmspec.text.sampling import (
    Greedy,
    Processors,
    Rejection,
    SharedNoise,
    accept_trials,
    draw_token,
    filter_scores,
)
from mmspec.text.types import SamplingParams, Trial

P = torch.tensor([0.4, 0.3, 0.2, 0.1])
Q = torch.tensor([0.1, 0.2, 0.3, 0.4])
Q2 = torch.tensor([0.25, 0.05, 0.3, 0.4])

# 0.1 % critical value of chi-square with 3 degrees of freedom: a right rule fails once in 1000 seeds, and
# the seeds are fixed.
CRITICAL = 16.27
Rule = Callable[[torch.Generator], int]


def chi_square(rule: Rule, num_draws: int, seed: int = 0) -> float:
    """Distance of the rule's output from P."""
    source = generator(seed, "test")
    counts = torch.zeros(4)
    for _ in range(num_draws):
        counts[rule(source)] += 1
    expected = P * num_draws
    return float(((counts - expected) ** 2 / expected).sum())


def with_replacement(first: Tensor, second: Tensor) -> Rule:
    """Family A: two independent draws, each with its own q."""
    return lambda source: accept_trials(
        P, [Trial(draw_token(first, source), first), Trial(draw_token(second, source), second)], source
    )


def without_replacement(source: torch.Generator) -> int:
    """Family B: the second draw's q is the rest."""
    one = draw_token(Q, source)
    rest = Q.index_fill(0, torch.tensor([one]), 0.0)
    rest = rest / rest.sum()
    return accept_trials(P, [Trial(one, Q), Trial(draw_token(rest, source), rest)], source)


def point_masses(source: torch.Generator) -> int:
    """Family C: the draft's two most likely tokens."""
    return accept_trials(P, [Trial(3), Trial(2)], source)


def shared_noise_and_match(source: torch.Generator) -> int:
    """Family D: the target's own token, matched against whatever was drafted."""
    rule = SharedNoise(int(torch.randint(1 << 60, (1,), generator=source)))
    drawn = rule.draw(Q.log(), 2, position=0, key="")
    return rule.pick(P.log(), [trial for trial, _ in drawn], position=0)


def rejection_without_replacement(source: torch.Generator) -> int:
    """The `Rejection` rule from end to end."""
    rule = Rejection(int(torch.randint(1 << 60, (1,), generator=source)))
    drawn = rule.draw(Q.log(), 2, position=0, key="")
    return rule.pick(P.log(), [trial for trial, _ in drawn], position=0)


RIGHT: dict[str, Rule] = {
    "with replacement": with_replacement(Q, Q),
    "two drafts": with_replacement(Q, Q2),
    "without replacement": without_replacement,
    "point masses": point_masses,
    "shared noise": shared_noise_and_match,
    "rejection": rejection_without_replacement,
}


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_rule_keeps_target_distribution(name: str) -> None:
    """10^4 draws of every right rule pass."""
    assert chi_square(RIGHT[name], 10_000) < CRITICAL


def two_drafts_verified_with_one(source: torch.Generator) -> int:
    """Both drafts' tokens verified with the first draft's q."""
    return accept_trials(P, [Trial(draw_token(Q, source), Q), Trial(draw_token(Q2, source), Q)], source)


def duplicate_skipped(source: torch.Generator) -> int:
    """With replacement, the repeated child dropped with its residual update."""
    one, two = draw_token(Q, source), draw_token(Q, source)
    return accept_trials(P, [Trial(one, Q)] if one == two else [Trial(one, Q), Trial(two, Q)], source)


def without_verified_as_with(source: torch.Generator) -> int:
    """Drawn without replacement, q not renormalised."""
    one = draw_token(Q, source)
    two = draw_token(Q.index_fill(0, torch.tensor([one]), 0.0), source)
    return accept_trials(P, [Trial(one, Q), Trial(two, Q)], source)


def siblings_resorted(source: torch.Generator) -> int:
    """Drawn without replacement, verified in the order of q."""
    one = draw_token(Q, source)
    two = draw_token(Q.index_fill(0, torch.tensor([one]), 0.0), source)
    first, second = sorted((one, two), key=lambda token: -float(Q[token]))
    rest = Q.index_fill(0, torch.tensor([first]), 0.0)
    return accept_trials(P, [Trial(first, Q), Trial(second, rest / rest.sum())], source)


def more_confident_kept(source: torch.Generator) -> int:
    """Two drawn, the more confident one kept and verified as one draw."""
    one = draw_token(Q, source)
    two = draw_token(Q.index_fill(0, torch.tensor([one]), 0.0), source)
    return accept_trials(P, [Trial(max(one, two, key=lambda token: float(Q[token])), Q)], source)


def top_two_verified_as_drawn(source: torch.Generator) -> int:
    """Deterministic tokens verified with p/q."""
    rest = Q.index_fill(0, torch.tensor([3]), 0.0)
    return accept_trials(P, [Trial(3, Q), Trial(2, rest / rest.sum())], source)


def unconfident_dropped(source: torch.Generator) -> int:
    """A drawn token dropped for its own low q."""
    token = draw_token(Q, source)
    return accept_trials(P, [Trial(token, Q)] if Q[token] >= 0.25 else [], source)


def drawn_sharper(source: torch.Generator) -> int:
    """Drawn from a sharper q than it is verified with."""
    return accept_trials(P, [Trial(draw_token(Q**2, source), Q)], source)


WRONG: dict[str, Rule] = {
    "two drafts verified with one q": two_drafts_verified_with_one,
    "duplicate skipped": duplicate_skipped,
    "without replacement verified as with": without_verified_as_with,
    "siblings re-sorted": siblings_resorted,
    "more confident kept": more_confident_kept,
    "top two verified as drawn": top_two_verified_as_drawn,
    "unconfident dropped": unconfident_dropped,
    "drawn sharper": drawn_sharper,
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_wrong_rule_is_rejected(name: str) -> None:
    """The same 10^4 draws reject every wrong variant: the test can tell."""
    assert chi_square(WRONG[name], 10_000) > CRITICAL


def exact_output(trials: list[Trial], first_q: Tensor | None = None) -> Tensor:
    """Distribution of `accept_trials` for given trials, by the rule's own algebra in float64."""
    p, out, reach = P.double(), torch.zeros(4, dtype=torch.float64), 1.0
    for trial in trials:
        q = trial.q.double() if trial.q is not None else None
        chance = min(1.0, float(p[trial.token] if q is None else p[trial.token] / q[trial.token]))
        out[trial.token] += reach * chance
        reach *= 1 - chance
        residual = p.index_fill(0, torch.tensor([trial.token]), 0.0) if q is None else (p - q).relu()
        p = residual / residual.sum()
    return out + reach * p


def test_expected_output_over_all_draws_is_exactly_the_target() -> None:
    """Exact enumeration of families A, B and two drafts: weighted by the draws' chances, the output is P."""
    for second in (Q, Q2, None):
        total = torch.zeros(4, dtype=torch.float64)
        for one in range(4):
            for two in range(4):
                if second is None:
                    rest = Q.double().index_fill(0, torch.tensor([one]), 0.0)
                    rest = rest / rest.sum()
                else:
                    rest = second.double()
                weight = Q.double()[one] * rest[two]
                if weight > 0:
                    total += weight * exact_output([Trial(one, Q.double()), Trial(two, rest)])
        assert torch.allclose(total, P.double(), atol=1e-7)


@pytest.mark.parametrize(
    ("rule", "chance"),
    [
        (lambda s: (lambda t: accept_trials(P, [Trial(t, Q)], s) == t)(draw_token(Q, s)), 0.600),
        (point_masses, 0.3),
    ],
)
def test_acceptance_has_its_known_rate(rule: Callable[[torch.Generator], int], chance: float) -> None:
    """One draw is accepted with 0.6, the draft's top two with 0.3 (20000 draws, 4 standard errors)."""
    source = generator(1, "test")
    hits = 0
    for _ in range(20_000):
        result = rule(source)
        hits += result in (2, 3) if rule is point_masses else bool(result)
    assert hits / 20_000 == pytest.approx(chance, abs=4 * (chance * (1 - chance) / 20_000) ** 0.5)


def test_equal_draft_and_target_always_agree() -> None:
    """P = q: acceptance is 1 under rejection and under shared noise, and nothing is NaN."""
    for seed in range(200):
        for rule in (Rejection(seed), SharedNoise(seed)):
            drawn = rule.draw(P.log(), 1, position=seed, key="")
            assert rule.pick(P.log(), [drawn[0][0]], position=seed) == drawn[0][0].token


def test_disjoint_draft_never_leaves_the_support() -> None:
    """P and q disjoint: the draft is refused and the target's only token comes out."""
    p, q = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([0.0, 0.5, 0.5, 0.0])
    for seed in range(200):
        source = generator(seed, "test")
        assert accept_trials(p, [Trial(1, q), Trial(2, q)], source) == 0
        assert accept_trials(p, [Trial(1), Trial(2), Trial(0)], source) == 0


def test_coin_of_zero_does_not_accept_a_token_of_probability_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """U < p/q is strict: u = 0 against p = 0 refuses."""
    monkeypatch.setattr(torch, "rand", lambda *size, **_: torch.zeros(*size, dtype=torch.float64))
    p = torch.tensor([0.0, 0.6, 0.4, 0.0])
    assert accept_trials(p, [Trial(0), Trial(3, Q)], generator(0, "test")) == 1


def test_residual_that_rounds_to_nothing_stays_in_the_support() -> None:
    """P equal to q up to rounding: what is left after refusals is still one of p's tokens."""
    p = torch.tensor([1.0 - 1e-7, 1e-7, 0.0, 0.0])
    for seed in range(300):
        token = accept_trials(p, [Trial(0, p), Trial(1, p), Trial(0, p)], generator(seed, "test"))
        assert p[token] > 0


def test_greedy_takes_the_lowest_of_tied_tokens() -> None:
    """Ties go to the lowest id."""
    assert Greedy().pick(torch.tensor([1.0, 5.0, 5.0]), [], position=0) == 1


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.7, top_k=5),
        SamplingParams(temperature=1.3, top_p=0.8),
        SamplingParams(temperature=1.0, min_p=0.1),
        SamplingParams(temperature=0.9, top_k=40, top_p=0.9, min_p=0.02),
    ],
)
@pytest.mark.parametrize("size", [50, 2000])
def test_filters_equal_those_of_transformers(params: SamplingParams, size: int) -> None:
    """Same support and same probabilities as the warpers that `generate` uses, in its order."""
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    scores = torch.randn(size, generator=generator(3, "test")) * 3 / params.temperature
    expected = scores[None]
    ids = torch.zeros(1, 1, dtype=torch.int64)
    if params.top_k:
        expected = TopKLogitsWarper(params.top_k)(ids, expected)
    if params.top_p < 1:
        expected = TopPLogitsWarper(params.top_p)(ids, expected)
    if params.min_p:
        expected = MinPLogitsWarper(params.min_p)(ids, expected)
    assert torch.equal(filter_scores(scores, params).isfinite(), expected[0].isfinite())
    assert torch.allclose(filter_scores(scores, params).softmax(0), expected[0].softmax(0))


def test_penalties_count_the_path_of_the_node() -> None:
    """Hand-computed: frequency and presence count the text alone, repetition the prompt too."""
    params = SamplingParams(repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25)
    scores = Processors(params, end_ids=[])(torch.tensor([2.0, 2.0, -2.0, 2.0]), [0], [1, 1, 2])
    assert scores.tolist() == [1.0, 1.0 - 1.0 - 0.25, -4.0 - 0.5 - 0.25, 2.0]


def test_end_is_masked_until_the_minimum_length() -> None:
    """Generated tokens plus depth below the minimum: no end of text."""
    processors = Processors(SamplingParams(min_new_tokens=2, stop_token_ids=(1,)), end_ids=[0])
    assert processors(torch.ones(3), [], [2]).tolist() == [-torch.inf, -torch.inf, 1.0]
    assert processors(torch.ones(3), [], [2, 2]).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_bad_logits_name_the_stage(bad: float) -> None:
    """NaN or infinity in the target's logits is an error that says where."""
    with pytest.raises(ModelError, match="target logits"):
        Processors(SamplingParams(), end_ids=[])(torch.tensor([0.0, bad]), [], [])


@pytest.mark.parametrize(
    "field",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"temperature": "warm"},
        {"top_p": None},
        {"top_p": 0},
        {"top_p": 1.5},
        {"min_p": 2},
        {"top_k": -1},
        {"max_tokens": 0},
        {"repetition_penalty": 0},
        {"stop": ("",)},
        {"logit_bias": ((3, float("inf")),)},
    ],
)
def test_parameter_out_of_range_is_refused(field: dict[str, Any]) -> None:
    """The message names the field."""
    with pytest.raises(InputError, match=next(iter(field))):
        SamplingParams(**field)
