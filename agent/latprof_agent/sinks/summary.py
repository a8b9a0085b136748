"""All figures of a run as one document: summary.json, and what is shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from latprof_analysis.study.grouped import MOST_WAYS
from latprof_analysis.study.incomplete import as_dicts, incomplete_text
from latprof_analysis.study.run_figures import loggp_of, one_way, round_trip_fit
from latprof_analysis.study.setup import (
    FALLS_BEHIND,
    expected_losses,
    overloads,
    single_interval_ns,
)
from latprof_analysis.study.totals import MessageTotals
from latprof_analysis.study.train_rows import LOST
from latprof_analysis.text import (
    NS_PER_SECOND,
    duration,
    given_duration,
    given_rate,
    plural,
)

from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_agent.sinks.run_totals import RunTotals

LOST_PREFIX = "lost_"
# Of other hosts, as run.json has them, too: of responders, and of --with.
OTHER_RECORDINGS = ("responder_recording", "with_recording")
NOT_LENT = "it lends no recording"  # as latprof-load says it of a responder
WORTH_SAYING = 0.001  # of messages; fewer are in the document alone


def summarize(
    run: RunTotals, description: dict[str, Any], agent_cost: dict[str, float]
) -> dict[str, Any]:
    """Figures of a run; all times in the unit their key names."""
    totals = run.messages
    round_trips = {
        protocol: _round_trips(trips, totals, description)
        for protocol, trips in run.round_trips.items()
    }
    counters = description["counters"]
    lost_records = {
        name.removeprefix(LOST_PREFIX): n
        for name, n in counters.items()
        if name.startswith(LOST_PREFIX)
    }
    summary = {
        "format": 1,
        "state": description["state"],
        "name": description["name"],
        "failure": description["failure"],
        "folder": description["folder"],
        "kernel": description["kernel"],
        "workload": description["workload"],
        "lab": description["lab"],
        "known": description["lab"] and description["lab"]["known"],
        "exchanges": run.exchanges.as_dict(),
        **run.exchanges.apart_as_dict(),
        "no_exchange": _no_exchange(run.tally.no_exchange),
        "no_exchange_bytes": _no_exchange(run.tally.no_exchange_bytes),
        "least_responses_ns": _least_responses(
            run.tally.least_responses_ns, lost=any(lost_records.values())
        ),
        "in_flight_bytes": {
            cause: mean
            for cause, mean in run.tally.in_flight_bytes.items()
            if mean is not None and not any(lost_records.values())
        },
        "kinds": totals.as_dict(),
        "time_warp": totals.time_warp(),
        "one_way": one_way(totals.as_dict(), description["lab"]),
        "round_trips": round_trips,
        "fit": next((r["fit"] for r in round_trips.values()), None),
        "loggp": next((r["loggp"] for r in round_trips.values() if r["loggp"]), None),
        "dispersion": run.trains.dispersions(description["lab"]),
        "slowest": totals.slowest,
        "stalls": run.stalls.as_list(),
        "entry_queues": run.entry_queues.as_dict(),
        "needless_retransmits": run.needless_retransmits,
        "warmup_messages": totals.warmup,
        "train_messages": totals.trains,
        "loaded_messages": totals.loaded,
        "missing_stamps": {k: v for k, v in totals.missing.items() if v},
        "stamps_backwards": totals.backwards,
        "records": run.tally.records,
        "untraced_time": run.untraced.as_dict(),
        "lost_records": lost_records,
        "counters": {
            name: n for name, n in counters.items() if not name.startswith(LOST_PREFIX)
        },
        "unmatched": description["unmatched"],
        "unread_at_close": description["unread_at_close"],
        "link_counters": description["link_counters"],
        "path_devices": description["path_devices"],
        "capabilities": description["capabilities"],
        **{name: description.get(name, []) for name in OTHER_RECORDINGS},
        "cost": agent_cost | run.tally.probe_cost,
    }
    return summary | {
        "incomplete": as_dicts(summary),
        "notes": list(expected_losses(description, list(run.round_trips))),
        "warnings": warnings_of(summary),
    }


def _no_exchange(counts: dict[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    """Messages, or bytes, of no exchange, by cause, of the ways with most of them."""
    found: dict[str, dict[str, int]] = {}
    for (way, cause), count in counts.items():
        found.setdefault(way, {})[cause] = count
    most = sorted(found, key=lambda way: -sum(found[way].values()))
    kept = {way: found[way] for way in most[:MOST_WAYS]}
    for way in most[MOST_WAYS:]:
        rest = kept.setdefault("other", {})
        for cause, count in found[way].items():
            rest[cause] = rest.get(cause, 0) + count
    return kept


def _least_responses(
    known: dict[tuple[str, str], int], *, lost: bool
) -> dict[str, int]:
    """Where both ends talk at once: what no response took less than, by cause.

    A record that was lost may be of the request that a reply was for.
    """
    if lost:
        return {}
    causes = {cause for _, cause in known}
    return {c: min(ns for (_, of), ns in known.items() if of == c) for c in causes}


def _round_trips(
    totals: RoundTripTotals, messages: MessageTotals, description: dict[str, Any]
) -> dict[str, Any]:
    plan = description["workload"]["plan"]
    interval_ns = single_interval_ns(plan) if plan else 0
    return totals.as_dict() | {
        "open_loop": totals.open_loop,
        "offered_per_second": NS_PER_SECOND / interval_ns if interval_ns else None,
        "fit": round_trip_fit(*totals.arrays(), totals.protocol, description, messages),
        "loggp": loggp_of([totals.trains], totals.protocol, description),
    }


def warnings_of(summary: dict[str, Any]) -> list[str]:
    """What a reader must know before trusting a summary; nothing where all is well."""
    found = [
        f"lost {n} records of {ring.replace('_', ' ')}: their ring buffer was full, so "
        "rows may be missing or incomplete; use a larger --ring-bytes"
        for ring, n in summary["lost_records"].items()
        if n
    ]
    if summary["stamps_backwards"]:
        found.append(
            f"{summary['stamps_backwards']} stages had a negative duration and are "
            "left out; please report it with the run folder"
        )
    if lacks := incomplete_text(summary):
        found.append(lacks)
    if queued := _entry_queues(**summary["entry_queues"]):
        found.append(queued)
    if summary["state"] == "interrupted":
        found.append("the run was interrupted: figures cover the time until then")
    for name in OTHER_RECORDINGS:
        found += _of_other_halves(summary[name])
    found += _of_held_back(summary["workload"].get("runs") or ())
    found += overloads(summary, list(summary["round_trips"]))
    for protocol, figures in summary["round_trips"].items():
        found += _of_round_trips(protocol, figures)
    if attached := summary["workload"].get("attached"):
        runs = summary["workload"]["runs"]
        if runs and not summary["kinds"]:
            found.append(_nothing_seen(attached, **runs[0]))
    return found


def _entry_queues(
    queued: int, received: int, p50_ns: float | None, max_ns: int | None
) -> str:
    """Say what a queue at the receiver's entry held, unless that was hardly any."""
    if queued <= WORTH_SAYING * received:
        return ""
    took = f"{duration(p50_ns)} at the median, " if p50_ns is not None else ""
    return (
        f"{plural(queued, 'message')} of {received} waited at the entry of their "
        "receiver's host, in the queue of an ifb: that is in receive_stack, "
        f"{took}{duration(max_ns or 0)} the longest"
    )


