"""How a picture without a prompt is put into words."""

from __future__ import annotations

import pytest

from mmspec.cogen.given import spoken


@pytest.mark.parametrize(
    ("things", "places", "conditions", "expected"),
    [
        (
            ["a robot", "an owl"],
            ["a forest"],
            ["at dawn", "in the fog"],
            "a robot and an owl in a forest at dawn, in the fog",
        ),
        (["a robot"], [], ["at dawn"], "a robot at dawn"),
        ([], ["mountains"], [], "mountains"),
        ([], [], ["in the rain"], "a picture in the rain"),
        ([], [], [], "a picture"),
    ],
)
def test_what_is_seen_is_said_in_one(
    things: list[str], places: list[str], conditions: list[str], expected: str
) -> None:
    """Whatever of it is there."""
    assert spoken(things, places, conditions) == expected
