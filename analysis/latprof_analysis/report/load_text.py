"""Latency under load: idle and loaded side by side, and the queue between.

Of the section `load` of a run's summary.json. Without pandas, as the overview.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from latprof_analysis.report.parts import Items, Part, Table, Text
from latprof_analysis.text import (
    counted,
    duration,
    given_bytes,
    given_rate,
    percent,
    rate,
)

NOTE = (
    "RPM: round trips per minute, 60 s / mean; the IETF's RPM is a trimmed mean with "
    "connection set-up, TLS and HTTP in it"
)
CLOSED = (
    "a closed loop asks more often while the queue is short, which tells less than "
    "the mean of time: --interval asks evenly"
)
_PLURAL = {"request": "requests", "reply": "replies"}
# A message passes what these hold of other flows.
_BY_FLOW = ("fq", "fq_codel")
# In these stages a message waits in or behind a queue of the link's ends or way.
_QUEUED = ("send_queue", "qdisc", "transit")
# A stage that grew by less than this share is left to --all.
_LEAST_SHARE = 0.01

Figures = Mapping[str, Any]


def protocols_of(document: Figures) -> dict[str, Figures]:
    """Return by protocol what is known of a load; nothing without one."""
    return dict((document.get("load") or {}).get("protocols", {}))


def load_sentences(document: Figures) -> list[str]:
    """Say of each protocol how much the load adds, where, and which queue holds it."""
    rate_bps = (document.get("load") or {}).get("rate_bps")
    return [
        load_sentence(protocol, phases, rate_bps)
        for protocol, phases in protocols_of(document).items()
    ]


def load_sentence(protocol: str, phases: Figures, rate_bps: float | None) -> str:
    """Say of one protocol how much the load adds, where, and which queue holds it."""
    more = phases.get("more_mean_ns")
    if more is None:
        lost = phases["loaded"] and phases["loaded"]["lost"]
        why = f"{lost} of {phases['loaded']['sent']} lost" if lost else "not measured"
        return f"{protocol} under load: {why}"
    means = (duration(phases[phase]["rtt"]["mean_ns"]) for phase in ("idle", "loaded"))
    found = [f"{duration(abs(more))} {'more' if more >= 0 else 'less'} on average"]
    found[0] += f" ({' to '.join(means)})"
    if (row := _grown(phases["stages"])) and row["share"] >= _LEAST_SHARE:
        found.append(
            f"{percent(row['share'])} of it in {row['stage']} of {_PLURAL[row['way']]}"
        )
        if queue := _holding(phases["queues"], row):
            found[-1] += f": {_held(queue, rate_bps)}"
    if lost := phases["loaded"]["lost"]:
        sent = phases["loaded"]["sent"]
        found.append(f"{lost} of {sent} lost ({percent(lost / sent)})")
    return f"{protocol} under load: {', '.join(found)}"


def _grown(stages: Sequence[Figures]) -> Figures | None:
    """Return the stage that grew most."""
    known = [row for row in stages if row.get("share") is not None]
    return max(known, key=lambda row: float(row["share"]), default=None)


def _holding(queues: Sequence[Figures], row: Figures) -> Figures | None:
    """Return the queue in a stage's way that held most: of equal ones the lowest."""
    if row["stage"] not in _QUEUED:
        return None
    emulated = {"emulator", "netem"}
    path = row["stage"] == "transit"
    there = [
        queue
        for queue in queues
        if queue["way"] == row["way"] and (queue["place"] in emulated) == path
    ]
    most = max((queue["median_bytes"] for queue in there), default=0)
    return next(
        (q for q in reversed(there) if most and q["median_bytes"] == most), None
    )


def queue_name(queue: Figures) -> str:
    """Name a queue as `tc` does, and where it is."""
    if queue["place"] == "emulator":
        return f"the emulator's queue {' to '.join(queue['interface'])}"
    name = f"{queue['kind']} {queue['handle']}"
    if queue["place"] == "netem":
        return f"{name} on the path {' to '.join(queue['interface'])}"
    return f"{name} at {queue['place']}'s {queue['interface']}"


