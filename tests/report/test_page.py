"""The page of a run: whole, closed in itself, and safe whatever the run holds."""

import dataclasses
import html.parser
import io
import re
from typing import Any

import pytest
from PIL import Image

from mmspec.report import Provenance
from mmspec.report.page import report_page
from mmspec.report.strip import time_strip
from mmspec.report.thumbnail import shaded
from mmspec.types import Request
from tests.report.conftest import Run, run_of

_VOID = {"meta", "img"}
_MAX_BYTES = 2_000_000


class _Page(html.parser.HTMLParser):
    """Reads a page and checks that every element is closed where it must be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """An element ends: the one that was begun last."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Words between the elements."""
        if not self._open or self._open[-1] != "style":
            self.words += data

    def having(self, name: str) -> list[dict[str, str | None]]:
        """The attributes of every element that has this class."""
        return [attributes for _, attributes in self.elements if name in (attributes.get("class") or "").split()]


def _page(run: Run, provenance: Provenance, **changes: Any) -> _Page:
    images = [pair.image for pair in run.result.pairs]
    text = report_page(run.trace | changes, images=images, pictures=run.previews.pictures, provenance=provenance)
    assert len(text.encode("utf-8")) < _MAX_BYTES
    return _Page(text)


@pytest.mark.parametrize(
    "prompt",
    [
        "street",
        "<script>alert('x')</script> & \"quotes\"",
        "{{ 7 * 7 }} {% raw %}",
        "赛博朋克 🤖 雨",
        "two\nlines",
        "very long " * 3000,
        "x" * 20_000,
    ],
)
def test_any_prompt_is_shown_as_it_was_typed(prompt: str, provenance: Provenance) -> None:
    """Letter by letter, as words and never as markup."""
    page = _page(run_of(Request(prompt)), provenance)
    assert prompt in page.words
    assert "script" not in [tag for tag, _ in page.elements]


def test_page_needs_nothing_beside_it(provenance: Provenance) -> None:
    """No script, no link, no address but data; every picture says what it shows."""
    page = _page(run_of(Request("street", n=2)), provenance)
    assert {tag for tag, _ in page.elements} & {"script", "link", "iframe", "a"} == set()
    pictures = [attributes for tag, attributes in page.elements if tag == "img"]
    assert len(pictures) == 2 + 3
    for attributes in pictures:
        assert (attributes["src"] or "").startswith("data:image/webp;base64,")
        assert attributes["alt"]
    addresses = [value for _, attributes in page.elements for value in attributes.values() if value and "//" in value]
    assert addresses == []


def test_every_pruned_branch_is_crossed_out_with_its_reason(provenance: Provenance) -> None:
    """The failing claim, its probability and what is seen instead; the chosen draft stands out."""
    page = _page(run_of(Request("street", seed=5)), provenance)
    assert len(page.having("branch")) == 3
    assert len(page.having("gone")) == 2
    assert len(page.having("chosen")) == 1
    assert page.words.count("red car: looks like blue car (0.10)") == 2
    assert page.words.count("red car 0.10, looks like blue car") == 2


def test_words_of_a_failing_claim_are_marked_in_prompt_and_text(provenance: Provenance) -> None:
    """The span of the claim, and the verdict with the probability on it."""
    run = run_of(Request("red car at night"), ending="contradicted")
    (claim,) = run.trace["pairs"][0]["claims"]
    in_text = claim | {"source": "text", "span": [6, 13]}
    pair = run.trace["pairs"][0] | {"claims": [claim, in_text]}
    page = _page(run, provenance, pairs=[pair])
    marks = [attributes for tag, attributes in page.elements if tag == "mark"]
    assert [attributes["class"] for attributes in marks] == ["failed"] * 3  # in the tree too
    assert marks[0]["title"] == "red car: failed, 0.10, looks like blue car"
    assert "Not verified: 0 of 2 claims held, 2 failed" in page.words


def test_forks_stand_under_their_parents(provenance: Provenance) -> None:
    """The tree is nested as it grew."""
    run = run_of(Request("street"))
    first, second, third = run.trace["branches"]
    chain = [first, second | {"parent": "0"}, third | {"parent": "1"}]
    text = report_page(
        run.trace | {"branches": chain}, images=[None], pictures=run.previews.pictures, provenance=provenance
    )
    assert text.count('<ol class="tree">') == 2
    assert text.index("Branch 0") < text.index("Branch 1") < text.index("Branch 2")


