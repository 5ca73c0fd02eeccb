"""A picture that texts are written for, a text that pictures are drawn for, on stand-ins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image

from mmspec.cogen.given import MAX_SIDE
from mmspec.errors import InputError
from mmspec.image import pictures
from mmspec.types import Done, Event, PreviewReady, Pruned, Regrown, Repaired, Request, Result, TextGrown
from tests.cogen.stand_ins import VOCABULARY, StandIns, stand_in_parts
from tests.pipelines.test_baselines import best_of_n, late, sequential
from tests.pipelines.test_cogen import pipeline


def picture_of(folder: Path, *shown: str, mode: str = "RGB") -> str:
    """A picture file in the stand-ins' code: a row of pixels, one for every phrase that it shows."""
    row = numpy.array([[255 * (phrase in shown) for phrase in VOCABULARY]], numpy.uint8)
    path = folder / f"{mode}.png"
    Image.fromarray(row).convert(mode).save(path)
    return str(path)


def run(parts: StandIns, request: Request, **changes: Any) -> tuple[list[Event], Result]:
    """All events and the result."""
    events = list(pipeline(parts, **changes).stream(request))
    assert isinstance(events[-1], Done)
    return events, events[-1].result


def test_given_picture_selects_among_texts(tmp_path: Path) -> None:
    """Branch 0 says noon, the picture shows night: that text goes, and no picture is drawn or changed."""
    path = picture_of(tmp_path, "robot", "at night")
    parts = stand_in_parts(scripts={"0": ("A robot. ", "It is at noon. ", "End. ")})
    events, result = run(parts, Request("a robot", image=path))
    pruned = [event for event in events if isinstance(event, Pruned)]
    assert [(p.branch_id, p.draft_index) for p in pruned] == [("0", None)]
    assert "noon" not in result.text
    assert result.verified
    assert parts.images.batches == []
    assert result.image is not None
    assert result.image.tobytes() == Image.open(path).tobytes()
    assert {e.preview.noise_level for e in events if isinstance(e, PreviewReady)} == {0.0}


def test_given_picture_is_never_redrawn(tmp_path: Path) -> None:
    """It lacks the robot that the prompt asks for: the pair is marked, nothing is repaired."""
    events, result = run(stand_in_parts(), Request("a robot", image=picture_of(tmp_path, "rain")))
    assert not [event for event in events if isinstance(event, Repaired)]
    assert not result.verified


def test_picture_without_a_prompt_is_described_from_what_the_verifier_sees(tmp_path: Path) -> None:
    """The texts are asked to speak of what is there, and nothing counts as asked for."""
    asked: list[str] = []
    parts = stand_in_parts()
    start = parts.text.start

    def listen(prompt: str, **named: Any) -> Any:
        asked.append(prompt)
        return start(prompt, **named)

    parts.text.start = listen  # type: ignore[method-assign]
    _, result = run(parts, Request("", image=picture_of(tmp_path, "robot", "rain")))
    assert asked == ["robot rain"]
    assert result.claims == ()


def test_n_texts_for_a_picture_are_distinct(tmp_path: Path) -> None:
    """Two pairs, two texts, one picture; equal texts are given back once."""
    scripts = {str(k): (f"Robot number {k}. ",) for k in range(3)}
    _, result = run(stand_in_parts(scripts=scripts), Request("a robot", n=2, image=picture_of(tmp_path, "robot")))
    assert len({pair.text for pair in result.pairs}) == 2
    _, alike = run(stand_in_parts(), Request("a robot", n=2, image=picture_of(tmp_path, "robot")))
    assert len(alike.pairs) == 1


def test_given_text_selects_among_pictures() -> None:
    """The text says rain; drafts without it go, the text comes back letter by letter."""
    text = "rain falls on  a robot "
    parts = stand_in_parts(shows={("0", k): ["robot"] for k in (0, 2)}, default_shows=["robot", "rain"])
    events, result = run(parts, Request("", text=text))
    pruned = [event for event in events if isinstance(event, Pruned)]
    assert [(p.branch_id, p.draft_index) for p in pruned] == [("0", 0), ("0", 2)]
    assert pruned[0].reason.startswith('given text says "rain"')
    assert result.text == text
    assert result.verified
    assert [e.chunk for e in events if isinstance(e, TextGrown)] == [text]
    assert not [event for event in events if isinstance(event, Regrown)]
    assert parts.text.calls == []


