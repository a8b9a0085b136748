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
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

END_SECONDS = 20
PATIENCE_SECONDS = 0.005
ANSWER_SECONDS = 0.1  # of a program that means to answer
WIRES = ("latprof", "clear")
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close is a reset
ETH_P_ALL = 3
HELLO_BYTES, CHALLENGE_BYTES, PROOF_BYTES, ACCEPT_BYTES = 112, 36, 32, 69


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


def change(dice: random.Random, message: bytes) -> bytes:
    """As it is, or with a byte changed, or without its end."""
    if dice.randrange(3):
        return message
    changed = bytearray(message)
    changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed[: dice.randrange(1, len(changed) + 1)])


def receive(peer: socket.socket, size: int) -> bytes:
    """So many bytes; less where no more come in time."""
    peer.settimeout(ANSWER_SECONDS)
    got = b""
    while len(got) < size and (part := peer.recv(size - len(got))):
        got += part
    return got


def hello(dice: random.Random, transport: int) -> bytes:
    """One that is served: its terms are bounded."""
    reply = dice.choice([0, 18, 64, 60000])
    terms = struct.pack(">IIQQ64x", reply, 65507, dice.choice([0, 1000]), 0)
    return b"LPse\0\1" + bytes([1, transport]) + dice.randbytes(16) + terms


def greet(dice: random.Random, peer: socket.socket, transport: int) -> bytes:
    """A client's half of the handshake, with a fault or without; the token."""
    peer.sendall(change(dice, hello(dice, transport)))
    if not receive(peer, CHALLENGE_BYTES):
        return b""
    peer.sendall(change(dice, bytes(PROOF_BYTES)))
    return receive(peer, ACCEPT_BYTES)[1:17]


def visit(dice: random.Random, port: int, wire: str, transport: int) -> None:
    """One client, which may or may not come as far as a session."""
    with connected(socket.SOCK_STREAM, port) as control, suppress(OSError):
        if wire == "latprof" and dice.randrange(5):
            token = greet(dice, control, transport)
        else:
            token = dice.randbytes(16)
        if not transport:
            talk(dice, control, wire, 1)
            return
        with connected(socket.SOCK_DGRAM, port) as data:
            for _ in range(dice.randrange(3)):
                data.send(change(dice, b"LPop" + token))
            control.sendall(change(dice, b"\1\0\0\0\0"))
            talk(dice, data, wire, 1)


def connected(kind: int, port: int) -> socket.socket:
    peer = socket.socket(socket.AF_INET, kind)
    peer.connect(("127.0.0.1", port))
    return peer


def against_echo(dice: random.Random, build: str) -> None:
    """A responder, and some clients at once."""
    wire = dice.choice(WIRES)
    echo = Program(f"{build}/latprof-load", "echo", "--wire", wire)
    port = int(echo.line().split()[1])
    for _ in range(10):
        clients = [
            threading.Thread(
                target=visit,
                args=(random.Random(dice.random()), port, wire, dice.randrange(2)),
            )
            for _ in range(dice.randrange(5))
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    if not echo.running():
        echo.end(ask=False)
        raise Finding(f"ended by itself: {echo.words}")
    echo.end(ask=True)


def against_ending_echo(dice: random.Random, build: str) -> None:
    """Responders that end while datagrams still come."""
    for _ in range(20):
        wire = dice.choice(WIRES)
        echo = Program(f"{build}/latprof-load", "echo", "--wire", wire)
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
    with listening() as (listener, datagrams):
        port = listener.getsockname()[1]
        client = Program(f"{build}/latprof-load", "pingpong", "--port", port, *words)
        # the client may go at any turn
        with suppress(OSError):
            if wire == "clear" and protocol == "udp":
                answer_datagrams(dice, datagrams, wire)
            else:
                serve(dice, listener, datagrams if protocol == "udp" else None, wire)
        client.end(ask=False)


@contextmanager
def listening() -> Iterator[tuple[socket.socket, socket.socket]]:
    """TCP and UDP on one port."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        listener.settimeout(2)
        datagrams.settimeout(2)
        datagrams.bind(listener.getsockname())
        yield listener, datagrams


def serve(
    dice: random.Random,
    listener: socket.socket,
    datagrams: socket.socket | None,
    wire: str,
) -> None:
    """One connection: the responder's half of the handshake, and what follows it."""
    peer, _ = listener.accept()
    with peer:
        if wire == "latprof":
            receive(peer, HELLO_BYTES)
            challenge = b"LPse\0\1\0\0\0\0\0\2" + bytes(24)
            peer.sendall(change(dice, challenge))
            receive(peer, PROOF_BYTES)
            peer.sendall(change(dice, bytes(1) + dice.randbytes(16) + bytes(52)))
        if datagrams:
            answer_datagrams(dice, datagrams, wire)
        else:
            talk(dice, peer, wire, 2)


def answer_datagrams(dice: random.Random, server: socket.socket, wire: str) -> None:
    """Some with the request itself, changed or not."""
    for _ in range(dice.randrange(1, 40)):
        request, peer = server.recvfrom(1 << 16)
        if request.startswith(b"LPop"):
            server.sendto(change(dice, b"LPok" + request[4:]), peer)
            continue
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
