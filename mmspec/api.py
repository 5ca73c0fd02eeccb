"""The Python door: compose a configuration, build a pipeline of it, call it.

One of the two modules that know Hydra; knows no model.
"""

import re
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from typing import Any

import hydra
from hydra.errors import HydraException, InstantiationException, MissingConfigException, OverrideParseException
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from mmspec.answer import Answer
from mmspec.cogen.trace import TraceRecorder
from mmspec.configuration import (
    CONFIG_NAME,
    LITERAL_KEYS,
    Settings,
    UsageError,
    check_node,
    conf_folder,
    groups,
    nearest,
    settings_of,
    spelled_out,
)
from mmspec.errors import InputError
from mmspec.later import load_later
from mmspec.pipeline import Job, Pipeline
from mmspec.report import Previews, Provenance
from mmspec.types import Done, Event, Loaded, Request, Result

__all__ = ["Pipe", "Stream", "build", "compose", "explain", "first_line", "kind_of", "load", "part", "plain"]

_AMBIGUOUS = re.compile(r"Ambiguous value for argument '(.*)'$", re.MULTILINE)

_composing = threading.Lock()  # the configuration library keeps its state in globals


class Stream(Iterator[Event]):
    """The events of one request, as they happen.

    To be iterated by one thread; `cancel` may be called from any.
    """

    def __init__(self, events: Generator[Event, None, None], cancelled: threading.Event) -> None:
        self._events = events
        self._cancelled = cancelled

    def __next__(self) -> Event:
        return next(self._events)

    def cancel(self) -> None:
        """Stop the request, from this or from another thread.

        The iteration ends as soon as the step that is being computed is over (a few tokens or one denoising step):
        with a `Done` whose answer is `partial` where a pair had been verified by then, else without a `Done`.
        """
        self._cancelled.set()

    def close(self) -> None:
        """Stop the request from the thread that iterates; threads that it started have ended when this returns."""
        self._events.close()


class Pipe:
    """A pipeline with its models loaded; call it as often as you like, from several threads if you like.

    What a call leaves out comes from the configuration that the pipe was loaded with (`config`: plain values).
    """

    def __init__(
        self, pipeline: Pipeline, *, config: Mapping[str, Any], settings: Settings, overrides: Sequence[str] = ()
    ) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._overrides = tuple(overrides)
        self.config = config

    def __call__(
        self,
        prompt: str,
        *,
        seed: int | None = None,
        n: int | None = None,
        max_tokens: int | None = None,
        negative_prompt: str | None = None,
        image: str | None = None,
        text: str | None = None,
    ) -> Answer:
        """Make what `prompt` asks for, for the picture in file `image` or for `text` where one is given.

        `seed` is any integer: equal seeds give equal texts and pixels. `n` is the number of pairs wanted,
        `max_tokens` bounds each text in tokens of the target model, `negative_prompt` must not be seen.

        Raises `InputError` for an empty prompt with neither of them, a budget below one, or a request that this
        pipeline does not answer; `ModelError` where a model gives what cannot be used.
        """
        stream = self.stream(
            prompt, seed=seed, n=n, max_tokens=max_tokens, negative_prompt=negative_prompt, image=image, text=text
        )
        for event in stream:
            if isinstance(event, Done):
                assert isinstance(event.result, Answer)
                return event.result
        raise AssertionError(f"{type(self._pipeline).__name__}.stream ended without a Done event")

    def stream(
        self,
        prompt: str,
        *,
        seed: int | None = None,
        n: int | None = None,
        max_tokens: int | None = None,
        negative_prompt: str | None = None,
        image: str | None = None,
        text: str | None = None,
    ) -> Stream:
        """The same as it happens: the events of `mmspec.types`, the last one a `Done` whose result is an `Answer`.

        `TextGrown.chunk` is text; `PreviewReady.preview.pixels` is `[3, h, w]` float32 in [0, 1]; a `Scored` carries
        the claims' probabilities in [0, 1]; `Pruned` and `Repaired` say why. A request that is none is refused at
        once, as by a call; the rest is computed while you iterate. To stop early: `cancel()` from any thread, or
        `close()` from the one that iterates.
        """
        defaults = self._settings
        request = Request(
            prompt=prompt,
            seed=defaults.seed if seed is None else seed,
            n=defaults.n if n is None else n,
            max_tokens=defaults.max_tokens if max_tokens is None else max_tokens,
            negative_prompt=defaults.negative_prompt if negative_prompt is None else negative_prompt,
            image=defaults.image if image is None else image,
            text=defaults.text if text is None else text,
        )
        cancelled = threading.Event()
        return Stream(self._recorded(request, cancelled), cancelled)

    def _recorded(self, request: Request, cancelled: threading.Event) -> Generator[Event, None, None]:
        """The pipeline's events, with an `Answer` as their result."""
        recorder, previews = TraceRecorder(), Previews()
        events = self._pipeline.stream(request)
        try:
            for event in _until_cancelled(events, cancelled):
                recorder.record(event)
                previews.handle(event)
                if isinstance(event, Done):
                    result = {item.name: getattr(event.result, item.name) for item in fields(Result)}
                    event = Done(
                        Answer(
                            **result,
                            trace=recorder.trace(),
                            pictures=previews.pictures,
                            provenance=self._provenance(request),
                        )
                    )
                yield event
        finally:
            if isinstance(events, Generator):
                events.close()

    def _provenance(self, request: Request) -> Provenance:
        """The configuration under which a run of its own would make the same."""
        asked = asdict(request)
        numbers = [
            f"{key}={value}" for key, value in asked.items() if key not in LITERAL_KEYS and value != self.config[key]
        ]
        return Provenance(config={**self.config, **asked}, overrides=(*self._overrides, *numbers))


