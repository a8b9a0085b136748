"""Intervals as JSON, one document a line; keys as in summary.json.

Where a part of the time was measured, counts stand for all of it: `measured` is what
was counted, `relative_error` one standard error of it as a share, and `n` of a stage
how many values its percentiles rest on, of `count` that there were.

Beside what a summary has: `drops` by place, `network_rtt` by source, `hurt`, and
stages of readable ranges, whose sender is elsewhere (`range_...`).
"""

from __future__ import annotations

import platform
from dataclasses import asdict
from typing import Any

from latprof_analysis.say import say_json_line

from latprof_agent.live.figures import NAMES, Figure, figures_of
from latprof_agent.live.names import EXCHANGE, HANDSHAKE, NETWORK_RTT, PATH, rtt_source
from latprof_agent.live.rows import Row, ordered, rows_of
from latprof_agent.live.shown import Watched, Window
from latprof_agent.monitor.totals import (
    SERVER_TIME,
    Counted,
    Exemplar,
    Fit,
    Group,
    Own,
    Quantity,
    Totals,
    Waiting,
)

FORMAT = 1
# How counts are called in a document.
_KEYS = {counted: counted.removeprefix("sent_") for counted in Counted}


class Documents:
    """A `WindowSink` that prints a document for each interval, of all groups."""

    def begin(self, watched: Watched) -> None:
        """Nothing to forget: each document has its own interval."""

    def take(self, window: Window) -> None:
        """Print it."""
        say_json_line(document(window))


def document(window: Window) -> dict[str, Any]:
    """Return an interval for JSON; all times in the unit their key names."""
    interval = window.interval
    rows = ordered(rows_of(interval, figures_of(interval)), "hurt")
    own, waiting = interval.own, _waiting(interval)
    return {
        "format": FORMAT,
        "kernel": platform.release(),
        "t_ns": interval.t_ns,
        "unix_seconds": interval.unix_seconds,
        "seconds": own.seconds,
        "by": list(window.watched.grouping.by),
        "filter": window.watched.filter,
        "gone": list(interval.gone),
        "groups": [
            _of_row(row) | {"waiting": _of_waiting(waiting.get(row.group))}
            for row in rows
        ],
        "exemplars": [_of_exemplar(each) for each in interval.exemplars],
        **_stories(interval),
        "lost_records": own.lost_records,
        "unmatched": own.unmatched,
        "coverage_ratio": own.coverage_ratio,
        "group_room": asdict(own.groups),
        "capabilities": interval.capabilities,
        "cost": _cost(own),
    }


def _waiting(interval: Totals) -> dict[Group, Waiting]:
    """Return of each client group what waits; nothing where it is not known."""
    if interval.waiting is None:
        return {}
    clients = {group: Waiting(0, 0.0) for group in interval.groups}
    return {g: w for g, w in clients.items() if g.role != "server"} | interval.waiting


def _of_waiting(found: Waiting | None) -> dict[str, float] | None:
    return asdict(found) if found else None


def _of_row(row: Row) -> dict[str, Any]:
    counted = row.totals.counted
    return {
        "name": row.name,
        "group": _of_group(row.group),
        "hurt_seconds_per_second": row.hurt,
        "messages": counted[Counted.SENT_MESSAGES],
        "bytes": counted[Counted.SENT_BYTES],
        "packets": counted[Counted.SENT_PACKETS],
        "received_messages": counted[Counted.RECEIVED_MESSAGES],
        "received_ranges": counted[Counted.RECEIVED_RANGES],
        "received_bytes": counted[Counted.RECEIVED_BYTES],
        "measured": {_KEYS[c]: row.totals.measured[c] for c in Counted},
        "relative_error": {_KEYS[c]: row.error(c) for c in Counted},
        "stages": _of_figures(row, PATH),
        "exchanges": {
            "exchanges": counted[Counted.EXCHANGES],
            "unanswered": counted[Counted.UNANSWERED],
            "messages_without_turns": counted[Counted.NO_TURNS],
            "uncounted_at_most": counted[Counted.UNCOUNTED],
            "parts": _of_figures(row, EXCHANGE),
            "server_time": _of_server_time(row),
        },
        "handshakes": _of_figures(row, HANDSHAKE),
        "network_rtt": {
            rtt_source(q): _of_figure(row.figures[q])
            for q in NETWORK_RTT
            if q in row.figures
        },
        "drops": [
            asdict(drop) | {"packets": n} for drop, n in row.totals.drops.most_common()
        ],
        "retransmits": row.resent,
        "retransmits_by_cause": dict(row.totals.retransmits),
        "arrivals": dict(row.totals.arrivals),
        "fits": {quantity.value: _of_fit(fit) for quantity, fit in row.fits.items()},
    }


def _of_server_time(row: Row) -> dict[str, int] | None:
    """Split the server's time, as far as it is known what its thread did."""
    counted = row.totals.counted
    if not any(counted[state] for state in SERVER_TIME):
        return None
    return {
        "on_cpu_ns": counted[Counted.SERVER_RUN_NS],
        "waiting_for_cpu_ns": counted[Counted.SERVER_WAIT_NS],
        "unread_or_asleep_ns": counted[Counted.SERVER_REST_NS],
    }


def _of_group(group: Group) -> dict[str, str]:
    """Return what the group is kept apart by, and no more."""
    return {name: value for name, value in asdict(group).items() if value}


def _of_figures(row: Row, wanted: tuple[Quantity, ...]) -> dict[str, Any]:
    return {q.value: _of_figure(row.figures[q]) for q in wanted if q in row.figures}


def _of_figure(figure: Figure) -> dict[str, Any]:
    quantiles = zip(NAMES, figure.quantiles_ns, strict=True)
    return {
        "n": figure.n,
        "count": figure.count,
        "count_relative_error": figure.error,
        **{f"{name}_ns": None if q is None else round(q) for name, q in quantiles},
        "mean_ns": figure.mean_ns,
    }


def _of_fit(fit: Fit) -> dict[str, Any]:
    return {
        "bandwidth_bits_per_second": {
            "value": 8 * fit.bandwidth_bytes_per_second,
            "low": 8 * fit.bandwidth_low,
            "high": 8 * fit.bandwidth_high,
        },
        "fixed_delay_seconds": {
            "value": fit.fixed_delay_ns / 1e9,
            "low": fit.fixed_delay_low_ns / 1e9,
            "high": fit.fixed_delay_high_ns / 1e9,
        },
        "r_squared": fit.r_squared,
        "n": fit.messages,
    }


def _of_exemplar(exemplar: Exemplar) -> dict[str, Any]:
    return asdict(exemplar) | {"group": _of_group(exemplar.group)}


def _stories(interval: Totals) -> dict[str, Any]:
    """Return why slow ones were slow, each a while after it; nothing if none asks."""
    if interval.story_counts is None:
        return {}
    return {"stories": list(interval.stories.values())}


def _cost(own: Own) -> dict[str, float | None]:
    """Return what measuring cost, as shares of one CPU."""
    return {
        "probes_cpu_share": own.probes_cpu_share,
        "agent_cpu_seconds": own.agent_cpu_seconds,
        "wall_seconds": own.seconds,
        "agent_cpu_share": own.agent_cpu_share,
        "agent_resident_bytes": own.agent_rss_bytes,
    }
