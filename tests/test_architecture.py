"""Which part may know which, and what an import may cost."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import mmspec

_PACKAGE = Path(mmspec.__file__).parent
_FOUNDATION = {"types", "errors", "seeding", "later", "dtypes"}
# What each part may import from the package, besides the foundation and itself. The embedded models are
# written in the formats of `verify` and trained by looking at what `image` and `verify` make of them.
_MAY_IMPORT = {
    "errors": set(),
    "seeding": set(),
    "dtypes": {"errors"},
    "later": set(),
    "types": {"errors"},
    "pipeline": set(),
    "weights": set(),
    "embedded": {"weights", "verify"},
    "embedded/training": {"weights", "embedded", "image", "verify"},
    "text": {"weights"},
    "image": {"weights", "embedded"},
    "verify": {"weights"},
    "cogen": {"text", "image", "verify"},
    "report": {"cogen", "configuration"},
    "answer": {"report"},
    "batch": {"answer", "api", "configuration", "pipeline", "report"},
    "configuration": set(),
}
_ADAPTERS = {"weights", "text", "image", "verify", "embedded"}


def _imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found.add(node.module or "")
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


def _files(part: str) -> list[Path]:
    single = _PACKAGE / f"{part}.py"
    if single.is_file():
        return [single]
    own = {other for other in _MAY_IMPORT if other.startswith(f"{part}/")}
    return [
        path for path in sorted((_PACKAGE / part).rglob("*.py")) if not any(_PACKAGE / o in path.parents for o in own)
    ]


@pytest.mark.parametrize("part", _MAY_IMPORT)
def test_arrows_point_one_way(part: str) -> None:
    """`text`, `image` and `verify` meet in `cogen` alone; nothing knows what stands above it."""
    allowed = _MAY_IMPORT[part] | {part} | (_FOUNDATION if part not in _FOUNDATION else set())
    for path in _files(part):
        inner = {name.split(".")[1] for name in _imports(path) if name.startswith("mmspec.")}
        parts = {name for name in inner if _files(name)}
        assert parts <= allowed, f"{path.relative_to(_PACKAGE)} imports {parts - allowed}"
        assert not any(name.split(".")[0] in {"pipelines", "tests"} for name in _imports(path)), path


@pytest.mark.parametrize("path", sorted(_PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(_PACKAGE)))
def test_foreign_libraries_stay_with_their_adapters(path: Path) -> None:
    """Only `run` and `api` know the configuration library, only adapters the model libraries."""
    roots = {name.split(".")[0] for name in _imports(path)}
    part = path.relative_to(_PACKAGE).parts[0].removesuffix(".py")
    if part not in {"run", "api"}:
        assert not roots & {"hydra", "omegaconf"}
    if part not in _ADAPTERS:
        assert not roots & {"transformers", "diffusers", "open_clip"}


_MODEL_LIBRARIES = {"transformers", "diffusers", "open_clip"}
_HEAVY = {"torch", *_MODEL_LIBRARIES}


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("mmspec", _HEAVY | {"hydra", "numpy", "PIL", "rich"}),
        ("mmspec.run", _HEAVY | {"hydra", "numpy", "PIL", "rich"}),
        ("mmspec.api", _HEAVY),
        ("mmspec.report", _HEAVY),
        ("mmspec.weights", _HEAVY),
        *((part, _MODEL_LIBRARIES) for part in ("mmspec.image.embedded", "mmspec.verify.open_clip_scorer")),
        *((part, _MODEL_LIBRARIES) for part in ("mmspec.text.models", "mmspec.text.drafters", "pipelines.cogen")),
    ],
)
def test_import_is_cheap(module: str, unwanted: set[str]) -> None:
    """A first line is on the screen, and a mistake is answered, before any model library is read.

    Checking a configuration imports every part that it names; each library is read when its part is built.
    """
    script = f"import sys, {module}; print(*sorted({unwanted} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def _modules() -> list[str]:
    return [info.name for info in pkgutil.walk_packages([str(_PACKAGE)], "mmspec.") if "__main__" not in info.name]


@pytest.mark.parametrize("name", ["mmspec", *_modules()])
def test_exported_names_exist(name: str) -> None:
    """`__all__` lists what is there, and every public class and function that the module defines."""
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", None)
    if exported is None:
        return
    assert len(set(exported)) == len(exported)
    for public in exported:
        assert getattr(module, public) is not None
    defined = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == name
    }
    assert defined <= set(exported), f"public but not exported: {defined - set(exported)}"
