"""Why one message waited in a device's queue: whose bytes stood before it.

From packets as queues took them. In a FIFO what stood before a packet left before it,
so that its wait is shared out by bytes; other queues may have let it pass some of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.story.fields import field_text
from latprof_analysis.story.story import Part

Records = NDArray[Any]

UNKNOWN = 0xFFFFFFFF
_FIFOS = ("pfifo", "bfifo")
_SHAPER = "tbf"
# Two programs of one hook take their times so far apart, with interrupts between.
_SAME_NS = 200_000
_MOST_OWNERS = 10
_PROTOCOLS = {6: "tcp", 17: "udp"}


@dataclass(frozen=True)
class DeviceQueue:
    """A queue of a device, as `tc qdisc` names it; `within` is the kind in a tbf."""

    since_ns: int
    device: str
    kind: str
    handle: int
    within: str = ""

    @property
    def is_fifo(self) -> bool:
        """Whether packets leave as they came."""
        within = self.kind == _SHAPER and self.within in _FIFOS
        return within or self.kind in _FIFOS

    def __str__(self) -> str:
        return f"{self.kind} {self.handle >> 16:x}: of {self.device}"


class Ends(NamedTuple):
    """Of a packet: its addresses (IPv4 mapped), ports and protocol's number."""

    source: bytes
    destination: bytes
    source_port: int
    destination_port: int
    protocol: int

    @classmethod
    def of_message(cls, row: Mapping[str, Any]) -> Ends:
        """Take them from a row of messages.csv."""
        protocols = {name: number for number, name in _PROTOCOLS.items()}
        return cls(
            _packed(row["source_address"]),
            _packed(row["destination_address"]),
            row["source_port"],
            row["destination_port"],
            protocols[row["protocol"]],
        )

    @classmethod
    def of_packet(cls, packet: Any) -> Ends:
        """Take them from a record of `queued_packets`."""
        return cls(
            packet["source"].tobytes(),
            packet["destination"].tobytes(),
            int(packet["source_port"]),
            int(packet["destination_port"]),
            int(packet["protocol"]),
        )

    def __str__(self) -> str:
        source, destination = map(_address, (self.source, self.destination))
        if self.source_port:
            source = f"{source}:{self.source_port}"
            destination = f"{destination}:{self.destination_port}"
        name = _PROTOCOLS.get(self.protocol, f"protocol {self.protocol}")
        return f"{name} {source} to {destination}"


def _packed(address: str) -> bytes:
    found = ip_address(address)
    mapped = f"::ffff:{address}" if found.version == 4 else address
    return IPv6Address(mapped).packed


def _address(packed: bytes) -> str:
    found = IPv6Address(packed)
    return str(found.ipv4_mapped) if found.ipv4_mapped else f"[{found}]"


class Owner(NamedTuple):
    """Whose bytes: a process by its socket (pid 0: not known), or a flow."""

    pid: int
    comm: str
    flow: str = ""
    processes: int = 1  # that have the socket
    own: bool = False  # of the message's own flow


@dataclass(frozen=True)
class QueueWait:
    """What a message met at a device's queue.

    Attributes
    ----------
    parts : tuple of Part
        "queued" behind somebody's bytes, "held back" by the queue itself, or
        "not recorded", longest first; times sum to the stage.
    queue : dict or None
        ``name``, ``kind``, ``within``, ``fifo``, ``backlog_bytes`` before it,
        ``own_bytes`` of its last packet, and ``before``: owners with their ``bytes``,
        most first. None: the queue is not known.
    """

    parts: tuple[Part, ...]
    queue: dict[str, Any] | None = None


OwnerOf = Callable[[int], tuple[int, str, int] | None]  # of a socket's inode
QueueAt = Callable[[int, int], DeviceQueue | None]  # of a number at a time


def wait_of(
    packets: Records,
    ends: Ends,
    begin_ns: int,
    end_ns: int,
    *,
    queue_at: QueueAt,
    owner_of: OwnerOf = lambda _inode: None,
    since_ns: int = 0,
) -> QueueWait:
    """Say why a packet stood in a queue from `begin_ns` to `end_ns`.

    Parameters
    ----------
    packets : ndarray of records
        `queued_packets`, in order of time.
    ends : Ends
        Of the message.
    begin_ns, end_ns : int
        When its last packet was handed to the queue, and left it. CLOCK_MONOTONIC.
    queue_at : callable
        Gives the queue that a packet's number meant at a time, or None.
    owner_of : callable
        Gives pid, name and number of processes by a socket's inode, or None.
    since_ns : int
        From then on all packets are there.
    """
    took_ns = end_ns - begin_ns
    nothing = QueueWait((Part("not recorded", took_ns),))
    own = _own(packets, ends, begin_ns, end_ns)
    if own is None:
        return nothing
    packet = packets[own]
    queue = queue_at(int(packet["queue"]), int(packet["t_ns"]))
    backlog = int(packet["backlog_bytes"])
    if queue is None or backlog == UNKNOWN:
        return nothing
    same = packets["queue"] == packet["queue"]
    same &= packets["t_ns"] >= max(since_ns, queue.since_ns)
    before = _before(packets[:own][same[:own]], backlog, ends, owner_of)
    own_bytes = int(packet["bytes"])
    state = {
        "name": str(queue),
        "kind": queue.kind,
        "within": queue.within,
        "fifo": queue.is_fifo,
        "backlog_bytes": backlog,
        "own_bytes": own_bytes,
        "before": [o._asdict() | {"bytes": n} for o, n in before.most_common()],
    }
    if not queue.is_fifo:
        return QueueWait((Part("queued" if backlog else "held back", took_ns),), state)
    return QueueWait(_shared_out(took_ns, before, backlog, own_bytes), state)


