"""peers.py SECONDS BUILD: both programs, as built in BUILD, against hostile peers.

Run in a network namespace of its own. A responder is sent any bytes, by clients that
reset, close halves and stay silent; a client is answered with any bytes; the link is
handed packets that no host would send. The programs are built with sanitizers: what
they find, an exit status above 2, more than one line of stderr, or a program that does
not end in time is a finding. Ends with 1 at the first, and prints the seed.
"""

from __future__ import annotations

import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

END_SECONDS = 20
PATIENCE_SECONDS = 0.005
WIRES = ("latprof", "clear")
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close is a reset
ETH_P_ALL = 3


class Finding(Exception):
    """What a program must not do, as a line."""


class Program:
    """One of the programs, with what it says."""

    def __init__(self, *words: object) -> None:
        self.words = list(map(str, words))
        self._process = subprocess.Popen(
            self.words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()

    def running(self) -> bool:
        return self._process.poll() is None

    def ask(self) -> bool:
        """Ask it to end."""
        self._process.send_signal(signal.SIGTERM)
        return True

    def end(self, *, ask: bool) -> None:
        """Wait for the end, after a SIGTERM or not, and judge it."""
        if ask:
            self.ask()
        try:
            _, said = self._process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)
            _, said = self._process.communicate()
            raise Finding(f"does not end: {self.words}\n{said}") from None
        status = self._process.returncode
        if status not in {0, 1, 2} or said.count("\n") != bool(status):
            raise Finding(f"status {status}: {self.words}\n{said}")


def header(dice: random.Random, wire: str, kind: int, size: int) -> bytes:
    """One that is right, or nearly."""
    if wire == "clear":
        return struct.pack(">HQQ", size & 0xFFFF, *dice.choices(range(1 << 20), k=2))
    shown = dice.choice([size, size, size, 0, 17, 1 << 26, (1 << 32) - 1])
    return struct.pack(">BBIIQ", kind, 1, shown, dice.randrange(1 << 32), 1)


def any_bytes(dice: random.Random, wire: str, kind: int) -> bytes:
    """Messages, messages with a fault, or noise."""
    size = dice.choice([18, 19, 64, 1000, 65507, dice.randrange(18, 70000)])
    whole = bytearray(header(dice, wire, kind, size) + dice.randbytes(size - 18))
    for _ in range(dice.choice([0, 0, 0, 1, 5])):
        whole[dice.randrange(min(len(whole), 40))] = dice.randrange(256)
    cut = dice.choice([len(whole)] * 3 + [dice.randrange(len(whole))])
    return bytes(whole[:cut])


def leave(dice: random.Random, peer: socket.socket) -> None:
    """By a close, a reset, or a half of a close and what comes then."""
    how = dice.randrange(3)
    if how == 1:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    if how == 2:
        peer.shutdown(socket.SHUT_WR)
        with suppress(TimeoutError):
            peer.recv(1 << 16)


def talk(dice: random.Random, peer: socket.socket, wire: str, kind: int) -> None:
    """Send what may be, read now and then, and leave."""
    peer.settimeout(PATIENCE_SECONDS)
    with suppress(OSError):
        for _ in range(dice.randrange(20)):
            peer.send(any_bytes(dice, wire, kind))
            if dice.randrange(2):
                with suppress(TimeoutError):
                    peer.recv(1 << 16)
        leave(dice, peer)


def against_echo(dice: random.Random, build: str) -> None:
    """A responder, and some clients at once."""
    wire, protocol = dice.choice(WIRES), dice.choice(["tcp", "udp"])
    words = ["--protocol", protocol, "--wire", wire]
    if wire == "latprof" and dice.randrange(2):
        words += ["--reply", dice.choice(["18", "64", "60000"])]
    echo = Program(f"{build}/latprof-load", "echo", *words)
    port = int(echo.line().split()[1])
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    for _ in range(20):
        peers = [socket.socket(socket.AF_INET, kind) for _ in range(dice.randrange(5))]
        for peer in peers:
            peer.connect(("127.0.0.1", port))
        for peer in peers:
            with peer:
                talk(dice, peer, wire, 1)
    if not echo.running():
        echo.end(ask=False)
        raise Finding(f"ended by itself: {echo.words}")
    echo.end(ask=True)


def against_ending_echo(dice: random.Random, build: str) -> None:
    """Responders that end while datagrams still come."""
    for _ in range(20):
        words = ["--protocol", "udp", "--wire", dice.choice(WIRES)]
        echo = Program(f"{build}/latprof-load", "echo", *words)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.connect(("127.0.0.1", int(echo.line().split()[1])))
            until = time.monotonic() + 0.02
            asked = False
            while echo.running():
                with suppress(OSError):
                    peer.send(bytes(18), socket.MSG_DONTWAIT)
                if not asked and time.monotonic() > until:
                    asked = echo.ask()
        echo.end(ask=False)


