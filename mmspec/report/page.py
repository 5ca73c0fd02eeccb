"""The page of a run: one HTML file that needs nothing beside it, no network and no script.

Knows the trace, pictures and where things were made; the template knows how it looks. Text of the run reaches
the page through the template's escaping alone.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL import Image

from mmspec.report.previews import Pictures
from mmspec.report.provenance import Provenance
from mmspec.report.strip import time_strip
from mmspec.report.thumbnail import data_uri, shaded

__all__ = ["report_card", "report_page", "template"]

_FULL_PIXELS, _FULL_PIXELS_OF_MANY = 768, 320
_MANY_PAIRS = 6
_THUMB_PIXELS, _THUMB_PIXELS_OF_MANY = 176, 96
_MANY_DRAFTS = 100
_WHERE_PIXELS = 96
_CARD_PIXELS, _MAX_CARD_PAIRS = 256, 4
_LONG_PROMPT = 140  # characters
_SEVERITY = ("unjudged", "held", "unsure", "failed")

Plain = dict[str, Any]


def report_page(
    trace: Mapping[str, Any], *, images: Sequence[Image.Image | None], pictures: Pictures, provenance: Provenance
) -> str:
    """The page as HTML. `images` are the pairs' RGB pictures, in the order of the trace's pairs."""
    request, metrics = trace["request"], trace["metrics"]
    side = _FULL_PIXELS_OF_MANY if len(images) > _MANY_PAIRS else _FULL_PIXELS
    pairs = [_pair(pair, image, side=side) for pair, image in zip(trace["pairs"], images, strict=True)]
    return template("report.html").render(
        title=f"mmspec: {' '.join(_topic(request).split())[:80]}",
        request=request,
        prompt=_pieces(request["prompt"], trace["pairs"][0]["claims"], source="prompt"),
        prompt_is_long=len(request["prompt"]) > _LONG_PROMPT,
        partial=trace["partial"],
        pairs=pairs,
        tree=_roots(trace, pictures),
        num_branches=len(trace["branches"]),
        num_pruned=sum(branch["state"] == "pruned" for branch in trace["branches"]),
        strip=time_strip(trace),
        acceptance=[float(rate) for rate in str(metrics.get("acceptance_by_depth", "")).split()],
        made_with=[*_made_with(request, provenance)],
        metrics=[(name, f"{value:.4g}" if isinstance(value, float) else value) for name, value in metrics.items()],
        config=yaml.safe_dump(dict(provenance.config), allow_unicode=True, sort_keys=False),
        command=provenance.command(request),
    )


def report_card(trace: Mapping[str, Any], *, images: Sequence[Image.Image | None]) -> str:
    """The best pairs as a piece of HTML for a notebook: text, picture, verdict, and the claims that do not hold."""
    pairs = [_pair(pair, image, side=_CARD_PIXELS) for pair, image in zip(trace["pairs"], images, strict=True)]
    return template("card.html").render(pairs=pairs[:_MAX_CARD_PAIRS], num_left=max(0, len(pairs) - _MAX_CARD_PAIRS))


@functools.cache
def template(name: str) -> Any:
    """A page of `templates/`; what fills it is escaped."""
    return Environment(
        loader=PackageLoader("mmspec.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template(name)


def _topic(request: Mapping[str, Any]) -> str:
    return request["prompt"] or request["text"] or request["image"]


def _pair(pair: Mapping[str, Any], image: Image.Image | None, *, side: int) -> Plain:
    claims = [_claim(claim, image) for claim in pair["claims"]]
    text = pair["text"].strip()
    own = "given" if any(claim["source"] == "given" for claim in claims) else "text"
    standing, summary = _standing(pair, claims)
    return {
        "text": text,
        "pieces": _pieces(pair["text"], claims, source=own),
        "picture": image and data_uri(image, side=side),
        "width": image and image.width,
        "height": image and image.height,
        "alt": f"The picture made beside the text: {text}" if text else "The picture",
        "seed": pair["seed"],
        "claims": claims,
        "standing": standing,
        "summary": summary,
        "groups": [
            ("Asked for", [claim for claim in claims if claim["source"] != "text"]),
            ("Said by the text", [claim for claim in claims if claim["source"] == "text"]),
        ],
    }


def _standing(pair: Mapping[str, Any], claims: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    if not claims:
        return "", "Nothing was verified: text and picture were not compared."
    num_failed, num_held = (sum(claim["verdict"] == kind for claim in claims) for kind in ("failed", "held"))
    counted = f"{num_held} of {len(claims)} claims held, {num_failed} failed"
    if pair["verified"]:
        return "good", f"Verified: {counted}"
    return "bad" if num_failed else "open", f"Not verified: {counted}"


def _claim(claim: Mapping[str, Any], picture: Image.Image | None) -> Plain:
    where = claim["relevance"]
    return {
        **claim,
        "percent": round(100 * claim["probability"]),
        "where": data_uri(shaded(picture, where, side=_WHERE_PIXELS), side=_WHERE_PIXELS)
        if picture and where
        else None,
    }


def _pieces(text: str, claims: Sequence[Mapping[str, Any]], *, source: str) -> list[Plain]:
    """The text cut where the claims that it makes begin and end, each piece with its worst verdict."""
    own = sorted(
        (claim for claim in claims if claim["source"] == source), key=lambda claim: _SEVERITY.index(claim["verdict"])
    )
    cuts = sorted({0, len(text), *(min(place, len(text)) for claim in own for place in claim["span"])})
    pieces: list[Plain] = []
    for start, end in itertools.pairwise(cuts):
        over = [claim for claim in own if claim["span"][0] <= start and end <= claim["span"][1]]
        worst = over[-1] if over and over[-1]["verdict"] != "unjudged" else None
        pieces.append({"words": text[start:end], "verdict": worst and worst["verdict"], "note": worst and _note(worst)})
    return pieces


def _note(claim: Mapping[str, Any]) -> str:
    instead = f", looks like {claim['looks_like']}" if claim["looks_like"] else ""
    return f"{claim['phrase']}: {claim['verdict']}, {claim['probability']:.2f}{instead}"


def _roots(trace: Mapping[str, Any], pictures: Pictures) -> list[Plain]:
    """The branches, each with its `children`; a branch without a living parent in the trace is a root."""
    side = _THUMB_PIXELS_OF_MANY if len(pictures) > _MANY_DRAFTS else _THUMB_PIXELS
    chosen = {pair["seed"] for pair in trace["pairs"]}
    pictures = {**_taken_over(trace, pictures), **pictures}
    nodes = {branch["id"]: _branch(branch, pictures, chosen=chosen, side=side) for branch in trace["branches"]}
    for pair in trace["pairs"]:  # its claims are those of the finished text
        if pair["branch"] in nodes and pair["text"]:
            nodes[pair["branch"]]["pieces"] = _pieces(pair["text"], pair["claims"], source="text")
    roots: list[Plain] = []
    for node in nodes.values():
        siblings = nodes[node["parent"]]["children"] if node["parent"] in nodes else roots
        siblings.append(node)
    return roots


def _taken_over(trace: Mapping[str, Any], pictures: Pictures) -> dict[tuple[str, int], Image.Image]:
    """Pictures of drafts that a fork took over and that were not advanced since: they are those of where they came from."""
    drafts = [(branch["id"], draft) for branch in trace["branches"] for draft in branch["drafts"]]
    seen = {
        (draft["seed"], draft["step"]): pictures[branch_id, draft["index"]]
        for branch_id, draft in drafts
        if (branch_id, draft["index"]) in pictures
    }
    return {
        (branch_id, draft["index"]): seen[draft["seed"], draft["step"]]
        for branch_id, draft in drafts
        if (draft["seed"], draft["step"]) in seen
    }


def _branch(branch: Mapping[str, Any], pictures: Pictures, *, chosen: set[int], side: int) -> Plain:
    drafts = [
        _draft(draft, pictures.get((branch["id"], draft["index"])), branch=branch, chosen=chosen, side=side)
        for draft in branch["drafts"]
    ]
    judged = sorted((draft for draft in branch["drafts"] if draft["claims"]), key=lambda draft: draft["reason"] is None)
    return {
        **branch,
        "pieces": _pieces(branch["text"], judged[-1]["claims"] if judged else [], source="text"),
        "drafts": drafts,
        "children": [],
    }


def _draft(
    draft: Mapping[str, Any],
    picture: Image.Image | None,
    *,
    branch: Mapping[str, Any],
    chosen: set[int],
    side: int,
) -> Plain:
    gone = draft["reason"] is not None or branch["state"] == "pruned"
    # Prompt and text may claim the same.
    failing = {claim["phrase"]: claim for claim in draft["claims"] if claim["verdict"] == "failed"}.values()
    title = f"Draft {draft['index']} of branch {branch['id']}, step {draft['step']} of {draft['num_steps']}"
    return {
        **draft,
        "picture": picture and data_uri(picture, side=side),
        "alt": f"{title}, pruned: {draft['reason'] or branch['reason'] or 'with its branch'}" if gone else title,
        "gone": gone,
        "chosen": not gone and draft["seed"] in chosen,
        "failing": [_claim(claim, picture) for claim in failing],
        "num_judged": len(draft["claims"]),
        "num_held": sum(claim["verdict"] == "held" for claim in draft["claims"]),
    }


def _made_with(request: Mapping[str, Any], provenance: Provenance) -> Iterator[tuple[str, str]]:
    yield "seed", str(request["seed"])
    for group, node in provenance.models.items():
        yield group, ", ".join(_references(node)) or str(node.get("_target_", "")).rpartition(".")[2] or "none"
    yield "overrides", " ".join(provenance.overrides) or "none"
    yield "versions", ", ".join(f"{name} {version}" for name, version in provenance.versions.items())


def _references(node: object) -> Iterator[str]:
    """The model references in a configured part."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if isinstance(value, str) and key.endswith("path"):
                yield value
            else:
                yield from _references(value)
