"""Where a segment was lost on this host, in words."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from latprof_analysis.kernel_names import name_of
from latprof_analysis.story.sockets import DroppedSegment

from latprof_agent.probes.drop_reasons import (
    COPIES,
    DUPLICATES,
    LISTEN_OVERFLOW,
    NEIGHBOUR,
    QDISC,
    SOCKET,
    UNSAID,
    USED,
    DropReasons,
)
from latprof_agent.probes.kernel_functions import KernelFunctions

# Freed so, the bytes had arrived, or were somebody else's copy.
_NO_LOSS = COPIES | DUPLICATES | USED
_AT = {
    LISTEN_OVERFLOW: "at a full listen queue",
    "NETFILTER_DROP": "at a packet filter",
    "XFRM_POLICY": "at an IPsec policy",
}
# Where a next hop has not answered who it is.
_RESOLVERS = ("arp_error_report", "ndisc_error_report", "neigh_invalidate")
# What makes a socket of the cookie that a SYN was answered with: no room, or no memory.
_COOKIES = ("cookie_v4_check", "cookie_v6_check")


class DropNames:
    """Names reasons and functions of the running kernel."""

    def __init__(self, functions: KernelFunctions) -> None:
        self._functions = functions

    @cached_property
    def _reasons(self) -> DropReasons:
        return DropReasons()

    def of(self, freed: np.ndarray) -> list[DroppedSegment]:
        """Name what records of `freed_segments` lost; what is no loss is left out."""
        names = self._functions.names(freed["location"].tolist())
        found = []
        for record in freed:
            reason = self._reasons.name(int(record["reason"]))
            if reason not in _NO_LOSS:
                function = names.get(int(record["location"]), "")
                device = name_of(record["device"].tobytes())
                where = _where(reason, function, device)
                sure = reason != UNSAID
                found.append(DroppedSegment(int(record["t_ns"]), where, sure))
        return found


def _where(reason: str, function: str, device: str) -> str:
    """Say it with what the kernel says."""
    names = [] if reason == UNSAID else [reason]
    said = " in ".join([*names, *filter(None, [function])])
    place = _AT.get(reason, "in the kernel")
    if reason == "NO_SOCKET" and function in _COOKIES:
        place = "at a listener that takes no more connections"
    if reason in QDISC:
        place = f"in the queue of {device or 'a device'}"
    elif reason in SOCKET:
        place = "at its reader's socket"
    elif reason.startswith(NEIGHBOUR) or function in _RESOLVERS:
        place = "at neighbour resolution"
    elif reason.startswith("TC_"):
        place = f"at tc of {device or 'a device'}"
    return f"{place} ({said})" if said else place