def _own(packets: Records, ends: Ends, begin_ns: int, end_ns: int) -> int | None:
    """Return the place of the message's last packet; None: none, or of two queues."""
    handed_ns = packets["t_ns"].astype("i8") - packets["handed_ns"]
    apart_ns = np.abs(handed_ns - begin_ns)
    mine = (apart_ns <= _SAME_NS) & (packets["t_ns"] < end_ns)
    mine &= packets["protocol"] == ends.protocol
    for name in ("source_port", "destination_port"):
        # of a fragment but the first there are none
        mine &= (packets[name] == getattr(ends, name)) | (packets["source_port"] == 0)
    for name in ("source", "destination"):
        address = np.frombuffer(getattr(ends, name), "u1")
        mine &= (packets[name] == address).all(axis=1)
    at = np.flatnonzero(mine)
    if not len(at) or len(np.unique(packets["queue"][at])) > 1:
        return None
    return int(at[np.argmin(apart_ns[at])])


def _before(
    packets: Records, backlog: int, ends: Ends, owner_of: OwnerOf
) -> Counter[Owner]:
    """Count by owner the last `backlog` bytes; those that nobody saw as NOBODY."""
    latest = packets[::-1]
    unknown = np.flatnonzero(latest["bytes"] == UNKNOWN)
    latest = latest[: unknown[0]] if len(unknown) else latest
    up_to = np.cumsum(latest["bytes"].astype("i8"))
    count = int(np.searchsorted(up_to, backlog, side="left")) + 1 if backlog else 0
    found: Counter[Owner] = Counter()
    left = backlog
    for packet in latest[:count]:
        size = min(int(packet["bytes"]), left)
        found[_owner(packet, ends, owner_of)] += size
        left -= size
    if left:
        found[NOBODY] += left
    return _largest(found)


NOBODY = Owner(0, "")
_OTHERS = Owner(0, "", "others")


def _owner(packet: Any, ends: Ends, owner_of: OwnerOf) -> Owner:
    own = Ends.of_packet(packet)
    process = owner_of(int(packet["inode"])) if packet["inode"] else None
    if process:
        pid, comm, processes = process
        return Owner(pid, comm, "", processes, own == ends)
    return Owner(0, "", str(own), own=own == ends)


def _largest(found: Counter[Owner]) -> Counter[Owner]:
    """Add up those with least beyond the first few."""
    kept: Counter[Owner] = Counter()
    for i, (owner, size) in enumerate(found.most_common()):
        kept[owner if i < _MOST_OWNERS or owner == NOBODY else _OTHERS] += size
    return kept


def _shared_out(
    took_ns: int, before: Mapping[Owner, int], backlog: int, own_bytes: int
) -> tuple[Part, ...]:
    """Share a time out by bytes; what integers leave over is the largest's."""
    whole = backlog + own_bytes
    shares: list[tuple[Owner | None, int]] = [*before.items(), (None, own_bytes)]
    times = [took_ns * size // whole if whole else 0 for _, size in shares]
    largest = max(range(len(shares)), key=lambda i: shares[i][1])
    times[largest] += took_ns - sum(times)
    parts = [
        _part(owner, time_ns)
        for (owner, _), time_ns in zip(shares, times, strict=True)
        if time_ns
    ]
    return tuple(sorted(parts, key=lambda part: -part.time_ns))


def _part(owner: Owner | None, time_ns: int) -> Part:
    if owner is None:
        return Part("held back", time_ns)
    if owner == NOBODY:
        return Part("not recorded", time_ns, "whose bytes stood before it")
    if owner.own:
        return Part("queued", time_ns, "behind its own sender's earlier packets")
    if not owner.pid:
        return Part("queued", time_ns, f"behind {owner.flow}")
    who = {"pid": owner.pid, "comm": owner.comm, "time_ns": time_ns}
    return Part("queued", time_ns, "behind", (who,))


def queues_of(entries: Iterable[tuple[int, Any]]) -> QueueAt:
    """Make `queue_at` of entries of the probes' table `device_queues`."""
    known: dict[int, list[DeviceQueue]] = {}
    for number, entry in entries:
        queue = DeviceQueue(
            int(entry["since_ns"]),
            field_text(entry["device"]),
            field_text(entry["kind"]),
            int(entry["handle"]),
            field_text(entry["within"]),
        )
        known.setdefault(number, []).append(queue)
    for several in known.values():
        several.sort(key=lambda queue: queue.since_ns)

    def queue_at(number: int, t_ns: int) -> DeviceQueue | None:
        since = [q for q in known.get(number, ()) if q.since_ns <= t_ns]
        return since[-1] if since else None

    return queue_at
