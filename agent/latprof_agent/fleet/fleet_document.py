"""An interval of a fleet as JSON, and as lines for people."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from latprof_analysis.clocks import PairClock
from latprof_analysis.stats.kernel_histogram import CoarseHistogram
from latprof_analysis.text import duration, plural

from latprof_agent.fleet.fleet import SILENT_SECONDS, Fleet
from latprof_agent.fleet.fleet_clocks import state_of
from latprof_agent.fleet.fleet_totals import ARRIVED, FleetTotals, Way

FORMAT = 1
_SHARES = (0.5, 0.9, 0.99)
_MOST_LINES = 30


def document(fleet: Fleet, over: FleetTotals, seconds: float) -> dict[str, Any]:
    """Return an interval for JSON; all times in the unit their key names."""
    return {
        "format": FORMAT,
        "unix_seconds": time.time(),
        "seconds": seconds,
        "figures_age_seconds": fleet.figures_age_seconds(),
        "agents": agents_of(fleet),
        "pairs": list(pairs_of(fleet)),
        "messages": [
            _hosts(fleet, way, "source", "destination")
            | {
                "clocks": dict(found.clocks),
                "transit": _percentiles(found.transit),
                "transit_error_ns": found.error_ns or None,
                "queueing": _percentiles(found.queueing),
                "resent_segments": dict(found.resent),
            }
            for way, found in over.messages.items()
        ],
        "exchanges": [
            _hosts(fleet, way, "client", "server")
            | {"response": _percentiles(found.response)}
            | {part: _percentiles(h) for part, h in found.parts.items()}
            for way, found in over.exchanges.items()
        ],
    }


def agents_of(fleet: Fleet) -> list[dict[str, Any]]:
    """Say of each agent how it fares."""
    now = fleet.now()
    return [
        {
            "address": str(host.address),
            "name": host.name or None,
            "age_seconds": host.age_seconds(now),
            "records": host.records,
            "lost_records": host.lost_records,
            "pulls": dict(host.pulls),
            "problem": host.problem or None,
        }
        for host in fleet.hosts.values()
    ]


def pairs_of(fleet: Fleet) -> Iterator[dict[str, Any]]:
    """Say of each pair of hosts what is known of its clocks."""
    for (one, other), clock in fleet.clocks.pairs.items():
        offset = wall_offset(fleet, one, other, clock)
        yield {
            "hosts": [fleet.name_of(one), fleet.name_of(other)],
            "state": state_of(clock).word,
            "reason": "; ".join(clock.reasons.values()),
            **dict(zip(("wall_offset_ns", "low_ns", "high_ns"), offset, strict=True)),
            "drift_ppb": round(float(clock.drift_ppb[-1])),
            "base_round_trip_ns": _whole(clock.base_round_trip_ns),
            "packets": list(fleet.clocks.packets[one, other]),
        }


def wall_offset(
    fleet: Fleet, one: int, other: int, clock: PairClock
) -> tuple[int | None, int | None, int | None]:
    """Return what the second's wall clock was last ahead of the first's; its interval.

    None where it is not known.
    """
    ahead = fleet.wall_ahead_ns(one), fleet.wall_ahead_ns(other)
    if ahead[0] is None or ahead[1] is None:
        return None, None, None
    offset = int(clock.offset_ns[-1]) + ahead[1] - ahead[0]
    minus, plus = _whole(clock.minus_ns[-1]), _whole(clock.plus_ns[-1])
    return (
        offset,
        None if minus is None else offset - minus,
        None if plus is None else offset + plus,
    )


def lines_of(document: dict[str, Any]) -> Iterator[str]:
    """Write a document for people."""
    agents = document["agents"]
    heard = [a for a in agents if _is_heard(a)]
    age = document["figures_age_seconds"]
    figures = "no figures yet" if age is None else f"figures are {age:.0f} s old"
    yield f"{len(heard)} of {plural(len(agents), 'agent')} heard of, {figures}"
    for agent in agents:
        if not _is_heard(agent):
            since = agent["age_seconds"]
            ago = "never heard of" if since is None else f"silent for {since:.0f} s"
            why = f": {agent['problem']}" if agent["problem"] else ""
            yield f"  {agent['name'] or agent['address']}: {ago}{why}"
    for pair in document["pairs"]:
        yield _line_of_pair(pair)
    messages = sorted(document["messages"], key=lambda m: -sum(m["clocks"].values()))
    yield from _table("messages", messages, ("transit", "queueing"))
    for row in messages:
        if row["resent_segments"]:
            yield _line_of_resent(row)
    exchanges = sorted(document["exchanges"], key=lambda e: -e["response"]["n"])
    parts = ("response", "request_way", "server", "reply_way")
    yield from _table("exchanges", exchanges, parts)


def _is_heard(agent: dict[str, Any]) -> bool:
    age = agent["age_seconds"]
    return age is not None and age < SILENT_SECONDS


def _line_of_pair(pair: dict[str, Any]) -> str:
    one, other = pair["hosts"]
    known = [pair[name] for name in ("wall_offset_ns", "low_ns", "high_ns")]
    text = f"{one} <-> {other}: "
    if None not in known:
        offset, low, high = known
        text += f"offset {duration(offset)} +- {duration((high - low) / 2)}, "
        text += f"drift {pair['drift_ppb'] / 1000:.1f} us/s, "
    reason = f" ({pair['reason']})" if pair["reason"] else ""
    return f"{text}{pair['state']}{reason}"


def _line_of_resent(row: dict[str, Any]) -> str:
    segments = row["resent_segments"]
    text = f"{_label(row)}: {plural(sum(segments.values()), 'segment')} sent again"
    if arrived := segments.get(ARRIVED):
        text += f", {arrived} of which had arrived before"
    return f"{text}, of {plural(sum(row['clocks'].values()), 'sampled message')}"


def _table(
    what: str, rows: list[dict[str, Any]], columns: tuple[str, ...]
) -> Iterator[str]:
    """Write p50 and p99 of each row."""
    if not rows:
        return
    heads = "".join(f"{name.replace('_', ' '):>22}" for name in columns)
    yield f"{what + ' p50 p99':<48}{'n':>8}{heads}"
    for row in rows[:_MOST_LINES]:
        n = max(row[name]["n"] for name in columns)
        cells = "".join(f"{_cell(row[name]):>22}" for name in columns)
        yield f"{_label(row):<48}{n:>8}{cells}"
    if len(rows) > _MOST_LINES:
        yield f"and {len(rows) - _MOST_LINES} more"


def _label(row: dict[str, Any]) -> str:
    ends = [text for name, text in row.items() if name.endswith("_host")]
    return f"{ends[0]} -> {ends[1]} {row['protocol']}:{row['service']}"


def _cell(found: dict[str, Any]) -> str:
    both = (found["p50_ns"], found["p99_ns"])
    return "  ".join("-" if ns is None else duration(ns) for ns in both)


def _hosts(fleet: Fleet, way: Way, source: str, destination: str) -> dict[str, Any]:
    return {
        f"{source}_host": fleet.name_of(way.source),
        f"{destination}_host": fleet.name_of(way.destination),
        "protocol": way.protocol,
        "service": way.service,
    }


def _percentiles(histogram: CoarseHistogram) -> dict[str, Any]:
    found: dict[str, Any] = {"n": histogram.count}
    for share in _SHARES:
        found[f"p{100 * share:.0f}_ns"] = _whole(histogram.quantile(share) or np.nan)
    return found


def _whole(value: float) -> int | None:
    return round(float(value)) if np.isfinite(value) else None
