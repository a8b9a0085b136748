"""fping's text: a line for each reply or timeout, a line for each target, or ``-C``.

    127.0.0.1 : [0], 64 bytes, 0.035 ms (0.035 avg, 0% loss)
    127.0.0.1 : [1], timed out (0.035 avg, 50% loss)
    127.0.0.1 : xmt/rcv/%loss = 2/1/50%, min/avg/max = 0.035/0.035/0.035
    127.0.0.1 : 0.035 - 0.031

Of intervals (``-Q``) the last line of a target is the one that counts.
"""

from __future__ import annotations

import re
from array import array
from pathlib import Path

import numpy as np

from latprof_analysis.read.paths import numbered_lines
from latprof_analysis.read.result import (
    Losses,
    Part,
    ReadError,
    Samples,
    Seen,
    Skipped,
    Statistic,
    add_losses,
    samples_of_parts,
)

LATENCY = "round trip time of an ICMP echo, as fping measures it"
_MS = 1e6
_STAMP = r"^(?:\[[\d.:]+\] )?"
_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_EACH = re.compile(
    rf"{_STAMP}(\S{{1,255}})\s+: \[\d{{1,9}}\], "
    rf"(?:(\d{{1,6}}) bytes, ({_NUMBER}) ms|timed out)"
)
_TARGET = re.compile(
    rf"{_STAMP}(\S{{1,255}})\s+: xmt/rcv/%(?:loss|return) = (\d{{1,15}})/(\d{{1,15}})/"
    rf"\d+%(?:.*min/avg/max = ({_NUMBER})/({_NUMBER})/({_NUMBER}))?"
)
_ALL = re.compile(rf"^(\S{{1,255}})\s+:((?: (?:-|{_NUMBER}))+)\s*$")
_MATCH = re.compile(
    rb"^(?:\[[\d.:]+\] )?\S{1,255}\s+: (?:\[\d+\], (?:\d+ bytes, [\d.]+ ms|timed out)"
    rb"|xmt/rcv/%)|\A\S{1,255}\s+:(?: (?:-|\d+\.\d+|\d+))+\s*$",
    re.M,
)


def matches(seen: Seen) -> bool:
    """Whether a line looks as one of fping's."""
    return bool(_MATCH.search(seen.start))


def read_fping(path: Path) -> Samples:
    """Read what fping printed: ``kind`` is the target.

    Of each that was sent there is a row, unless fping was quiet.
    """
    each: dict[str, array[float]] = {}
    size_bytes: dict[str, int] = {}
    last: dict[str, re.Match[str]] = {}
    for _, raw in numbered_lines(path):
        text = raw.decode("utf-8", "replace")
        if match := _EACH.match(text):
            each.setdefault(match[1], array("d")).append(float(match[3] or "nan"))
            if match[2]:
                size_bytes[match[1]] = int(match[2])
        elif match := _TARGET.match(text):
            last[match[1]] = match
        elif match := _ALL.match(text):
            cells = match[2].replace("-", "nan").split()
            each.setdefault(match[1], array("d")).extend(map(float, cells))
    if not (each or last):
        raise ReadError(path, "fping printed no reply and no target")
    losses: dict[str, Losses] = {}
    statistics: list[Statistic] = []
    for target, times_ms in each.items():
        add_losses(losses, target, len(times_ms), int(np.isnan(times_ms).sum()))
    for target, counted in last.items():
        sent, received = map(int, counted.group(2, 3))
        # more came than were sent: some came twice
        losses[target] = Losses(sent, max(0, sent - received))
        if target not in each:
            cells = zip(("min", "mean", "max"), counted.group(4, 5, 6), strict=True)
            statistics += [
                Statistic(target, name, _MS * float(ms), received)
                for name, ms in cells
                if ms is not None
            ]
    meta = {"latency": LATENCY, "reply_modes": dict.fromkeys((*each, *last), "echo")}
    parts = [
        Part(target, _MS * np.array(times_ms), size_bytes.get(target))
        for target, times_ms in each.items()
    ]
    skipped = Skipped(path)
    return samples_of_parts(skipped, "fping", meta, parts, statistics, losses=losses)
