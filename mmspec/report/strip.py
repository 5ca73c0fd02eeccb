"""When text and pictures were at work, as bars of a Gantt strip, in percent of the run.

Where the pipeline measured no spans, every event of the trace's timeline stands for the moment it tells of.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["time_strip"]

_LANES = {
    "loading": ("load_wait",),
    "text": ("prefill", "text"),
    "picture": ("image", "finish"),
    "verify": ("verify", "explain"),
}
_EVENTS = {"text": "text", "preview": "picture", "scored": "verify"}
_MIN_SPAN_S = 0.001
_MIN_GAP_PERCENT = 4  # between the numbers of two rounds

Plain = dict[str, Any]


@dataclass(frozen=True)
class _Bar:
    lane: str
    start_s: float
    end_s: float
    note: str


def time_strip(trace: Mapping[str, Any]) -> Plain | None:
    """What the template draws: lanes with bars, edges of rounds, totals; None where nothing has a time."""
    bars = [*_loads(trace["timeline"]), *(_measured(trace["spans"]) or _moments(trace["timeline"])), *_prunes(trace)]
    rounds = [entry for entry in trace["timeline"] if entry["event"] == "round"]
    if not any(bar.lane in _EVENTS.values() for bar in bars):
        return None
    begun_s, ended_s = min(bar.start_s for bar in bars), max(bar.end_s for bar in bars)
    scale = 100 / max(ended_s - begun_s, 1e-3)

    def left(at_s: float) -> float:
        return round((at_s - begun_s) * scale, 3)

    names = [name for name in (*_LANES, "pruned") if any(bar.lane == name for bar in bars)]
    busy_s = {name: _covered([(bar.start_s, bar.end_s) for bar in bars if bar.lane == name]) for name in names}
    lanes = [
        {
            "name": name,
            "bars": [
                {"left": left(bar.start_s), "width": round((bar.end_s - bar.start_s) * scale, 3), "note": bar.note}
                for bar in bars
                if bar.lane == name
            ],
            "total": f"{busy_s[name]:.1f} s" if busy_s[name] else str(sum(bar.lane == name for bar in bars)),
        }
        for name in names
    ]
    totals = ", ".join(f"{lane['name']} {lane['total']}" for lane in lanes)
    return {
        "lanes": lanes,
        "rounds": [*_edges(rounds, left)],
        "total": f"{ended_s - begun_s:.1f} s",
        "hidden": _at_once(bars),
        "alt": f"Time by stage: {totals}; in all {ended_s - begun_s:.1f} s in {len(rounds)} rounds",
    }


def _edges(rounds: Sequence[Mapping[str, Any]], left: Any) -> Iterator[Plain]:
    last = -100.0
    for entry in rounds:
        place = left(entry["at_s"])
        named = place - last >= _MIN_GAP_PERCENT
        last = place if named else last
        yield {"number": entry["round"], "left": place, "named": named}


def _loads(timeline: Sequence[Mapping[str, Any]]) -> Iterator[_Bar]:
    for entry in timeline:
        if entry["event"] == "loaded":
            note = f"{entry['part']} loaded in {entry['seconds_s']:.2f} s"
            yield _Bar("loading", entry["at_s"] - entry["seconds_s"], entry["at_s"], note)


def _measured(spans: Sequence[Mapping[str, Any]]) -> list[_Bar]:
    lane_of = {name: lane for lane, names in _LANES.items() for name in names}
    return [
        _Bar(lane_of[name], start_s, end_s, f"{name} {end_s - start_s:.2f} s")
        for name, start_s, end_s in ((span["name"], span["start_s"], span["end_s"]) for span in spans)
        if name in lane_of and end_s - start_s >= _MIN_SPAN_S
    ]


def _moments(timeline: Sequence[Mapping[str, Any]]) -> Iterator[_Bar]:
    for entry in timeline:
        if entry["event"] in _EVENTS:
            lane = _EVENTS[entry["event"]]
            yield _Bar(lane, entry["at_s"], entry["at_s"], f"branch {entry['branch']} at {entry['at_s']:.2f} s")


def _prunes(trace: Mapping[str, Any]) -> Iterator[_Bar]:
    for entry in trace["timeline"]:
        if entry["event"] == "pruned":
            what = f"branch {entry['branch']}" + ("" if entry["draft"] is None else f", draft {entry['draft']}")
            yield _Bar("pruned", entry["at_s"], entry["at_s"], f"{what}: {entry['reason']}")


def _at_once(bars: Sequence[_Bar]) -> str:
    """How long text and pictures were at work at the same time, in words; empty where never."""
    lanes = [[(bar.start_s, bar.end_s) for bar in bars if bar.lane == name] for name in ("text", "picture")]
    both_s = _covered(lanes[0]) + _covered(lanes[1]) - _covered([*lanes[0], *lanes[1]])
    return f"Text and pictures were at work at the same time for {both_s:.1f} s." if both_s > 0.05 else ""


def _covered(intervals: Sequence[tuple[float, float]]) -> float:
    """Seconds that lie in at least one of the intervals."""
    total_s, reached_s = 0.0, float("-inf")
    for start_s, end_s in sorted(intervals):
        total_s += max(0.0, end_s - max(start_s, reached_s))
        reached_s = max(reached_s, end_s)
    return total_s
