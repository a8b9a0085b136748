"""What it means that the kernel freed a packet, by the name that it gives the reason.

The kernel frees packets for many reasons, and has its function kfree_skb say so for
most that nobody read. That is loss only where an application misses data. What is
listed here is none; a reason that is not known here counts as one, by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from latprof_agent import _drain

_PREFIX = "SKB_DROP_REASON_"
_SUBSYSTEM_PREFIX = _PREFIX + "SUBSYS_"
_SUBSYSTEM_SHIFT = 16  # reasons of modules that number their own


class DropVerdict(StrEnum):
    """What became of the data that a freed packet carried."""

    LOST = "lost"
    DUPLICATE = "duplicate"  # it had arrived before
    HARMLESS = "harmless"  # nobody was to get it, or not yet


LISTEN_OVERFLOW = "TCP_LISTEN_OVERFLOW"
DUPLICATES = frozenset({"TCP_OLD_DATA", "TCP_OLD_SEQUENCE", "TCP_OFOMERGE", "DUP_FRAG"})

# For others: packet sockets, taps, a bridge that floods.
COPIES = frozenset(
    {
        "OTHERHOST",
        "PACKET_SOCK_ERROR",
        "TAP_FILTER",
        "TAP_TXFILTER",
        "UNHANDLED_PROTO",
    }
)
# What has served.
USED = frozenset({"CONSUMED", "NOT_DROPPED_YET"})
UNSAID = "NOT_SPECIFIED"
HARMLESS = frozenset(
    {
        *COPIES,
        *USED,
        # the kernel does not say, and frees so what has served, too
        UNSAID,
        # nobody is there: a probe to a closed port, what comes after the end
        "NO_SOCKET",
        "IP_NOPROTO",
        "SOCKET_CLOSE",
        "TCP_CLOSE",
        "TCP_RESET",
        "TCP_RFC7323_TW_PAWS",
        # the socket's own filter refuses it
        "SOCKET_FILTER",
        # a closed window, or a segment that TCP has no use for
        "TCP_ZEROWINDOW",
        "TCP_FLAGS",
        "TCP_FASTOPEN",
        "TCP_INVALID_SYN",
        "TCP_OLD_ACK",
        "TCP_TOO_OLD_ACK",
        "TCP_ACK_UNSENT_DATA",
        "TCP_INVALID_ACK_SEQUENCE",
        "TCP_RFC7323_PAWS_ACK",
        # counted at the listener, with the SYNs that it refused
        LISTEN_OVERFLOW,
    }
)

# Places of drops, by the reasons that imply one.
QDISC = frozenset(
    {
        "QDISC_DROP",
        "QDISC_OVERLIMIT",
        "QDISC_CONGESTED",
        "CAKE_FLOOD",
        "FQ_BAND_LIMIT",
        "FQ_HORIZON_LIMIT",
        "FQ_FLOW_LIMIT",
        "DUALPI2_STEP_DROP",
    }
)
SOCKET = frozenset(
    {
        "SOCKET_RCVBUFF",
        "SOCKET_BACKLOG",
        "PROTO_MEM",
        "TCP_OVERWINDOW",
        "TCP_OFO_DROP",
        "TCP_OFO_QUEUE_PRUNE",
    }
)
NEIGHBOUR = "NEIGH_"  # as several begin: a next hop's link address was not found
CLOSE = frozenset({"TCP_ABORT_ON_DATA"})
# of queues that end: at a receiver they are counted as unread at close
PURGE = "QUEUE_PURGE"


class DropReasons:
    """The running kernel's names of its numbers."""

    def __init__(
        self,
        labels: Mapping[str, int] | None = None,
        subsystems: Mapping[str, int] | None = None,
    ) -> None:
        """By default from the kernel's own types."""
        if labels is None:
            labels = _drain.kernel_enum("skb_drop_reason")
        if subsystems is None:
            subsystems = _drain.kernel_enum("skb_drop_reason_subsys")
        self._names = {
            number: name.removeprefix(_PREFIX).removeprefix("SKB_")
            for name, number in labels.items()
        }
        self._subsystems = {
            number: name.removeprefix(_SUBSYSTEM_PREFIX).lower()
            for name, number in subsystems.items()
        }

    def name(self, number: int) -> str:
        """As the kernel calls it, without the prefix that all have."""
        subsystem = number >> _SUBSYSTEM_SHIFT
        if subsystem:
            of = self._subsystems.get(subsystem, f"subsystem {subsystem}")
            return f"{of} {number & 0xFFFF}"
        return self._names.get(number, f"reason {number}")


def verdict_of(reason: str, *, at_receiver: bool) -> DropVerdict:
    """Say whether data was lost."""
    if reason in DUPLICATES:
        return DropVerdict.DUPLICATE
    if reason in HARMLESS or (reason == PURGE and at_receiver):
        return DropVerdict.HARMLESS
    return DropVerdict.LOST
