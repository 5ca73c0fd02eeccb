"""The command line: `python -m mmspec.run prompt="..." [key=value ...]`.

One of the two modules that know Hydra. Every argument is Hydra's, with one exception: what stands after
`prompt=`, `negative_prompt=`, `image=`, `text=` and `prompts=` is taken letter by letter, so nothing in it is quoted, split or looked up.

Exit codes: 0 done, 1 an `MmspecError`, 2 wrong usage, 3 not verified (with `fail_on_unverified=true`),
130 interrupted.
"""

import dataclasses
import datetime
import gc
import logging
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmspec import __version__
from mmspec.configuration import (
    CONFIG_NAME,
    LITERAL_KEYS,
    Settings,
    UsageError,
    conf_folder,
    groups,
    settings_of,
    spelled_out,
)
from mmspec.errors import MmspecError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from mmspec.report import Provenance, Terminal
    from mmspec.report.cell import Cell

__all__ = ["Left", "answer", "guarded", "literal", "main", "title"]

_OK, _FAILED, _USAGE, _UNVERIFIED, _INTERRUPTED = 0, 1, 2, 3, 130
_LITERAL = re.compile(rf"(\+{{0,2}}(?:{'|'.join(LITERAL_KEYS)}))=(.*)", re.DOTALL)
_INTERPOLATION = re.compile(r"(\\*)\$\{")
_TITLE_CHARS = 100


@dataclasses.dataclass(frozen=True)
class Left:
    """What a run leaves: its exit code, and the folder of its result where there is one."""

    code: int
    folder: Path | None = None


def main() -> int:
    """Run what the arguments say; returns the exit code."""
    return guarded(_run_hydra)


