"""The folder of a batch: one result folder for each request, and what there is to say of all of them.

results.jsonl      one line for each row of the file: request, seed, status, folder, verdict, seconds, error
index.html         all pairs on one page (`mmspec.report.batch_page`)
.hydra/            config.yaml, the resolved configuration that the rows share, and overrides.yaml

A row is done when its result folder is there, for that is renamed into place when it is whole; nothing else is
believed after a crash. A result folder is named after its request, so that rows may be added to the file, moved and
mended between two runs.
"""

import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mmspec.answer import Answer
from mmspec.batch.prompts import Row
from mmspec.errors import InputError, OutputError
from mmspec.report import ResultFolder, output_errors, slug, write_config
from mmspec.report.provenance import Provenance
from mmspec.types import Request

__all__ = ["BatchFolder", "Outcome", "batch_name"]

_DIGITS = 8
_LOCK = ".lock"


@dataclass(frozen=True)
class Outcome:
    """What became of a row; `folder` is the name of its result folder, `result_text` the best pair's text."""

    row: Row
    status: str
    folder: str | None = None
    verified: bool | None = None
    result_text: str = ""
    seconds_s: float | None = None
    error: str = ""
    details: str = ""

    def plain(self) -> dict[str, Any]:
        """The line of `results.jsonl`, as a mapping."""
        said = {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if item.name != "row"}
        return {"line": self.row.line, **dataclasses.asdict(self.row.request), **said}


class BatchFolder:
    """The folder while a run works on it; as a context manager it keeps other runs out.

    Raises `OutputError` where it cannot be written, and `InputError` where another run is at work on it.
    """

    def __init__(self, path: Path, *, metadata: bool) -> None:
        self.path = path
        self._metadata = metadata
        self._lock = FileLock(path / _LOCK, timeout=0)

    def __enter__(self) -> "BatchFolder":
        with output_errors(self.path.parent):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire()
            except Timeout as error:
                raise InputError(f"another run is at work on {self.path}: wait for it, or stop it") from error
            for left in self.path.glob(".*-*"):  # what a killed run was writing
                shutil.rmtree(left, ignore_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def done_before(self, rows: Sequence[Row]) -> list[Outcome]:
        """The rows whose results are there already. Raises `OutputError` for a folder that is no result."""
        return [self._read(row) for row in rows if (self.path / _name(row.request)).exists()]

    def keep(self, row: Row, answer: Answer, *, seconds_s: float) -> Outcome:
        """Write a row's result folder; raises `OutputError` and leaves nothing otherwise."""
        with ResultFolder(self.path, name=_name(row.request)) as made:
            written = made.write(
                answer,
                trace=answer.trace,
                pictures=answer.pictures,
                provenance=answer.provenance,
                metadata=self._metadata,
            )
        return Outcome(row, "done", written.name, answer.verified, answer.text, seconds_s)

    def note(self, outcome: Outcome) -> None:
        """Add a line to `results.jsonl`."""
        with output_errors(self.path), (self.path / "results.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcome.plain(), ensure_ascii=False) + "\n")

    def note_all(self, outcomes: Sequence[Outcome]) -> None:
        """Write `results.jsonl` anew."""
        lines = [json.dumps(outcome.plain(), ensure_ascii=False) + "\n" for outcome in outcomes]
        self._replace("results.jsonl", "".join(lines))

    def write_config(self, provenance: Provenance) -> None:
        """Write the configuration that the rows share, once."""
        with output_errors(self.path), contextlib.suppress(FileExistsError):
            write_config(self.path / ".hydra", provenance)

    def write_page(self, page: str) -> None:
        """Write `index.html` anew."""
        self._replace("index.html", page)

    def _replace(self, name: str, content: str) -> None:
        with output_errors(self.path):
            temporary = self.path / f".{name}"
            temporary.write_text(content, encoding="utf-8")
            temporary.replace(self.path / name)

    def _read(self, row: Row) -> Outcome:
        name = _name(row.request)
        try:
            trace = json.loads((self.path / name / "trace.json").read_text(encoding="utf-8"))
            pair, seconds_s = trace["pairs"][0], trace["metrics"].get("total_s")
            return Outcome(row, "done", name, pair["verified"], pair["text"], seconds_s)
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise OutputError(f"{self.path / name} is no whole result: move it away, and it is made again") from error


def batch_name(prompts: Path, config: Mapping[str, Any]) -> str:
    """The name of a batch's folder: the same for the same file under a configuration that makes the same results."""
    identity = json.dumps({"prompts": str(prompts), "config": config}, sort_keys=True, ensure_ascii=False)
    return f"{slug(prompts.stem) or 'prompts'}-{_digest(identity)}"


def _name(request: Request) -> str:
    parts = (slug(request.prompt or request.text or Path(request.image).stem), str(request.seed))
    return "-".join(part for part in (*parts, _digest("\0".join(_identity(request)))) if part)


def _identity(request: Request) -> Iterator[str]:
    for key, value in dataclasses.asdict(request).items():
        yield f"{key}={value}"
    if request.image:  # another picture under the same name is another request
        with contextlib.suppress(OSError):
            yield hashlib.sha256(Path(request.image).expanduser().read_bytes()).hexdigest()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
