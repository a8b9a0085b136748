"""All figures of a run as one document: summary.json, and what is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from latprof_analysis.fit import fit_round_trips
from latprof_analysis.wire import Packets

from latprof_agent.aggregate import RoundTripTotals
from latprof_agent.recorder import Recorder
from latprof_agent.run_warnings import warnings_of

LOST_PREFIX = "lost_"
NS_PER_SECOND = 1e9


def summarize(
    recorder: Recorder, description: dict[str, Any], usage: dict[str, float]
) -> dict[str, Any]:
    """Figures of a run; all times in the unit their key names."""
    totals = recorder.messages
    round_trips = {
        source.created.protocol: _round_trips(source.totals, description)
        for source in recorder.sources
    }
    counters = description["counters"]
    summary = {
        "format": 1,
        "state": description["state"],
        "failure": description["failure"],
        "folder": description["folder"],
        "kernel": description["kernel"],
        "workload": description["workload"],
        "lab": description["lab"],
        "known": description["lab"] and description["lab"]["known"],
        "kinds": totals.as_dict(),
        "one_way": _one_way(totals.as_dict(), description),
        "round_trips": round_trips,
        "fit": next((r["fit"] for r in round_trips.values()), None),
        "slowest": totals.slowest,
        "warmup_messages": totals.warmup,
        "missing_stamps": {k: v for k, v in totals.missing.items() if v},
        "stamps_backwards": totals.backwards,
        "records": recorder.records,
        "hidden_from_tracing": recorder.hidden.as_dict(),
        "lost_records": {
            name.removeprefix(LOST_PREFIX): n
            for name, n in counters.items()
            if name.startswith(LOST_PREFIX)
        },
        "counters": {
            name: n for name, n in counters.items() if not name.startswith(LOST_PREFIX)
        },
        "unmatched": description["unmatched"],
        "link_counters": description["link_counters"],
        "capabilities": description["capabilities"],
        "cost": usage | _probe_cost(recorder),
    }
    return summary | {"warnings": warnings_of(summary)}


def _probe_cost(recorder: Recorder) -> dict[str, Any]:
    cost = recorder.capture.cost
    return {
        "probes_cpu_share": cost.cpu_share(),
        "probes_sampled_seconds": cost.sampled_seconds,
        "probes_sampled_runs": cost.runs,
    }


def _round_trips(
    totals: RoundTripTotals, description: dict[str, Any]
) -> dict[str, Any]:
    plan = description["workload"]["plan"]
    interval_ns = plan["interval_ns"] if plan else 0
    return totals.as_dict() | {
        "open_loop": totals.open_loop,
        "offered_per_second": NS_PER_SECOND / interval_ns if interval_ns else None,
        "fit": _fit(totals, description),
    }


def _packets(protocol: str, description: dict[str, Any]) -> Packets:
    """How messages are cut on the lab's link, as the link counts bytes."""
    lab = description["lab"]
    if not lab:
        return Packets()
    version = 6 if ":" in lab["addresses"]["a"] else 4
    mtu = int(lab["known"]["mtu_bytes"])
    make = Packets.tcp if protocol == "tcp" else Packets.udp
    packets = make(mtu_bytes=mtu, ip_version=version)
    header = int(lab["known"]["link_header_bytes"])
    return replace(packets, overhead_bytes=packets.overhead_bytes + header)


def _fit(totals: RoundTripTotals, description: dict[str, Any]) -> dict[str, Any] | None:
    sizes, rtts, rounds = totals.arrays()
    plan = description["workload"]["plan"]
    if not len(sizes) or not plan:
        return None
    reply = plan["reply_bytes"]
    packets = _packets(totals.protocol, description)
    fit = fit_round_trips(
        sizes,
        rtts,
        rounds,
        reply_mode="echo" if reply is None else reply,
        packets=packets,
    ).as_dict()
    largest = int(sizes.max())
    room = packets.mss_bytes
    if totals.protocol == "udp" and room and largest > room and fit["model"] == "line":
        fit["caveats"].append(
            f"a datagram above {room} bytes is copied whole at each end before and "
            "after it crosses the link: that work is in the slope, and the figure is "
            "a little low"
        )
    return fit


def _one_way(
    kinds: dict[str, Any], description: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Transit of the smallest messages, beside what is known of the link.

    A link that serialises and delays by itself does all of it in transit; what a
    token bucket does stands in the qdisc stage.
    """
    found = {}
    for name, figures in kinds.items():
        smallest = figures["smallest"]
        if smallest:
            protocol = name.split()[0]
            known_ns = _known_transit_ns(protocol, smallest["size_bytes"], description)
            found[name] = smallest | {"known_ns": known_ns}
    return found


def _known_transit_ns(
    protocol: str, size_bytes: int, description: dict[str, Any]
) -> float | None:
    lab = description["lab"]
    if not lab or lab["known"]["kind"] == "veth":
        return None
    known = lab["known"]
    delay_ns = float(known["delay_ns"])
    if not known["rate_bps"] or known["rate_is_token_bucket"]:
        return delay_ns
    wire_bytes = float(_packets(protocol, description).wire_bytes(size_bytes))
    return delay_ns + wire_bytes * 8 * NS_PER_SECOND / float(known["rate_bps"])
