"""A sweep's table, its knees, and the line that runs it again, as parts."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from latprof_analysis.report.parts import Cell, Items, Part, Table, Text
from latprof_analysis.study.setup import FALLS_BEHIND
from latprof_analysis.text import (
    NOT_ENOUGH,
    duration,
    fixed,
    percent,
    plural,
    rate,
    short_percent,
    span,
)

Figures = Mapping[str, Any]


def _per_second(value: float | None) -> str:
    return NOT_ENOUGH if value is None else fixed(value, 4)


def _rates(low: float, high: float) -> str:
    return f"{_per_second(low)} to {_per_second(high)}"


def _shares(low: float, high: float) -> str:
    return f"{short_percent(low)} to {short_percent(high)}"


def _times(low: float, high: float) -> str:
    return span(low, high, duration, 3)


def _rate(value: float | None) -> str:
    return rate(value, 3)


def _spans(low: float, high: float) -> str:
    return span(low, high, rate, 3)


class _Column(NamedTuple):
    """Its title, the figure in it, and how that and its range are written."""

    title: str
    key: str
    write: Callable[[float | None], str]
    write_range: Callable[[float, float], str]


_COLUMNS = (
    _Column("offered/s", "offered_per_second", _per_second, _rates),
    _Column("link %", "utilisation", short_percent, _shares),
    _Column("achieved/s", "achieved_per_second", _per_second, _rates),
    _Column("sent", "sent_bps", _rate, _spans),
    _Column("received", "received_bps", _rate, _spans),
    _Column("avg", "avg_ns", duration, _times),
    *(
        _Column(p, f"{of}_{p}_ns", duration, _times)
        for of in ("rtt", "operation")
        for p in ("p50", "p99")
    ),
    _Column("payload", "goodput_bps", _rate, _spans),
    _Column("lost %", "loss_ratio", short_percent, _shares),
    _Column("kept up", "kept_up_ns", duration, _times),
)
# What rows of a ping-pong are of.
_PROTOCOLS = ("tcp", "udp")
_MARK = "knee"
_ROOM = "a wider terminal, or sweep.json, shows their range"
_MOST_FAILURES = 5  # failures, one by one


def sweep_parts(document: Figures, *, everything: bool = False) -> list[Part]:
    """Lay out what sweep.json holds, and what to do next."""
    tables = sweep_tables(document, everything=everything)
    return [*tables, Items(list(_ending(document)))]


def sweep_tables(document: Figures, *, everything: bool = False) -> list[Part]:
    """Lay out what sweep.json holds; `everything`: Time Warp's latencies, too."""
    return [
        _table(document),
        *(_latencies(document) if everything else ()),
        *(Text(_knee(knee, document), tone="answer") for knee in document["knees"]),
        *(Text(text, tone="warning") for text in _failures(document)),
        *(Text(text, tone="warning") for text in _lost_records(document)),
    ]


def _table(document: Figures) -> Table:
    """Return the table; and without the ranges, where there is no room for them."""
    n, planned = (
        sum(run["state"] == "done" for run in document["runs"]),
        document["planned"],
    )
    title = plural(n, "run") if n == planned else f"{n} of {plural(planned, 'run')}"
    if document["repeat"] == 1:
        wide, narrow = title, title
    else:
        wide = f"{title}: medians of repeats (smallest to largest)"
        narrow = f"{title}: medians of repeats ({_ROOM})"
    form = _form(document, narrow, ranges=False)
    return replace(_form(document, wide, ranges=True), narrow=[form])


def _form(document: Figures, title: str, *, ranges: bool) -> Table:
    rows, swept = document["rows"], [one["name"] for one in document["swept"]]
    several = len({row["of"] for row in rows} - {""}) > 1 or not swept
    # of a COMMAND neither rate nor loss is known
    columns = [c for c in _COLUMNS if any(row[c.key] for row in rows)]
    found: list[list[str | Cell]] = []
    for row in rows:
        names = [row["combination"][name] for name in swept]
        names += [row["of"] or NOT_ENOUGH] if several else []
        cells = [_cell(row[c.key], c, ranges=ranges) for c in columns]
        found.append([*names, *cells, _mark(row), _where(row, share=ranges)])
    over = "over" if all(row["of"] in ("", *_PROTOCOLS) for row in rows) else "of"
    titles = [*swept, *([over] if several else []), *(c.title for c in columns)]
    died = any(row["died"] for row in rows)
    lacks = (row["rtt_p50_ns"] and not row["rtt_p99_ns"] for row in rows)
    note = "-: too few for a p99, which needs 1000" if any(lacks) else ""
    where = "died at" if died else "mostly in"
    return Table(title, [*titles, "", where], found, note)


