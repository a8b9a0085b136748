"""What has been measured of live traffic since the start, by group.

Everything only grows, so whoever wants a window takes the difference of two states.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from latprof_analysis.stats.kernel_histogram import CoarseHistogram


@dataclass(frozen=True)
class Room:
    """How many groups there are, and can be."""

    named: int = 0  # groups of their own
    limit: int = 0  # for how many there is room, or memory
    evicted: int = 0  # idle groups that became others', since the start
    refused: int = 0  # how often a socket found no room for its group
    is_full: bool = False


OTHER = "other"  # in place of the name where a group had no room


class Quantity(StrEnum):
    """What is measured; the kernel's own are in enum quantity of records.h, too."""

    # of messages that we saw sent
    SEND_QUEUE = "send_queue"
    QDISC = "qdisc"
    # of messages that we saw sent and read here
    RECEIVE_STACK = "receive_stack"
    RECEIVE_QUEUE = "receive_queue"
    WAKEUP = "wakeup"
    # the same of readable ranges, whose sender is elsewhere
    RANGE_RECEIVE_STACK = "range_receive_stack"
    RANGE_RECEIVE_QUEUE = "range_receive_queue"
    RANGE_WAKEUP = "range_wakeup"
    # of exchanges
    RESPONSE = "response"  # at the client
    SERVER = "server"  # at the server
    # network RTT without think time, by source
    RTT_HANDSHAKE = "rtt_handshake"
    RTT_FLOOR = "rtt_floor"  # minimum of the kernel's samples
    # of TLS, at the client: from its hello to the last word
    TLS_HANDSHAKE = "tls_handshake"
    RTT_STAMPS = "rtt_stamps"  # sampled exchanges, both ends watched
    # sampled messages, both ends watched: those that the group sent,
    TRANSIT = "transit"
    END_TO_END = "end_to_end"
    # and those that it received
    RECEIVED_TRANSIT = "received_transit"
    RECEIVED_END_TO_END = "received_end_to_end"


@dataclass(frozen=True, order=True)
class Group:
    """Names of one group: OTHER where it had no room, "" what is not grouped by."""

    protocol: str = ""  # tcp or udp
    role: str = ""  # of our end: client or server
    service: str = ""  # port of the server's end
    cgroup: str = ""  # its path
    comm: str = ""
    remote: str = ""  # a subnet
    interface: str = ""
    namespace: str = ""  # of Kubernetes
    pod: str = ""
    container: str = ""
    workload: str = ""  # what the pod is one of

    def as_other(self) -> Group:
        """Return the group of those that have no room, where it would be then."""
        named = {
            name: OTHER
            for name, value in vars(self).items()
            if value and name not in ("protocol", "role")
        }
        if self.container:
            named["pod"] = ""
        return replace(self, **named | {"namespace": ""})


class Counted(StrEnum):
    """What is counted of a group."""

    SENT_MESSAGES = "sent_messages"
    SENT_BYTES = "sent_bytes"
    SENT_PACKETS = "sent_packets"
    RECEIVED_MESSAGES = "received_messages"  # whose sender is on this host
    RECEIVED_RANGES = "received_ranges"
    RECEIVED_BYTES = "received_bytes"
    EXCHANGES = "exchanges"
    UNANSWERED = "unanswered"  # requests, at the client
    NO_TURNS = "no_turns"  # messages sent where both ends talk at once
    UNCOUNTED = "uncounted"  # at most, of TLS: first exchanges of connections
    # a server's time, in exchanges of which what its thread did is known
    SERVER_RUN_NS = "server_run_ns"
    SERVER_WAIT_NS = "server_wait_ns"  # for a CPU, once it had read
    SERVER_REST_NS = "server_rest_ns"  # not yet read, or asleep


SERVER_TIME = (Counted.SERVER_RUN_NS, Counted.SERVER_WAIT_NS, Counted.SERVER_REST_NS)
MESSAGES = (
    Counted.SENT_MESSAGES,
    Counted.RECEIVED_MESSAGES,
    Counted.RECEIVED_RANGES,
)


