"""A batch from the first row to the summary: what is there is kept, what is missing is computed, what fails is said."""

import dataclasses
from pathlib import Path
from typing import Any

from mmspec import __version__
from mmspec.batch.executor import Executor, Failure, Plan
from mmspec.batch.folder import BatchFolder, Outcome, batch_name
from mmspec.batch.prompts import Row, read_rows
from mmspec.configuration import LITERAL_KEYS, Settings, UsageError
from mmspec.errors import OutputError
from mmspec.report.batch_page import batch_page
from mmspec.report.progress import Progress
from mmspec.report.provenance import Provenance
from mmspec.types import Request

__all__ = ["Batch", "run_batch"]

_NOT_SHARED = ("prompts", "output", "quiet", "fail_on_unverified", "executor")
"""Keys that change neither a row's text nor its pictures."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """What became of a batch: its folder, and the outcome of each row that was reached, in the file's order."""

    folder: Path
    outcomes: tuple[Outcome, ...]
    interrupted: bool

    @property
    def failed(self) -> bool:
        """Whether a row has no result."""
        return any(outcome.status == "failed" for outcome in self.outcomes)

    @property
    def verified(self) -> bool:
        """Whether every result was verified."""
        return all(outcome.verified for outcome in self.outcomes)


def run_batch(
    executor: Executor, settings: Settings, provenance: Provenance, *, output: Path, progress: Progress
) -> Batch:
    """Compute what is missing of `settings.prompts` in a folder below `output`.

    Raises `InputError` for a file that cannot be read and for a prompt beside it, before anything is loaded, and
    what loading the models raises.
    """
    if settings.prompt:
        raise UsageError("prompt and prompts exclude each other: give one prompt, or a file of them")
    prompts = Path(settings.prompts).expanduser()
    rows = read_rows(prompts, defaults=_defaults(settings))
    shared = {key: value for key, value in provenance.config.items() if key not in _NOT_SHARED}
    name = batch_name(prompts.absolute(), {**shared, "version": __version__})
    with BatchFolder(output / name, metadata=settings.metadata) as folder:
        outcomes = {outcome.row: outcome for outcome in folder.done_before(rows)}
        folder.note_all([*outcomes.values()])
        folder.write_config(provenance)
        missing = [row for row in rows if row not in outcomes]
        progress.begin(folder.path, total=len(rows), done=len(outcomes))
        interrupted = False
        try:
            if missing:
                _compute(executor, _plan(provenance), missing, folder, outcomes, progress)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            in_order = tuple(outcomes[row] for row in rows if row in outcomes)
            folder.note_all(in_order)
            plain = [outcome.plain() for outcome in in_order]
            folder.write_page(batch_page(folder.path, plain, title=prompts.name, num_rows=len(rows)))
        return Batch(folder.path, in_order, interrupted)


def _compute(
    executor: Executor,
    plan: Plan,
    rows: list[Row],
    folder: BatchFolder,
    outcomes: dict[Row, Outcome],
    progress: Progress,
) -> None:
    for index, made in executor.run(plan, [row.request for row in rows]):
        row = rows[index]
        if isinstance(made, Failure):
            outcome = Outcome(row, "failed", seconds_s=made.seconds_s, error=made.error, details=made.details)
        else:
            try:
                outcome = folder.keep(row, made.answer, seconds_s=made.seconds_s)
            except OutputError as error:
                outcome = Outcome(row, "failed", seconds_s=made.seconds_s, error=str(error))
        outcomes[row] = outcome
        folder.note(outcome)
        progress.row(outcome.plain())


def _defaults(settings: Settings) -> dict[str, Any]:
    return {item.name: getattr(settings, item.name) for item in dataclasses.fields(Request)}


def _plan(provenance: Provenance) -> Plan:
    """What a worker loads: the configuration of a run with one prompt."""
    config = {key: value for key, value in provenance.config.items() if key != "executor"} | {"prompts": ""}
    kept = [text for text in provenance.overrides if _key(text) not in (*LITERAL_KEYS, *_NOT_SHARED)]
    return Plan(config, tuple(kept))


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0].partition(".")[0]
