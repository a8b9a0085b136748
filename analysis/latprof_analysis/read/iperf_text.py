"""What iperf3 and iperf 2 print for people, and iperf 2's ``-y C``.

Neither times messages. What there is of latency: of a client of iperf 2 with ``-e`` the
kernel's smoothed RTT at the end of each interval; of its server with ``--trip-times``
one-way delays (least, mean and greatest of all, by two clocks), and with
``--histograms`` their histogram. The rest is what was transferred: of the lines of all
time, or, of a test that was interrupted, of its intervals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.read.buckets import Buckets
from latprof_analysis.read.iperf3 import LATENCY
from latprof_analysis.read.paths import numbered_lines
from latprof_analysis.read.result import (
    Losses,
    ReadError,
    Samples,
    Seen,
    Skipped,
    Statistic,
    samples_of_statistics,
)

NO_LATENCY = "none: iperf times no messages, and this text has no round trip times"
ONE_WAY = "one-way delay by the clocks of both ends, as iperf measures it"
_US, _MS = 1e3, 1e6
_NUMBER = r"\d{1,12}(?:\.\d{1,9})?"
_LINE = re.compile(
    # with --timestamps these stand before
    r"^(?:[^\[]{1,60} )?\[ *(SUM|\d{1,6})\](?:\[([TR]X)-[CS]\])?"
    rf" +({_NUMBER})- *({_NUMBER}) +sec +"
    rf"({_NUMBER}) ([KMGT]?)Bytes? +({_NUMBER}) ([KMGT]?)bits/sec(.*)$"
)
_RTT = re.compile(r"(\d{1,9})\((\d{1,9})\) us\b")
_TRIP = re.compile(
    rf" ({_NUMBER})/({_NUMBER})/({_NUMBER})/{_NUMBER} ms (?:\((\d{{1,15}})/)?"
)
_JITTER = re.compile(rf"({_NUMBER}) ms +(\d{{1,15}})/ *(\d{{1,15}}) ")
_RETRANSMITS = re.compile(r"^ +(\d{1,12}) +(?:sender|$|[\d.]+ [KMG]?Bytes)")
_HISTOGRAM = re.compile(
    rf"^\[ *(\d{{1,6}})\] +({_NUMBER})-({_NUMBER}) +sec +\w+(\(f\))?-PDF: "
    r"bin\(w=(\d{1,9})(us|ms)\):cnt\((\d{1,15})\)=([\d:,]+)"
)
_CSV = re.compile(
    r"^\d{14}(?:\.\d+)?(?:[+-]\d{4})?,[^,]{1,64},\d{1,5},[^,]{1,64},\d{1,5},(-?\d{1,6}),"
    rf"({_NUMBER})-({_NUMBER}),(\d{{1,18}}),(-?\d{{1,18}})"
    rf"(?:,(-?{_NUMBER}),(-?\d{{1,15}}),(-?\d{{1,15}}),(-?{_NUMBER}),(-?\d{{1,15}}))?\s*$"
)
_WAYS = {"TX": "to the server", "RX": "to the client"}
_PREFIX = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_MATCH = re.compile(
    rb"^(?:[^\[\n]{1,60} )?\[ *ID\](?:\[Role\])? +Interval +Transfer +B"
    rb"|\A\d{14}(?:\.\d+)?(?:[+-]\d{4})?(?:,[^,\n]{1,64},\d{1,5}){2},-?\d{1,6},"
    rb"[\d.]+-[\d.]+,\d+,",
    re.M,
)


@dataclass
class _Stream:
    """What was read of one stream."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    rtts_ns: list[float] = field(default_factory=list)
    trip: tuple[float, float, float, int | None] | None = None
    buckets: Buckets | None = None
    is_whole: bool = False  # the buckets are of all time


def matches(seen: Seen) -> bool:
    """Whether a line is the header of intervals, or of iperf 2's CSV."""
    return bool(_MATCH.search(seen.start))


def read_iperf_text(path: Path) -> Samples:
    """Read iperf's text: ``kind`` is "stream N", transfers are as of iperf3's JSON."""
    streams: dict[str, _Stream] = {}
    way = "to the server"
    for _, raw in numbered_lines(path):
        text = raw.decode("utf-8", "replace").rstrip()
        if match := _LINE.match(text):
            if not text.endswith("(omitted)"):
                _add(streams, match)
        elif match := _HISTOGRAM.match(text):
            _add_histogram(streams.setdefault(match[1], _Stream()), match)
        elif match := _CSV.match(text):
            _add_csv(streams, match)
        elif text.startswith("Reverse mode"):
            way = "to the client"
    if not any(stream.rows for stream in streams.values()):
        raise ReadError(path, "iperf printed no interval")
    rows, histograms = _latencies(streams)
    transfers = _transfers(streams, way)
    losses = {
        f"stream {name}": Losses(int(row["packets"]), int(row["lost_packets"]))
        for name, stream in streams.items()
        for row in stream.rows[-1:]
        if stream.trip and row["packets"] is not None
    }
    one_way = any(stream.trip or stream.buckets for stream in streams.values())
    latency = ONE_WAY if one_way else LATENCY
    every = [row for stream in streams.values() for row in stream.rows]
    counted = any(row["packets"] is not None for row in every)
    return samples_of_statistics(
        Skipped(path),
        "iperf-text",
        {
            "latency": latency if rows else NO_LATENCY,
            "protocol": "UDP" if counted else "TCP",
            "transfers": transfers,
        },
        rows,
        table=pd.DataFrame(every),
        losses=losses,
        histograms=histograms,
    )


