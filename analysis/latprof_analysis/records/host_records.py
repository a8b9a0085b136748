"""Records of several hosts as one host's: on one clock, and no number twice.

Numbers of processes, threads and namespaces are a host's own, and so are the numbers
of flows of datagrams whose sender's namespace is known (see struct flow in records.h).
Streams' numbers are the same at both ends, which is how their halves meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.records.arrays import Batch, Records
from latprof_analysis.records.flows import IPPROTO_TCP

# Fields that are times of CLOCK_MONOTONIC; all others in ns are durations.
_STAMPS = frozenset(
    {
        *("t_ns", "send_ns", "queue_ns", "xmit_ns", "arrive_ns", "ready_ns", "read_ns"),
        *("from_ns", "until_ns", "since_ns", "throttled_ns", "period_end_ns"),
    }
)
_PROCESSES = frozenset(
    {"pid", "thread", "left_pid", "left_thread", "by_pid", "by_thread"}
)
HOST = "host"  # a field of halves, put in here
HALVES = ("sent_messages", "received_ranges")
# Linux numbers no process from here on.
PID_BITS = 22
MOST_HOSTS = 1 << (32 - PID_BITS)
_ODD = 0x9E3779B97F4A7C15

Clock = Callable[[NDArray[np.int64]], NDArray[np.int64]]


def with_host(ring: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Lay out a ring's records as `HostRecords` gives them.

    Examples
    --------
    >>> with_host("sent_messages", np.dtype([("flow", "<u8")])).names
    ('flow', 'host')
    """
    fields = [(name, dtype[name]) for name in dtype.names or ()]
    return np.dtype([*fields, (HOST, "<u2")] if ring in HALVES else fields)


def stamps_in(dtype: np.dtype[Any]) -> list[str]:
    """Name the fields of records that are times of their host's clock.

    Examples
    --------
    >>> stamps_in(np.dtype([("flow", "<u8"), ("t_ns", "<u8"), ("wakeup_ns", "<u8")]))
    ['t_ns']
    """
    return [name for name in dtype.names or () if name in _STAMPS]


class HostRecords:
    """Copies records of one host, as if a host that all have in common had made them.

    Parameters
    ----------
    host : int
        Its number, below MOST_HOSTS. Of host 0 all numbers stay as they are.
    clock : callable
        Gives the times on the common clock for times on the host's, both of shape
        (n,), in ns.
    """

    def __init__(self, host: int, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._numbers = FlowNumbers(host)

    def moved(self, batch: Batch, rings: Mapping[str, np.dtype[Any]]) -> Batch:
        """Return a step's records of all rings, laid out as `with_host` has them.

        Fields that they lack, and rings, are 0 and empty.
        """
        if "flows" in batch:
            self._numbers.learn(batch["flows"])
        return {
            ring: self._of_ring(batch[ring], dtype)
            if ring in batch
            else np.empty(0, dtype)
            for ring, dtype in rings.items()
        }

    def _of_ring(self, records: Records, dtype: np.dtype[Any]) -> Records:
        found = np.zeros(len(records), dtype)
        if not len(records):
            return found
        for name in set(records.dtype.names or ()) & set(dtype.names or ()):
            found[name] = self._of_field(name, records[name])
        if HOST in (dtype.names or ()):
            found[HOST] = self._host
        return found

    def _of_field(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        if name in _STAMPS:
            times = values.astype("i8")
            return np.where(times > 0, self._clock(times), 0)  # 0 is no time
        if name == "flow":
            return self._numbers.of(values)
        if name in _PROCESSES:
            return np.where(values > 0, values | np.uint32(self._host << PID_BITS), 0)
        if name == "netns":
            return np.asarray(values ^ np.uint32(self._host * _ODD & 0xFFFFFFFF))
        if name == "sender_netns":
            return np.where(values > 0, values ^ _mixed_in(self._host), 0)
        return values


def _mixed_in(host: int) -> np.uint64:
    """Return what makes a number of this host unlike those of others."""
    return np.uint64(host * _ODD & 0xFFFFFFFFFFFFFFFF)


def host_of(pid: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the host of numbers of processes, -1 where there is none."""
    return np.where(pid > 0, pid >> PID_BITS, -1)


def own_pid(pid: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers of processes as their hosts have them."""
    return np.where(pid > 0, pid & ((1 << PID_BITS) - 1), pid)


class FlowNumbers:
    """Makes numbers of flows differ that only one host's namespaces tell apart.

    A flow of datagrams whose sender's namespace is known has that in its number, and
    such numbers of several hosts may be the same.
    """

    def __init__(self, host: int) -> None:
        self._mix = _mixed_in(host)
        self._own = np.empty(0, "u8")  # in their order

    def learn(self, announced: Records) -> None:
        """Take in announcements of flows, as the host made them."""
        own = (announced["protocol"] != IPPROTO_TCP) & (announced["sender_netns"] != 0)
        if own.any():
            self._own = np.union1d(self._own, announced["flow"][own])

    def of(self, flow: NDArray[Any]) -> NDArray[np.uint64]:
        """Return the numbers that stand for these of the host."""
        if not len(self._own) or not self._mix:
            return flow
        at = np.searchsorted(self._own, flow)
        at[at == len(self._own)] = 0
        return np.where(self._own[at] == flow, flow ^ self._mix, flow)
