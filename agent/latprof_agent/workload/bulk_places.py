"""Where packets of a bulk run died, as the kernel and the link count it.

Each place has a counter of its own, of all packets. Some of them are
no data but the sessions' own (their connection, the datagram that opens a channel):
how many is what went onto the way and did not come to the other host's IP, beyond
what is known of the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from latprof_agent import netns
from latprof_agent.kernel_text import lines_of
from latprof_agent.lab.lab import Lab

# By direction: from which end to which.
_Ways = dict[str, tuple[str, str]]
_WAYS: _Ways = {"up": ("a", "b"), "down": ("b", "a")}
# A tc program's: it is no child of the root, and drops at either side of the device.
HOOKS = ("clsact", "ingress")
_IP_DROPS = ("InHdrErrors", "InAddrErrors", "InDiscards", "OutNoRoutes")
# Of the receive buffer: full, or no memory for UDP at all. Others are in InErrors, too.
_AT_SOCKET = ("RcvbufErrors", "MemErrors")
_MOST_READINGS = 10


class Counted(NamedTuple):
    """Packets until now: what the lab's link and the kernel at each end say."""

    link: dict[str, Any]
    protocols: dict[str, Counter[str]]  # by end, as "Udp.InDatagrams"


class Dropped(NamedTuple):
    """What was dropped between two counts."""

    places: list[dict[str, Any]]  # with `place` and `packets`, no receive buffer
    at_sockets: int  # packets, as the kernel counts them at receive buffers
    sent: dict[str, int]  # by direction: all packets that went onto the way
    came: dict[str, int]  # and that came to the receiver's IP


def count(lab: Lab) -> Counted:
    """Read all counters while nothing passes; raises LabError where the link has ended.

    They cannot be read at one instant, and what the kernel sends unasked would be in
    some and not in others: the last of a few readings, if not one that is as the one
    before.
    """
    found = _read(lab)
    for _ in range(_MOST_READINGS):
        before, found = found, _read(lab)
        if found == before:
            break
    return found


def _read(lab: Lab) -> Counted:
    names = {end: lab.netns_of(end) for end in "ab"}
    protocols = {
        end: netns.run_in(name, protocol_counters) for end, name in names.items()
    }
    return Counted(lab.counters(), protocols)


def protocol_counters() -> Counter[str]:
    """Read what the kernel counts of IP and UDP, both families of each together.

    Of the calling thread's namespace, as "Udp.InDatagrams".
    """
    here = Path("/proc/thread-self/net")
    found: Counter[str] = Counter()
    lines = [line.decode() for line in lines_of(here / "snmp")]
    for head, values in zip(lines[::2], lines[1::2], strict=True):
        protocol, *names = head.split()
        for name, value in zip(names, values.split()[1:], strict=True):
            found[f"{protocol.rstrip(':')}.{name}"] = int(value)
    six = here / "snmp6"  # is there where the kernel has IPv6
    for line in lines_of(six) if six.exists() else ():
        name, value = line.decode().split()
        protocol, is_six, rest = name.partition("6")
        if is_six:
            found[f"{protocol}.{rest}"] += int(value)
    return found


def dropped_between(before: Counted, after: Counted, direction: str) -> Dropped:
    """Return what was dropped on the ways of a direction: up, down or both."""
    ways = _WAYS if direction == "both" else {direction: _WAYS[direction]}
    protocols = {
        end: after.protocols[end] - before.protocols[end] for end in after.protocols
    }
    counts = _grown(_path, before, after, ways)
    emulated = _grown(_into_emulator, before, after, ways)
    counts.update(dict(_stacks(protocols, ways)))
    receivers = [receiver for _, receiver in ways.values()]
    return Dropped(
        [{"place": name, "packets": n} for name, n in counts.items() if n > 0],
        sum(protocols[end][f"Udp.{name}"] for end in receivers for name in _AT_SOCKET),
        {
            way: emulated[way] or protocols[sender]["Ip.OutRequests"]
            for way, (sender, _) in ways.items()
        },
        {way: protocols[to]["Ip.InReceives"] for way, (_, to) in ways.items()},
    )


def _grown(
    read: Callable[[dict[str, Any], _Ways], Iterator[tuple[str, int]]],
    before: Counted,
    after: Counted,
    ways: _Ways,
) -> Counter[str]:
    """Say by how much counters of the link have grown."""
    found = Counter(dict(read(after.link, ways)))
    found.subtract(dict(read(before.link, ways)))
    return found


