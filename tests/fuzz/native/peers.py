"""peers.py SECONDS BUILD: both programs, as built in BUILD, against hostile peers.

Run in a network namespace of its own. A responder is sent any bytes, by clients that
reset, close halves, stay silent and come in floods; a client is answered with any
bytes; the link is handed packets that no host would send. The programs are built with
sanitizers: what they find, an exit status above 2, more than one line of stderr, a
datagram to somebody without a session, or a program that does not end in time is a
finding. Ends with 1 at the first, and prints the seed.
"""

from __future__ import annotations

import hmac
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

END_SECONDS = 20
PATIENCE_SECONDS = 0.005
ANSWER_SECONDS = 0.1  # of a program that means to answer
WIRES = ("latprof", "clear")
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close is a reset
ETH_P_ALL = 3
HELLO_BYTES, CHALLENGE_BYTES, PROOF_BYTES, ACCEPT_BYTES = 112, 36, 32, 69
PINGPONG, BULK = 1, 2
PLAN, GO, DATA, SENT, RESULT = 16, 18, 19, 20, 21  # frames of a bulk session
SENT_WORDS, SLOTS_MAX = 20, 1 << 14
SECRET = b"0123456789abcdef0123456789abcdef"
# Of a responder; most leave room for some of the clients alone.
LIMITS = (
    *((), (), ("--max-sessions", 2), ("--max-memory", "20mib"), ("--idle", 1)),
    *(("--max-host-sessions", 1), ("--max-host-memory", "20mib")),
    *(("--max-cpu", 1, "--max-host-cpu", 1),),
    *(("--max-rate", "1mib"), ("--max-message", "1k"), ("--workloads", "bulk")),
)


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
    """As it is mostly, or with a byte changed, or without its end."""
    if dice.randrange(8):
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


def hello(dice: random.Random, workload: int, transport: int) -> bytes:
    """One that is served: its terms are bounded."""
    reply, think_ns, duration_ns = 0, 0, 10**9
    if workload == PINGPONG:
        reply, think_ns = dice.choice([0, 18, 64, 60000]), dice.choice([0, 1000])
    terms = struct.pack(">IIQQ64x", reply, 65507, think_ns, duration_ns)
    kind = bytes([workload, transport])
    return b"LPse\0\1" + kind + dice.randbytes(16) + terms


def greet(
    dice: random.Random, peer: socket.socket, workload: int, transport: int
) -> bytes:
    """A client's half of the handshake, with a fault or without; the token."""
    said = change(dice, hello(dice, workload, transport))
    peer.sendall(said)
    challenge = receive(peer, CHALLENGE_BYTES)
    if not challenge:
        return b""
    proof = bytes(PROOF_BYTES)
    if challenge[7:8] == b"\1":
        proof = hmac.digest(SECRET, b"client" + said + challenge, "sha256")
    peer.sendall(change(dice, proof))
    return receive(peer, ACCEPT_BYTES)[1:17]


def visit(dice: random.Random, port: int, wire: str, transport: int) -> None:
    """One client, which may or may not come as far as a session."""
    workload = dice.choice([PINGPONG, BULK])
    with connected(socket.SOCK_STREAM, port) as control, suppress(OSError):
        if wire == "latprof" and dice.randrange(5):
            token = greet(dice, control, workload, transport)
        else:
            token = dice.randbytes(16)
        if not transport:
            converse(dice, control, control, wire, workload)
            return
        with connected(socket.SOCK_DGRAM, port) as data:
            for _ in range(dice.randrange(3)):
                data.send(change(dice, b"LPop" + token))
            control.sendall(change(dice, b"\1\0\0\0\0"))
            converse(dice, control, data, wire, workload)


def converse(
    dice: random.Random,
    control: socket.socket,
    data: socket.socket,
    wire: str,
    workload: int,
) -> None:
    """What follows the handshake of a session of this workload."""
    if wire == "latprof" and workload == BULK:
        transfer(dice, control, data)
    else:
        talk(dice, data, wire, 1)


def frame(kind: int, words: Sequence[int]) -> bytes:
    return struct.pack(f">BI{len(words)}Q", kind, 8 * len(words), *words)


def plan(dice: random.Random) -> bytes:
    """A bulk channel's, which is sound or nearly."""
    unit, units = dice.choice([24, 1000, 65507]), dice.choice([0, 1, 50, 10**6])
    rate, slot = dice.choice([0, 1000, 10**6, 10**12]), dice.choice([10**6, 10**8])
    words = [0, 1, dice.randrange(3), unit, units, 10**8, rate, slot, 0]
    words += [dice.randrange(4), dice.randrange(4), dice.randrange(2)]
    if not dice.randrange(3):
        odd = dice.choice([0, 1, 2**31, 2**63, 2**64 - 1, dice.randrange(2**64)])
        words[dice.randrange(len(words))] = odd
    return frame(PLAN, words)


