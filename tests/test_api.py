"""The Python door."""

import threading
from pathlib import Path

import pytest
from PIL import Image

import mmspec
from mmspec.answer import Answer
from mmspec.api import Pipe, build
from mmspec.configuration import UsageError, settings_of
from mmspec.errors import InputError, WeightsError
from mmspec.pipeline import Pipeline
from mmspec.rerun import read_stored, with_overrides
from mmspec.types import Done, Loaded, Scored, TextGrown

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
    with pytest.raises(UsageError, match=r"tree\.deph: expected one of tree\.tree_budget, tree\.tree_widths"):
        mmspec.load(overrides=["tree=fixed", "tree.deph=3"])
    with pytest.raises(UsageError, match="did you mean seed"):
        mmspec.load("text", overrides=["sed=1"])
    with pytest.raises(InputError, match="answers no prompt"):
        mmspec.load("paint")


def test_missing_weights_come_through_as_they_were_raised(tmp_path: Path) -> None:
    """The configuration library does not wrap what a constructor says."""
    with pytest.raises(WeightsError, match="no model at"):
        mmspec.load("text", overrides=[f"lm.target_model_path={tmp_path}/nowhere"])


_TINY = [
    "lm=tiny",
    "drafter=tiny",
    "tree=tiny",
    "diffusion=tiny",
    "verifier=tiny",
    "max_tokens=8",
    "pipeline.num_branches=2",
    "pipeline.num_drafts=1",
]


@pytest.fixture(scope="module")
def cogen() -> Pipe:
    """Co-generation with the tiny models."""
    return mmspec.load("cogen", overrides=_TINY)


def test_one_pipe_answers_several_threads_as_it_answers_one(cogen: Pipe) -> None:
    """Texts, pixels and trees are those of the same calls one after the other."""
    prompts = [f"a red car in street {k}" for k in range(3)]
    alone = {prompt: cogen(prompt, seed=k) for k, prompt in enumerate(prompts)}
    together: dict[str, Answer] = {}
    threads = [
        threading.Thread(target=lambda p=prompt, k=k: together.__setitem__(p, cogen(p, seed=k)))
        for k, prompt in enumerate(prompts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for prompt, expected in alone.items():
        found = together[prompt]
        assert found.request.prompt == prompt
        assert found.text == expected.text
        assert found.image is not None and expected.image is not None
        assert found.image.tobytes() == expected.image.tobytes()
        assert [branch.text for branch in found.tree] == [branch.text for branch in expected.tree]
        assert found.trace["branches"] == expected.trace["branches"]


def test_saved_answer_runs_again_to_the_same_pixels(cogen: Pipe, tmp_path: Path) -> None:
    """What the call said is in the saved configuration; an earlier folder is left alone."""
    answer = cogen("a red car", seed=11)
    folder = answer.save(tmp_path / "street")
    assert folder == tmp_path / "street"
    assert answer.save(tmp_path / "street") == tmp_path / "street-2"
    assert (folder / "report.html").read_text(encoding="utf-8") == answer.report()
    stored = read_stored(folder)
    assert stored.config["seed"] == 11 and stored.config["prompt"] == "a red car"
    assert "seed=11" in stored.overrides and "lm=tiny" in stored.overrides
    config, _ = with_overrides(stored, [])
    pipeline = build(config["pipeline"], on_loaded=lambda _: None)
    assert isinstance(pipeline, Pipeline)
    again = pipeline(settings_of(config).request())
    with Image.open(folder / "image.png") as picture:
        assert again.image is not None and picture.tobytes() == again.image.tobytes()


def test_answer_shows_itself_in_a_notebook(pipe: Pipe) -> None:
    """Text, picture and verdict; what the prompt holds stays words."""
    card = pipe("<script>alert(1)</script> & co", n=6)._repr_html_()
    assert "echo: &lt;script&gt;alert(1)&lt;/script&gt; &amp; co" in card
    assert "<script" not in card
    assert card.count("<img") == 4 and "and 2 more pairs" in card
    assert "Verified" in card
    assert len(card) < 100_000


def test_cancel_from_another_thread_ends_the_stream(cogen: Pipe) -> None:
    """It ends without a result, and no thread of the request goes on; the pipe answers the next call."""
    before = threading.active_count()
    stream = cogen.stream("a red car")
    seen = [next(stream)]
    canceller = threading.Thread(target=stream.cancel)
    canceller.start()
    canceller.join()
    seen += list(stream)
    assert not any(isinstance(event, Done) for event in seen)
    assert threading.active_count() <= before
    assert cogen("a red car").text


def test_cancelled_stream_ends_with_what_was_verified(cogen: Pipe) -> None:
    """After a first verification there is a pair to give; it is marked as partial and can be saved."""
    stream = cogen.stream("a red car")
    for event in stream:
        if isinstance(event, Scored):
            stream.cancel()
            break
    (done,) = (event for event in stream if isinstance(event, Done))
    answer = done.result
    assert isinstance(answer, Answer)
    assert answer.partial and answer.trace["partial"]
    assert answer.text and answer.image is not None and answer.claims
    assert next(stream, None) is None


def test_closed_stream_is_over(pipe: Pipe) -> None:
    """From the iterating thread."""
    stream = pipe.stream("street")
    next(stream)
    stream.close()
    assert list(stream) == []
