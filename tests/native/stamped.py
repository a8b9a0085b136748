"""UDP sockets inside a lab, and when the kernel saw each datagram come in.

The oracle of latprof-link's tests: stamps of the receiving stack (SO_TIMESTAMPNS),
so that no wake-up of the reader is in them. They are CLOCK_REALTIME, and so are
the stamps that the sender takes here.
"""

import select
import socket
import struct
import time
from typing import NamedTuple

from latprof_agent import netns

SO_RCVBUFFORCE = 33
SO_SNDBUFFORCE = 32
SO_TIMESTAMPNS = 35
BUFFER_BYTES = 64 << 20
DEADLINE_S = 20.0
UDP_IPV4_HEADER_BYTES = 28

LATE_NS = 300_000  # wake-ups of a virtual machine; 10 to 60 us on an idle one
CLOCK_NS = 5_000  # CLOCK_REALTIME here is steered against our CLOCK_MONOTONIC


class Arrival(NamedTuple):
    """A datagram, its number and the time at which the kernel received it."""

    number: int
    t_ns: int


def open_socket(namespace, address):
    """A UDP socket of a namespace, bound to a free port there."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = netns.run_in(namespace, lambda: socket.socket(family, socket.SOCK_DGRAM))
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.bind((address, 0))
    return sock


def lateness_ns(late_ns: list[float]) -> float:
    """How late a packet is that no other program has held up: the first decile."""
    return sorted(late_ns)[len(late_ns) // 10]


class Flow:
    """One direction between the ends of a lab: send here, receive there."""

    def __init__(self, lab, sender="a"):
        ends = [(lab.a_netns, lab.a_address), (lab.b_netns, lab.b_address)]
        if sender == "b":
            ends.reverse()
        self._from, self._to = (open_socket(*end) for end in ends)
        self._from.connect(self._to.getsockname()[:2])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._from.close()
        self._to.close()

    def send(self, number, payload_bytes):
        """Send a datagram that holds its number; return the time just before."""
        datagram = struct.pack("!Q", number).ljust(payload_bytes, b"\0")
        t_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        self._from.send(datagram)
        return t_ns

    def send_empty(self):
        """Send a datagram without payload."""
        self._from.send(b"")

    def receive(self, seconds=DEADLINE_S):
        """The next datagram that holds a number, or None after `seconds`."""
        deadline = time.monotonic() + seconds
        while select.select([self._to], [], [], max(0, deadline - time.monotonic()))[0]:
            data, control, _, _ = self._to.recvmsg(65536, 64)
            seconds_part, ns_part = struct.unpack("qq", control[0][2])
            if len(data) >= 8:
                number = struct.unpack("!Q", data[:8])[0]
                return Arrival(number, seconds_part * 10**9 + ns_part)
        return None

    def receive_all(self, count):
        """The next `count` datagrams; fewer only when the deadline passes."""
        arrivals = []
        while len(arrivals) < count and (arrival := self.receive()):
            arrivals.append(arrival)
        return arrivals

    def wait_for_stamps(self):
        """Until the kernel stamps what comes in, not what is read (it needs a while).

        A stamp that is later than the moment at which a datagram was seen to be
        there was taken by the read.
        """
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            self.send(0, 8)
            if select.select([self._to], [], [], DEADLINE_S)[0]:
                seen_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
                if self.receive().t_ns <= seen_ns:
                    return
        raise AssertionError("the kernel does not stamp datagrams")


def wait_for_counters(lab, direction, arrived):
    """Counters once they say that `arrived` packets came in at this direction."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        counters = lab.counters()["emulator"][direction]
        if counters["packets_in"] >= arrived and not counters["in_flight"]:
            return counters
    raise AssertionError(f"not {arrived} packets: {counters}")
