"""The prune policies on small cases worked out by hand, and the law they share over random ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmspec.cogen.prune import Margin, PrunePolicy, Rival, SuccessiveHalving, Threshold, TopK, ranking
from mmspec.errors import InputError
from mmspec.types import Claim, ClaimKind, ClaimScore, Verdict

CLAIM = Claim("rain", ClaimKind.WEATHER, "prompt", (0, 4))
POLICIES = [Threshold(0.2), Margin(0.1), TopK(2), SuccessiveHalving(2.0, 0)]


def rival(agreement: float, *fault_probabilities: float) -> Rival:
    """A rival with one fault for every probability."""
    return Rival(agreement, tuple(ClaimScore(CLAIM, p, Verdict.FAILED) for p in fault_probabilities))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Threshold(0.2), [1, 3]),
        (Margin(0.25), [1]),
        (TopK(3), [1]),
        (SuccessiveHalving(2.0, 0), [1, 3]),
        (SuccessiveHalving(2.0, 1), []),
    ],
)
def test_policies_on_a_case_worked_out_by_hand(policy: PrunePolicy, expected: list[int]) -> None:
    """Rank is 0, 2, 3, 1: fewest faults, then agreement. Only 1 and 3 have faults."""
    rivals = [rival(0.8), rival(0.5, 0.1), rival(0.4), rival(0.7, 0.15)]
    assert ranking(rivals) == [0, 2, 3, 1]
    assert policy.prune(rivals, round=0, keep=1) == expected


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@settings(deadline=None)  # how long an example takes depends on what else the machine does
@given(
    rivals=st.lists(
        st.builds(rival, st.floats(0, 1), st.floats(0, 0.3)) | st.builds(rival, st.floats(0, 1)), min_size=1, max_size=8
    ),
    keep=st.integers(1, 4),
)
def test_every_policy_keeps_the_law(policy: PrunePolicy, rivals: list[Rival], keep: int) -> None:
    """Nothing without a fault goes, `keep` stay, the best stays, and the answer is sorted."""
    gone = policy.prune(rivals, round=3, keep=keep)
    assert all(rivals[i].faults for i in gone)
    assert len(rivals) - len(gone) >= min(keep, len(rivals))
    assert ranking(rivals)[0] not in gone
    assert gone == sorted(set(gone))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_ties_keep_the_lowest_index(policy: PrunePolicy) -> None:
    """Equal rivals that all contradict: the first one stays."""
    assert 0 not in policy.prune([rival(0.1, 0.05)] * 3, round=0, keep=1)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Threshold(0.0),
        lambda: Margin(1.0),
        lambda: TopK(0),
        lambda: SuccessiveHalving(1.0, 0),
        lambda: SuccessiveHalving(2.0, -1),
    ],
)
def test_settings_out_of_range_are_refused(build: object) -> None:
    """The error names the key and the range."""
    assert callable(build)
    with pytest.raises(InputError, match=r"prune\.\w+=.*expected"):
        build()
