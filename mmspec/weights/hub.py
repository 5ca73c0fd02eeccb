"""Model repositories on the hub. Once a repository is complete in the hub's own cache, nothing dials out."""

import fnmatch
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from mmspec.errors import WeightsError
from mmspec.weights.checksums import check_folder
from mmspec.weights.completeness import missing_files

# Copies of the same weights for other frameworks, or in other precisions.
_IGNORED = [
    "*.h5", "*.msgpack", "*.ot", "*.onnx", "*.onnx_data", "*.tflite", "*.mlpackage/*", "onnx/*", "*/onnx/*", "openvino/*",
    "*.ckpt", "*.fp16.*", "*.bf16.*", "*.non_ema.*", "safety_checker/*.bin", "safety_checker/*.safetensors",
]  # fmt: skip


def hub_folder(repository: str) -> Path:
    """The local copy of `org/name` or `org/name@revision`, downloaded, or downloaded to its end, if it is not complete.

    Raises `WeightsError` if the repository does not exist, is not open to this user or cannot be reached.
    """
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
    from tqdm.auto import tqdm

    name, _, revision = repository.partition("@")
    place = "not on this machine"
    try:
        try:
            # Asked for no file at all, it gives the folder: which files are needed is ours to say.
            path = snapshot_download(name, revision=revision or None, allow_patterns=[], local_files_only=True)
            complete = not (missing := missing_files(Path(path)))
            place = f"only in part on this machine ({', '.join(missing[:2])} missing)"
        except LocalEntryNotFoundError:
            complete = False
        if not complete:
            files = [file.filename for file in snapshot_download(name, revision=revision or None, dry_run=True)]
            path = snapshot_download(name, revision=revision or None, allow_patterns=needed(files), tqdm_class=tqdm)
    except GatedRepoError as error:
        raise WeightsError(
            f"hub:{repository} asks for consent: accept its terms on the hub, then run `hf auth login`"
        ) from error
    except RevisionNotFoundError as error:
        raise WeightsError(f"hub:{repository} has no revision {revision!r}: check the part after the @") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise WeightsError(
            f"hub:{repository} does not exist or is private: check the spelling or run `hf auth login`"
        ) from error
    except (LocalEntryNotFoundError, OSError) as error:
        cause = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else _first_line(error.__cause__ or error)
        raise WeightsError(
            f"hub:{repository} is {place} and could not be fetched ({cause}): "
            "connect once, or name a folder that holds the model"
        ) from error
    folder = Path(path)
    check_folder(folder, remedy=f"delete it and fetch hub:{repository} again")
    return folder


def needed(files: Sequence[str]) -> list[str]:
    """Of a repository's files, those that its folder is loaded from.

    Without copies for other frameworks and precisions, without pickles that lie beside safetensors, and of a pipeline
    without what lies outside its parts' folders: large single-file checkpoints.

    >>> needed(["model_index.json", "all.safetensors", "unet/a.bin", "unet/a.safetensors", "unet/a.fp16.safetensors"])
    ['model_index.json', 'unet/a.safetensors']
    """
    kept = [name for name in files if not any(fnmatch.fnmatch(name, pattern) for pattern in _IGNORED)]
    safe = {PurePosixPath(name).parent for name in kept if name.endswith(".safetensors")}
    is_pipeline = "model_index.json" in kept
    out = []
    for name in kept:
        path = PurePosixPath(name)
        single_file = is_pipeline and len(path.parts) == 1 and path.suffix in (".safetensors", ".bin")
        if not single_file and not (path.suffix in (".bin", ".pt", ".pth") and path.parent in safe):
            out.append(name)
    return out


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
