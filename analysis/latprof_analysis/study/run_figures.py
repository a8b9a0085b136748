"""Figures that need to know how a run was made: its fit, and its one-way delays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latprof_analysis.fit.caveats import (
    refused,
    slowed_by_losses,
    slowed_by_sender,
    with_hosts,
)
from latprof_analysis.fit.estimates import Fit
from latprof_analysis.fit.line import fit_round_trips
from latprof_analysis.fit.loggp import fit_loggp
from latprof_analysis.stages import BLANK
from latprof_analysis.stats.histogram import Histogram
from latprof_analysis.study.grouped import Grouped
from latprof_analysis.study.setup import (
    known_transit_ns,
    messages_per_round,
    packets_of,
    reply_mode_of,
)
from latprof_analysis.study.totals import DATAGRAM_TURNS, KindTotals, MessageTotals
from latprof_analysis.study.train_rows import TrainRows, together

_BEHIND_TCP = ("qdisc", "transit")
# An acknowledgement for two packets of 1500 bytes. Of an echo on 100 Mbit/s 98.3 were
# left, of short replies 100.0.
_ACKNOWLEDGED = (
    "acknowledgements of the bytes of one way share the other with an echo's, up to 2%"
    " of it: --reply 18 has none"
)


def round_trip_fit(
    size_bytes: ArrayLike,
    rtt_ns: ArrayLike,
    round_index: ArrayLike,
    protocol: str,
    run: Mapping[str, Any],
    messages: MessageTotals,
) -> dict[str, Any] | None:
    """Fit D = a S + b to the round trips of one protocol of a run.

    Parameters
    ----------
    size_bytes, rtt_ns, round_index : array_like, shape (n,)
        As in `fit_round_trips`.
    protocol : {'tcp', 'udp'}
    run : mapping
        run.json, which has the reply mode and the link.
    messages : MessageTotals
        Of the run; they have what was sent again.

    Returns
    -------
    dict or None
        ``Fit.as_dict()``; None without round trips, or where no generator reports how
        the responder answered.
    """
    sizes, times = np.asarray(size_bytes, np.float64), np.asarray(rtt_ns)
    plan = run["workload"]["plan"]
    # of no bytes there is nothing to fit, and no round trip takes no time
    some = (sizes > 0) & (times > 0)
    if not some.any() or not plan:
        return None
    fit = fit_round_trips(
        sizes[some],
        times[some],
        np.asarray(round_index)[some],
        reply_mode=reply_mode_of(plan["reply_bytes"]),
        packets=packets_of(run.get("lab"), protocol),
    )
    if protocol == "udp":
        return with_hosts(fit, _hosts_byte_ns(messages) / fit.factor).as_dict()
    slowed = _slowed(fit, messages)
    return (refused(fit, slowed) if slowed else fit).as_dict()


def loggp_of(
    of_runs: Sequence[TrainRows], protocol: str, run: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Fit LogGP to the trains of one protocol.

    Parameters
    ----------
    of_runs : sequence of TrainRows
        Of each of the runs, which are alike.
    protocol : {'tcp', 'udp'}
    run : mapping
        run.json of one, which has the reply mode, the rounds and the link.

    Returns
    -------
    dict or None
        ``LogGP.as_dict()``; None of a run without trains.
    """
    plan = run["workload"]["plan"]
    if not any(of_runs) or not plan:
        return None
    per_round = messages_per_round(plan)
    columns, left_out = together(rows.trains(per_round) for rows in of_runs)
    found = fit_loggp(
        columns["size_bytes"],
        columns["messages"],
        columns["spacing_ns"],
        columns["train_ns"],
        columns["round_index"],
        reply_mode=reply_mode_of(plan["reply_bytes"]),
        send_ns=columns["send_ns"],
        receive_ns=columns["receive_ns"],
        packets=packets_of(run.get("lab"), protocol),
    )
    missing = dict(found.missing)
    if protocol == "tcp" and plan["reply_bytes"] is None and found.gap_per_byte_ns:
        missing["gap_per_byte_ns"] = _ACKNOWLEDGED
    return replace(found, left_out=left_out, missing=missing).as_dict()


def _hosts_byte_ns(messages: MessageTotals) -> float:
    """Return what hosts took for a byte of a datagram and its reply, in ns."""
    ways = (messages.kinds[w] for w in DATAGRAM_TURNS if w in messages.kinds)
    return sum(_growth(way.hosts) for way in ways)


def _growth(times: Grouped) -> float:
    """Return by how much the median grows for a byte; 0 where it is not known."""
    found = {
        size: histograms["hosts"].quantile(0.5)
        for size, histograms in times.groups.items()
        if size != BLANK and histograms
    }
    known = [(size, ns) for size, ns in sorted(found.items()) if ns is not None]
    if len(known) < 2:
        return 0.0
    (least, short_ns), (most, long_ns) = known[0], known[-1]
    return (long_ns - short_ns) / (most - least)


def _slowed(fit: Fit, messages: MessageTotals) -> str | None:
    """Say why round trips of TCP may be its own doing; None if not."""
    ways = ("tcp request", "tcp reply")
    there = [messages.kinds[way] for way in ways if way in messages.kinds]
    sent, again = sum(kind.messages for kind in there), sum(k.resent for k in there)
    found = slowed_by_losses(sent, again)
    slope = fit.slope_ns_per_byte
    if found or slope is None:
        return found
    byte_ns = slope.value / fit.factor
    each = (slowed_by_sender(_most_packets(k), byte_ns, _waited(k)) for k in there)
    return next(filter(None, each), None)


def _most_packets(kind: KindTotals) -> int:
    return max(kind.by_packets.groups, default=0)


def _waited(kind: KindTotals) -> float:
    """By how much the largest messages' last packet took longer behind TCP, in ns."""
    sizes = sorted(size for size in kind.by_size.groups if size != BLANK)
    if len(sizes) < 2:
        return math.inf
    ends = []
    for size in (sizes[0], sizes[-1]):
        stages = kind.by_size.groups[size]
        # a median needs five messages, lower percentiles a hundred
        parts = [stages.get(name, Histogram()).quantile(0.5) for name in _BEHIND_TCP]
        ends.append(sum(math.inf if part is None else part for part in parts))
    return math.inf if math.isinf(ends[0]) else ends[1] - ends[0]


def one_way(
    kinds: Mapping[str, Any], lab: Mapping[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """Return the transit of the smallest messages, beside what is known of the link.

    A link that serialises and delays by itself does all of it in transit; what a
    token bucket does stands in the qdisc stage.

    Parameters
    ----------
    kinds : mapping
        ``kinds`` of a summary document.
    lab : mapping or None
        ``lab`` of run.json.
    """
    found = {}
    for name, figures in kinds.items():
        smallest = figures["smallest"]
        if smallest:
            protocol = name.split()[0]
            known_ns = known_transit_ns(protocol, smallest["size_bytes"], lab)
            found[name] = smallest | {"known_ns": known_ns}
    return found
