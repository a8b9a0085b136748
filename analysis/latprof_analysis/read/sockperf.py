"""sockperf's text output, and its ``--full-log`` with every round trip.

sockperf calls half of the round trip latency, and with ``--full-rtt`` prints whole
round trips. ``latency_ns`` is what was read, of kind "ping" and "server N" where
that is half, and "round trip" and "server N round trip" where it is all.

Ping-pong, under-load and playback write the same text and log, over UDP and TCP;
under-load only of the messages that were answered. Of a playback the size that is
written is not that of its messages, which the log does not have. Throughput times
nothing, and is refused. A ``--histogram`` (of 3.8 and newer) is drawn of the same
latencies: what is read are those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.read.paths import numbered_lines
from latprof_analysis.read.result import (
    Losses,
    ReadError,
    Samples,
    Seen,
    Skipped,
    samples_of_file,
)
from latprof_analysis.read.schema import Column, Schema, Wrong
from latprof_analysis.read.table import TableReader

_COLUMNS = "packet, txTime(sec), rxTime(sec), "
_LOG_HEADER = re.compile(rf"^{re.escape(_COLUMNS)}(latency|rtt)\(usec\)".encode(), re.M)
# The log's header stands behind some thirty lines of summary.
_HEADER_WITHIN = 1000
_US, _SECOND = 1e3, 1e9


class _Quantity(NamedTuple):
    """What a file's figures are: half of each round trip, or all of it.

    The reply is as long as the message, so that half of the time is one way's.
    """

    column: str
    latency: str
    ping: str
    server: str
    reply_mode: Literal["echo"] | int


_HALF = _Quantity(
    "latency(usec)", "half of the round trip time, as sockperf prints it", "ping", "", 0
)
_WHOLE = _Quantity(
    "rtt(usec)",
    "round trip time, as sockperf prints it with --full-rtt",
    "round trip",
    " round trip",
    "echo",
)


def _backwards(numbers: Mapping[str, NDArray[Any]]) -> list[Wrong]:
    bad = numbers["rxTime(sec)"] < numbers["txTime(sec)"]
    return [(bad, lambda _: "its reply came before it was sent")]


def _schema(quantity: _Quantity) -> Schema:
    return Schema(
        (
            Column("packet", "count", about="number of the message, from 0"),
            Column("txTime(sec)", "number", about="when it was sent, in s"),
            Column("rxTime(sec)", "number", about="when its reply came, in s"),
            Column(quantity.column, "number", about=f"{quantity.latency}, in us"),
        ),
        check=_backwards,
        spaced=True,
        ruler=b"---",
        end=b"histogram was built",
    )


_NUMBER = r"(\d{1,12}(?:\.\d{1,9})?)"
_STATISTICS = (
    (re.compile(rf"percentile\s+{_NUMBER}\s*=\s*{_NUMBER}"), None),
    (re.compile(rf"<(MAX)> observation\s*=\s*{_NUMBER}"), "max"),
    (re.compile(rf"<(MIN)> observation\s*=\s*{_NUMBER}"), "min"),
    (re.compile(rf"(avg)-(?:latency|lat|rtt)\s*=\s*{_NUMBER}"), "mean"),
)
# before 3.7 "avg-lat=" without "ency"
_BEGINS = re.compile(r"---> |avg-(latency|lat|rtt)\b")
_THROUGHPUT = re.compile(r"Summary: Message Rate is")
_SERVER = re.compile(r"Printing statistics for Server No: (\d{1,9})")
# Of a playback sockperf writes what it has when nothing is said: neither of these is
# that of the messages, and no other mode writes all three unless it is asked to.
_OF_PLAYBACK = re.compile(r"--mps=10000 --burst=1 --reply-every=1 --msg-size=14\b")
_COUNTS = {
    "observations": re.compile(r"Total (\d{1,18}) observations"),
    "message_bytes": re.compile(r"--msg-size=(\d{1,18})"),
    "dropped_messages": re.compile(r"dropped messages = (\d{1,18})"),
    "duplicated_messages": re.compile(r"duplicated messages = (\d{1,18})"),
    "out_of_order_messages": re.compile(r"out-of-order messages = (\d{1,18})"),
}


def matches_text(seen: Seen) -> bool:
    """Whether a line is sockperf's; a full log has such lines before it."""
    text = re.search(rb"^sockperf: ", seen.start, re.MULTILINE)
    return bool(text) and not matches_log(seen)


def matches_log(seen: Seen) -> bool:
    """Whether a line is the header of a full log."""
    return bool(_LOG_HEADER.search(seen.start))


