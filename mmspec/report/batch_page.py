"""The page of a batch: every pair with its verdict and the way to its own report; one file, no script."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

from mmspec.report.page import template
from mmspec.report.progress import clock, topic_of, verdict_of_row
from mmspec.report.thumbnail import data_uri

__all__ = ["batch_page"]

_SIDE, _SIDE_OF_MANY, _MANY_ROWS = 384, 192, 100


def batch_page(folder: Path, outcomes: Sequence[Mapping[str, Any]], *, title: str, num_rows: int) -> str:
    """The page as HTML. `outcomes` are the lines of `results.jsonl`; `num_rows` counts those not reached, too."""
    side = _SIDE_OF_MANY if len(outcomes) > _MANY_ROWS else _SIDE
    cards = [_card(folder, outcome, side=side) for outcome in outcomes]
    counts = {kind: sum(card["kind"] == kind for card in cards) for kind in ("good", "open", "bad")}
    seconds_s = sum(outcome["seconds_s"] or 0 for outcome in outcomes)
    return str(
        template("batch.html").render(
            title=title,
            cards=cards,
            failed=[card for card in cards if card["kind"] == "bad"],
            counts=counts,
            num_missing=num_rows - len(cards),
            took=clock(seconds_s),
        )
    )


def _card(folder: Path, outcome: Mapping[str, Any], *, side: int) -> dict[str, Any]:
    name = outcome["folder"]
    picture = folder / name / "image.png" if name else None
    failed = outcome["status"] == "failed"
    return {
        **outcome,
        "topic": topic_of(outcome),
        "kind": "bad" if failed else "good" if outcome["verified"] else "open",
        "verdict": "Failed" if failed else verdict_of_row(outcome).capitalize(),
        "report": name and f"{quote(name)}/report.html",
        "picture": _thumbnail(picture, side=side) if picture and picture.is_file() else None,
        "words": outcome["result_text"].strip(),
    }


def _thumbnail(path: Path, *, side: int) -> str:
    with Image.open(path) as image:
        return data_uri(image, side=side)
