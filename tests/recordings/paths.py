"""Programs as of talk.py, between network namespaces: what a path does to messages.

`python paths.py NAME` as root. `translated` is how many messages a NAT changed the
addresses of, `retransmits` how many segments both ends sent again by TCP_INFO.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from talk import Truth, answer_each, beside, exactly

Made = TypeVar("Made")
CLONE_NEWNET = 0x40000000
TCP_INFO_RETRANSMITS = 100  # offset of tcpi_total_retrans, 32 bits
ROUNDS = 50


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


def nft(where: str, rules: str) -> None:
    words = ["ip", "netns", "exec", where, "nft", "-f", "-"]
    subprocess.run(words, check=True, input=rules, text=True)


@contextmanager
def hosts(count: int) -> Iterator[list[str]]:
    """So many network namespaces, for a time."""
    names = [f"latprof-paths-{os.getpid()}-{number}" for number in range(count)]
    made: list[str] = []
    try:
        for name in names:
            ip(f"netns add {name}")
            made.append(name)
            ip(f"-n {name} link set lo up")
        yield names
    finally:
        for name in made:
            ip(f"netns del {name}")


def joined(one: str, other: str, link: str = "e0", back: str = "e0") -> None:
    """Join two of them by a pair of veth, and set it up."""
    ip(f"-n {one} link add {link} type veth peer name {back} netns {other}")
    for host, name in ((one, link), (other, back)):
        ip(f"-n {host} link set {name} up")


def addressed(host: str, address: str, link: str = "e0") -> None:
    ip(f"-n {host} addr add {address} dev {link}")
    ip(f"-n {host} link set {link} up")


def inside(host: str, make: Callable[[], Made]) -> Made:
    """Make something, as a socket, in a namespace; it stays there."""
    found: list[Made] = []

    def enter() -> None:
        with Path("/run/netns", host).open() as namespace:
            if ctypes.CDLL(None).setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(f"setns to {host}")
        found.append(make())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return found[0]


def of_family(address: str) -> tuple[socket.AddressFamily, str]:
    """The family of an address, and the one that stands for all of it."""
    if ":" in address:
        return socket.AF_INET6, "::"
    return socket.AF_INET, "0.0.0.0"


def stream(here: str, there: str, to: str) -> tuple[socket.socket, socket.socket]:
    """A TCP connection between hosts: who connected, who accepted."""
    family, all_of_it = of_family(to)
    with inside(
        there, lambda: socket.create_server((all_of_it, 0), family=family)
    ) as listener:
        client = inside(here, lambda: socket.socket(family))
        client.settimeout(30)
        client.connect((to, listener.getsockname()[1]))
        server, _ = listener.accept()
    for end in (client, server):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, server


def datagrams(here: str, there: str, to: str) -> tuple[socket.socket, socket.socket]:
    """Two sockets of UDP, of which the first is connected to the other."""
    family, all_of_it = of_family(to)
    client, server = (
        inside(host, lambda: socket.socket(family, socket.SOCK_DGRAM))
        for host in (here, there)
    )
    server.bind((all_of_it, 0))
    client.connect((to, server.getsockname()[1]))
    client.settimeout(30)
    return client, server


def talked(client: socket.socket, server: socket.socket, rounds: int = ROUNDS) -> None:
    """Ask and answer, one after the other, by streams or datagrams."""

    def answer() -> None:
        for _ in range(rounds):
            asked, sender = server.recvfrom(100)
            time.sleep(0.0005)
            if sender:
                server.sendto(asked * 9, sender)
            else:
                server.sendall(asked * 9)

    thread = beside(answer)
    for _ in range(rounds):
        client.sendall(b"q" * 100)
        exactly(client, 900)
    thread.join()


def both(here: str, there: str, to: str) -> Truth:
    """Talk by TCP and by UDP."""
    for ends in (stream(here, there, to), datagrams(here, there, to)):
        talked(*ends)
    return {"exchanges": 2 * ROUNDS, "sent": 4 * ROUNDS}


def bridged() -> Truth:
    """Over a bridge in a third namespace."""
    with hosts(3) as (here, middle, there):
        ip(f"-n {middle} link add bridge type bridge")
        ip(f"-n {middle} link set bridge up")
        for host, link, address in (
            (here, "a0", "10.77.0.1/24"),
            (there, "b0", "10.77.0.2/24"),
        ):
            joined(host, middle, back=link)
            ip(f"-n {middle} link set {link} master bridge")
            addressed(host, address)
        return both(here, there, "10.77.0.2")


def tunnelled() -> Truth:
    """Through a VXLAN tunnel."""
    with hosts(2) as (here, there):
        joined(here, there)
        ends = ((here, 1, there, 2), (there, 2, here, 1))
        for host, own, _, _ in ends:
            addressed(host, f"10.77.0.{own}/24")
        for host, own, _, other in ends:
            ip(
                f"-n {host} link add tunnel type vxlan id 7 dstport 4789 dev e0 "
                f"local 10.77.0.{own} remote 10.77.0.{other}"
            )
            addressed(host, f"10.78.0.{own}/24", "tunnel")
        return both(here, there, "10.78.0.2")


def of_a_container() -> Truth:
    """To a container on macvlan: it hands packets on within one call."""
    with hosts(3) as (here, host, container):
        joined(here, host)
        addressed(here, "10.77.0.1/24")
        ip(f"-n {host} link add inner link e0 type macvlan mode bridge")
        ip(f"-n {host} link set inner netns {container}")
        addressed(container, "10.77.0.2/24", "inner")
        return both(here, container, "10.77.0.2")


def translated() -> Truth:
    """Through a router that gives the client another address."""
    with hosts(3) as (here, router, there):
        joined(here, router, back="a0")
        joined(there, router, back="b0")
        addressed(here, "10.77.1.2/24")
        addressed(router, "10.77.1.1/24", "a0")
        addressed(router, "10.77.2.1/24", "b0")
        addressed(there, "10.77.2.2/24")
        ip(f"-n {here} route add default via 10.77.1.1")
        ip(f"netns exec {router} sysctl -qw net.ipv4.ip_forward=1")
        nft(
            router,
            "table ip t { chain c { type nat hook postrouting priority 100; "
            'oifname "b0" masquerade; }; }',
        )
        return both(here, there, "10.77.2.2") | {"translated": 4 * ROUNDS}


def balanced() -> Truth:
    """To one address, behind which a balancer has two servers in turn."""
    with hosts(4) as (here, balancer, *servers):
        joined(here, balancer, back="a0")
        addressed(here, "10.77.1.2/24")
        addressed(balancer, "10.77.1.1/24", "a0")
        ip(f"-n {here} route add default via 10.77.1.1")
        for number, server in enumerate(servers, 2):
            link = f"b{number}"
            joined(server, balancer, back=link)
            addressed(server, f"10.77.{number}.2/24")
            addressed(balancer, f"10.77.{number}.1/24", link)
            ip(f"-n {server} route add default via 10.77.{number}.1")
        ip(f"netns exec {balancer} sysctl -qw net.ipv4.ip_forward=1")
        nft(
            balancer,
            "table ip t { chain c { type nat hook prerouting priority -100; "
            "ip daddr 10.77.1.1 th dport 7000 dnat to numgen inc mod 2 map "
            "{ 0 : 10.77.2.2, 1 : 10.77.3.2 }; }; }",
        )
        rounds, to = 10, ("10.77.1.1", 7000)
        listeners = [
            inside(server, lambda: socket.create_server(("0.0.0.0", 7000)))
            for server in servers
        ]
        for turn in range(6):
            client = inside(here, socket.socket)
            client.settimeout(30)
            client.connect(to)
            server, _ = listeners[turn % 2].accept()
            talked(client, server, rounds)
        takers = [
            inside(s, lambda: socket.socket(type=socket.SOCK_DGRAM)) for s in servers
        ]
        for taker in takers:
            taker.bind(("0.0.0.0", 7000))
        for _ in range(3):
            clients = [
                inside(here, lambda: socket.socket(type=socket.SOCK_DGRAM))
                for _ in servers
            ]
            for client, taker in zip(clients, takers, strict=True):
                client.connect(to)
                client.settimeout(30)
                talked(client, taker, rounds)
        turns = 12 * rounds
        return {"exchanges": turns, "sent": 2 * turns, "translated": 2 * turns}


def redirected() -> Truth:
    """To a port where nobody listens, which the own host redirects, as sidecars do."""
    with hosts(1) as (here,):
        nft(
            here,
            "table ip t { chain c { type nat hook output priority -100; "
            "meta l4proto { tcp, udp } th dport 7000 redirect to :7001; }; }",
        )
        listener = inside(here, lambda: socket.create_server(("0.0.0.0", 7001)))
        client = inside(here, socket.socket)
        client.connect(("127.0.0.1", 7000))
        server, _ = listener.accept()
        talked(client, server)
        asker, answerer = (
            inside(here, lambda: socket.socket(type=socket.SOCK_DGRAM))
            for _ in range(2)
        )
        answerer.bind(("127.0.0.1", 7001))
        asker.connect(("127.0.0.1", 7000))
        talked(asker, answerer)
        return {"exchanges": 2 * ROUNDS, "sent": 4 * ROUNDS}


@contextmanager
def linked() -> Iterator[list[str]]:
    """Two hosts on one link."""
    with hosts(2) as (here, there):
        joined(here, there)
        addressed(here, "10.77.0.1/24")
        addressed(there, "10.77.0.2/24")
        yield [here, there]


def reordered() -> Truth:
    """A fifth of the packets overtakes those that netem delays by 2 ms."""
    with linked() as (here, there):
        client, server = stream(here, there, "10.77.0.2")
        words = "qdisc add dev e0 root netem delay 2ms reorder 20%"
        subprocess.run(["tc", "-n", here, *words.split()], check=True)
        thread = beside(exactly, server, 300 * 1200)
        for _ in range(300):
            client.sendall(b"m" * 1200)
            time.sleep(0.0002)
        thread.join()
        return {"sent": 300}


def counter_of(host: str, table: str, name: str) -> int:
    """A counter of the kernel's own in a namespace, from /proc/net/TABLE."""
    text = inside(host, lambda: Path("/proc/thread-self/net", table).read_text())
    lines = [line.split() for line in text.splitlines()]
    pairs = zip(lines[::2], lines[1::2], strict=True)
    found = {
        head[0] + n: int(value)
        for head, of in pairs
        for n, value in zip(head[1:], of[1:], strict=True)
    }
    return found[name]


