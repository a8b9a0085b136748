"""What a sweep keeps of a run: the figures that a table of many runs has room for.

Of a ping-pong by protocol, without and beside a load, of other programs by pair of
ends, of operations by store, operation and payload, of bulk transfers by part, of a
mesh by size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from latprof_analysis.stages import STAGES
from latprof_analysis.study.bulk import (
    named_directions,
    offered_share,
    search_name,
    sent_received,
)
from latprof_analysis.study.operations import cell_name
from latprof_analysis.study.setup import utilisation
from latprof_analysis.study.ways import Pair, pairs_of, time_by_stage

TAILS = ("p99", "p95", "p90", "p50")
# Of these a row of the table has the median and the range of its repeats.
VALUES = (
    *("offered_per_second", "achieved_per_second", "utilisation"),
    *("sent_bps", "received_bps", "goodput_bps", "lost", "loss_ratio"),
    *("avg_ns", "kept_up_ns"),
)
# And of the percentiles of these: a round trip is no operation.
TIMED = ("rtt", "operation")
LATENCY_KEYS = ("p50_ns", "p95_ns", "p99_ns", "max_ns", "mean_ns")  # Time Warp's
_NS_PER_MS, _NS_PER_US = 1e6, 1e3

Figures = dict[str, Any]


def figures_of(summary: Mapping[str, Any]) -> dict[str, Figures]:
    """Return what a sweep's table shows of a run, by what it is of.

    Parameters
    ----------
    summary : mapping
        A run's summary.json.

    Returns
    -------
    dict
        By name `VALUES`, and percentiles of `TIMED`, None or missing where they are
        not known. ``avg_ns`` is that of the workload's own table. ``shares`` and
        ``stages_ns``: of the time by stage or part. ``died``: packets by place, of
        both directions of a part together. ``kept_up_ns``: the shortest interval of
        which a search found that it is kept up with. ``time_warp``: of requests,
        the latencies that some of them has.
    """
    for section, read in _OWN.items():
        if summary.get(section):
            return dict(read(summary))
    trips = summary["round_trips"]
    pairs = {pair.name: pair for pair in pairs_of(summary["kinds"])}
    found = {}
    for name in dict.fromkeys((*trips, *pairs)):
        figures = _of_trips(summary, name) if name in trips else _of(summary, name)
        found[name] = figures | _of_stages(pairs.get(name))
        found[name]["time_warp"] = _of_requests(summary, name)
    return found | _loaded(summary)


def _figures(**known: Any) -> Figures:
    empty: Figures = {"shares": {}, "stages_ns": {}, "died": {}}
    return dict.fromkeys(VALUES) | {of: {} for of in TIMED} | empty | known


def _of_trips(summary: Mapping[str, Any], protocol: str) -> Figures:
    trips = summary["round_trips"][protocol]
    return _figures(
        offered_per_second=trips["offered_per_second"],
        achieved_per_second=trips["achieved_per_second"],
        utilisation=utilisation(summary, protocol),
        lost=trips["lost"],
        loss_ratio=trips["loss_ratio"],
        rtt=_percentiles(trips["rtt"]),
    )


def _of(summary: Mapping[str, Any], name: str) -> Figures:
    """Return the response of other programs' exchanges, where it was seen."""
    parts = summary["exchanges"].get(name, {}).get("parts", {})
    return _figures(rtt=_percentiles(parts.get("response", {})))


def _percentiles(times: Mapping[str, Any]) -> Figures:
    return {f"{p}_ns": times.get(f"{p}_ns") for p in TAILS}


def _of_requests(summary: Mapping[str, Any], protocol: str) -> Figures:
    latencies = summary["time_warp"]["kinds"].get(f"{protocol} request") or {}
    return {
        name: {key: figures[key] for key in LATENCY_KEYS}
        for name, figures in latencies.items()
        if figures["n"]
    }


def _of_stages(pair: Pair | None) -> Figures:
    """Return the share of each stage, and its mean there and back."""
    if not pair:
        return {}
    shares = time_by_stage(pair)
    means = dict.fromkeys(shares, 0.0)
    for way in pair.ways.values():
        for name in shares:
            means[name] += way["stages"].get(name, {}).get("mean_ns") or 0.0
    return {"shares": shares, "stages_ns": means}


