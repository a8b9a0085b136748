"""What the flight recorder sees: who has each CPU, interrupts, stacks."""

from __future__ import annotations

from latprof_agent.probes.catalogue import (
    BOTH,
    CGROUP,
    CLOCK,
    QUEUES,
    STORIES,
    TCP,
    TRACEPOINT,
    Probe,
    Way,
)


def _traced(programs: str, hooks: str, arguments: int = 0) -> Way:
    names = tuple(programs.split()), TRACEPOINT, tuple(hooks.split())
    return Way(*names, "", arguments, STORIES)


ACCEPT = "accept of connections (tcp)"
DEATHS = "where a lost segment died (tcp)"
# Live stories are of what one end saw, which does not include these.
NOT_LIVE = frozenset({ACCEPT, DEATHS})
FLIGHT_PROBES = (
    Probe(
        "task switches",
        BOTH,
        (_traced("on_flight_switch", "sched_switch", arguments=4),),
        "use Linux 5.18 or later",
    ),
    Probe(
        "who wakes a thread that slept",
        BOTH,
        (_traced("on_flight_wake", "sched_waking"),),
        "none known",
    ),
    Probe(
        "interrupts",
        BOTH,
        (
            _traced(
                "on_flight_interrupt on_flight_interrupt_end"
                " on_flight_softirq on_flight_softirq_end",
                "irq_handler_entry irq_handler_exit softirq_entry softirq_exit",
            ),
        ),
        "none known",
    ),
    Probe(
        "whose bytes stand in a device's queue",
        BOTH,
        (
            Way(
                ("on_flight_handed",),
                TRACEPOINT,
                ("net_dev_queue",),
                need=QUEUES,
            ),
        ),
        "none known",
    ),
    Probe(
        "order in a device's queue",
        BOTH,
        (_traced("on_flight_queued", "qdisc_enqueue"),),
        "use Linux 5.15 or later",
    ),
    Probe(
        "stacks",
        BOTH,
        (Way(("on_flight_clock",), CLOCK, ("cpu-clock",), need=STORIES),),
        "allow perf events (kernel.perf_event_paranoid, CAP_PERFMON)",
    ),
    Probe(
        # by programs that are attached anyway
        "what holds a sender's socket (tcp)",
        TCP,
        (
            Way(
                (),
                TRACEPOINT,
                ("tcp_probe", "net_dev_start_xmit"),
                "not told apart once the peer has sent its FIN",
                need=STORIES,
            ),
        ),
        "none known",
    ),
    Probe(
        "link addresses that are not found (tcp)",
        TCP,
        (_traced("on_unresolved_freed", "kfree_skb"),),
        "none known",
    ),
    Probe(
        DEATHS,
        TCP,
        (_traced("on_flight_freed", "kfree_skb", arguments=3),),
        "use Linux 5.17 or later",
    ),
    Probe(
        ACCEPT,
        TCP,
        (
            Way(
                ("on_accept4", "on_accept6"),
                CGROUP,
                ("getpeername4", "getpeername6"),
                "not where a server asks for no address of its peer",
                need=STORIES,
            ),
        ),
        "mount cgroup v2",
    ),
)
