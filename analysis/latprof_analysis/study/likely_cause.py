"""Why one message took long, as far as its own row says."""

from __future__ import annotations

from typing import Any

from latprof_analysis.stages import MODEL, STAGES, STAMPS, merged_name
from latprof_analysis.study.setup import known_transit_ns
from latprof_analysis.text import duration, plural

_WAITED = {stage.name: stage.slow for stage in MODEL} | {
    "wakeup": "its reader waited {} for a CPU",
    "own": "its own bytes and the delay take {} on this link",
    "link": "waited {} on the link beside its own bytes and the delay",
}
# What took less of a message's time did not make it slow.
_LITTLE = 0.1


def stage_times(row: dict[str, Any]) -> dict[str, int]:
    """Return the times of the stages that took any, by the names of `merged_name`.

    Examples
    --------
    >>> stage_times({"send_ns": 2, "queue_ns": 9, "read_ns": 9, "send_queue_ns": 7})
    {'send_queue': 7}
    """
    there = {name: bool(row.get(f"{name}_ns")) for name in STAMPS}
    there["created"] = True  # before it there is nothing to stand for
    return {
        merged_name(stage, there): int(row[f"{stage}_ns"])
        for stage in STAGES
        if row.get(f"{stage}_ns")
    }


def likely_cause(row: dict[str, Any], known_ns: float | None = None) -> str:
    """Say what took most of a message's time.

    Parameters
    ----------
    row : dict
        A row of messages.csv by column, None where blank.
    known_ns : float or None
        How long its bytes and the delay take on the link, where that is known.

    Examples
    --------
    >>> row = {"qdisc_ns": 12_000_000, "transit_ns": 1_500_000, "retransmits": 0}
    >>> row |= dict.fromkeys(("send_ns", "queue_ns", "xmit_ns", "arrive_ns"), 1)
    >>> likely_cause(row)
    "waited 12.0 ms in its sender's qdisc"

    A segment that was missing is sent again; without one it may have been anything:

    >>> likely_cause(row | {"receive_stack_ns": 20_000_000, "ready_ns": 1})
    "waited 20.0 ms in its receiver's stack, for no reason that was seen"
    """
    waits = stage_times(row)
    if known_ns and "transit" in waits:
        own = min(waits["transit"], round(known_ns))
        waits |= {"own": own, "link": waits.pop("transit") - own}
    wakeup = min(row.get("wakeup_ns") or 0, waits.get("receive_queue", 0))
    if wakeup:
        waits |= {"wakeup": wakeup, "receive_queue": waits["receive_queue"] - wakeup}
    if again := row.get("retransmits"):
        late = sum(waits.pop(n, 0) for n in ("transit", "link", "receive_stack"))
        waits["sent again"] = late
    if not waits:
        return "no part of its time is known"
    whole, own_ns = sum(waits.values()), waits.pop("own", 0)
    name = max(waits, key=lambda part: waits[part], default="own")
    if own_ns and waits.get(name, 0) < _LITTLE * whole:
        waits, name = {"own": own_ns}, "own"
    if name == "sent again":
        segments = plural(again or 0, "segment")
        return f"{segments} sent again, whole {duration(late)} later"
    return _WAITED.get(name, "took {} in " + name).format(duration(waits[name]))


def slowest_sentence(row: dict[str, Any], lab: dict[str, Any] | None = None) -> str:
    """Say why the slowest message was slow, which it was, and whose.

    Parameters
    ----------
    row : dict
        A row of messages.csv by column, None where blank.
    lab : dict or None
        Of a run.json: what its link is known to need is no cause.

    Examples
    --------
    >>> row = dict.fromkeys(("sequence", "size_bytes", "sender_comm", "sender_pid"))
    >>> row |= dict.fromkeys(("reader_comm", "reader_pid"))
    >>> row |= {"protocol": "udp", "kind": "message", "end_to_end_ns": 5_000}
    >>> slowest_sentence(row).split("; ")[1]
    'udp message of a size that is not told, unknown to unknown'
    """
    known_ns = known_transit_ns(row["protocol"], row["size_bytes"] or 0, lab)
    number = "" if row["sequence"] is None else f" (sequence {row['sequence']})"
    size = row["size_bytes"]
    size_text = "a size that is not told" if size is None else f"{size} bytes"
    ends = " to ".join(process_of(row, end) for end in ("sender", "reader"))
    return (
        f"slowest message, {duration(row['end_to_end_ns'])}: "
        f"{likely_cause(row, known_ns)}; "
        f"{row['protocol']} {row['kind']} of {size_text}{number}, {ends}"
    )


def process_of(row: dict[str, Any], end: str, unknown: str = "unknown") -> str:
    """Name the sender or the reader of a message, and which of its threads it was.

    Examples
    --------
    >>> row = {"reader_comm": "java", "reader_pid": 12}
    >>> process_of(row | {"reader_thread": 31, "reader_thread_comm": "io-2"}, "reader")
    'java (pid 12, thread 31 io-2)'
    """
    name, pid = row.get(f"{end}_comm") or unknown, row.get(f"{end}_pid")
    if pid is None:
        return name
    number, thread = row.get(f"{end}_thread"), row.get(f"{end}_thread_comm")
    one_of = f", thread {number} {thread}" if thread and number != pid else ""
    host = row.get(f"{end}_host")
    return f"{name} (pid {pid}{one_of}{f', on {host}' if host else ''})"


def slowest_stages(row: dict[str, Any]) -> str:
    """Say where the slowest message went, and in which stages its time did."""
    parts = sorted(((ns, name) for name, ns in stage_times(row).items()), reverse=True)
    where = ", ".join(f"{duration(ns)} in {name}" for ns, name in parts[:3])
    spent = f"; {where}" if where else ""
    wakeup, again = row["wakeup_ns"], row["retransmits"]
    slept = f", {duration(wakeup)} of it without a CPU" if wakeup else ""
    lost = f", {plural(again, 'segment')} sent again" if again else ""
    return (
        f"at {row['destination_address']} port {row['destination_port']}"
        f"{spent}{slept}{lost}"
    )
