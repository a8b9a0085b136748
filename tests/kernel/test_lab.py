"""Labs: what they join, what they shape, and that nothing of them is left."""

import os
import select
import socket
import statistics
import subprocess
import sys
import time

import pytest
from latprof_agent import netns
from latprof_agent.lab.lab import Lab, clean_dead_labs, enter_netns
from latprof_agent.lab.link import LinkSpec

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces")

DEADLINE_S = 20
SO_SNDBUFFORCE = 32
ETHERNET_IPV4_UDP_BYTES = 14 + 20 + 8

ECHO = """
import socket, sys
address, kind = sys.argv[1], getattr(socket, sys.argv[2])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
sock = socket.socket(family, kind)
sock.bind((address, 0))
if kind == socket.SOCK_STREAM:
    sock.listen()
print(sock.getsockname()[1], flush=True)
if kind == socket.SOCK_STREAM:
    sock, _ = sock.accept()
    sock.sendall(sock.recv(100))
else:
    data, client = sock.recvfrom(100)
    sock.sendto(data, client)
"""

LINKS = {
    "veth": LinkSpec(),
    "tbf": LinkSpec(rate_bps=10_000_000),
    "htb": LinkSpec(rate_bps=10_000_000, qdisc="htb"),
    "pfifo": LinkSpec(rate_bps=10_000_000, qdisc="pfifo"),
    "emulator": LinkSpec(rate_bps=10_000_000, delay_ns=100_000, emulator="always"),
    "emulator behind tbf": LinkSpec(
        rate_bps=10_000_000, delay_ns=100_000, qdisc="tbf", emulator="always"
    ),
}


@pytest.fixture
def registry(tmp_path):
    """Keep other runs' labs, and ours from them, apart."""
    yield tmp_path / "registry"
    clean_dead_labs(tmp_path / "registry")


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("name", LINKS)
def test_both_transports_cross_every_link(registry, name, ipv6):
    spec = LinkSpec(**{**vars(LINKS[name]), "ipv6": ipv6})
    family = socket.AF_INET6 if ipv6 else socket.AF_INET
    with Lab(spec, registry=registry) as lab:
        for kind in ("SOCK_STREAM", "SOCK_DGRAM"):
            command = [sys.executable, "-c", ECHO, lab.b_address, kind]
            echo = lab.start("b", command, stdout=subprocess.PIPE, text=True)
            port = int(echo.stdout.readline())
            sock = netns.run_in(
                lab.a_netns, lambda k=kind: socket.socket(family, getattr(socket, k))
            )
            with sock:
                sock.settimeout(DEADLINE_S)
                sock.connect((lab.b_address, port))
                sock.send(b"there and back")
                assert sock.recv(100) == b"there and back"
                assert sock.getsockname()[0] == lab.a_address
        inside = netns.run_in(lab.a_netns, socket.if_nameindex)
        assert sorted(name for _, name in inside) == sorted(["lo", lab.interface])


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("name", LINKS)
def test_the_very_first_packet_each_way_crosses(registry, name, ipv6):
    spec = LinkSpec(**{**vars(LINKS[name]), "ipv6": ipv6})
    family = socket.AF_INET6 if ipv6 else socket.AF_INET

    def bound(address):
        sock = socket.socket(family, socket.SOCK_DGRAM)
        sock.bind((address, 0))
        return sock

    for _ in range(5):
        with (
            Lab(spec, registry=registry) as lab,
            netns.run_in(lab.a_netns, lambda to=lab.a_address: bound(to)) as a,
            netns.run_in(lab.b_netns, lambda to=lab.b_address: bound(to)) as b,
        ):
            a.sendto(b"first", b.getsockname())
            b.sendto(b"first", a.getsockname())
            for sock in (a, b):
                assert select.select([sock], [], [], DEADLINE_S)[0]
                assert sock.recv(100) == b"first"


def test_a_program_runs_in_the_namespace_whose_inode_the_lab_tells(registry):
    show = "import os; print(os.stat('/proc/self/ns/net').st_ino)"
    with Lab(LinkSpec(), registry=registry) as lab:
        for end, inode in (("a", lab.a_inode), ("b", lab.b_inode)):
            child = lab.start(end, [sys.executable, "-c", show], stdout=-1)
            assert int(child.communicate()[0]) == inode
        done = subprocess.run(
            [sys.executable, "-c", show],
            preexec_fn=enter_netns(lab.b_netns),
            stdout=-1,
            check=True,
        )
        assert int(done.stdout) == lab.b_inode
        assert lab.a_inode != lab.b_inode


def send_datagrams(lab, count, payload_bytes):
    """Send from a to b in one burst; return when each was read, in ns."""

    def open_socket():
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    arrivals = []
    with (
        netns.run_in(lab.a_netns, open_socket) as sender,
        netns.run_in(lab.b_netns, open_socket) as receiver,
    ):
        sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 16 << 20)
        receiver.bind((lab.b_address, 0))
        sender.connect(receiver.getsockname())
        for _ in range(count):
            sender.send(bytes(payload_bytes))
        while len(arrivals) < count:
            assert select.select([receiver], [], [], DEADLINE_S)[0]
            receiver.recv(65536)
            arrivals.append(time.monotonic_ns())
    return arrivals


@pytest.mark.timed
@pytest.mark.parametrize("qdisc", ["tbf", "htb"])
def test_a_shaped_link_has_its_rate_and_the_qdisc_counts_each_byte(registry, qdisc):
    count, payload_bytes, rate_bps = 200, 1000, 8_000_000
    packet_bytes = payload_bytes + ETHERNET_IPV4_UDP_BYTES
    # An MTU below 1280 keeps IPv6, and with it every packet not ours, off the link.
    spec = LinkSpec(
        rate_bps=rate_bps,
        qdisc=qdisc,
        burst_bytes=16_000,
        queue_bytes=1 << 20,
        mtu=1200,
    )
    with Lab(spec, registry=registry) as lab:
        arrivals_ns = send_datagrams(lab, count, payload_bytes)
        root = lab.counters()["a"]["qdiscs"][0]
        assert lab.known["rate_bps"] == rate_bps
    assert root["kind"] == qdisc
    assert root["sent_packets"] == count
    assert root["sent_bytes"] == count * packet_bytes
    assert root["dropped_packets"] == 0
    # Behind the burst, 15 packets, each takes 1.042 ms. The bucket makes up for late
    # timers, so the mean holds even where single gaps do not.
    steady_ns = [t - 1.042e6 * i for i, t in enumerate(arrivals_ns)][40:]
    halves = steady_ns[:80], steady_ns[80:]
    drift_ns = statistics.median(halves[1]) - statistics.median(halves[0])
    assert abs(drift_ns) < 0.02 * 80 * 1.042e6


def test_what_overflows_the_qdisc_is_counted(registry):
    count, payload_bytes = 100, 1000
    queue_bytes = 10_000
    spec = LinkSpec(rate_bps=100_000, mtu=1200, queue_bytes=queue_bytes)
    with Lab(spec, registry=registry) as lab:
        sock = netns.run_in(
            lab.a_netns, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        )
        with sock:
            sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 16 << 20)
            for _ in range(count):
                sock.sendto(bytes(payload_bytes), (lab.b_address, 9))
        root = lab.counters()["a"]["qdiscs"][0]
    assert root["backlog_bytes"] <= queue_bytes
    seen = root["sent_packets"] + root["dropped_packets"] + root["qlen_packets"]
    assert seen == count
    assert root["dropped_packets"] > 0
