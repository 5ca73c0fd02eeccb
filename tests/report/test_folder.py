"""The result folder: whole or not there, and never over an earlier one."""

import datetime
import io
from pathlib import Path

import pytest
from PIL import Image

from mmspec.errors import OutputError
from mmspec.report import JobFolder, Provenance, ResultFolder, folder_name
from mmspec.types import Request
from tests.report.conftest import Run, run_of


def _write(output: Path, run: Run, provenance: Provenance, *, metadata: bool = True, name: str = "name") -> Path:
    with ResultFolder(output, name=name) as folder:
        return folder.write(
            run.result, trace=run.trace, pictures=run.previews.pictures, provenance=provenance, metadata=metadata
        )


def test_every_pair_is_written(tmp_path: Path, provenance: Provenance) -> None:
    """Several pairs: the best one has the plain names, the others are numbered."""
    folder = _write(tmp_path, run_of(Request("street", n=3)), provenance)
    pictures = sorted(path.name for path in folder.glob("image*"))
    assert pictures == ["image.png", "image_1.png", "image_2.png"]
    assert sorted(path.name for path in folder.glob("text*")) == ["text.txt", "text_1.txt", "text_2.txt"]


def test_metadata_can_be_left_out(tmp_path: Path, provenance: Provenance) -> None:
    """`metadata=False` leaves no text chunk."""
    folder = _write(tmp_path, run_of(Request("street")), provenance, metadata=False)
    with Image.open(folder / "image.png") as image:
        assert image.info == {}


def test_stale_chunks_of_a_picture_are_dropped(tmp_path: Path, provenance: Provenance) -> None:
    """What the picture's own source left in `info` is not written."""
    run = run_of(Request("street"))
    image = run.result.image
    assert image is not None
    image.info.update({"transparency": b"\0\1", "parameters": "of somebody else"})
    folder = _write(tmp_path, run, provenance, metadata=False)
    with Image.open(folder / "image.png") as written:
        assert written.info == {}
    assert image.info["parameters"] == "of somebody else"


def test_earlier_results_are_never_overwritten(tmp_path: Path, provenance: Provenance) -> None:
    """The same name again gets a number."""
    run = run_of(Request("street"))
    folders = [_write(tmp_path, run, provenance) for _ in range(3)]
    assert [folder.name for folder in folders] == ["name", "name-2", "name-3"]
    assert JobFolder(tmp_path, name="name").make(provenance).name == "name-4"


def test_block_without_write_leaves_nothing(tmp_path: Path) -> None:
    """A run that fails leaves no trace of the folder it had begun."""
    with pytest.raises(KeyboardInterrupt), ResultFolder(tmp_path, name="name"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failing", ["save", "write_text"])
def test_full_disk_leaves_nothing(
    tmp_path: Path, provenance: Provenance, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """No room in the middle of writing: one line that says what to do, no half-written result."""

    def no_room(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    run = run_of(Request("street"))
    monkeypatch.setattr(Image.Image if failing == "save" else Path, failing, no_room)
    with pytest.raises(OutputError, match=r"No space left on device.*output=FOLDER") as caught:
        _write(tmp_path, run, provenance)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_output_that_is_a_file_is_refused(tmp_path: Path, provenance: Provenance) -> None:
    """A file where the folder should be."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OutputError, match="cannot write the result to"), ResultFolder(tmp_path / "file", name="name"):
        pass
    with pytest.raises(OutputError, match="cannot write the result to"):
        JobFolder(tmp_path / "file", name="name").make(provenance)


@pytest.mark.parametrize(
    ("prompt", "slug"),
    [
        ("cyberpunk rainy street", "-cyberpunk-rainy-street"),
        ("../../etc/passwd", "-etc-passwd"),
        ('a/b\\c:d*e?f"g<h>i|j\nk', "-a-b-c-d-e-f-g-h-i-j-k"),
        ("赛博朋克", "-赛博朋克"),
        ("🤖 !", ""),
        ("x" * 200, "-" + "x" * 40),
    ],
)
def test_folder_name_is_safe_on_any_file_system(prompt: str, slug: str) -> None:
    """When, what, which seed; no separator, no control character, not too long."""
    assert folder_name(prompt, seed=7, at=datetime.datetime(2031, 2, 3, 4, 5, 6)) == f"20310203-040506{slug}-7"


def test_contact_sheet_crosses_the_pruned_out(tmp_path: Path, provenance: Provenance) -> None:
    """Every draft has a tile; red lines run over the pruned ones alone, a green frame around the chosen one."""
    folder = _write(tmp_path, run_of(Request("street")), provenance)
    sheet = Image.open(io.BytesIO((folder / "drafts.png").read_bytes())).convert("RGB")
    row = 32 + 160 + 64 + 8
    middles = [sheet.getpixel((8 + 80, 8 + row * branch + 32 + 80)) for branch in range(3)]
    assert middles == [(64, 64, 64), (200, 40, 40), (200, 40, 40)]
    assert sheet.getpixel((6, 8 + 32)) == (30, 140, 70)


def test_text_alone_has_no_contact_sheet(tmp_path: Path, provenance: Provenance) -> None:
    """No draft, no sheet."""
    run = run_of(Request("street"))
    run.previews.pictures.clear()
    assert not (_write(tmp_path, run, provenance) / "drafts.png").exists()