def _until_cancelled(events: Iterator[Event], cancelled: threading.Event) -> Iterator[Event]:
    """The events of a pipeline; once cancelled, what it makes of an interruption, as of Ctrl-C in a terminal."""
    while not cancelled.is_set():
        try:
            yield next(events)
        except StopIteration:
            return
    if isinstance(events, Generator):
        try:
            yield events.throw(KeyboardInterrupt())
        except (StopIteration, KeyboardInterrupt):
            return
        yield from events


def load(pipeline: str = "cogen", *, overrides: Sequence[str] = ()) -> Pipe:
    """Load a pipeline with its models.

    `pipeline` is an option of the group `pipeline`; `overrides` are written as on the command line
    (`["policy=strict", "max_tokens=40"]`). Raises `InputError` for an unknown key, option or value, and
    `WeightsError` where a model cannot be had.
    """
    together = [f"pipeline={pipeline}", *overrides]
    config = plain(compose(together))
    settings = settings_of(config)
    built = build(config["pipeline"], on_loaded=lambda _: None)
    if isinstance(built, Job):
        raise InputError(
            f"pipeline={pipeline} answers no prompt: run it with `python -m mmspec.run pipeline={pipeline}`"
        )
    return Pipe(built, config=config, settings=settings, overrides=together)


def compose(overrides: Sequence[str]) -> DictConfig:
    """The configuration under these overrides; raises `UsageError` with one line for a person."""
    try:
        return _compose(overrides)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UsageError(explain(error, overrides)) from error


def plain(config: DictConfig) -> dict[str, Any]:
    """The configuration as plain Python values, every interpolation resolved.

    Raises `UsageError` for an interpolation that leads nowhere and for a mandatory value that is missing,
    in an unused group too.
    """
    try:
        container = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise UsageError(f"{error.full_key} is missing: give it a value") from error
    except OmegaConfBaseException as error:
        raise UsageError(f"the configuration does not resolve: {first_line(error)}") from error
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def kind_of(node: Mapping[str, Any]) -> type[Pipeline] | type[Job]:
    """The class that a pipeline node names; raises `UsageError` if it is neither `Pipeline` nor `Job`."""
    check_node(node, key="pipeline")
    kind = get_class(node["_target_"])
    if not issubclass(kind, Pipeline | Job):
        raise UsageError(f"pipeline._target_={node['_target_']} is neither a Pipeline nor a Job")
    return kind