def guarded(work: Callable[[float], int]) -> int:
    """The exit code of `work`, which is told when it began; what it raises for a person is said in one line."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a prompt in any script
    # A model's own loading bars would cut through ours; downloads keep theirs (mmspec.weights.hub).
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # Threads that wait for each other spin for some microseconds, then give the core away. One pass of the language
    # model took 19 ms so, 33 ms where they sleep at once and 27 ms where they spin for long; beside another busy
    # program 50, 43 and 55 ms.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # Importing the model libraries makes half a million objects that stay: looking through them for garbage,
    # again and again while they are made, takes a sixth of the whole start (measured: 8.6 instead of 10.5 CPU-s).
    gc.disable()
    try:
        return work(time.perf_counter())
    except KeyboardInterrupt:
        return _complain("interrupted: nothing was written", _INTERRUPTED)
    except (MmspecError, BrokenPipeError) as error:
        return _explain(error)
    finally:
        gc.enable()


def literal(argument: str) -> str:
    """The argument as Hydra must see it, so that a prompt reaches us as it was typed.

    Raises `UsageError` if the prompt is no valid Unicode, and for a key written as an option.
    """
    match = _LITERAL.fullmatch(argument)
    if match is None:
        name = argument.removeprefix("--").partition("=")[0]
        if argument.startswith("--") and name in (*Settings.__annotations__, *groups()):
            raise UsageError(f"{argument.partition('=')[0]} is no option: write {name}=..., without dashes")
        return argument
    from hydra.core.override_parser.types import Quote, QuotedString

    key, prompt = match.groups()
    if not _is_unicode(prompt):
        raise UsageError(f"{key} is not valid UTF-8: {prompt!r}")
    # OmegaConf would look `${...}` up; a backslash before it is its escape, and is escaped by doubling.
    escaped = _INTERPOLATION.sub(lambda found: found[1] * 2 + r"\${", prompt)
    return f"{key}={QuotedString(escaped, Quote.single).with_quotes()}"


def _run_hydra(started_s: float) -> int:
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf.errors import OmegaConfBaseException

    from mmspec.api import explain
    from mmspec.report.cell import Cell

    # `python -m` puts the working directory first: a `pipelines` folder there must not hide ours.
    sys.path.insert(0, str(Path(__file__).parent.parent))
    arguments = sys.argv[1:]
    sys.argv[1:] = [literal(part) for argument in arguments for part in spelled_out(argument)]
    wants_traceback = "HYDRA_FULL_ERROR" in os.environ
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let errors through to us, who say them in one line
    codes: list[int] = []
    cells: list[Cell] = []
    sweep_folder = Path()
    composed = False

    def task(config: "DictConfig") -> None:
        nonlocal composed, sweep_folder
        composed = True
        said = ""
        try:
            left = _run(config, started_s)
        except (MmspecError, BrokenPipeError) as error:
            if wants_traceback:
                raise
            left, said = Left(_explain(error)), str(error)
        codes.append(left.code)
        if HydraConfig.get().mode is RunMode.MULTIRUN:
            sweep_folder = Path(HydraConfig.get().sweep.dir).expanduser().absolute()
            pairs = (text.partition("=") for text in HydraConfig.get().overrides.task)
            cells.append(Cell({key: value for key, _, value in pairs}, left.folder, said))

    try:
        hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=CONFIG_NAME)(task)()
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        if composed:
            raise
        raise UsageError(explain(error, sys.argv[1:])) from error
    finally:
        if not wants_traceback:
            del os.environ["HYDRA_FULL_ERROR"]
    if any(cell.folder for cell in cells):
        _compare(cells, sweep_folder)
    return max(codes, default=_OK)


def _compare(cells: "list[Cell]", folder: Path) -> None:
    """Leave the sheet and the page of a sweep beside its results."""
    from mmspec.report.comparison import write_comparison

    for path in write_comparison(cells, folder=folder):
        sys.stdout.write(f"{path}\n")


def _run(config: "DictConfig", started_s: float) -> Left:
    """One run under one composed configuration."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from mmspec.api import kind_of, plain
    from mmspec.pipeline import Job
    from mmspec.report import Provenance, terminal

    values = plain(config)
    settings = settings_of(values)
    hydra_config = HydraConfig.get()
    name = hydra_config.runtime.choices["pipeline"]
    provenance = Provenance(config=values, overrides=tuple(hydra_config.overrides.task))
    output = Path(hydra_config.sweep.dir if hydra_config.mode is RunMode.MULTIRUN else settings.output)
    if settings.quiet:
        logging.getLogger("mmspec").setLevel(logging.ERROR)
    if settings.prompts:
        return Left(_run_batch(values, settings, provenance, output.expanduser().absolute()))
    screen = terminal(quiet=settings.quiet)
    try:
        screen.start(title(settings, pipeline=name))
        node = values["pipeline"]
        if issubclass(kind_of(node), Job):
            return Left(_do(node, name, settings, provenance, output.expanduser().absolute(), screen))
        return answer(node, settings, provenance, output.expanduser().absolute(), screen, started_s)
    finally:
        screen.close()


def _run_batch(values: Mapping[str, Any], settings: Settings, provenance: "Provenance", output: Path) -> int:
    """Every prompt of a file; returns the exit code."""
    from mmspec.api import kind_of, part
    from mmspec.batch.batch import run_batch
    from mmspec.pipeline import Job
    from mmspec.report.progress import Progress

    if issubclass(kind_of(values["pipeline"]), Job):
        raise UsageError("prompts is given, but this pipeline answers no prompt: leave it out")
    progress = Progress(quiet=settings.quiet)
    try:
        batch = run_batch(
            part(values["executor"], key="executor"), settings, provenance, output=output, progress=progress
        )
    finally:
        progress.close()
        _end_of_imports()
    progress.written(batch.folder, [outcome.plain() for outcome in batch.outcomes])
    if batch.interrupted:
        num_done = sum(outcome.status == "done" for outcome in batch.outcomes)
        return _complain(
            f"interrupted: {num_done} results are in {batch.folder}; the same command goes on", _INTERRUPTED
        )
    if batch.failed:
        return _FAILED
    return _UNVERIFIED if settings.fail_on_unverified and not batch.verified else _OK


