"""Summaries that load generators print for people: a table with a row for each tool.

wrk and wrk2, hey, oha, ab, vegeta, k6, netperf (``-k`` too), redis-benchmark and
memtier. A row has the lines of a tool that hold statistics, as templates: of a line
``Average: {mean} secs`` that is what stands there. A space stands for any number of
them; ``{p}`` is the percentile whose value follows, ``{kind}`` what was timed, ``{_}``
anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from pathlib import Path

from latprof_analysis.read.paths import numbered_lines
from latprof_analysis.read.percentile_table import buckets_of
from latprof_analysis.read.result import (
    Format,
    ReadError,
    Samples,
    Seen,
    Skipped,
    Statistic,
    samples_of_statistics,
)

_MOST_LINES, _LOOKED_AT_BYTES = 100_000, 1 << 16
_COLOUR = re.compile(rb"\x1b\[[\d;]*m")
_NUMBER = r"\d{1,12}(?:\.\d{1,12})?"
_UNIT = "ns|us|µs|ms|s|m|h"
_NS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "m": 6e10, "h": 3.6e12}
_NS |= {"sec": 1e9, "secs": 1e9}
_PART = re.compile(rf"({_NUMBER})({_UNIT})")
_GROUPS = {
    "_": r"\S+",
    "p": rf"({_NUMBER})",
    "kind": r"(\S{1,200}?)",
    "count": r"(\d{1,15})",
    "rate": rf"({_NUMBER})",
}
_VALUE = rf"((?:{_NUMBER}(?:{_UNIT}))+|{_NUMBER}(?: (?:secs?|ms|us|ns)\b)?)"


@dataclass(frozen=True)
class _Tool:
    """A tool's summary.

    Attributes
    ----------
    begin : str
        Regular expression of what is in the first bytes of a file.
    lines : tuple of str
        Templates of lines with statistics. ``{rate}`` is of transactions a second,
        each after the one before: its inverse is their mean.
    unit : str
        Of values that have none.
    kinds : str
        Template of a line from which on all is of its ``{kind}``.
    count : str
        Template of lines with how many there were; several are added up.
    table : str
        Template of rows of a histogram, each with a value and how many there were up
        to it.
    table_ends : str
        In a line behind which other tables follow.
    several : str
        In lines of tests that have several transactions at once, of which a rate says
        nothing of the time of one.
    """

    begin: str
    lines: tuple[str, ...]
    unit: str = "s"
    latency: str = "response time of a request, as its client measures it"
    kind: str = "request"
    kinds: str = ""
    count: str = ""
    table: str = ""
    table_ends: str = ""
    several: str = ""


# Each before those whose beginning would fit, too.
_TOOLS = {
    "wrk2": _Tool(
        r"^Running [\s\S]{1,4000}^  Latency Distribution \(HdrHistogram",
        (" Latency {mean} {_} {max} {_}",),
        "ms",
        "response time of a request from when it was due, as wrk2 measures it",
        table=" {value} {_} {count} {_}",
        table_ends="#[",
    ),
    "wrk": _Tool(
        r"^Running \S+ test @ ",
        (" Latency {mean} {_} {max} {_}", " {p}% {value}"),
        count=" {count} requests in {_} {_} read",
    ),
    "oha": _Tool(
        r"^  Success rate:.*\n  Total:\s+[\d.]+ \w+\n  Slowest:",
        (
            *(" Slowest: {max}", " Fastest: {min}", " Average: {mean}"),
            " {p}% in {value}",
        ),
        count=" [{_}] {count} responses",
    ),
    "hey": _Tool(
        r"^  Total:\s+[\d.]+ secs\n  Slowest:\s+[\d.]+ secs\n",
        (
            *(" Slowest: {max}", " Fastest: {min}", " Average: {mean}"),
            *(" {p}%% in {value}", " {p}% in {value}"),
        ),
        count=" [{_}] {count} responses",
    ),
    "ab": _Tool(
        r"^This is ApacheBench|^Percentage of the requests served within",
        ("Total: {min} {mean} {_} {_} {max}", " {p}% {value}"),
        "ms",
        count="Complete requests: {count}",
    ),
    "vegeta": _Tool(
        r"^Latencies +\[(?:min, )?mean, 50, ",
        (
            "Latencies [min, mean, 50, 90, 95, 99, max] "
            "{min}, {mean}, {p50}, {p90}, {p95}, {p99}, {max}",
            "Latencies [mean, 50, 95, 99, max] {mean}, {p50}, {p95}, {p99}, {max}",
        ),
        count="Requests [total, rate, throughput] {count}, {_} {_}",
    ),
    "k6": _Tool(
        r"^ +(?:http_req|iteration)_duration\.+: avg=",
        (" {kind}.: avg={mean} min={min} med={p50} max={max} p(90)={p90} p(95)={p95}",),
        latency="times of k6's metrics",
    ),
    "netperf": _Tool(
        r"^(?:MIGRATED )?\w+ (?:REQUEST/RESPONSE|[\w ]+) TEST from ",
        (
            *("MIN_LATENCY={min}", "MEAN_LATENCY={mean}", "MAX_LATENCY={max}"),
            *("P{p}_LATENCY={value}", "{_} {_} {_} {_} {_} {rate}"),
        ),
        "us",
        "round trip time of a transaction, as netperf measures it",
        "transaction",
        several=r"first burst [1-9]",
    ),
    "redis-benchmark": _Tool(
        r"====== .{1,200} ======\s*$[\s\S]{1,99}requests completed in",
        (" {mean} {min} {p50} {p95} {p99} {max}",),
        "ms",
        kinds="====== {kind} ======",
        count=" {count} requests completed in {_} seconds",
        table="{_}% <= {value} milliseconds (cumulative count {count})",
        table_ends="Cumulative distribution",
    ),
    "memtier": _Tool(
        r"^Type +Ops/sec +Hits/sec +Misses/sec +Avg\. Latency +p50 Latency",
        ("{kind} {_} {_} {_} {mean} {p50} {p99} {p99.9} {_}",),
        "ms",
    ),
}


def _pattern(template: str) -> tuple[re.Pattern[str], list[str]]:
    """Return what a line of a template looks like, and what its groups are."""
    # every other part is a field; dots lead to k6's values
    parts = re.split(r"\{([\w.]+)\}", template)
    fields = parts[1::2]
    texts = [re.escape(each).replace(r"\ ", r"\s+") for each in parts[::2]]
    groups = [_GROUPS.get(each, _VALUE) for each in fields]
    text = "".join(a + b for a, b in zip(texts, [*groups, ""], strict=True))
    text = text.replace(r"\.:", r"\.*:")
    names = [each for each in fields if each != "_"]
    return re.compile(rf"\A{text}\s*\Z"), names


@cache
def _cached(template: str) -> re.Pattern[str]:
    return _pattern(template)[0]


@dataclass
class _Found:
    """What was read so far."""

    kind: str
    rows: list[tuple[str, str, float]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    tables: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    in_table: bool = True
    several: bool = False


def _matches(tool: _Tool, seen: Seen) -> bool:
    start = _COLOUR.sub(b"", seen.start[:_LOOKED_AT_BYTES])
    return bool(re.search(tool.begin.encode(), start, re.M))


def _read(name: str, path: Path) -> Samples:
    """Read a tool's summary, or several one after another."""
    tool = _TOOLS[name]
    found = _Found(tool.kind)
    lines = [_pattern(template) for template in tool.lines]
    for _, raw in islice(numbered_lines(path), _MOST_LINES):
        # what was on the line before it was printed again is no part of it
        plain = _COLOUR.sub(b"", raw).decode("utf-8", "replace")
        text = plain.rstrip("\r\n").rpartition("\r")[2]
        _read_line(tool, found, text)
        for pattern, names in lines:
            if match := pattern.match(text):
                cells = dict(zip(names, match.groups(), strict=True))
                if found.several and "rate" in cells:
                    continue
                found.rows += _statistics(cells, found.kind, tool.unit)
    histograms = {kind: buckets_of(path, t) for kind, t in found.tables.items()}
    if not (found.rows or histograms):
        raise ReadError(path, f"it has no latencies of {name}'s")
    of = [(kind, statistic) for kind, statistic, _ in found.rows]
    once = len(set(of)) == len(of)  # else counts are of all together
    statistics = [
        Statistic(kind, statistic, ns, found.counts.get(kind) if once else None)
        for kind, statistic, ns in found.rows
        if kind not in histograms or statistic in ("mean", "min", "max")
    ]
    meta = {"latency": tool.latency}
    return samples_of_statistics(
        Skipped(path), name, meta, statistics, histograms=histograms
    )