def merged() -> Truth:
    """Segments that the receiver's GRO puts together, as a sender without TSO sends."""
    with linked() as (here, there):
        words = ["-K", "e0", "tso", "off", "gso", "off"]
        subprocess.run(["ip", "netns", "exec", here, "ethtool", *words], check=True)
        words = ["-K", "e0", "gro", "on"]
        subprocess.run(["ip", "netns", "exec", there, "ethtool", *words], check=True)
        client, server = stream(here, there, "10.77.0.2")
        thread = beside(exactly, server, 60 * 40_000)
        for _ in range(60):
            client.sendall(b"m" * 40_000)
            time.sleep(0.001)
        thread.join()
        packets = inside(
            there,
            lambda: Path("/proc/thread-self/net/dev").read_text().split("e0:")[1],
        ).split()[1]
        segments = counter_of(there, "snmp", "Tcp:InSegs")
        assert segments < int(packets) / 3, (segments, packets)
        return {"sent": 60}


def retransmits_of(sock: socket.socket) -> int:
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    (count,) = struct.unpack_from("=I", info, TCP_INFO_RETRANSMITS)
    return int(count)


def resent() -> Truth:
    """Each twentieth packet is lost, both ways."""
    with linked() as (here, there):
        ends = stream(here, there, "10.77.0.2")
        for host in (here, there):
            nft(
                host,
                "table ip t { chain c { type filter hook input priority 0; "
                "ip protocol tcp numgen inc mod 20 == 9 drop; }; }",
            )
        talked(*ends, rounds=100)
        again = sum(map(retransmits_of, ends))
        return {"exchanges": 100, "sent": 200, "retransmits": again}


