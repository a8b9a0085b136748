"""Groups and quantities as people call them."""

from __future__ import annotations

from latprof_analysis.text import printable

from latprof_agent.containers.control_groups import short_name
from latprof_agent.monitor.totals import Drop, Group, Quantity

EVERYTHING = "all traffic"  # the one group of --by none

# In the order of the path, as a reader goes through them.
PATH = (
    Quantity.SEND_QUEUE,
    Quantity.QDISC,
    Quantity.TRANSIT,
    Quantity.RECEIVE_STACK,
    Quantity.RANGE_RECEIVE_STACK,
    Quantity.RECEIVE_QUEUE,
    Quantity.RANGE_RECEIVE_QUEUE,
    Quantity.WAKEUP,
    Quantity.RANGE_WAKEUP,
    Quantity.END_TO_END,
)
EXCHANGE = (Quantity.RESPONSE, Quantity.SERVER)
HANDSHAKE = (Quantity.TLS_HANDSHAKE,)
# The best source first.
NETWORK_RTT = (Quantity.RTT_STAMPS, Quantity.RTT_HANDSHAKE, Quantity.RTT_FLOOR)
ALL = (*EXCHANGE, *HANDSHAKE, *NETWORK_RTT, *PATH)

_RTT = "rtt_"
_RANGE = "range_"
_NAMES = {
    Quantity.RESPONSE: "response time",
    Quantity.SERVER: "server time",
    Quantity.TLS_HANDSHAKE: "TLS handshake",
    Quantity.RTT_STAMPS: "network RTT, both ends' stamps",
    Quantity.RTT_HANDSHAKE: "network RTT, handshake",
    Quantity.RTT_FLOOR: "network RTT, kernel's minimum",
    Quantity.TRANSIT: "transit, sampled",
    Quantity.END_TO_END: "end_to_end, sampled",
}


def group_name(group: Group) -> str:
    """Name a group in one line, its control group shortly.

    Examples
    --------
    >>> group_name(Group("tcp", "server", "6379", cgroup="/system.slice/redis.service"))
    'tcp server 6379 redis.service'
    """
    cgroup = short_name(group.cgroup)
    inside = group.pod, group.container, group.workload
    container = "/".join(filter(None, (group.namespace, *inside)))
    words = (group.protocol, group.role, group.service, group.comm, cgroup, container)
    found = " ".join(filter(None, (*words, group.remote, group.interface)))
    return printable(found) or EVERYTHING


def quantity_name(quantity: Quantity) -> str:
    """Name a quantity, with what it is of where that is not messages seen here.

    Examples
    --------
    >>> quantity_name(Quantity.RANGE_WAKEUP), quantity_name(Quantity.QDISC)
    ('wakeup, of readable ranges', 'qdisc')
    """
    if is_of_ranges(quantity):
        return f"{stage_name(quantity)}, of readable ranges"
    return _NAMES.get(quantity, quantity.value)


def stage_name(quantity: Quantity) -> str:
    """Name a quantity shortly, whatever it was measured of.

    Examples
    --------
    >>> stage_name(Quantity.RANGE_WAKEUP), stage_name(Quantity.RTT_HANDSHAKE)
    ('wakeup', 'RTT handshake')
    """
    return quantity.value.removeprefix(_RANGE).replace(_RTT, "RTT ")


def is_of_ranges(quantity: Quantity) -> bool:
    """Whether it is of readable ranges, whose sender is elsewhere."""
    return quantity.value.startswith(_RANGE)


def rtt_source(quantity: Quantity) -> str:
    """Name the source of a network RTT."""
    return quantity.value.removeprefix(_RTT)


def drop_name(drop: Drop) -> str:
    """Say where and why in one line.

    Examples
    --------
    >>> drop_name(Drop("qdisc", "QDISC_DROP", "tbf_enqueue", "eth0 10:"))
    'qdisc eth0 10:, QDISC_DROP in tbf_enqueue'
    """
    where = f"{drop.place} {drop.device}".strip()
    inside = f" in {drop.function}" if drop.function else ""
    return printable(f"{where}, {drop.reason}{inside}")
