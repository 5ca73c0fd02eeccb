"""The Python door."""

import threading
from pathlib import Path

import pytest

import mmspec
from mmspec.api import Pipe, build
from mmspec.configuration import UsageError, settings_of
from mmspec.errors import InputError, WeightsError
from mmspec.types import Done, Loaded, TextGrown

_ECHO = {
    "_target_": "tests.echo.Echo",
    "voice": {"_target_": "tests.echo.Voice", "word": "echo"},
    "num_branches": 2,
    "ending": "good",
}
_CONFIG = {
    "prompt": "", "negative_prompt": "fog", "seed": 3, "n": 1, "max_tokens": 60, "image": "", "text": "", "output": "outputs",
    "metadata": True, "fail_on_unverified": False, "quiet": False, "pipeline": _ECHO,
}  # fmt: skip


@pytest.fixture
def pipe() -> Pipe:
    """A pipe without models."""
    return Pipe(build(_ECHO, on_loaded=lambda _: None), config=_CONFIG, settings=settings_of(_CONFIG))


def test_call_gives_a_result(pipe: Pipe) -> None:
    """What a call leaves out comes from the configuration."""
    result = pipe("street", n=2)
    assert result.text == "echo: street"
    assert result.request.seed == 3
    assert result.request.negative_prompt == "fog"
    assert len(result.pairs) == 2
    assert pipe("street", seed=9, negative_prompt="").request.negative_prompt == ""
    assert pipe("", text="A robot.").request.text == "A robot."
    assert pipe("", image="sketch.png").request.image == "sketch.png"


def test_stream_ends_with_done(pipe: Pipe) -> None:
    """Typed events, the result last."""
    events = list(pipe.stream("street"))
    assert any(isinstance(event, TextGrown) for event in events)
    assert [isinstance(event, Done) for event in events] == [False] * (len(events) - 1) + [True]


def test_empty_prompt_is_an_input_error_at_once(pipe: Pipe) -> None:
    """Before the iterator is touched."""
    with pytest.raises(InputError, match="prompt is empty"):
        pipe.stream(" ")


def test_threads_do_not_mix(pipe: Pipe) -> None:
    """Every caller gets the answer to its own prompt."""
    answers: dict[str, str] = {}
    prompts = [f"street {k}" for k in range(8)]
    threads = [threading.Thread(target=lambda p=prompt: answers.__setitem__(p, pipe(p).text)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {prompt: f"echo: {prompt}" for prompt in prompts}


def test_every_part_is_reported_once() -> None:
    """Loading is told part by part."""
    loaded: list[Loaded] = []
    build(_ECHO, on_loaded=loaded.append)
    assert [event.part for event in loaded] == ["voice"]


def test_load_composes_builds_and_answers() -> None:
    """From names alone to an answer, with the tiny models."""
    pipe = mmspec.load("text", overrides=["lm=tiny", "drafter=tiny", "tree=tiny", "max_tokens=8"])
    result = pipe("street", seed=7)
    assert result.text == pipe("street", seed=7).text
    assert pipe.config["max_tokens"] == 8


def test_load_explains_what_is_wrong() -> None:
    """The same one line as on the command line."""
    with pytest.raises(UsageError, match="did you mean cogen"):
        mmspec.load("cogn")
    with pytest.raises(UsageError, match="did you mean seed"):
        mmspec.load("text", overrides=["sed=1"])
    with pytest.raises(InputError, match="answers no prompt"):
        mmspec.load("paint")


def test_missing_weights_come_through_as_they_were_raised(tmp_path: Path) -> None:
    """The configuration library does not wrap what a constructor says."""
    with pytest.raises(WeightsError, match="no model at"):
        mmspec.load("text", overrides=[f"lm.target_model_path={tmp_path}/nowhere"])
