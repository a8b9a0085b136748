"""iperf3's JSON (``-J``): TCP's own round trip times, and loss of UDP.

iperf3 times no messages. What it has of latency is the kernel's smoothed RTT of
each stream at the end of each interval (``intervals[].streams[].rtt``, us, TCP
senders on Linux), with ``rttvar``, ``retransmits`` and ``snd_cwnd``. Of UDP it has
``packets``, ``lost_packets`` and ``jitter_ms`` (smoothed as in RFC 3550,
section 6.4.1).

What was transferred is in ``end`` for each direction: ``sum_sent``,
``sum_received`` and for UDP ``sum``, which the receiver counted whichever side wrote
the file; of ``--bidir`` the other direction's end in ``_bidir_reverse``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.read.json_document import number, part, read_json
from latprof_analysis.read.result import (
    ReadError,
    Samples,
    Seen,
    Skipped,
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


def matches(seen: Seen) -> bool:
    """Whether a document has what every test has."""
    return {"start", "intervals", "end"} <= seen.keys


def read_iperf3(path: Path) -> Samples:
    """Read iperf3's JSON.

    ``frame`` has a row for each stream and interval that has an RTT, of kind
    "stream N": none for UDP. ``table`` has all of them with goodput, packets and
    loss; figures that iperf3 does not write are NaN. ``meta["transfers"]`` has of
    each direction what was sent and received, lost and resent; None where that is
    not known. Intervals that iperf3 itself omitted (``-O``) are in neither.
    """
    document = read_json(path)
    if error := document.get("error"):
        raise ReadError(path, f"iperf3 failed: {shown(error)}")
    start = part(path, document, "start", dict)
    end = part(path, document, "end", dict)
    test = part(path, start, "test_start", dict)
    table, skipped = _table(path, part(path, document, "intervals", list))
    skipped.check(len(table), "it has no intervals")
    timed = table[table["srtt_ns"] > 0]
    block = number(test.get("blksize"))
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
    if not isinstance(stream, dict):
        return "a stream must be an object"
    names = [*_NEEDED, *(key for _, key, _ in _FIGURES if key in stream)]
    for key in names:
        if number(stream.get(key)) is None:
            return f"{key} must be a number from 0, got {shown(stream.get(key))}"
    return None


def _row(place: int, stream: dict[str, Any]) -> list[Any]:
    figures = [
        np.nan if key not in stream else factor * float(stream[key])
        for _, key, factor in _FIGURES
    ]
    return [place, stream.get("socket", 0), bool(stream.get("sender")), *figures]
