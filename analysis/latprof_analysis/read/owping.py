"""owping's one-way delays: its text, and its records (``-R``).

A record is ``seq sent synchronised error received synchronised error ttl``: stamps
are of NTP, in 2**-32 s; a packet that was lost was received at 0. A session begins
where numbers begin again.

What two clocks that are not synchronised measure may be negative, and then is no time:
it is left out, and said to be.
"""

from __future__ import annotations

import re
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
    samples_of_statistics,
)

LATENCY = "one-way delay between two clocks, as owping measures it"
_MS = 1e6
_NTP_NS = 1e9 / 2**32
_NUMBER = r"(\d{1,12}(?:\.\d{1,9})?)"
_RECORD = re.compile(
    rb"^(\d{1,10}) (\d{1,20}) ([01]) ([\d.e+-]{1,30}|inf) (\d{1,20}) ([01]) "
    rb"([\d.e+-]{1,30}|inf) (\d{1,3})\s*$"
)
_SESSION = re.compile(
    r"^--- owping statistics from \[?(\S+?)\]?(?::\d+)? to \[?(\S+?)\]?(?::\d+)? ---"
)
_COUNTED = re.compile(r"^(\d{1,15}) sent, (\d{1,15}) lost")
_DELAY = re.compile(
    rf"^one-way delay min/median/max = {_NUMBER}/{_NUMBER}/{_NUMBER} ms, \((.*)\)"
)
_MATCH = re.compile(rb"^--- owping statistics from ", re.M)


def matches(seen: Seen) -> bool:
    """Whether a file is owping's text, or its first line a record."""
    first = seen.start.partition(b"\n")[0]
    return bool(_RECORD.match(first) or _MATCH.search(seen.start))


def read_owping(path: Path) -> Samples:
    """Read owping's text or records: ``kind`` is a session, or which of them."""
    first = next(numbered_lines(path))[1]
    return _read_records(path) if _RECORD.match(first) else _read_text(path)


def _read_records(path: Path) -> Samples:
    skipped = Skipped(path)
    sessions: list[list[tuple[int, float]]] = [[]]
    unsynchronised = False
    for line, raw in numbered_lines(path):
        match = _RECORD.match(raw)
        if match is None:
            skipped.add(line, "no record of owping's")
            continue
        number, sent, received = (int(match[i]) for i in (1, 2, 5))
        if number == 0 and sessions[-1]:
            sessions.append([])
        delay_ns = np.nan if not received else _NTP_NS * (received - sent)
        unsynchronised |= bool(received) and b"0" in (match[3], match[6])
        if delay_ns < 0:
            skipped.add(line, f"a delay of {delay_ns:.0f} ns: clocks are apart")
        else:
            sessions[-1].append((number, delay_ns))
    skipped.check(sum(map(len, sessions)), "it has no record")
    notes = ["clocks were not synchronised, says owping"] if unsynchronised else []
    parts = []
    losses: dict[str, Losses] = {}
    for place, rows in enumerate(filter(None, sessions), 1):
        kind = f"session {place}" if len(sessions) > 1 else "one way"
        # records stand in the order in which packets came
        delays = np.array([delay_ns for _, delay_ns in sorted(rows)])
        parts.append(Part(kind, delays))
        add_losses(losses, kind, delays.size, int(np.isnan(delays).sum()))
    meta = {"latency": LATENCY, "notes": notes}
    return samples_of_parts(skipped, "owping", meta, parts, losses=losses)


def _read_text(path: Path) -> Samples:
    kind = "one way"
    rows: list[Statistic] = []
    losses: dict[str, Losses] = {}
    notes: list[str] = []
    for _, raw in numbered_lines(path):
        text = raw.decode("utf-8", "replace")
        if match := _SESSION.match(text):
            kind = f"{match[1]} to {match[2]}"
        elif match := _COUNTED.match(text):
            losses[kind] = Losses(int(match[1]), int(match[2]))
        elif match := _DELAY.match(text):
            n = losses[kind].sent - losses[kind].lost if kind in losses else None
            names = zip(("min", "p50", "max"), match.group(1, 2, 3), strict=True)
            rows += [Statistic(kind, name, _MS * float(ms), n) for name, ms in names]
            if match[4] == "unsync":
                notes = ["clocks were not synchronised, says owping"]
    if not (rows or losses):
        raise ReadError(path, "owping printed no delay")
    meta = {"latency": LATENCY, "notes": notes}
    return samples_of_statistics(Skipped(path), "owping", meta, rows, losses=losses)
