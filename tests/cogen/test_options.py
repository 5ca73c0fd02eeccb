"""Every option of the groups prune, policy and copy builds, and works."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hydra.utils import instantiate

from mmspec.api import compose, plain
from mmspec.cogen.copy import Copy
from mmspec.cogen.policy import Strictness
from mmspec.cogen.prune import PrunePolicy, Rival
from mmspec.configuration import groups
from mmspec.text.types import SamplingParams
from mmspec.types import Claim, ClaimKind, ClaimScore, Verdict


def built(group: str, option: str, *overrides: str) -> object:
    """The option as the command line would build it."""
    node = plain(compose([f"{group}={option}", *overrides]))[group]
    return instantiate(node, _convert_="all")


@pytest.mark.parametrize("option", groups()["prune"])
def test_every_prune_option_condemns_what_is_surely_wrong_and_spares_the_rest(option: str) -> None:
    """Of four rivals the clearly worst goes in a late round; what has no fault never does."""
    policy = built("prune", option)
    assert isinstance(policy, PrunePolicy)
    fault = ClaimScore(Claim("rain", ClaimKind.WEATHER, "prompt", (0, 4)), 0.01, Verdict.FAILED)
    rivals = [Rival(0.9, ()), Rival(0.8, ()), Rival(0.2, ()), Rival(0.1, (fault,))]
    assert policy.prune(rivals, round=4, keep=1) == [3]


def test_policies_rise_in_strictness() -> None:
    """Relaxed, standard, strict: fewer misses allowed, more repairs paid for."""
    policies = [built("policy", option)["pairs"] for option in ("relaxed", "standard", "strict")]
    assert sorted(groups()["policy"]) == ["relaxed", "standard", "strict"]
    shares, repairs = [], []
    for policy in policies:
        assert isinstance(policy, Strictness)
        shares.append((policy.max_missed_share, not policy.unsure_misses))
        repairs.append(policy.max_repairs)
    assert shares == sorted(shares, reverse=True)
    assert repairs == sorted(repairs)


@pytest.mark.parametrize("option", [option for option in groups()["copy"] if option != "file"])
def test_every_copy_option_builds(option: str) -> None:
    """Its sampling settings are valid, and it holds a place for the prompt."""
    copy = built("copy", option)
    assert isinstance(copy, Copy)
    assert copy.params(60).max_tokens == 60
    # Every sampling setting can be given on the command line.
    assert {"max_tokens", *copy.sampling} == {field.name for field in fields(SamplingParams)}
