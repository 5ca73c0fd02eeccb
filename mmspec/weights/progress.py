"""A progress bar for a download that another process makes."""

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

_INTERVAL_S = 0.2


@contextlib.contextmanager
def download_progress(name: str, folder: Path, num_bytes: int) -> Iterator[None]:
    """Show how many of `num_bytes` lie below `folder`, as long as the block runs.

    Shows nothing where standard error is not a terminal or warnings are switched off (`quiet=true`).
    """
    console = Console(stderr=True)
    if not console.is_terminal or not logging.getLogger("mmspec").isEnabledFor(logging.WARNING):
        yield
        return
    finished = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name, total=num_bytes)

        def watch() -> None:
            while not finished.wait(_INTERVAL_S):
                progress.update(task, completed=min(num_bytes, _size(folder)))

        watcher = threading.Thread(target=watch, name="download-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            finished.set()
            watcher.join()


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip removes its temporary files under our eyes
            total += path.lstat().st_size
    return total