def _loaded(summary: Mapping[str, Any]) -> dict[str, Figures]:
    """Return the round trips beside the flows of a load; those above are without."""
    found = {}
    for protocol, phases in (summary.get("load") or {}).get("protocols", {}).items():
        if loaded := phases["loaded"]:
            found[f"{protocol} loaded"] = _figures(
                lost=loaded["lost"],
                loss_ratio=loaded["lost"] / loaded["sent"] if loaded["sent"] else None,
                rtt=_percentiles(loaded["rtt"]),
                **_of_means(_loaded_means(phases["stages"])),
            )
    return found


def _loaded_means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean of each stage there and back, beside the load."""
    means = dict.fromkeys((row["stage"] for row in rows), 0.0)
    for row in rows:
        means[row["stage"]] += row["loaded"]["mean_ns"] or 0.0
    return means


def _of_operations(summary: Mapping[str, Any]) -> Iterator[tuple[str, Figures]]:
    for cell in summary["ops"]["cells"]:
        shares = {k: share for k, share in cell["shares"].items() if share is not None}
        megabits = cell["megabits_per_second"]
        yield (
            cell_name(cell),
            _figures(
                avg_ns=_NS_PER_MS * cell["avg_time_ms"],
                operation=_percentiles(cell),
                goodput_bps=None if megabits is None else 1e6 * megabits,
                shares=shares,
                stages_ns={k: share * cell["mean_ns"] for k, share in shares.items()},
            ),
        )


def _of_transfers(summary: Mapping[str, Any]) -> Iterator[tuple[str, Figures]]:
    for name, part, way, figures in named_directions(summary["bulk"]["parts"]):
        sent_bps, received_bps = sent_received(figures, way)
        is_udp = part["protocol"] == "udp"
        places = (part["balance"] or {}).get("places", ())
        yield (
            name,
            _figures(
                utilisation=offered_share(part, summary),
                sent_bps=sent_bps,
                received_bps=received_bps,
                lost=figures["lost"] if is_udp else None,
                loss_ratio=figures["loss"] if is_udp else None,
                died={one["place"]: one["packets"] for one in places if one["packets"]},
            ),
        )
    for search in summary["bulk"]["searches"]:
        # 0 where no rate that was tried came through
        yield search_name(search), _figures(received_bps=search["rate_bps"] or None)


def _of_mesh(summary: Mapping[str, Any]) -> Iterator[tuple[str, Figures]]:
    mesh = summary["mesh"]
    kept_up = {knee["size_bytes"]: knee["interval_ns"] for knee in mesh["knees"]}
    for cell in mesh["cells"]:
        average_us = cell["table"]["avg_msg"]
        size = cell["size_bytes"]
        yield (
            f"{mesh['protocol']} {size} B",
            _figures(
                offered_per_second=cell["load"]["offered_messages_per_second"],
                achieved_per_second=cell["load"]["achieved_messages_per_second"],
                utilisation=cell["utilisation"],
                lost=cell["lost"],
                loss_ratio=cell["lost"] / cell["sent"] if cell["sent"] else None,
                avg_ns=None if average_us is None else _NS_PER_US * average_us,
                kept_up_ns=kept_up.get(size),
                rtt=_percentiles(cell["intended"]),
                **_of_means(_means_of(cell["stages"])),
            ),
        )


def _means_of(ways: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean of each stage of messages and echoes together, where known."""
    known = [ways[kind] for kind in ("request", "reply") if kind in ways]
    return {
        stage: sum(way[f"{stage}_ns"] or 0.0 for way in known)
        for stage in STAGES
        if any(way[f"{stage}_ns"] is not None for way in known)
    }


def _of_means(means: Mapping[str, float]) -> Figures:
    """Return the share of each stage beside its mean."""
    whole = sum(means.values())
    if not whole:
        return {}
    shares = {stage: ns / whole for stage, ns in means.items()}
    return {"shares": shares, "stages_ns": dict(means)}


_OWN = {"ops": _of_operations, "bulk": _of_transfers, "mesh": _of_mesh}
