"""Every notebook runs from top to bottom with tiny models, and is stored without outputs."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

_FOLDER = Path(__file__).parent.parent / "notebooks"
_NOTEBOOKS = sorted(_FOLDER.glob("*.ipynb"))


def test_all_six_are_there() -> None:
    """Found by their numbers."""
    assert [path.name[0] for path in _NOTEBOOKS] == list("123456")


@pytest.mark.parametrize("path", _NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped(path: Path) -> None:
    """No output, no count, and a valid notebook."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


@pytest.mark.filterwarnings("default")  # of the kernel's client, in its own threads
@pytest.mark.parametrize("path", _NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell, in a folder of its own; a cell that fails fails the test with its traceback."""
    monkeypatch.setenv("MMSPEC_TINY", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