def _held(queue: Figures, rate_bps: float | None) -> str:
    text = f"{queue_name(queue)} holds {given_bytes(queue['median_bytes'])}"
    if queue["kind"] in _BY_FLOW:
        return f"{text} in a queue for each flow: a message waits in its own"
    if not rate_bps:
        return text
    takes = duration(queue["median_ns"])
    return f"{text}, which at {given_rate(rate_bps)} take {takes}"


def load_parts(document: Figures, *, everything: bool = False) -> Iterator[Part]:
    """Lay out both phases by protocol, the flows, and the queues that held most."""
    for protocol, phases in protocols_of(document).items():
        if phases["loaded"]:
            yield phase_table(protocol, phases, everything=everything)
        items = [*map(flow_text, phases["flows"])]
        if everything:
            items += map(queue_text, phases["queues"])
        if items:
            yield Items([f"load beside {protocol}: {item}" for item in items])
    yield from (Text(note, quiet=True) for note in load_notes(document))


def load_notes(document: Figures) -> list[str]:
    """Say what must be known to read the figures."""
    if not protocols_of(document):
        return []
    return [NOTE] if document["load"]["open_loop"] else [NOTE, CLOSED]


def phase_table(protocol: str, phases: Figures, *, everything: bool) -> Table:
    """Lay out round trips and stages, idle and loaded side by side."""
    idle, loaded = phases["idle"], phases["loaded"]
    rows = [["round trip", *_times(idle["rtt"]), *_times(loaded["rtt"])]]
    rows[0].append(_signed(phases["more_mean_ns"]))
    for row in phases["stages"]:
        if everything or (row["share"] or 0) >= _LEAST_SHARE:
            times = (*_times(row["idle"]), *_times(row["loaded"]))
            more = _signed(row["more_mean_ns"])
            rows.append([f"{row['way']} {row['stage']}", *times, more])
    pace = (_pace(phase["round_trips_per_minute"]) for phase in (idle, loaded))
    idle_pace, loaded_pace = pace
    rows.append(["RPM", "", "", idle_pace, "", "", loaded_pace, ""])
    columns = [f"{protocol}", *2 * ("p50", "p99", "mean"), "mean"]
    heads = [[("idle", 3), ("loaded", 3), ("more", 1)]]
    return Table("", columns, rows, heads=heads)


def _times(figures: Figures) -> list[str]:
    return [duration(figures.get(f"{name}_ns")) for name in ("p50", "p99", "mean")]


def _signed(more: float | None) -> str:
    sign = "-" if more is not None and more < 0 else ""
    return sign + duration(None if more is None else abs(more))


def _pace(per_minute: float | None) -> str:
    return "-" if per_minute is None else f"{per_minute:,.0f}"


def flow_text(flows: Figures) -> str:
    """Say what flows moved, as both ends counted it."""
    if flows["failure"]:
        return str(flows["failure"])
    name = f"{counted(flows['flows'], 'flow')} of {flows['protocol']}"
    if flows.get("congestion"):
        name += f" ({flows['congestion']})"
    ways = [_way_text(way, flows[way]) for way in ("up", "down") if flows[way]]
    return f"{name} {', '.join(ways)}"


def _way_text(way: str, moved: Figures) -> str:
    sent, received = (moved.get(f"{end}_bps") for end in ("sent", "received"))
    text = f"{way} {rate(sent)} sent, {rate(received)} received"
    if moved.get("lost"):
        text += f", {moved['lost']:,.0f} datagrams lost"
    if moved.get("retransmits"):
        text += f", {moved['retransmits']:,.0f} retransmitted segments"
    return text


def queue_text(queue: Figures) -> str:
    """Say how much a queue held while the load was there."""
    ends = [given_bytes(queue[f"{end}_bytes"]) for end in ("median", "max")]
    times = [queue[f"{end}_ns"] for end in ("median", "max")]
    if None not in times:
        pairs = zip(ends, times, strict=True)
        ends = [f"{held} ({duration(ns)} at the link's rate)" for held, ns in pairs]
    return f"{queue_name(queue)}: median {ends[0]}, max {ends[1]}, n {queue['n']}"