def build(node: Mapping[str, Any], *, on_loaded: Callable[[Loaded], None], beside: bool = False) -> Pipeline | Job:
    """Build a pipeline from its node, part by part.

    Every field with a `_target_` is a part; `on_loaded` hears of each as soon as it is there. With `beside`, the
    parts that the pipeline can wait for are loaded in a thread while it begins; `on_loaded` does not hear of
    them. Raises what the parts' constructors raise.
    """
    kind = kind_of(node)
    waits = kind.later if beside and issubclass(kind, Pipeline) else ()
    arguments: dict[str, Any] = {}
    makers: dict[str, Callable[[], Any]] = {}
    for name, value in node.items():
        if not (isinstance(value, Mapping) and "_target_" in value):
            if name != "_target_":
                arguments[name] = value
        elif name in waits:
            makers[name] = partial(_instantiate, value)
        else:
            started = time.perf_counter()
            arguments[name] = _instantiate(value)
            on_loaded(Loaded(part=name, seconds_s=time.perf_counter() - started))
    return kind(**arguments, **load_later(makers))


def part(node: Mapping[str, Any], *, key: str) -> Any:
    """Build what a node names; raises `UsageError` as `check_node` does, and what the constructor raises."""
    check_node(node, key=key)
    return _instantiate(node)


def explain(error: Exception, overrides: Sequence[str]) -> str:
    """Why these overrides do not compose, in one line: what is at fault and the nearest that is valid."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.rpartition("/")
        return f"group {group} has no option {option!r}: {nearest(option, error.options or groups().get(group, []))}"
    if isinstance(error, OverrideParseException):
        if "=" not in error.override:
            return f'cannot read {error.override!r}: expected key=value, for example prompt="cyberpunk rainy street"'
        return f"cannot read {error.override!r}: put the value in quotes of its own, for example key='\"a, b\"'"
    if isinstance(error.__cause__, OmegaConfBaseException) and error.__cause__.full_key:
        key = error.__cause__.full_key
        known = _known_keys(overrides)
        beside = [name for name in known if "." in key and name.startswith(key.rpartition(".")[0] + ".")]
        return f"unknown key {key}: {nearest(key, beside or known)}"
    ambiguous = _AMBIGUOUS.match(str(error))
    if ambiguous:
        key, _, value = ambiguous[1].partition("=")
        return f"{key} got several values: add -m to run once for each, or write '{key}=[{value}]' for a list"
    return first_line(error)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, its type where it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _compose(overrides: Sequence[str]) -> DictConfig:
    with _composing, hydra.initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return hydra.compose(CONFIG_NAME, overrides=[part for text in overrides for part in spelled_out(text)])


def _known_keys(overrides: Sequence[str]) -> list[str]:
    """Every key of the configuration under those of the overrides that choose a group's option."""
    options = groups()
    chosen = [text for text in overrides if text.partition("=")[2] in options.get(text.partition("=")[0], [])]
    keys: list[str] = []
    nodes = [("", OmegaConf.to_container(_compose(chosen), resolve=False))]
    while nodes:
        prefix, node = nodes.pop()
        if isinstance(node, dict):
            keys += [prefix + str(key) for key in node if key != "_target_"]
            nodes += [(prefix + str(key) + ".", child) for key, child in node.items()]
    return keys


def _instantiate(node: Mapping[str, Any]) -> Any:
    try:
        return instantiate(node, _convert_="all")
    except InstantiationException as error:
        # The library wraps what a constructor raised; the cause is what a person can act on.
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None
