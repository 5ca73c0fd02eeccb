"""Model repositories on the hub. Once a repository is complete in the hub's own cache, nothing dials out."""

from pathlib import Path

from mmspec.errors import WeightsError
from mmspec.weights.checksums import check_folder

# Copies of the same weights for other frameworks.
_IGNORED = ["*.h5", "*.msgpack", "*.ot", "*.onnx", "*.onnx_data", "*.tflite", "*.mlpackage/*", "onnx/*", "openvino/*"]


def hub_folder(repository: str) -> Path:
    """The local copy of `org/name` or `org/name@revision`, downloaded if it is not complete yet.

    Raises `WeightsError` if the repository does not exist, is not open to this user or cannot be reached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
    from tqdm.auto import tqdm

    name, _, revision = repository.partition("@")
    try:
        try:
            path = snapshot_download(name, revision=revision or None, ignore_patterns=_IGNORED, local_files_only=True)
        except LocalEntryNotFoundError:
            path = snapshot_download(name, revision=revision or None, ignore_patterns=_IGNORED, tqdm_class=tqdm)
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
        cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise WeightsError(
            f"hub:{repository} is not on this machine and could not be fetched ({cause}): "
            "connect once, or name a folder that holds the model"
        ) from error
    folder = Path(path)
    check_folder(folder, remedy=f"delete it and fetch hub:{repository} again")
    return folder