def _read_line(tool: _Tool, found: _Found, text: str) -> None:
    """Take what a line says of which kind it is, how many, and of a histogram."""
    if tool.kinds and (match := _cached(tool.kinds).search(text)):
        found.kind, found.in_table = match[1], True
    if tool.count and (match := _cached(tool.count).search(text)):
        found.counts[found.kind] = found.counts.get(found.kind, 0) + int(match[1])
    found.several |= bool(tool.several and re.search(tool.several, text))
    if tool.table_ends and text.startswith(tool.table_ends):
        found.in_table = False
    if tool.table and found.in_table and (match := _cached(tool.table).search(text)):
        row = _ns(match[1], tool.unit), int(match[2])
        found.tables.setdefault(found.kind, []).append(row)


def _statistics(
    cells: dict[str, str], kind: str, unit: str
) -> Iterator[tuple[str, str, float]]:
    kind = cells.pop("kind", kind)
    if "p" in cells:
        yield kind, f"p{float(cells['p']):g}", _ns(cells["value"], unit)
    elif "rate" in cells:
        if rate := float(cells["rate"]):
            yield kind, "mean", _NS["s"] / rate
    else:
        yield from ((kind, name, _ns(cell, unit)) for name, cell in cells.items())


def _ns(text: str, unit: str) -> float:
    """Return a time in ns: "1m2.5s", "0.5 secs", or a number of the tool's unit."""
    number, _, word = text.partition(" ")
    if word:
        return float(number) * _NS[word]
    if parts := _PART.findall(text):
        return sum(float(each) * _NS[of] for each, of in parts)
    return float(text) * _NS[unit]


SUMMARIES = {
    name: Format(partial(_matches, tool), partial(_read, name))
    for name, tool in _TOOLS.items()
}