def _latencies(document: Figures) -> Iterator[Part]:
    """Lay out Time Warp's latencies, each of all combinations side by side."""
    swept = [one["name"] for one in document["swept"]]
    warped = [row for row in document["rows"] if row.get("time_warp")]
    names = dict.fromkeys(name for row in warped for name in row["time_warp"])
    rows = [
        [
            *(name, row["of"]),
            *(row["combination"][one] for one in swept),
            *_medians_of(row["time_warp"], name),
        ]
        for name in sorted(names)
        for row in warped
        if name in row["time_warp"]
    ]
    if rows:
        title = "requests: Time Warp's latencies, A = B + C + D"
        columns = ("p50", "p95", "p99", "max", "mean", "of A")
        yield Table(title, ["", "over", *swept, *columns], rows)


def _medians_of(latencies: Figures, name: str) -> list[str]:
    """Write the medians of repeats, and what share of A the mean is."""
    spreads = latencies[name].values()
    cells = [duration(spread["median"] if spread else None) for spread in spreads]
    means = [latencies.get(one, {}).get("mean_ns") for one in (name, "A")]
    share = None
    if all(means) and means[1]["median"]:
        share = means[0]["median"] / means[1]["median"]
    return [*cells, percent(share)]


def _cell(spread: Figures | None, column: _Column, *, ranges: bool) -> str | Cell:
    if not spread:
        return NOT_ENOUGH
    low, high = spread["low"], spread["high"]
    apart = ranges and column.write(low) != column.write(high)
    return Cell(
        column.write(spread["median"]), column.write_range(low, high) if apart else ""
    )


def _where(row: Figures, *, share: bool) -> str:
    """Name the stage with most of the time, or the place with most of the loss."""
    of = "place" if row["largest_place"] else "stage"
    if not row[f"largest_{of}"]:
        return NOT_ENOUGH
    percent_of = f" {short_percent(row[f'largest_{of}_share'])}%" if share else ""
    return str(row[f"largest_{of}"]) + percent_of


def _mark(row: Figures) -> str:
    marks = [_MARK] if row["knee"] else []
    if row["failures"]:
        marks.append(f"{len(row['failures'])} of {row['runs']} failed")
    elif not row["runs"]:
        marks.append("not run")
    elif row["runs_done"] < row["runs"]:
        marks.append("interrupted")
    return ", ".join(marks)


def _knee(knee: Figures, document: Figures) -> str:
    """Say where a knee is, by which rule, and which stage grew."""
    row, option = document["rows"][knee["row"]], knee["option"]
    others = [f"{k}={v}" for k, v in row["combination"].items() if k != option]
    where = ", ".join([row["of"], *others])
    text = f"knee, {where}: at {option}={row['combination'][option]} "
    text += " and ".join(_rule(rule, knee, row) for rule in knee["rules"])
    if knee["stage"]:
        before, now = duration(knee["stage_before_ns"]), duration(knee["stage_ns"])
        text += f"; {knee['stage']} grew most, from {before} to {now} there and back"
    if row["largest_place"]:
        share = percent(row["largest_place_share"])
        text += f"; {share} of them died at {row['largest_place']}"
    return text


def _rule(rule: str, knee: Figures, row: Figures) -> str:
    if rule == "capacity":
        return f"{percent(row['utilisation']['median'])} of the link's rate is offered"
    if rule == "behind":
        achieved, offered = (
            _per_second(row[f"{which}_per_second"]["median"])
            for which in ("achieved", "offered")
        )
        least = f"{100 * FALLS_BEHIND:.0f}%"
        done = "sent" if row["of"] in _PROTOCOLS else "answered in time"
        return (
            f"fewer than {least} of the messages are {done} "
            f"({achieved}/s of {offered}/s)"
        )
    if rule == "loss":
        return f"loss sets in ({percent(row['loss_ratio']['median'])})"
    p = knee["percentile"]
    took = duration(row[f"rtt_{p}_ns"]["median"])
    return f"{p} leaves its plateau ({took}, from {duration(knee['plateau_ns'])})"


def _failures(document: Figures) -> Iterator[str]:
    failed = [run for run in document["runs"] if run["failure"]]
    for run in failed[:_MOST_FAILURES]:
        values = ", ".join(f"{k}={v}" for k, v in run["combination"].items())
        which = f"{values}, " if values else ""
        yield f"failed: {which}repeat {run['repeat']}: {run['failure']}"
    if len(failed) > _MOST_FAILURES:
        yield f"and {len(failed) - _MOST_FAILURES} more failed; sweep.json has all"


def _lost_records(document: Figures) -> Iterator[str]:
    lossy = [run for run in document["runs"] if run["lost_records"]]
    if lossy:
        lost = sum(run["lost_records"] for run in lossy)
        yield (
            f"warning: lost {plural(lost, 'record')} in {plural(len(lossy), 'run')}, "
            f"the first of them {lossy[0]['folder']}: rows may be missing or "
            "incomplete; use a larger --ring-bytes"
        )


def _ending(document: Figures) -> Iterator[str]:
    yield f"folder: {document['folder']}"
    yield f"again: {document['line']}"
    if len(document["folders"]) > 1:
        yield f"next: latprof compare {shlex.quote(document['folder'])}"
