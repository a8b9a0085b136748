"""irtt's JSON: round trips of UDP packets of one length, sent at an interval.

Format 1 of irtt's client (``-o``), described in its page irtt-client. Read are
``config.params.length`` (bytes of a packet), and of each of ``round_trips``:
``seqno``; ``lost`` (a text: false, or true, true_up, true_down: where); ``delay.rtt``,
``delay.send`` and ``delay.receive`` (ns; the one-way ones need synchronised
clocks and may be negative without); ``timestamps.client.send.monotonic`` (ns).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from latprof_analysis.read.json_document import MOST, number, part, read_json
from latprof_analysis.read.result import (
    ReadError,
    Samples,
    Seen,
    Skipped,
    samples_of_file,
    shown,
)

LATENCY = "round trip time, the server's own time taken off where it told it"
KIND = "round trip"
_FORMAT = 1
# The page irtt-client has false and true as JSON's own; 0.9.0 writes them as texts.
_LOST = {
    False: "",
    "false": "",
    True: "unknown",
    "true": "unknown",
    "true_up": "up",
    "true_down": "down",
}


def matches(seen: Seen) -> bool:
    """Whether a document has what every result has."""
    return {"round_trips", "version"} <= seen.keys


def read_irtt(path: Path) -> Samples:
    """Read a result of irtt's client.

    ``table`` has sequence, sent_ns, rtt_ns, send_delay_ns, receive_delay_ns and
    lost_where ("", up, down, unknown). A wrong entry is reported by its place in
    ``round_trips``, counted from 1.
    """
    document = read_json(path)
    version = part(path, document, "version", dict)
    if version.get("json_format") != _FORMAT:
        got = shown(version.get("json_format"))
        raise ReadError(path, f"irtt's JSON format must be {_FORMAT}, got {got}")
    params = part(path, part(path, document, "config", dict), "params", dict)
    trips = part(path, document, "round_trips", list)
    skipped = Skipped(path)
    rows = []
    for place, trip in enumerate(trips, 1):
        try:
            rows.append(_row(trip))
        except ValueError as error:
            skipped.add(place, str(error))
    skipped.check(len(rows), "it has no round trips")
    table = pd.DataFrame(rows)
    length = number(params.get("length"))
    return samples_of_file(
        skipped,
        "irtt",
        {
            "latency": LATENCY,
            "version": str(version.get("irtt", "")),
            "reply_modes": {KIND: "echo"},
            "lost_where": {KIND: _lost_where(table["lost_where"])},
        },
        table=table,
        kind=KIND,
        size_bytes=pd.NA if length is None else int(length),
        latency_ns=table["rtt_ns"],
        lost=table["lost_where"] != "",
    )


def _lost_where(where: pd.Series[str]) -> dict[str, int]:
    """Count losses by direction, as irtt names it."""
    counts = where[where != ""].value_counts(sort=False)
    return {name: int(counts.get(name, 0)) for name in ("up", "down", "unknown")}


def _row(trip: Any) -> dict[str, Any]:
    """Return a row of the table; a ValueError says what is wrong."""
    if not isinstance(trip, dict) or not isinstance(trip.get("delay"), dict):
        raise ValueError("a round trip must be an object with a delay")
    lost = trip.get("lost")
    if not isinstance(lost, bool | str) or lost not in _LOST:
        raise ValueError(f"lost must be false or true..., got {shown(lost)}")
    delay = trip["delay"]
    rtt, where = number(delay.get("rtt")), _LOST[lost]
    if not where and rtt is None:
        got = shown(delay.get("rtt"))
        raise ValueError(f"delay.rtt must be a number from 0, got {got}")
    return {
        "sequence": _signed(trip.get("seqno")),
        "sent_ns": _signed(_inner(trip, "timestamps", "client", "send", "monotonic")),
        "rtt_ns": float("nan") if where else rtt,
        "send_delay_ns": _signed(delay.get("send")),
        "receive_delay_ns": _signed(delay.get("receive")),
        "lost_where": where,
    }


def _signed(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return float("nan")
    return float(value) if abs(value) < MOST else float("nan")


def _inner(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