def _into_emulator(link: dict[str, Any], ways: _Ways) -> Iterator[tuple[str, int]]:
    """Yield the packets of each direction on the way to the emulator.

    There the kernel cuts large segments, so that IP counts fewer packets.
    """
    for way, (sender, receiver) in ways.items():
        if emulated := link.get("emulator", {}).get(sender + receiver):
            qdiscs = link[sender]["qdiscs"]
            before = sum(qdisc["dropped_packets"] for qdisc in qdiscs[:1])
            before += link[sender]["interface"]["tx_dropped"]
            yield way, emulated["packets_in"] + before


def _path(link: dict[str, Any], ways: _Ways) -> Iterator[tuple[str, int]]:
    """Yield places between the ends' IP, and what their counters say."""
    for sender, receiver in ways.values():
        for qdisc, dropped in _own_drops(link[sender]["qdiscs"]):
            yield f"qdisc {qdisc['kind']} of {sender}", dropped
        yield from _devices(link, sender, receiver)
        name = f"{sender} to {receiver}"
        emulated = link.get("emulator", {}).get(sender + receiver)
        if emulated:
            yield f"link's queue, {name}", emulated["dropped_queue"]
            yield f"link's loss, {name}", emulated["dropped_loss"]
        netem = link.get("netem", {}).get(sender + receiver, {"qdiscs": ()})
        for qdisc, dropped in _own_drops(netem["qdiscs"]):
            what = "loss" if qdisc["parent"] == "root" else "queue"
            yield f"link's {what}, {name}", dropped
    for end in {end for way in ways.values() for end in way}:
        for hook in link[end]["qdiscs"]:
            if hook["kind"] in HOOKS:
                yield f"tc program of {end}", hook["dropped_packets"]


def _own_drops(
    qdiscs: Sequence[dict[str, Any]],
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each qdisc and what it dropped itself.

    What one below it drops is counted again at a parent.
    """
    tree = [qdisc for qdisc in qdiscs if qdisc["kind"] not in HOOKS]
    for qdisc in tree:
        below = [one for one in tree if one["parent"].startswith(qdisc["handle"])]
        dropped_below: int = sum(one["dropped_packets"] for one in below)
        yield qdisc, qdisc["dropped_packets"] - dropped_below


def _devices(
    link: dict[str, Any], sender: str, receiver: str
) -> Iterator[tuple[str, int]]:
    """Yield what the interfaces dropped, each packet once.

    A packet that finds the backlog of the receiver's CPU full is counted at both ends
    of a veth pair.
    """
    out = link[sender]["interface"]["tx_dropped"]
    in_backlog = link[receiver]["interface"]["rx_dropped"]
    yield f"backlog of {receiver}", in_backlog
    veth = "emulator" not in link and "netem" not in link
    yield f"interface of {sender}", max(0, out - in_backlog) if veth else out


def _stacks(
    protocols: dict[str, Counter[str]], ways: _Ways
) -> Iterator[tuple[str, int]]:
    """Yield places in the receivers' kernels above the interface."""
    for _, end in ways.values():
        yield from received_places(protocols[end], end)


def received_places(counted: Counter[str], end: str) -> Iterator[tuple[str, int]]:
    """Yield places of an end above its interface, and what its kernel counts there.

    Without receive buffers, which their sockets count.
    """
    yield f"IP of {end}", sum(counted[f"Ip.{name}"] for name in _IP_DROPS)
    yield f"no socket at {end}", counted["Udp.NoPorts"]
    at_socket = sum(counted[f"Udp.{name}"] for name in _AT_SOCKET)
    yield f"UDP of {end}", max(0, counted["Udp.InErrors"] - at_socket)


def session_packets(dropped: Dropped, directions: dict[str, dict[str, Any]]) -> int:
    """Say how many of the dropped packets are none of the data.

    Where a packet is a datagram: of all that was sent, without the data, what did not
    come. Not more than was dropped at all.
    """
    most: int = sum(place["packets"] for place in dropped.places)
    lost: int = 0
    for way, figures in directions.items():
        came = (figures[name] for name in ("received", "duplicates", "lost_in_socket"))
        sent = dropped.sent[way] - figures["sent"]
        lost += max(0, sent - (dropped.came[way] - sum(came)))
    return min(lost, most)
