"""The folder that a run leaves: written whole or not at all, and never over an earlier one.

image.png          the best pair's picture, image_1.png, ... those of further pairs
text.txt           the best pair's text, text_1.txt, ... those of further pairs
report.html        all of it on one page that needs nothing beside it (`mmspec.report.page`)
drafts.png         contact sheet of all drafts (where there were drafts)
trace.json         the tree, scores and timings; its schema is explained in `mmspec.cogen.trace`. Beside it stand
                   `config`, `overrides` and `versions`, for a replay
.hydra/            config.yaml, the resolved configuration, and overrides.yaml
"""

import contextlib
import datetime
import json
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from mmspec.errors import OutputError
from mmspec.report.png import png_info
from mmspec.report.previews import Pictures
from mmspec.report.provenance import Provenance
from mmspec.report.sheet import contact_sheet
from mmspec.types import Result

_SLUG_CHARS = 40
_MAX_TRIES = 1000


class ResultFolder:
    """A folder in the making; as a context manager it vanishes unless `write` was reached.

    Made before anything is computed, so that an output folder that cannot be written costs no time.
    """

    def __init__(self, output: Path, *, name: str) -> None:
        self._output = output
        self._name = name

    def __enter__(self) -> Self:
        with output_errors(self._output):
            self._output.mkdir(parents=True, exist_ok=True)
            self._temporary = Path(tempfile.mkdtemp(prefix=f".{self._name}-", dir=self._output))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        shutil.rmtree(self._temporary, ignore_errors=True)

    def write(
        self,
        result: Result,
        *,
        trace: Mapping[str, Any],
        pictures: Pictures,
        provenance: Provenance,
        metadata: bool,
    ) -> Path:
        """Write everything and give the folder its name; raises `OutputError` and leaves nothing otherwise.

        `pictures` are the drafts' last previews; `metadata=False` leaves prompt, seed and models out of the
        pictures.
        """
        from mmspec.report.page import report_page  # its libraries are not needed to begin

        folder = self._temporary
        with output_errors(self._output):
            for index, pair in enumerate(result.pairs):
                suffix = f"_{index}" if index else ""
                (folder / f"text{suffix}.txt").write_text(pair.text + "\n", encoding="utf-8")
                if pair.image is not None:
                    info = png_info(trace, index, size=pair.image.size, provenance=provenance)
                    picture = pair.image.copy()
                    picture.info.clear()  # chunks of whatever the picture came from
                    picture.save(folder / f"image{suffix}.png", pnginfo=info if metadata else None)
            sheet = contact_sheet(trace, pictures)
            if sheet is not None:
                sheet.save(folder / "drafts.png")
            images = [pair.image for pair in result.pairs]
            page = report_page(trace, images=images, pictures=pictures, provenance=provenance)
            (folder / "report.html").write_text(page, encoding="utf-8")
            whole = {**trace, "config": provenance.config, "overrides": provenance.overrides}
            whole["versions"] = provenance.versions
            (folder / "trace.json").write_text(json.dumps(whole, ensure_ascii=False, indent=1), encoding="utf-8")
            write_config(folder / ".hydra", provenance)
            folder.chmod(0o755)  # mkdtemp's 0700 is for secrets
            return _take_name(folder, self._output, self._name)


class JobFolder:
    """The folder of a run that leaves files over hours: made at once and kept, whatever becomes of the run."""

    def __init__(self, output: Path, *, name: str) -> None:
        self._output = output
        self._name = name

    def make(self, provenance: Provenance) -> Path:
        """Make the folder with the resolved configuration in it; raises `OutputError`."""
        with output_errors(self._output):
            self._output.mkdir(parents=True, exist_ok=True)
            for folder in _candidates(self._output, self._name):
                with contextlib.suppress(FileExistsError):
                    folder.mkdir()
                    write_config(folder / ".hydra", provenance)
                    return folder
        raise OutputError(f"{self._output} holds {_MAX_TRIES} folders named {self._name}: clear it up")


def folder_name(prompt: str, *, seed: int, at: datetime.datetime) -> str:
    """The name of a run's folder: when, what and with which seed; letters any file system takes."""
    return "-".join(part for part in (f"{at:%Y%m%d-%H%M%S}", slug(prompt), str(seed)) if part)


def slug(words: str) -> str:
    """The beginning of these words as a part of a file name; empty where they hold no letter."""
    plain = unicodedata.normalize("NFKC", words).lower()
    return re.sub(r"[\W_]+", "-", plain)[:_SLUG_CHARS].strip("-")


def write_config(folder: Path, provenance: Provenance) -> None:
    """Write the resolved configuration and the overrides into a new folder."""
    folder.mkdir()
    for name, content in (("config", dict(provenance.config)), ("overrides", list(provenance.overrides))):
        text = yaml.safe_dump(content, allow_unicode=True, sort_keys=False)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def _take_name(temporary: Path, output: Path, name: str) -> Path:
    for folder in _candidates(output, name):
        try:
            return temporary.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    raise OutputError(f"{output} holds {_MAX_TRIES} folders named {name}: clear it up")


def _candidates(output: Path, name: str) -> Iterator[Path]:
    yield output / name
    for number in range(2, _MAX_TRIES + 1):
        yield output / f"{name}-{number}"


@contextlib.contextmanager
def output_errors(output: Path) -> Iterator[None]:
    """Turn what the file system refuses into an `OutputError`."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write the result to {output} ({error.strerror or error}): make room or choose another with output=FOLDER"
        ) from error