@dataclass(frozen=True, order=True)
class Drop:
    """Where and why packets, or what they carried, were lost."""

    place: str  # sender, qdisc, receiver, socket, close, transit, elsewhere
    reason: str  # as the kernel calls it
    function: str = ""  # of the kernel
    device: str = ""  # qdisc: "eth0 10:"


@dataclass
class GroupTotals:
    """All of one group."""

    histograms: dict[Quantity, CoarseHistogram] = field(default_factory=dict)
    counted: Counter[Counted] = field(default_factory=Counter)
    # packets; of TCP unread at close: connections
    drops: Counter[Drop] = field(default_factory=Counter)
    dropped_bytes: Counter[Drop] = field(default_factory=Counter)  # of payload
    # segments by cause: timeout, fast, probe, handshake
    retransmits: Counter[str] = field(default_factory=Counter)
    # received segments: duplicate, early (out of order)
    arrivals: Counter[str] = field(default_factory=Counter)
    # of `counted`, where that stands for time in which nothing was measured, too
    measured: Counter[Counted] = field(default_factory=Counter)
    variance: dict[Counted, float] = field(default_factory=dict)

    def copy(self) -> GroupTotals:
        """Return one to which more can be added; histograms are the same."""
        return replace(
            self,
            histograms=self.histograms.copy(),
            counted=self.counted.copy(),
            drops=self.drops.copy(),
            dropped_bytes=self.dropped_bytes.copy(),
            retransmits=self.retransmits.copy(),
            arrivals=self.arrivals.copy(),
        )

    def __add__(self, other: GroupTotals) -> GroupTotals:
        return GroupTotals(
            _sums(self.histograms, other.histograms),
            self.counted + other.counted,
            self.drops + other.drops,
            self.dropped_bytes + other.dropped_bytes,
            self.retransmits + other.retransmits,
            self.arrivals + other.arrivals,
            self.measured + other.measured,
            _sums(self.variance, other.variance),
        )

    def __sub__(self, earlier: GroupTotals) -> GroupTotals:
        histograms = {}
        for quantity, now in self.histograms.items():
            before = earlier.histograms.get(quantity)
            if before is now:
                continue  # nothing came
            came = now - before if before else now
            if came.counts.any():  # a sum of several is another object each time
                histograms[quantity] = came
        return GroupTotals(
            histograms,
            self.counted - earlier.counted,
            self.drops - earlier.drops,
            self.dropped_bytes - earlier.dropped_bytes,
            self.retransmits - earlier.retransmits,
            self.arrivals - earlier.arrivals,
            self.measured - earlier.measured,
            _less(self.variance, earlier.variance),
        )

    def error(self, *counted: Counted) -> float:
        """Return the standard error of what these counted together."""
        return math.sqrt(max(0.0, sum(self.variance.get(c, 0.0) for c in counted)))

    def error_of_all(self) -> float:
        """Return the relative error of all messages; 0 where all were measured."""
        n = sum(self.counted[c] for c in MESSAGES)
        return self.error(*MESSAGES) / n if n else 0.0


@dataclass(frozen=True)
class Fit:
    """D = a S + b of one quantity of a group, where a line is the right model.

    The bandwidth, 1 / a, is that of payload, as messages met it: of hosts and link
    together, less what others took of the link while a long one crossed. Intervals
    are of 95%. `messages` is how many it rests on.
    """

    bandwidth_bytes_per_second: float
    bandwidth_low: float
    bandwidth_high: float
    fixed_delay_ns: float
    fixed_delay_low_ns: float
    fixed_delay_high_ns: float
    r_squared: float
    messages: int


@dataclass(frozen=True)
class Exemplar:
    """One message or exchange that was slow, with what is known of its stages."""

    group: Group
    quantity: Quantity  # that was slow
    duration_ns: int
    t_ns: int  # CLOCK_MONOTONIC, when it was over
    size_bytes: int
    stages: dict[str, int]  # ns
    process: str = ""  # "redis-server (pid 77)"
    pid: int = 0


