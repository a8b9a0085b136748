"""Totals as a busy host has them, and hostile ones; made, so that all is known."""

from __future__ import annotations

from collections import Counter

import numpy as np
from latprof_agent.monitor.totals import (
    Counted,
    Drop,
    Exemplar,
    Fit,
    Group,
    GroupTotals,
    Own,
    Quantity,
    Totals,
)
from latprof_analysis.stats.kernel_histogram import CoarseHistogram

_ALWAYS = (Quantity.SEND_QUEUE, Quantity.QDISC, Quantity.RTT_HANDSHAKE)
_ALWAYS += (Quantity.RTT_FLOOR,)
# by whether the other end is on this host, too
HERE = (
    *_ALWAYS,
    *(Quantity.RECEIVE_STACK, Quantity.RECEIVE_QUEUE, Quantity.WAKEUP),
    *(Quantity.TRANSIT, Quantity.END_TO_END),
    *(Quantity.RECEIVED_TRANSIT, Quantity.RECEIVED_END_TO_END),
)
ELSEWHERE = (
    *_ALWAYS,
    *(Quantity.RANGE_RECEIVE_STACK, Quantity.RANGE_RECEIVE_QUEUE),
    Quantity.RANGE_WAKEUP,
)
SERVER = Group("tcp", "server", "6379")
CLIENT = Group("tcp", "client", "6379")
T_NS = 5_000_000_000_000
UNIX_SECONDS = 1_790_000_000.0


def of(values) -> CoarseHistogram:
    """Durations in whole nanoseconds, or none."""
    return CoarseHistogram.of(np.array(values, "i8"))


def measured(**quantities) -> GroupTotals:
    """One group of which these durations were measured."""
    return GroupTotals({Quantity(name): of(v) for name, v in quantities.items()})


def lasting(rng, count: int, middle_ns: float = 20_000.0) -> CoarseHistogram:
    """Durations as they are: most near the middle, some far above."""
    return of(rng.lognormal(np.log(middle_ns), 1.0, count))


def group_totals(rng, quantities, messages: int = 1000) -> GroupTotals:
    """One group in which nothing was lost."""
    counted = Counter({counted: int(rng.integers(1, 10**9)) for counted in Counted})
    return GroupTotals(
        {q: lasting(rng, messages, rng.uniform(5e3, 5e6)) for q in quantities},
        counted,
        measured=counted.copy(),
    )


def scaled(totals: GroupTotals, times: int, error: float) -> GroupTotals:
    """As if all that was measured stood for so much; with this relative error."""
    return GroupTotals(
        {
            quantity: CoarseHistogram(
                h.counts * times,
                h.sum_ns * times,
                h.count * (times - 1),
                (error * h.count * times) ** 2,
            )
            for quantity, h in totals.histograms.items()
        },
        Counter({counted: n * times for counted, n in totals.counted.items()}),
        measured=totals.counted.copy(),
        variance={c: (error * n * times) ** 2 for c, n in totals.counted.items()},
    )


def add_losses(totals: GroupTotals) -> None:
    """Drops at two devices and a socket; retransmits, and those that came."""
    totals.drops += Counter(
        {
            Drop("qdisc", "QDISC_DROP", "tbf_enqueue", "eth0 10:"): 7,
            Drop("qdisc", "QDISC_DROP", "tbf_enqueue", "eth1 10:"): 4,
            Drop("socket", "SOCKET_RCVBUFF", "udp_queue_rcv_skb"): 3,
        }
    )
    totals.retransmits += Counter({"timeout": 2, "fast": 9})
    totals.arrivals += Counter({"duplicate": 1, "early": 5})


def busy_host(groups: int = 200, seed: int = 1) -> Totals:
    """Services with both roles here; half of them have the other end here, too.

    A fifth has lost something, has slow messages, and a fit.
    """
    rng = np.random.default_rng(seed)
    found = {}
    for i in range(groups):
        role = ("client", "server")[i % 2]
        answered = {"client": Quantity.RESPONSE, "server": Quantity.SERVER}[role]
        quantities = (*(HERE if i % 4 < 2 else ELSEWHERE), answered)
        if i % 4 == 0:
            quantities += (Quantity.RTT_STAMPS,)
        found[Group("tcp", role, str(1024 + i // 2))] = group_totals(rng, quantities)
    some = sorted(found)[: groups // 5]
    for group in some:
        add_losses(found[group])
    return Totals(
        T_NS,
        UNIX_SECONDS,
        found,
        own(),
        {(g, Quantity.END_TO_END): fit() for g in some},
        [slow(g, Quantity.RESPONSE) for g in some],
        [
            {"quantity": "send (tcp)", "state": "exact"},
            {"quantity": "arrive (tcp)", "state": "partial"},
        ],
    )


def own() -> Own:
    """The measuring itself."""
    return Own(
        seconds=200.0,
        covered_seconds=50.0,
        lost_records={"sent_messages": 0, "flows": 3},
        unmatched={"no_sender": 11},
        program_runs={"on_send": 1e6, "on_read": 2e6},
        program_seconds={"on_send": 0.25, "on_read": 0.5},
        agent_cpu_seconds=1.5,
        agent_rss_bytes=50_000_000,
    )


def fit() -> Fit:
    """A line of 125 MB/s and 20 us."""
    return Fit(125e6, 120e6, 130e6, 20_000.0, 19_000.0, 21_000.0, 0.98, 5000)


def slow(group: Group, quantity: Quantity, duration_ns: int = 5_000_000) -> Exemplar:
    """A slow message of 4 s ago."""
    stages = {"send_queue": 1000, "receive_queue": duration_ns - 1000}
    return Exemplar(
        *(group, quantity, duration_ns, T_NS - 4 * 10**9, 64, stages),
        process="redis-server (pid 77)",
    )