def _add(streams: dict[str, _Stream], match: re.Match[str]) -> None:
    name, role, start, end, amount, k, rate, r, rest = match.groups()
    stream = streams.setdefault(f"{name} {role}" if role else name, _Stream())
    row: dict[str, Any] = {
        "stream": name,
        "start_seconds": float(start),
        "end_seconds": float(end),
        "bytes": float(amount) * 1024 ** _PREFIX[k],
        "bits_per_second": float(rate) * 1000 ** _PREFIX[r],
        "role": role,
        "end": "receiver"
        if "receiver" in rest
        else "sender"
        if "sender" in rest
        else "",
        **dict.fromkeys(("retransmits", "jitter_ns", "lost_packets", "packets")),
    }
    if found := _JITTER.search(rest):
        row["jitter_ns"] = _MS * float(found[1])
        row["lost_packets"], row["packets"] = int(found[2]), int(found[3])
    elif found := _RETRANSMITS.match(rest):
        row["retransmits"] = int(found[1])
    # the last line is of all time: from 0 again, and as far as the one before
    before = stream.rows[-1] if stream.rows else None
    end_before = before["end_seconds"] if before else np.inf
    is_all = float(start) == 0 and end_before <= float(end)
    if (found := _RTT.search(rest)) and not is_all:
        stream.rtts_ns.append(_US * int(found[1]))
    if found := _TRIP.search(rest):
        # of UDP the count is that of the packets that came
        n = found[4] or (row["packets"] and str(row["packets"] - row["lost_packets"]))
        mean, least, most = (_MS * float(found[i]) for i in (1, 2, 3))
        stream.trip = (mean, least, most, int(n) if n else None)
    stream.rows.append(row)


def _add_csv(streams: dict[str, _Stream], match: re.Match[str]) -> None:
    name, start, end, amount, rate, jitter, lost, packets, *_ = match.groups()
    # which iperf writes as -1 where it has no report of the server
    counted = packets is not None and int(packets) >= 0
    streams.setdefault(name, _Stream()).rows.append(
        {
            "stream": name,
            "start_seconds": float(start),
            "end_seconds": float(end),
            "bytes": float(amount),
            "bits_per_second": max(0.0, float(rate)),
            "role": None,
            "end": "",
            "retransmits": None,
            "jitter_ns": _MS * float(jitter) if counted else None,
            "lost_packets": int(lost) if counted else None,
            "packets": int(packets) if counted else None,
        }
    )


def _add_histogram(stream: _Stream, match: re.Match[str]) -> None:
    """Take that of all time, or, as long as there is none, those of intervals."""
    found = _buckets(match)
    if match[4]:
        stream.buckets, stream.is_whole = found, True
    elif not stream.is_whole:
        stream.buckets = found if stream.buckets is None else stream.buckets + found


def _buckets(match: re.Match[str]) -> Buckets:
    """Return the bins: the i-th, from 1, ends at i widths."""
    width = float(match[5]) * (_US if match[6] == "us" else _MS)
    bins = [each.split(":") for each in match[8].split(",") if each.count(":") == 1]
    pairs = [(int(i), int(n)) for i, n in bins if i and n and int(i) > 0 and int(n) > 0]
    at = np.array([i for i, _ in pairs], np.float64)
    counts = np.array([n for _, n in pairs], np.int64)
    return Buckets(width * (at - 1), width * at, counts)


def _latencies(
    streams: dict[str, _Stream],
) -> tuple[list[Statistic], dict[str, Buckets]]:
    rows: list[Statistic] = []
    histograms: dict[str, Buckets] = {}
    for name, stream in streams.items():
        kind = f"stream {name}"
        rows += [Statistic(kind, "smoothed", ns) for ns in stream.rtts_ns]
        if stream.trip:
            mean, least, most, n = stream.trip
            ends = ("mean", mean), ("min", least), ("max", most)
            rows += [Statistic(kind, of, ns, n) for of, ns in ends]
        if stream.buckets is not None and stream.buckets.n:
            histograms[kind] = stream.buckets
    return rows, histograms


def _transfers(streams: dict[str, _Stream], way: str) -> list[dict[str, Any]]:
    """Sum up each direction: by the sums of all streams where there are some."""
    found = []
    for role in dict.fromkeys(row["role"] for s in streams.values() for row in s.rows):
        of_role = {
            name: [row for row in stream.rows if row["role"] == role]
            for name, stream in streams.items()
        }
        sums = {n: rows for n, rows in of_role.items() if n.startswith("SUM")}
        for rows in (sums or of_role).values():
            if rows:
                found.append(_transfer(rows, _WAYS.get(role, way)))
    return found


def _transfer(rows: list[dict[str, Any]], way: str) -> dict[str, Any]:
    ends = {row["end"]: row for row in rows if row["end"]}
    last = rows[-1]
    if not ends:
        # the last line is of all time, unless the test was interrupted
        whole = len(rows) == 1 or last["start_seconds"] == 0
        ends = {"sender": last if whole else _summed(rows)}
    sent, received = ends.get("sender", {}), ends.get("receiver", {})
    counted = received or sent
    if sent.get("bytes") and not received.get("bytes") and not counted.get("packets"):
        received = {}  # of TCP: the other end did not say, since it was interrupted
    return {
        "direction": way,
        "sent_bytes": sent.get("bytes"),
        "received_bytes": received.get("bytes"),
        "sent_bits_per_second": sent.get("bits_per_second"),
        "received_bits_per_second": received.get("bits_per_second"),
        "packets": counted.get("packets"),
        "lost_packets": counted.get("lost_packets"),
        "jitter_ns": counted.get("jitter_ns"),
        "retransmits": sent.get("retransmits"),
    }


def _summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    total = sum(row["bytes"] for row in rows)
    seconds = rows[-1]["end_seconds"] - rows[0]["start_seconds"]
    rate = 8 * total / seconds if seconds > 0 else None
    return {"bytes": total, "bits_per_second": rate}