def read_sockperf(path: Path) -> Samples:
    """Read sockperf's text output: percentiles, extremes and the mean.

    ``count`` is the number of a server's observations. ``meta`` has what was
    dropped, duplicated and out of order of the last server.
    """
    quantity = _HALF
    skipped = Skipped(path)
    rows: list[tuple[str, str, float]] = []
    counts: dict[str, int] = {}
    observed: dict[str, int] = {}
    dropped: dict[str, int] = {}
    server = "server 0"
    for line, raw in numbered_lines(path):
        text = raw.decode("utf-8", "replace")
        if _THROUGHPUT.search(text):
            why = "sockperf's throughput times no messages; run ping-pong or under-load"
            raise ReadError(path, why)
        if match := _SERVER.search(text):
            server = f"server {match[1]}"
        for name, pattern in _COUNTS.items():
            if match := pattern.search(text):
                counts[name] = int(match[1])
        if "observations" in text:
            observed[server] = counts.get("observations", 0)
        if "dropped" in text:
            dropped[server] = counts.get("dropped_messages", 0)
        if match := _BEGINS.search(text):
            quantity = _WHOLE if match[1] == "rtt" else quantity
            if statistic := _statistic(text):
                rows.append((server, *statistic))
            else:
                skipped.add(line, "no figure of sockperf's")
    skipped.check(len(rows), "sockperf printed no latency: no reply came")
    servers, statistics, latencies = zip(*rows, strict=True)
    kinds = [f"{server}{quantity.server}" for server in servers]
    losses = {
        f"{server}{quantity.server}": _lost(observed[server], lost)
        for server, lost in dropped.items()
        if server in observed
    }
    return samples_of_file(
        skipped,
        "sockperf",
        {
            "latency": quantity.latency,
            "reply_modes": dict.fromkeys(kinds, quantity.reply_mode),
            **counts,
        },
        losses=losses,
        kind=kinds,
        size_bytes=counts.get("message_bytes"),
        latency_ns=_US * np.array(latencies),
        statistic=list(statistics),
        count=[observed.get(server) for server in servers],
    )


def _lost(answered: int, dropped: int) -> Losses:
    """Count what was lost of the messages that a reply was asked for."""
    return Losses(answered + dropped, dropped)


def _statistic(text: str) -> tuple[str, float] | None:
    for pattern, name in _STATISTICS:
        if match := pattern.search(text):
            return name or f"p{float(match[1]):g}", float(match[2])
    return None


def read_sockperf_log(path: Path) -> Samples:
    """Read a ``--full-log``: every round trip of the valid duration.

    ``table`` has sequence, sent_ns, received_ns and rtt_ns, which is the whole
    round trip, by sockperf's clock since its start.
    """
    header, quantity, counts = _find_header(path)
    size, dropped = counts.get("message_bytes"), counts.get("dropped_messages")
    reader = TableReader(path, _schema(quantity), header_line=header)
    log = reader.frame()
    reader.skipped.check(len(log), "its log has no round trips")
    sent, received = (
        (_SECOND * log[name]).round().astype("int64")
        for name in ("txTime(sec)", "rxTime(sec)")
    )
    table = pd.DataFrame(
        {
            "sequence": log["packet"],
            "sent_ns": sent,
            "received_ns": received,
            "rtt_ns": received - sent,
        }
    )
    return samples_of_file(
        reader.skipped,
        "sockperf-log",
        {
            "latency": quantity.latency,
            "reply_modes": {quantity.ping: quantity.reply_mode},
            "message_bytes": size,
        },
        table=table,
        losses={} if dropped is None else {quantity.ping: _lost(len(log), dropped)},
        kind=quantity.ping,
        size_bytes=pd.NA if size is None else size,
        latency_ns=_US * log[quantity.column].to_numpy(np.float64),
    )


def _find_header(path: Path) -> tuple[int, _Quantity, dict[str, int]]:
    """Return the log's header line, what it has, and the counts that stand before."""
    counts: dict[str, int] = {}
    for line, raw in islice(numbered_lines(path), _HEADER_WITHIN):
        if header := _LOG_HEADER.match(raw):
            return line, _WHOLE if header[1] == b"rtt" else _HALF, counts
        text = raw.decode("utf-8", "replace")
        for name, pattern in _COUNTS.items():
            if match := pattern.search(text):
                counts[name] = int(match[1])
        if _OF_PLAYBACK.search(text):
            del counts["message_bytes"]
    raise ReadError(path, f"its first {_HEADER_WITHIN} lines have no log")