def test_pictures_of_a_given_text_are_drawn_for_prompt_and_text() -> None:
    """The condition holds both; without a prompt the text alone."""
    for prompt, condition in (("a robot", "a robot, rain"), ("", "It stands in the rain.")):
        parts = stand_in_parts()
        run(parts, Request(prompt, text="It stands in the rain."))
        assert set(parts.images.conditions) == {condition}


def test_n_pictures_for_a_text_are_distinct() -> None:
    """Four pairs, one text, four seeds, although half of the drafts are pruned."""
    parts = stand_in_parts(shows={("0", k): [] for k in range(4)}, default_shows=["robot"])
    _, result = run(parts, Request("", text="A robot.", n=4))
    assert len({pair.seed for pair in result.pairs}) == 4
    assert {pair.text for pair in result.pairs} == {"A robot."}


def test_text_and_picture_together_are_only_verified(tmp_path: Path) -> None:
    """Nothing is made: the claims of the text are judged on the picture."""
    parts = stand_in_parts()
    _, result = run(parts, Request("", text="A robot in the rain.", image=picture_of(tmp_path, "robot")))
    assert {s.claim.phrase: s.verdict.value for s in result.claims} == {"robot": "held", "rain": "failed"}
    assert not result.verified
    assert parts.images.batches == []
    with pytest.raises(InputError, match="n=2 pairs cannot be made"):
        Request("", text="A robot.", image="a.png", n=2)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "1", "LA"])
def test_any_colour_mode_is_read(tmp_path: Path, mode: str) -> None:
    """What is not RGB is converted; CMYK needs a format that holds it."""
    path = tmp_path / ("picture.tif" if mode == "CMYK" else "picture.png")
    Image.new(mode, (7, 3)).save(path)
    _, result = run(stand_in_parts(), Request("be kind", image=str(path)))
    assert result.image is not None
    assert (result.image.mode, result.image.size) == ("RGB", (7, 3))


def test_large_picture_is_looked_at_small_and_given_back_whole(tmp_path: Path) -> None:
    """The verifier sees it at `MAX_SIDE` at most."""
    path = tmp_path / "large.png"
    Image.new("RGB", (3 * MAX_SIDE, 2)).save(path)
    events, result = run(stand_in_parts(), Request("be kind", image=str(path)))
    preview = next(e.preview for e in events if isinstance(e, PreviewReady))
    assert preview.pixels.shape[-1] == MAX_SIDE
    assert result.image is not None
    assert result.image.size == (3 * MAX_SIDE, 2)


def test_file_that_is_no_picture_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, of another kind, cut off, or too large: the key, the path and the reason."""
    words = tmp_path / "words.png"
    words.write_text("no picture")
    whole = Path(picture_of(tmp_path, "robot"))
    cut = tmp_path / "cut.png"
    cut.write_bytes(whole.read_bytes()[:-30])
    for path in (tmp_path / "none.png", words, cut, tmp_path):
        with pytest.raises(InputError, match=r"^image=.* cannot be read as a picture"):
            run(stand_in_parts(), Request("a robot", image=str(path)))
    monkeypatch.setattr(pictures, "MAX_PIXELS", 5)
    with pytest.raises(InputError, match="expected at most"):
        run(stand_in_parts(), Request("a robot", image=str(whole)))


@pytest.mark.parametrize("make", [sequential, best_of_n, late])
@pytest.mark.parametrize("given", [{"image": "a.png"}, {"text": "A robot."}])
def test_baselines_start_from_a_prompt_alone(make: Any, given: dict[str, str]) -> None:
    """They say so instead of ignoring what is given."""
    with pytest.raises(InputError, match=f"^{next(iter(given))} is given, but .* starts from a prompt"):
        list(make(stand_in_parts()).stream(Request("a robot", **given)))  # type: ignore[arg-type]
