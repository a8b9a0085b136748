"""fping's text: a line for each reply or timeout, a line for each target, or ``-C``.

    127.0.0.1 : [0], 64 bytes, 0.035 ms (0.035 avg, 0% loss)
    127.0.0.1 : [1], timed out (0.035 avg, 50% loss)
    127.0.0.1 : xmt/rcv/%loss = 2/1/50%, min/avg/max = 0.035/0.035/0.035
    127.0.0.1 : 0.035 - 0.031

Of intervals (``-Q``) the last line of a target is the one that counts.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from latprof_analysis.read.paths import numbered_lines
from latprof_analysis.read.result import (
    Losses,
    ReadError,
    Samples,
    Seen,
    Skipped,
    Statistic,
    joined,
    samples_of_file,
    samples_of_statistics,
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
    each: dict[str, list[float]] = {}
    size_bytes: dict[str, int] = {}
    last: dict[str, re.Match[str]] = {}
    for _, raw in numbered_lines(path):
        text = raw.decode("utf-8", "replace")
        if match := _EACH.match(text):
            each.setdefault(match[1], []).append(float(match[3] or "nan"))
            if match[2]:
                size_bytes[match[1]] = int(match[2])
        elif match := _TARGET.match(text):
            last[match[1]] = match
        elif match := _ALL.match(text):
            cells = match[2].replace("-", "nan").split()
            each.setdefault(match[1], []).extend(map(float, cells))
    found = [
        _samples(path, target, each.get(target), size_bytes.get(target), last)
        for target in dict.fromkeys((*each, *last))
    ]
    if not found:
        raise ReadError(path, "fping printed no reply and no target")
    return joined(found)


def _samples(
    path: Path,
    target: str,
    times_ms: list[float] | None,
    size_bytes: int | None,
    last: dict[str, re.Match[str]],
) -> Samples:
    meta = {"latency": LATENCY, "reply_modes": {target: "echo"}}
    counted = last.get(target)
    sent, received = map(int, counted.group(2, 3)) if counted else (0, 0)
    losses = {target: Losses(sent, sent - received)} if sent >= received > 0 else {}
    if counted and not received:
        losses = {target: Losses(sent, sent)}
    if times_ms is None:
        assert counted is not None
        cells = zip(("min", "mean", "max"), counted.group(4, 5, 6), strict=True)
        rows = [
            Statistic(target, name, _MS * float(ms), received)
            for name, ms in cells
            if ms is not None
        ]
        return samples_of_statistics(Skipped(path), "fping", meta, rows, losses=losses)
    times = np.array(times_ms)
    lost = np.isnan(times)
    if not counted:
        losses = {target: Losses(lost.size, int(lost.sum()))}
    return samples_of_file(
        Skipped(path),
        "fping",
        meta,
        losses=losses,
        kind=target,
        size_bytes=size_bytes,
        latency_ns=_MS * times,
        lost=lost,
    )