def sent(dice: random.Random) -> bytes:
    """How many units a channel sent, and when: true, or not."""
    totals = [dice.choice([0, 1, 60, 2**64 - 1]) for _ in range(SENT_WORDS)]
    slots = [1] * dice.choice([0, 1, 100])
    count = dice.choice([len(slots)] * 3 + [SLOTS_MAX, SLOTS_MAX + 1, 2**64 - 1])
    return frame(SENT, [*totals, dice.choice([0, 10**6]), count, *slots])


def units(dice: random.Random, data: socket.socket) -> Iterator[bytes]:
    """What a channel may carry: numbers in any order; or frames of data."""
    number = 0
    for _ in range(dice.randrange(60)):
        number = dice.choice([number + 1, number, dice.randrange(200), 2**63 - 1])
        size = dice.choice([24, 1000, 65507])
        if data.type == socket.SOCK_STREAM:
            yield struct.pack(">BI", DATA, size - 5) + bytes(size - 5)
        else:
            yield struct.pack(">IIQQ", 0x4C506264, 0, number, 1) + bytes(size - 24)


def transfer(dice: random.Random, control: socket.socket, data: socket.socket) -> None:
    """A bulk channel, each step of which may be wrong, missing or too early."""
    control.settimeout(ANSWER_SECONDS)
    with suppress(OSError):
        control.sendall(change(dice, plan(dice)))
        if dice.randrange(4):
            receive(control, 5)
        control.sendall(change(dice, frame(GO, ())))
        for unit in units(dice, data):
            data.send(change(dice, unit) if not dice.randrange(9) else unit)
        for _ in range(dice.choice([1, 1, 1, 0, 2])):
            control.sendall(change(dice, sent(dice)))
        if not dice.randrange(4):
            control.sendall(frame(dice.choice([PLAN, RESULT, 99]), ()))
        for _ in range(dice.randrange(5)):
            with suppress(TimeoutError):
                control.recv(1 << 16)
        leave(dice, control)


@contextmanager
def half_open(dice: random.Random, port: int) -> Iterator[None]:
    """Clients that come so far and then say no more, while others are served."""
    with ExitStack() as stack:
        for _ in range(dice.choice([0, 0, 3, 100])):
            control = stack.enter_context(connected(socket.SOCK_STREAM, port))
            with suppress(OSError):  # it is refused, or makes room
                if not dice.randrange(10):
                    greet(dice, control, PINGPONG, 1)
                elif dice.randrange(2):
                    said = hello(dice, PINGPONG, 1)
                    control.send(said[: dice.randrange(len(said))])
        yield


def flood(dice: random.Random, port: int) -> None:
    """Datagrams of somebody without a session, who must get no answer."""
    with connected(socket.SOCK_DGRAM, port) as stranger:
        for _ in range(dice.choice([0, 10, 1000])):
            token = b"LPop" + dice.randbytes(16)
            noise = any_bytes(dice, "latprof", 1)[:65507]
            with suppress(OSError):
                stranger.send(dice.choice([token, change(dice, token), noise]))
        stranger.settimeout(PATIENCE_SECONDS)
        with suppress(OSError):
            answer = stranger.recv(1 << 16)
            raise Finding(f"a stranger got {len(answer)} bytes: {answer[:40]!r}")


def connected(kind: int, port: int) -> socket.socket:
    peer = socket.socket(socket.AF_INET, kind)
    peer.connect(("127.0.0.1", port))
    return peer


def against_echo(dice: random.Random, build: str) -> None:
    """A responder with limits, and some clients at once."""
    wire = dice.choice(WIRES)
    words: list[object] = ["--wire", wire]
    with tempfile.NamedTemporaryFile() as secret:  # its mode is 600
        secret.write(SECRET)
        secret.flush()
        if wire == "latprof":
            words += dice.choice(LIMITS)
            words += dice.choice([[], ["--secret-file", secret.name]])
        echo = Program(f"{build}/latprof-load", "echo", *words)
        port = int(echo.line().split()[1])
    for _ in range(10):
        with half_open(dice, port):
            serve_clients(dice, port, wire)
        if wire == "latprof":
            flood(dice, port)
    if not echo.running():
        echo.end(ask=False)
        raise Finding(f"ended by itself: {echo.words}")
    echo.end(ask=True)


def serve_clients(dice: random.Random, port: int, wire: str) -> None:
    """Some at once."""
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