def filtered() -> Truth:
    """Each fifth datagram is dropped where it would be received."""
    with linked() as (here, there):
        client, server = datagrams(here, there, "10.77.0.2")
        nft(
            there,
            "table ip t { chain c { type filter hook input priority 0; "
            "ip protocol udp numgen inc mod 5 == 0 drop; }; }",
        )
        server.settimeout(0.5)
        received = 0
        for number in range(100):
            client.send(struct.pack("=I", number) * 50)
        try:
            while server.recv(1000):
                received += 1
        except TimeoutError:
            pass
        assert received == 80
        return {"datagrams": 100, "received": received}


def fast_opened() -> Truth:
    """Each request goes with its SYN: no end asks for a cookie."""
    with linked() as (here, there):
        for host in (here, there):
            ip(f"netns exec {host} sysctl -qw net.ipv4.tcp_fastopen=519")

        def listening() -> socket.socket:
            made = socket.create_server(("0.0.0.0", 0))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
            return made

        listener = inside(there, listening)

        thread = beside(answer_each, listener, 20, 60, b"r" * 80)
        for _ in range(20):
            client = inside(here, socket.socket)
            to = "10.77.0.2", listener.getsockname()[1]
            client.sendto(b"q" * 60, socket.MSG_FASTOPEN, to)
            exactly(client, 80)
            client.close()
        thread.join()
        return {"exchanges": 20, "sent": 40}


PATHS = {
    path.__name__.replace("_", "-"): path
    for path in (
        *(bridged, tunnelled, of_a_container, translated, balanced, redirected),
        *(reordered, resent, filtered, fast_opened, merged),
    )
}
NEED_NETEM = ("reordered",)


if __name__ == "__main__":
    print(json.dumps(PATHS[sys.argv[1]]()))