def answer(
    node: Mapping[str, Any],
    settings: Settings,
    provenance: "Provenance",
    output: Path,
    screen: "Terminal",
    started_s: float,
) -> Left:
    """Answer the prompt with a pipeline, and leave a result folder."""
    from mmspec.api import build
    from mmspec.cogen.trace import TraceRecorder
    from mmspec.pipeline import Pipeline
    from mmspec.report import Previews, ResultFolder, folder_name
    from mmspec.types import Done, Event, PreviewReady, TextGrown

    request = settings.request()
    recorder, previews = TraceRecorder(), Previews()
    result = None
    timings: dict[str, float] = {}

    def tell(event: Event) -> None:
        recorder.record(event)
        previews.handle(event)
        screen.handle(event)

    name = folder_name(_topic(settings), seed=settings.seed, at=datetime.datetime.now())
    with ResultFolder(output, name=name) as folder:
        pipeline = build(node, on_loaded=tell, beside=True)
        assert isinstance(pipeline, Pipeline)
        timings["load_s"] = time.perf_counter() - started_s
        for event in pipeline.stream(request):
            if isinstance(event, TextGrown):
                timings.setdefault("first_text_s", time.perf_counter() - started_s)
            if isinstance(event, PreviewReady | Done):  # every part has been loaded
                _end_of_imports()
            if isinstance(event, Done):
                result = dataclasses.replace(event.result, metrics={**event.result.metrics, **timings})
                event = Done(result)
            tell(event)
        assert result is not None, f"{type(pipeline).__name__}.stream ended without a Done event"
        screen.close()
        written = folder.write(
            result,
            trace=recorder.trace(),
            pictures=previews.pictures,
            provenance=provenance,
            metadata=settings.metadata,
        )
    screen.written(written)
    if result.partial:
        return Left(_complain(f"interrupted: {written} holds what was verified so far", _INTERRUPTED), written)
    return Left(_UNVERIFIED if settings.fail_on_unverified and not result.verified else _OK, written)


def _do(
    node: Mapping[str, Any],
    name: str,
    settings: Settings,
    provenance: "Provenance",
    output: Path,
    screen: "Terminal",
) -> int:
    """Run a job in a folder of its own."""
    from mmspec.api import build
    from mmspec.pipeline import Job
    from mmspec.report import JobFolder, folder_name

    if not settings.quiet:
        for package in ("mmspec", "pipelines"):
            logging.getLogger(package).setLevel(logging.INFO)
    job = build(node, on_loaded=screen.handle)
    _end_of_imports()
    assert isinstance(job, Job)
    folder = JobFolder(output, name=folder_name(name, seed=settings.seed, at=datetime.datetime.now())).make(provenance)
    try:
        job.run(folder)
    except KeyboardInterrupt:
        return _complain(f"interrupted: {folder} holds what was written so far", _INTERRUPTED)
    screen.written(folder)
    return _OK


def _end_of_imports() -> None:
    if not gc.isenabled():  # not in the later jobs of a sweep: what is frozen is never given back
        gc.freeze()
        gc.enable()


def title(settings: Settings, *, pipeline: str) -> str:
    """The first line of a run: what it is about."""
    words = " ".join(_topic(settings).split())
    shown = textwrap.shorten(words, _TITLE_CHARS, placeholder=" …") if words else ""
    return f"mmspec {__version__}  {pipeline}  seed {settings.seed}" + (f"  {shown}" if shown else "")


def _topic(settings: Settings) -> str:
    """What the run is about, for a person: the prompt, else what was given."""
    return settings.prompt or settings.text or Path(settings.image).name


def _explain(error: MmspecError | BrokenPipeError) -> int:
    if isinstance(error, BrokenPipeError):  # whoever read our output has gone: nobody to tell, at exit neither
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED
    return _complain(f"error: {error}", _USAGE if isinstance(error, UsageError) else _FAILED)


def _complain(message: str, code: int) -> int:
    sys.stderr.write(" ".join(message.split()) + "\n")
    return code


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
