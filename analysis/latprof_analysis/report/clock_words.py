"""Clocks of several hosts, of a joined folder: what is known of them, in words.

Without pandas, as `overview` shows it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latprof_analysis.report.parts import Part, Table, Text
from latprof_analysis.text import NOT_ENOUGH, duration, plural

_Figures = Mapping[str, Any]
_MOST_PAIRS = 6
# What a message lacks where it has no transit, by what is known of the clocks.
_LACKS = {
    "one direction only": "packets went one way only",
    "broken": "a clock was set, or stamps contradict each other",
    "unknown": "no packets were near in time",
    "below the error": "it took less than the clocks are known by",
    "contradicted": "they would have arrived before they left",
}


def clocks_of(document: _Figures) -> Iterator[_Figures]:
    """Give what is known of clocks, of each run that has several hosts."""
    for run in (document.get("runs") or {"": document}).values():
        if (run.get("clocks") or {}).get("pairs"):
            yield run["clocks"]


def clock_sentences(document: _Figures) -> Iterator[str]:
    """Say of each pair of hosts how far apart their clocks are, and how sure it is."""
    for clocks in clocks_of(document):
        pairs = clocks["pairs"]
        yield from map(_pair, pairs[:_MOST_PAIRS])
        if len(pairs) > _MOST_PAIRS:
            yield f"and {plural(len(pairs) - _MOST_PAIRS, 'more pair')} of hosts: --all"
        if len(pairs) == 1:
            yield from filter(None, map(_way, _ways(pairs[0]), [pairs[0]] * 2))


def _pair(pair: _Figures) -> str:
    one, other = pair["hosts"]
    state = pair["state"]
    if pair["error_ns"] is None:
        return f"{one} <-> {other}: {state}: {pair['reason']}"
    offset, error = _signed(pair["wall_offset_ns"]), duration(_wall_error(pair))
    why = f" ({pair['reason']})" if state != "good" and pair["reason"] else ""
    return (
        f"{one} <-> {other}: offset {offset} +- {error} ({other}'s"
        f" wall clock less {one}'s), drift {_drift(pair)}, "
        f"{state}{why}{_narrower(pair)}"
    )


def _narrower(pair: _Figures) -> str:
    """Say whose word makes the interval narrower than packets alone do."""
    word = pair.get("wall_word") or {}
    narrower = word.get("outcome") == "narrower"
    return f", narrower by {_whose(word)}" if narrower else ""


def _whose(word: _Figures) -> str:
    by = "what chrony says" if word["by"] == "chrony" else word["by"]
    return f"{by} (wall clocks within {duration(word['error_ns'])})"


def _signed(ns: float) -> str:
    return f"{'-' if ns < 0 else ''}{duration(abs(ns))}"


def _wall_error(pair: _Figures, name: str = "error_ns") -> float | None:
    """Return by how much the offset of wall clocks may be wrong, if it is known."""
    error: float | None = pair[name]
    return None if error is None else error + pair.get("wall_error_ns", 0)


def _drift(pair: _Figures) -> str:
    """Return by how much one clock is faster, and how far that may be wrong."""
    error = pair.get("drift_error_ppb")
    beside = "" if error is None else f" +- {error / 1000:.3g}"
    return f"{pair['drift_ppb'] / 1000:.3g}{beside} us/s"


def _ways(pair: _Figures) -> list[tuple[str, _Figures]]:
    """Return the two ways between hosts, by name, with their figures."""
    names = (" -> ".join(ends) for ends in (pair["hosts"], pair["hosts"][::-1]))
    return list(zip(names, pair["ways"], strict=True))


def _way(way: tuple[str, _Figures], pair: _Figures) -> str:
    """Say how long the way took, and how much of that was above its least."""
    name, figures = way
    texts = []
    if (p50 := figures["transit"]["p50_ns"]) is not None:
        texts.append(f"transit p50 {duration(p50)} +- {duration(pair['error_ns'])}")
    queueing = figures["queueing"]
    there = [p for p in ("p50", "p99", "p95", "p90") if queueing.get(f"{p}_ns")]
    if there:
        found = (f"{p} {duration(queueing[f'{p}_ns'])}" for p in there[:2])
        texts.append(f"above the least {', '.join(found)}")
    return f"{name}: {'; '.join(texts)}" if texts else ""


def clock_warnings(document: _Figures) -> Iterator[str]:
    """Say which messages have no transit, and why, and whose wall clock was set."""
    for clocks in clocks_of(document):
        yield from map(_set, clocks.get("wall_clocks_set", ()))
        for pair in clocks["pairs"]:
            yield from _contradiction(pair)
            for ends, unknown, n in zip(
                (pair["hosts"], pair["hosts"][::-1]),
                pair["unknown"],
                pair["messages"],
                strict=True,
            ):
                for state, count in unknown.items():
                    yield (
                        f"{' -> '.join(ends)}: {plural(count, 'message')} of {n} "
                        f"without a transit: {_LACKS.get(state, state)}"
                    )


def _contradiction(pair: _Figures) -> Iterator[str]:
    word = pair.get("wall_word") or {}
    if word.get("outcome") == "contradicts":
        yield (
            f"{' <-> '.join(pair['hosts'])}: {_whose(word)} contradicts packets, by "
            f"which these are {_signed(pair['wall_offset_ns'])} +- "
            f"{duration(_wall_error(pair))} apart: one of both is wrong; times are by "
            "the packets"
        )


def _set(wall: _Figures) -> str:
    times = f", {wall['times']} times" if wall["times"] > 1 else ""
    return (
        f"{wall['host']}'s wall clock was set while it was recorded{times}, by "
        f"{_signed(wall['by_ns'])}: offsets of wall clocks are as these stood at last; "
        "stamps are of CLOCK_MONOTONIC, which is never set"
    )


def clock_tables(document: _Figures) -> Iterator[Part]:
    """Lay out pairs of hosts, ways between them, and whether offsets add up."""
    for clocks in clocks_of(document):
        columns = ["hosts", "offset", "+-", "at most +-", "drift", "state"]
        columns += ["round trip at least", "packets there, back"]
        yield Table(
            f"Clocks, on that of {clocks['reference']}",
            columns,
            [_row(pair) for pair in clocks["pairs"]],
            "Offset: the second host's wall clock less the first one's. Its interval "
            "is what packets in both directions allow: half of the shortest round "
            "trip, as either way may be the longer one.",
        )
        yield Table(
            "Ways between hosts",
            ["way", "transit p50", "+-", "above its least: p50", "p90", "p99", "n"],
            [_way_row(*way, pair) for pair in clocks["pairs"] for way in _ways(pair)],
            "What a message took above the least of its way needs no word about how "
            "long both ways take: it is as exact as the drift is known.",
        )
        for pair in clocks["pairs"]:
            word = pair.get("wall_word") or {}
            if word.get("outcome") == "unknown":
                ends = " <-> ".join(pair["hosts"])
                why = f"{ends}: wall clocks are no second source: {word['why']}."
                yield Text(why, quiet=True)
        for loop in clocks["loops"]:
            around = " -> ".join([*loop["hosts"], loop["hosts"][0]])
            rms, most = duration(loop["rms_ns"]), duration(loop["max_ns"])
            yield Text(
                f"Around {around} offsets fail to add up to 0 by {rms} (rms), "
                f"at most {most}.",
                quiet=True,
            )


def _row(pair: _Figures) -> list[str]:
    known = pair["error_ns"] is not None
    return [
        " <-> ".join(pair["hosts"]),
        _signed(pair["wall_offset_ns"]) if known else NOT_ENOUGH,
        duration(_wall_error(pair)),
        duration(_wall_error(pair, "largest_error_ns")),
        _drift(pair) if known else NOT_ENOUGH,
        pair["state"],
        duration(pair["base_round_trip_ns"]),
        ", ".join(f"{n:,}" for n in pair["packets"]),
    ]


def _way_row(name: str, figures: _Figures, pair: _Figures) -> list[str]:
    queueing = figures["queueing"]
    p50 = figures["transit"]["p50_ns"]
    return [
        name,
        duration(p50),
        duration(pair["error_ns"] if p50 is not None else None),
        *(duration(queueing[f"{p}_ns"]) for p in ("p50", "p90", "p99")),
        f"{queueing['n']:,}",
    ]
