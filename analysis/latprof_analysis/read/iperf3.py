"""iperf3's JSON (``-J``): TCP's own round trip times, and loss of UDP.

iperf3 times no messages. What it has of latency is the kernel's smoothed RTT of
each stream at the end of each interval (``intervals[].streams[].rtt``, us, TCP
senders on Linux), with ``rttvar``, ``retransmits`` and ``snd_cwnd``. Of UDP it has
``packets``, ``lost_packets`` and ``jitter_ms`` (smoothed as in RFC 3550,
section 6.4.1).

What was transferred is in ``end`` for each direction: ``sum_sent``,
``sum_received`` and for UDP ``sum``, which the receiver counted whichever side wrote
the file; of ``--bidir`` the other direction's end in ``_bidir_reverse``.

A file may hold several tests, text around them, a test that was interrupted (with
its reason in ``error``), and the events of ``--json-stream``, a line each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.read.json_document import number, part, read_objects
from latprof_analysis.read.result import (
    ReadError,
    Samples,
    Seen,
    Skipped,
    joined,
    samples_of_file,
    shown,
)

LATENCY = (
    "TCP's smoothed round trip time (srtt, RFC 6298) at the end of an interval: no"
    " message's own"
)
NO_LATENCY = (
    "none: iperf3 times no messages, and has TCP's round trip times of senders only"
)
# The table's column, iperf3's key, and by how much it is multiplied.
_FIGURES = (
    ("start_seconds", "start", 1.0),
    ("end_seconds", "end", 1.0),
    ("bytes", "bytes", 1.0),
    ("bits_per_second", "bits_per_second", 1.0),
    ("srtt_ns", "rtt", 1e3),
    ("rttvar_ns", "rttvar", 1e3),
    ("retransmits", "retransmits", 1.0),
    ("snd_cwnd_bytes", "snd_cwnd", 1.0),
    ("packets", "packets", 1.0),
    ("lost_packets", "lost_packets", 1.0),
    ("jitter_ns", "jitter_ms", 1e6),
)
_SHOWN = 200  # characters of what iperf3 says itself
_NEEDED = ("start", "end", "bytes")
_OTHER_WAY = "_bidir_reverse"
_TO_SERVER, _TO_CLIENT = "to the server", "to the client"
_BY_SENDER = ("sent_bytes", "sent_bits_per_second", "retransmits")
_BY_RECEIVER = (
    "received_bytes",
    "received_bits_per_second",
    "packets",
    "lost_packets",
    "jitter_ns",
)


_EVENTS = {"start", "interval", "end", "error"}


def matches(seen: Seen) -> bool:
    """Whether a document has what every test has, or every event."""
    return {"start", "intervals", "end"} <= seen.keys or seen.keys == {"event", "data"}


def read_iperf3(path: Path) -> Samples:
    """Read iperf3's JSON.

    ``frame`` has a row for each stream and interval that has an RTT, of kind
    "stream N": none for UDP. ``table`` has all of them with goodput, packets and
    loss; figures that iperf3 does not write are NaN. ``meta["transfers"]`` has of
    each direction what was sent and received, lost and resent; None where that is
    not known. Intervals that iperf3 itself omitted (``-O``) are in neither.
    """
    objects = read_objects(path)
    tests, notes = _tests(objects.found), []
    if objects.rest:
        notes.append(f"text beside the JSON: {shown(objects.rest, _SHOWN)}")
    parts = []
    for i, document in enumerate(tests, 1):
        samples = _read_test(path, document)
        if error := document.get("error"):
            why = shown(error, _SHOWN)
            of = f" {i} of {len(tests)}" if len(tests) > 1 else ""
            if samples is None:
                if len(tests) == 1:
                    raise ReadError(path, f"iperf3 failed: {why}")
                notes.append(f"test{of} failed: {why}")
                continue
            notes.append(f"test{of} was interrupted: {why}")
        elif samples is None:
            raise ReadError(path, "it has no intervals")
        parts.append(samples)
    if not parts:
        raise ReadError(path, f"no test of {len(tests)} has intervals: {notes[-1]}")
    found = joined(parts)
    if notes:
        found.meta["notes"] = notes
    return found


def _tests(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the documents of tests, and those that streams of events make up."""
    found: list[dict[str, Any]] = []
    for document in objects:
        event = document.get("event")
        if event not in _EVENTS or "data" not in document:
            found.append(document)
            continue
        if event == "start" or not found:
            found.append({"start": {}, "intervals": [], "end": {}})
        if event == "interval":
            found[-1].setdefault("intervals", []).append(document["data"])
        else:
            found[-1][event] = document["data"]
    return found