@dataclass
class Own:
    """What is known of the measuring itself; sums since the start."""

    seconds: float = 0.0
    covered_seconds: float = 0.0  # of them measured
    lost_records: dict[str, int] = field(default_factory=dict)  # by ring
    unmatched: dict[str, int] = field(default_factory=dict)  # by cause
    program_runs: dict[str, float] = field(default_factory=dict)
    program_seconds: dict[str, float] = field(default_factory=dict)
    agent_cpu_seconds: float = 0.0
    agent_rss_bytes: int = 0
    groups: Room = field(default_factory=Room)

    @property
    def coverage_ratio(self) -> float | None:
        """Which share of the time was measured; None of no time."""
        return self.covered_seconds / self.seconds if self.seconds else None

    @property
    def probes_cpu_share(self) -> float | None:
        """What the programs took, of one CPU; None where it was not sampled."""
        if not self.program_seconds or not self.seconds:
            return None
        return sum(self.program_seconds.values()) / self.seconds

    @property
    def agent_cpu_share(self) -> float | None:
        """What this process took, of one CPU."""
        return self.agent_cpu_seconds / self.seconds if self.seconds else None

    def __sub__(self, earlier: Own) -> Own:
        return Own(
            self.seconds - earlier.seconds,
            self.covered_seconds - earlier.covered_seconds,
            _less(self.lost_records, earlier.lost_records),
            _less(self.unmatched, earlier.unmatched),
            _less(self.program_runs, earlier.program_runs),
            _less(self.program_seconds, earlier.program_seconds),
            self.agent_cpu_seconds - earlier.agent_cpu_seconds,
            self.agent_rss_bytes,
            self.groups,
        )


@dataclass(frozen=True)
class Waiting:
    """Requests of a group that wait for their answers."""

    count: int
    oldest_seconds: float

    def __add__(self, other: Waiting) -> Waiting:
        oldest = max(self.oldest_seconds, other.oldest_seconds)
        return Waiting(self.count + other.count, oldest)


@dataclass
class Totals:
    """One state of everything."""

    t_ns: int = 0  # CLOCK_MONOTONIC
    unix_seconds: float = 0.0
    groups: dict[Group, GroupTotals] = field(default_factory=dict)
    own: Own = field(default_factory=Own)
    # the newest state, no sums; by group and quantity
    fits: dict[tuple[Group, Quantity], Fit] = field(default_factory=dict)
    exemplars: list[Exemplar] = field(default_factory=list)  # newest last, few
    capabilities: list[dict[str, Any]] = field(default_factory=list)
    # None: a part of the time is measured, and so it is not known
    waiting: dict[Group, Waiting] | None = None
    gone: tuple[str, ...] = ()  # words of the filter: what they name is not there
    # of exemplars, as `latprof story` reads them, by their `pid` and `t_ns`; few
    stories: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    story_counts: dict[str, int] | None = None  # by outcome; None: nobody asks why
    # what groups were called until their name was known, and what they are now
    renamed: dict[Group, Group] = field(default_factory=dict)

    def since(self, earlier: Totals) -> Totals:
        """Return what came since an earlier state.

        What a group had that made room meanwhile is others' now, but not new.
        """
        none = GroupTotals()
        known = sums((self.renamed.get(g, g), of) for g, of in earlier.groups.items())
        groups = {
            group: now - known.get(group, none) for group, now in self.groups.items()
        }
        for group in known.keys() - self.groups.keys():
            other = group.as_other()
            if other in groups:
                groups[other] -= known[group]
        return Totals(
            self.t_ns,
            self.unix_seconds,
            groups,
            self.own - earlier.own,
            self.fits,
            [e for e in self.exemplars if e.t_ns > earlier.t_ns],
            self.capabilities,
            self.waiting,
            self.gone,
            {k: s for k, s in self.stories.items() if k not in earlier.stories},
            self.story_counts,
            self.renamed,
        )


def sums(found: Iterable[tuple[Group, GroupTotals]]) -> dict[Group, GroupTotals]:
    """Add up what several have that are called the same."""
    groups: dict[Group, GroupTotals] = {}
    for group, totals in found:
        groups[group] = groups[group] + totals if group in groups else totals
    return groups


def _sums(one: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, Any]:
    return one | {k: one[k] + v if k in one else v for k, v in other.items()}


def _less(now: dict[Any, Any], before: dict[Any, Any]) -> dict[Any, Any]:
    return {name: value - before.get(name, 0) for name, value in now.items()}