def against_pingpong(dice: random.Random, build: str) -> None:
    """A client, and a responder that makes its answers up."""
    wire, protocol = dice.choice(WIRES), dice.choice(["tcp", "udp"])
    words = ["--protocol", protocol, "--wire", wire, "--rounds", dice.choice([1, 20])]
    paced = ["--interval", "1ms"]
    window = ["--max-acks", "2", "--heartbeat-interval", "2ms"]
    words += dice.choice([[], paced, ["--spin"], [*paced, *window], ["--train", "3"]])
    words += ["--timeout", "50ms", "--sizes", dice.choice(["64", "18,1000,60000"])]
    with listening(protocol) as server:
        port = server.getsockname()[1]
        client = Program(f"{build}/latprof-load", "pingpong", "--port", port, *words)
        with suppress(TimeoutError):
            if protocol == "tcp":
                peer, _ = server.accept()
                with peer:
                    talk(dice, peer, wire, 2)
            else:
                answer_datagrams(dice, server, wire)
        client.end(ask=False)


@contextmanager
def listening(protocol: str) -> Iterator[socket.socket]:
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, kind) as server:
        server.settimeout(2)
        server.bind(("127.0.0.1", 0))
        if protocol == "tcp":
            server.listen()
        yield server


def answer_datagrams(dice: random.Random, server: socket.socket, wire: str) -> None:
    """Some with the request itself, changed or not."""
    for _ in range(dice.randrange(1, 40)):
        request, peer = server.recvfrom(1 << 16)
        reply = bytearray(request)
        reply[0] = 2 if wire == "latprof" else reply[0]
        if dice.randrange(2):
            reply[dice.randrange(18)] = dice.randrange(256)
        for _ in range(dice.randrange(3)):
            server.sendto(reply, peer)
        if not dice.randrange(3):
            server.sendto(any_bytes(dice, wire, 2)[:65507], peer)


def any_packet(dice: random.Random) -> bytes:
    """Something like IPv4 or IPv6 with options, fragments and lengths that lie."""
    first = dice.choice([0x45, 0x4F, 0x40, 0x60, 0x6F, dice.randrange(256)])
    size = dice.choice([1, 19, 20, 28, 40, 48, 60, 1400, dice.randrange(1, 1400)])
    packet = bytearray(dice.randbytes(size))
    packet[0] = first
    protocol = dice.choice([0, 6, 17, 44, 60, dice.randrange(256)])
    for at in (6, 9, 40):
        if at < size:
            packet[at] = protocol
    return bytes(packet)


def against_link(dice: random.Random, build: str) -> None:
    """The link, with this namespace at one end and another one behind it."""
    other = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo; exec sleep 60"],
        stdout=subprocess.PIPE,
    )
    assert other.stdout
    other.stdout.read(1)
    try:
        link = Program(
            f"{build}/latprof-link",
            "--a-netns=/proc/self/ns/net",
            f"--b-netns=/proc/{other.pid}/ns/net",
            f"--rate={dice.choice(['0', '1mbit', '1gbit'])}",
            f"--delay={dice.choice(['0', '1ms'])}",
            f"--loss={dice.choice(['0', '0.5'])}",
            "--drop-a=1,5,9",
            "--reorder-ab=2,7",
        )
        if link.line() != "ready\n":
            link.end(ask=False)
            raise Finding(f"not ready: {link.words}")
        set_up("tun0")
        with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as wire:
            for _ in range(1000):
                family = dice.choice([0x0800, 0x86DD])
                with suppress(OSError):  # its queue is full
                    wire.sendto(any_packet(dice), ("tun0", family))
        link.end(ask=True)
    finally:
        other.kill()
        other.wait()
        other.stdout.close()


def set_up(device: str) -> None:
    subprocess.run(["ip", "link", "set", device, "up"], check=True)


def is_root_of_all() -> bool:
    """Not only of a user namespace."""
    return Path("/proc/self/uid_map").read_text().split() == ["0", "0", str(2**32 - 1)]


def main() -> int:
    seconds, build = float(sys.argv[1]), sys.argv[2]
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
    kinds: list[Callable[[random.Random, str], None]]
    kinds = [against_echo, against_pingpong, against_link, against_ending_echo]
    set_up("lo")
    if not is_root_of_all():
        kinds.remove(against_link)  # it may not set up its device
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        try:
            kinds[count % len(kinds)](random.Random(seed + count), build)
        except Finding as finding:
            print(f"peers: round {count} of seed {seed}: {finding}", file=sys.stderr)
            return 1
        count += 1
    print(f"peers: {count} rounds of seed {seed}")
    return 0


sys.exit(main())