def _read_test(path: Path, document: dict[str, Any]) -> Samples | None:
    """Read a test; None where it has no intervals."""
    start = part(path, document, "start", dict)
    end = part(path, document, "end", dict)
    intervals = part(path, document, "intervals", list)
    if not intervals:
        return None
    test = part(path, start, "test_start", dict)
    table, skipped = _table(path, intervals)
    skipped.check(len(table), "it has no intervals")
    timed = table[table["srtt_ns"] > 0]
    block = number(test.get("blksize"))
    if document.get("error"):
        # whose other end has not said what it received, which is then 0
        end = {name: of for name, of in end.items() if "sum_received" not in name}
    meta = {
        "latency": LATENCY if len(timed) else NO_LATENCY,
        "protocol": str(test.get("protocol", "")),
        "version": str(start.get("version", "")),
        "transfers": _transfers(start, end, reverse=bool(number(test.get("reverse")))),
    }
    return samples_of_file(
        skipped,
        "iperf3",
        meta,
        table=table,
        kind=("stream " + timed["stream"].astype(str)).to_numpy(),
        size_bytes=pd.NA if block is None else int(block),
        latency_ns=timed["srtt_ns"].to_numpy(np.float64),
        statistic="smoothed",
        count=pd.NA,
    )


def _transfers(
    start: dict[str, Any], end: dict[str, Any], *, reverse: bool
) -> list[dict[str, Any]]:
    """Sum up each direction, of all its streams together.

    A server does not get what its client counted, and writes 0 for it.
    """
    first, second = (_TO_SERVER, _TO_CLIENT)[:: -1 if reverse else 1]
    found = [_transfer(end, first, "")]
    if f"sum_sent{_OTHER_WAY}" in end:
        found.append(_transfer(end, second, _OTHER_WAY))
    known = [transfer for transfer in found if transfer is not None]
    if "accepted_connection" in start:
        for transfer in known:
            sends = transfer["direction"] == _TO_CLIENT
            transfer.update(dict.fromkeys(_BY_RECEIVER if sends else _BY_SENDER))
    return known


def _transfer(
    end: dict[str, Any], direction: str, ending: str
) -> dict[str, Any] | None:
    def of(name: str) -> dict[str, Any]:
        figures = end.get(name + ending)
        return figures if isinstance(figures, dict) else {}

    sent, received, counted = of("sum_sent"), of("sum_received"), of("sum")
    if not (sent or received or counted):
        return None
    jitter_ms = number(counted.get("jitter_ms"))
    return {
        "direction": direction,
        "sent_bytes": number(sent.get("bytes")),
        "received_bytes": number(received.get("bytes")),
        "sent_bits_per_second": number(sent.get("bits_per_second")),
        "received_bits_per_second": number(received.get("bits_per_second")),
        "packets": number(counted.get("packets")),
        "lost_packets": number(counted.get("lost_packets")),
        "jitter_ns": None if jitter_ms is None else 1e6 * jitter_ms,
        "retransmits": number(sent.get("retransmits")),
    }


def _table(path: Path, intervals: list[Any]) -> tuple[pd.DataFrame, Skipped]:
    """Return the streams of all intervals; a wrong one is named by its interval."""
    skipped = Skipped(path)
    rows = []
    for place, interval in enumerate(intervals, 1):
        streams = interval.get("streams") if isinstance(interval, dict) else None
        if not isinstance(streams, list):
            skipped.add(place, "the interval has no streams")
            continue
        for stream in streams:
            why = _why_wrong(stream)
            if why:
                skipped.add(place, why)
            elif not stream.get("omitted"):
                rows.append(_row(place, stream))
    names = ["interval", "stream", "sender", *(name for name, _, _ in _FIGURES)]
    return pd.DataFrame(rows, columns=names), skipped


def _why_wrong(stream: Any) -> str | None:
    """Say what is wrong with a stream; of a figure that is none the rest holds."""
    if not isinstance(stream, dict):
        return "a stream must be an object"
    for key in _NEEDED:
        if number(stream.get(key)) is None:
            return f"{key} must be a number from 0, got {shown(stream.get(key))}"
    return None


def _row(place: int, stream: dict[str, Any]) -> list[Any]:
    found = [(number(stream.get(key)), factor) for _, key, factor in _FIGURES]
    figures = [np.nan if value is None else factor * value for value, factor in found]
    return [place, stream.get("socket", 0), bool(stream.get("sender")), *figures]