def _of_other_halves(recordings: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Say why what a responder lends is not here; that it lends nothing is no fault."""
    for one in recordings:
        if one["why"] and NOT_LENT not in one["why"]:
            yield (
                f"what {one['host']} recorded of these messages is not here: "
                f"{one['why']}"
            )


def _of_held_back(runs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Where responders had a bound on bytes per second: one line for all of them."""
    clients = (
        client
        for run in runs
        for client in (run, run.get("bulk") or {}, *(run.get("clients") or {}).values())
    )
    bounds = [client.get("max_rate_bytes") or 0 for client in clients]
    if least := min(filter(None, bounds), default=0):
        yield (
            f"the responder answers at most {given_rate(8 * least)}, all sessions "
            "together (its --max-rate), and holds back what is more: that wait is in "
            "round trips, and that rate bounds throughput"
        )


def _nothing_seen(
    attached: Mapping[str, Any], open_sockets: int, seconds: float
) -> str:
    """Say what was looked at; what else it did is not known."""
    sockets = plural(open_sockets, "open socket") if open_sockets else "no open socket"
    which = "neither they nor any made since" if open_sockets else "none made since"
    text = (
        f"nothing was seen: {attached['to']} had {sockets} when the run began, and "
        f"{which} sent or received in {given_duration(NS_PER_SECOND * seconds)}"
    )
    if not attached.get("by_owner"):
        return text
    return (
        f"{text}; whether it did by sockets that others made is not known: "
        "`latprof run attach --port` with their port would show it"
    )


def _of_round_trips(protocol: str, figures: dict[str, Any]) -> list[str]:
    found = []
    if figures["corrupt"]:
        n = figures["corrupt"]
        found.append(f"{protocol}: {n} replies differ from what was sent")
    offered, achieved = figures["offered_per_second"], figures["achieved_per_second"]
    if offered and achieved and achieved < FALLS_BEHIND * offered:
        found.append(
            f"{protocol}: the sender fell behind its schedule: {achieved:.4g}/s of "
            f"{offered:.4g}/s; use a longer --interval, --spin, or more CPUs"
        )
    lost = (figures["loggp"] or {"left_out": {}})["left_out"].get(LOST)
    if lost:
        found.append(
            f"{protocol}: {plural(lost, 'train')} lost a message and tell nothing, as "
            "where a queue is full: use a smaller --train, smaller --sizes, or a "
            "larger --queue"
        )
    fit = figures["fit"]
    if fit and fit["model"] != "line":
        found.append(f"{protocol}: no bandwidth from the fit: {fit['reason']}")
    return found
