"""CLEAR's result text: the mean round trip of each size, a line each.

    Size = 1024 bytes, Count = 10, average latency = 0.083 ms

A latency is in ns, us, ms or s, and may have an exponent (8.3e-02 ms). What stands
between the two figures may be anything, up to 1000 bytes. Lines without both are
comments, but for those that begin like one and do not end like one.

Its client prints by itself, of one size that is not in the line:

    Average Round-trip time: 0.083 ms
"""

from __future__ import annotations

import re
from pathlib import Path

from latprof_analysis.read.paths import numbered_lines
from latprof_analysis.read.result import (
    NS_PER_UNIT,
    YEARS_NS,
    Samples,
    Seen,
    Skipped,
    samples_of_file,
)

LATENCY = "mean round trip time of a full echo, by the wall clock"
KIND = "round trip"
_LINE = re.compile(
    rb"Size = (\d{1,18}) bytes, .{0,1000}?"
    rb"average latency = (\d{1,12}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,2})?)"
    rb" (ns|us|\xc2\xb5s|ms|s)\b"
)
_PRINTED = re.compile(
    rb"^Average Round-trip time: (\d{1,12}(?:\.\d{0,30})?) (ns|us|ms|s)\b"
)
_PRINTED_MATCH = re.compile(rb"^Average Round-trip time: \d", re.M)
_COUNT = re.compile(rb"[Cc]ount = (\d{1,18})\b")
_BEGINS = re.compile(rb"Size = ")
_MATCH = re.compile(rb"Size = \d{1,18} bytes, .{0,1000}average latency = ")


def matches(seen: Seen) -> bool:
    """Whether a line looks as one of CLEAR's."""
    return bool(_MATCH.search(seen.start) or _PRINTED_MATCH.search(seen.start))


def read_clear(path: Path) -> Samples:
    """Read CLEAR's result text.

    ``count`` is that of a field ``Count = N`` where there is one, else missing.
    """
    skipped = Skipped(path)
    rows: list[tuple[int | None, float, int | None]] = []
    for line, text in numbered_lines(path):
        if match := _PRINTED.match(text):
            rows.append((None, NS_PER_UNIT[match[2].decode()] * float(match[1]), None))
        elif match := _LINE.search(text):
            latency_ns = NS_PER_UNIT[match[3].decode()] * float(match[2])
            if latency_ns > YEARS_NS:
                skipped.add(line, "its latency is more than a hundred years")
                continue
            count = _COUNT.search(text)
            rows.append((int(match[1]), latency_ns, int(count[1]) if count else None))
        elif _BEGINS.search(text):
            skipped.add(line, "no `Size = N bytes, ... average latency = X ms`")
    skipped.check(len(rows), "it has no line `Size = N bytes, ... latency = X ms`")
    sizes, latencies, counts = zip(*rows, strict=True)
    return samples_of_file(
        skipped,
        "clear",
        {"latency": LATENCY, "reply_modes": {KIND: "echo"}},
        kind=KIND,
        size_bytes=sizes,
        latency_ns=latencies,
        statistic="mean",
        count=counts,
    )
