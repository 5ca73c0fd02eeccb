"""What `pip install .` brings along."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_wheel_runs_from_any_folder(tmp_path: Path) -> None:
    """Configuration, pipelines, templates, data and notices travel in the wheel; the command line works from elsewhere."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*build, str(tmp_path), str(_ROOT)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    in_repository = {path.relative_to(_ROOT).as_posix() for path in (_ROOT / "conf").rglob("*.yaml")}
    in_wheel = {path.relative_to(site / "mmspec").as_posix() for path in (site / "mmspec" / "conf").rglob("*.yaml")}
    assert in_wheel == in_repository
    assert {path.name for path in site.iterdir()} == {
        "mmspec",
        "pipelines",
        f"{wheel.name.rpartition('-py3')[0]}.dist-info",
    }
    assert len(list(site.rglob("licenses/*"))) == 2
    templates = {path.name for path in (site / "mmspec" / "report" / "templates").iterdir()}
    assert templates == {"batch.css", "batch.html", "card.html", "comparison.html", "report.css", "report.html"}

    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "pipelines").mkdir(parents=True)
    (elsewhere / "pipelines" / "__init__.py").write_text("raise ImportError('not the one')", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mmspec.run", "pipeline=paint", "pipeline.num_scenes=2", "output=here", "quiet=true"],
        cwd=elsewhere,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == elsewhere / "here"
    origin = subprocess.run(
        [sys.executable, "-c", "import mmspec; print(mmspec.__file__)"],
        cwd=elsewhere,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(origin.stdout.strip()).is_relative_to(site)


# Names under which a distribution is imported, where they are not its own.
_IMPORTED_AS = {
    "hydra_core": "hydra",
    "pillow": "PIL",
    "pyyaml": "yaml",
    "open_clip_torch": "open_clip",
}
# In an extra of the package, and imported only by what that extra is for.
_OPTIONAL = {"llama_cpp", "matplotlib", "ray", "resvg_py"}


def test_every_imported_library_is_declared() -> None:
    """What the package imports is in `pyproject.toml`, and what it declares it imports."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[><=\[; ]", line)[0].replace("-", "_") for line in project["dependencies"]]
    declared = {_IMPORTED_AS.get(name, name) for name in names}
    imported = set()
    for path in [*(_ROOT / "mmspec").rglob("*.py"), *(_ROOT / "pipelines").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
    foreign = imported - sys.stdlib_module_names - {"mmspec", "pipelines"} - _OPTIONAL
    assert foreign <= declared, f"imported, not declared: {foreign - declared}"
    # `accelerate` and `jinja2` are called by transformers, `torchvision` by open_clip.
    assert declared - foreign <= {"accelerate", "jinja2", "torchvision"}