def test_text_alone_and_picture_alone_have_pages(provenance: Provenance) -> None:
    """What is not there leaves no hole."""
    run = run_of(Request("street"))
    bare = [branch | {"drafts": []} for branch in run.trace["branches"]]
    without_picture = dataclasses.replace(run.result.pairs[0], image=None)
    alone = dataclasses.replace(run, result=dataclasses.replace(run.result, pairs=(without_picture,)))
    page = _page(alone, provenance, branches=bare)
    assert "img" not in [tag for tag, _ in page.elements]
    assert "echo: street" in page.words
    pair = run.trace["pairs"][0] | {"text": "", "claims": []}
    page = _page(run, provenance, pairs=[pair])
    assert page.having("picture") and not page.having("prose")
    assert "Nothing was verified" in page.words


def test_interrupted_run_says_so(provenance: Provenance) -> None:
    """A partial result is shown as one."""
    assert "Interrupted" in _page(run_of(Request("street")), provenance, partial=True).words


def test_reproducing_command_is_one_shell_word_per_argument(provenance: Provenance) -> None:
    """A prompt with quotes and spaces arrives as it was."""
    import shlex

    command = provenance.command(run_of(Request('it\'s "5 = 5", ${HOME}\nok')).trace["request"])
    assert shlex.split(command) == [
        "python", "-m", "mmspec.run", "prompt=it's \"5 = 5\", ${HOME}\nok", "seed=7",
    ]  # fmt: skip


def test_strip_puts_measured_spans_where_they_were() -> None:
    """By hand: ten seconds, text from 0 to 5, a picture from 4 to 10, one prune at 8."""
    trace = {
        "timeline": [
            {"at_s": 0.0, "event": "round", "round": 0, "branches": ["0"]},
            {"at_s": 8.0, "event": "pruned", "branch": "1", "draft": None, "reason": "no car"},
        ],
        "spans": [
            {"name": "text", "start_s": 0.0, "end_s": 5.0},
            {"name": "image", "start_s": 4.0, "end_s": 10.0},
            {"name": "grow", "start_s": 0.0, "end_s": 10.0},
        ],
    }
    strip = time_strip(trace)
    assert strip is not None
    places = {lane["name"]: [(bar["left"], bar["width"]) for bar in lane["bars"]] for lane in strip["lanes"]}
    assert places == {"text": [(0, 50)], "picture": [(40, 60)], "pruned": [(80, 0)]}
    assert strip["hidden"] == "Text and pictures were at work at the same time for 1.0 s."
    assert time_strip(trace | {"spans": []}) is None


def test_acceptance_by_depth_is_drawn_where_it_was_counted(provenance: Provenance) -> None:
    """One bar a depth."""
    run = run_of(Request("street"))
    page = _page(run, provenance, metrics={"acceptance_by_depth": "0.75 0.50"})
    widths = re.findall(r"width:(\d+)", str([a for t, a in page.elements if t == "i"][-2:]))
    assert widths == ["75", "50"]
    assert not _page(run, provenance, metrics={}).having("depths")


def test_relevance_reddens_the_place_it_names() -> None:
    """Left half relevant: red there, unchanged on the right."""
    grey = Image.new("RGB", (64, 64), (90, 90, 90))
    out = shaded(grey, ["ff" * 8 + "00" * 8] * 16, side=64)
    assert out.getpixel((8, 32)) == pytest.approx((188, 55, 48), abs=2)
    assert out.getpixel((60, 32)) == (90, 90, 90)


def test_pages_of_many_drafts_stay_small(provenance: Provenance) -> None:
    """Noise, the worst case for an encoder: 150 drafts, eight pairs."""
    run = run_of(Request("street", n=8))
    noise = Image.effect_noise((256, 256), 90).convert("RGB")
    draft = run.trace["branches"][0]["drafts"][0]
    branches = [
        run.trace["branches"][0] | {"id": str(number), "drafts": [draft | {"index": k} for k in range(3)]}
        for number in range(50)
    ]
    pictures = {(str(number), k): noise for number in range(50) for k in range(3)}
    text = report_page(
        run.trace | {"branches": branches},
        images=[noise.resize((1024, 1024))] * 8,
        pictures=pictures,
        provenance=provenance,
    )
    assert len(io.BytesIO(text.encode()).getvalue()) < _MAX_BYTES


def test_fork_shows_the_drafts_that_it_took_over(provenance: Provenance) -> None:
    """A fork without previews of its own has the picture of the draft with its seed, at its step."""
    run = run_of(Request("street"))
    first = run.trace["branches"][0]
    fork = first | {"id": "0.0", "parent": "0"}
    page = _page(run, provenance, branches=[*run.trace["branches"], fork])
    assert "Draft 0 of branch 0.0, step 4 of 4" in [a["alt"] for tag, a in page.elements if tag == "img"]
    advanced = fork | {"drafts": [fork["drafts"][0] | {"step": 3}]}
    page = _page(run, provenance, branches=[*run.trace["branches"], advanced])
    assert not [a for tag, a in page.elements if tag == "img" and "branch 0.0" in (a["alt"] or "")]
