"""All figures of a run as one document: summary.json, and what is shown."""

from __future__ import annotations

from typing import Any

from latprof_analysis.run_figures import one_way, round_trip_fit
from latprof_analysis.scans.totals import MessageTotals
from latprof_analysis.text import NS_PER_SECOND

from latprof_agent.aggregate import RoundTripTotals
from latprof_agent.recorder import Recorder
from latprof_agent.run_warnings import warnings_of

LOST_PREFIX = "lost_"


def summarize(
    recorder: Recorder, description: dict[str, Any], usage: dict[str, float]
) -> dict[str, Any]:
    """Figures of a run; all times in the unit their key names."""
    totals = recorder.messages
    round_trips = {
        source.created.protocol: _round_trips(source.totals, totals, description)
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
        "one_way": one_way(totals.as_dict(), description["lab"]),
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
    totals: RoundTripTotals, messages: MessageTotals, description: dict[str, Any]
) -> dict[str, Any]:
    plan = description["workload"]["plan"]
    interval_ns = plan["interval_ns"] if plan else 0
    return totals.as_dict() | {
        "open_loop": totals.open_loop,
        "offered_per_second": NS_PER_SECOND / interval_ns if interval_ns else None,
        "fit": round_trip_fit(*totals.arrays(), totals.protocol, description, messages),
    }
