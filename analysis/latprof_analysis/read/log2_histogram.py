"""Histograms of powers of two that eBPF tools print: bcc's and netstacklat's.

         usecs               : count     distribution
             0 -> 1          : 0        |                    |
             2 -> 3          : 12       |****                |

    tcp-socket-read:
    (1.02us, 2.05us]              12 |@@@@                |
    count: 12, average: 1.40us

bcc prints each interval by itself: they are added up. netstacklat prints all since it
began: the last of each name counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from latprof_analysis.read.buckets import Buckets
from latprof_analysis.read.paths import numbered_lines
from latprof_analysis.read.result import (
    NS_PER_UNIT,
    Samples,
    Seen,
    Skipped,
    Statistic,
    samples_of_statistics,
)

LATENCY = "durations in buckets of powers of two, as an eBPF tool printed them"
KIND = "latency"
_BCC = re.compile(r"^\s+(nsecs|usecs|msecs|ns|us|ms)\s+: count\s+distribution\s*$")
_BCC_ROW = re.compile(r"^\s*(\d{1,19}) -> (\d{1,19})\s*: (\d{1,18})\s*\|")
# bcc's "saddr = 10.0.0.1", netstacklat's "tcp-start, interface=2:"
_TITLE = re.compile(r"^(\S.{0,200}? = .{1,200}|[\w-]{1,99}(?:, \w+=\d+)*(?=:\s*$)).*")
_TIME = r"(\d{1,12}(?:\.\d{1,9})?(?:e[+-]?\d{1,2})?|inf)\s?(n|u|m)?s"
_NET_ROW = re.compile(rf"^[\[(]{_TIME}, {_TIME}\]\s+(\d{{1,18}}) \|")
_NET_SUM = re.compile(rf"^count: (\d{{1,18}}), average: {_TIME}")
_MATCH = re.compile(
    rb"^\s+(?:[num]secs|[num]s)\s+: count\s+distribution\s*$"
    rb"|^[\[(][\d.e+]+[num]?s, (?:[\d.e+]+[num]?|inf )s\]\s+\d+ \|",
    re.M,
)
_PREFIX = {"n": 1.0, "u": 1e3, "m": 1e6, None: 1e9}

Row = tuple[float, float, int]


def matches(seen: Seen) -> bool:
    """Whether a line is a header of bcc's or a bucket of netstacklat's."""
    return bool(_MATCH.search(seen.start))


def read_log2_histogram(path: Path) -> Samples:
    """Read histograms: ``kind`` is the line above one, such as "saddr = 10.0.0.1"."""
    skipped = Skipped(path)
    found: dict[str, Buckets] = {}
    means: list[Statistic] = []
    for kind, rows, mean_ns, is_all in _histograms(path):
        some = [row for row in rows if row[2]]
        if not some:
            continue
        low, high, count = (np.array(column) for column in zip(*some, strict=True))
        buckets = Buckets(low, high, count.astype(np.int64))
        if is_all:
            means = [mean for mean in means if mean.kind != kind]
            found.pop(kind, None)
        found[kind] = found[kind] + buckets if kind in found else buckets
        if mean_ns is not None:
            means.append(Statistic(kind, "mean", mean_ns, buckets.n))
    skipped.check(len(found), "its histograms hold nothing")
    meta = {"latency": LATENCY}
    return samples_of_statistics(
        skipped, "log2-histogram", meta, means, histograms=found
    )


def _histograms(path: Path) -> Iterator[tuple[str, list[Row], float | None, bool]]:
    """Give each: its title, buckets in ns, mean if known, and whether it is of all."""
    title, unit = KIND, ""
    rows: list[Row] = []
    for _, raw in numbered_lines(path):
        text = raw.decode("utf-8", "replace").rstrip()
        if match := _BCC.match(text):
            if rows:
                yield title, rows, None, False
            rows, unit = [], match[1].removesuffix("ecs")
        elif (match := _BCC_ROW.match(text)) and unit:
            scale = NS_PER_UNIT[unit]
            # whole numbers: 2 -> 3 is from 2 to below 4
            low, high = scale * int(match[1]), scale * (int(match[2]) + 1)
            rows.append((low, high, int(match[3])))
        elif match := _NET_ROW.match(text):
            ends = [float(match[i]) * _PREFIX[match[i + 1]] for i in (1, 3)]
            rows.append((ends[0], ends[1], int(match[5])))
        elif match := _NET_SUM.match(text):
            yield title, rows, float(match[2]) * _PREFIX[match[3]], True
            rows, title = [], KIND
        elif match := _TITLE.match(text):
            if rows:
                yield title, rows, None, False
            rows, title = [], match[1]
    if rows:
        yield title, rows, None, False
