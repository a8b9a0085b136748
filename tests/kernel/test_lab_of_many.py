"""Labs of more than two hosts: who reaches whom, how fast, how late, and silence."""

from __future__ import annotations

import json
import os
import select
import socket
import statistics
import struct
import subprocess
import time
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from latprof_agent.errors import UsageError
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec
from recording import DEADLINE_SECONDS, socket_in, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces")

SO_TIMESTAMPNS = 35
ETH_P_ALL = 3
MS = 1_000_000
ETHERNET_BYTES = 14
ICMP_REQUEST = {False: 8, True: 128}
ICMP_PROTOCOL = {False: socket.IPPROTO_ICMP, True: socket.IPPROTO_ICMPV6}

LINKS = {
    "bridge": {},
    "bridge, tbf": {"rate_bps": 100_000_000},
    "router": {"delay_ns": 2 * MS, "emulator": "always"},
    "router, rate": {"delay_ns": 2 * MS, "rate_bps": 100_000_000},
    "router, htb": {
        **{"delay_ns": 2 * MS, "rate_bps": 100_000_000, "qdisc": "htb"},
        "emulator": "always",
    },
}


def ping_ns(lab: Lab, here: str, there: str, ipv6: bool) -> int:
    """Round trip of one ICMP echo, which the other host's kernel answers.

    From the moment before the send to the kernel's stamp of the reply.
    """
    family = socket.AF_INET6 if ipv6 else socket.AF_INET
    kind = family, socket.SOCK_DGRAM, ICMP_PROTOCOL[ipv6]
    with socket_in(lab.netns_of(here), *kind) as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.settimeout(DEADLINE_SECONDS)
        sock.connect((lab.address_of(there, ipv6), 0))
        sent_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        sock.send(struct.pack("!BBHHH", ICMP_REQUEST[ipv6], 0, 0, 0, 1))
        _, control, _, _ = sock.recvmsg(100, 64)
    seconds, ns = struct.unpack("qq", control[0][2])
    return int(seconds * 10**9 + ns - sent_ns)


@pytest.mark.parametrize("name", LINKS)
def test_every_host_reaches_every_other_with_its_first_packet(make_lab, name):
    lab = make_lab(hosts=4, **LINKS[name])
    assert lab.hosts == ("h0", "h1", "h2", "h3")
    assert lab.link_kind == ("veth" if "bridge" in name else "emulator")
    for here, there in permutations(lab.hosts, 2):
        for ipv6 in (False, True):
            ping_ns(lab, here, there, ipv6)


@pytest.mark.timed
@pytest.mark.parametrize("delay_ns", [3 * MS, 5 * MS + 1])
def test_pings_between_all_pairs_take_twice_the_delay(make_lab, delay_ns):
    """The delay is from host to host, each of its two links has half of it."""
    lab = make_lab(hosts=5, delay_ns=delay_ns, emulator="always")
    late_ns = [
        ping_ns(lab, here, there, ipv6) - 2 * delay_ns
        for here, there in permutations(lab.hosts, 2)
        for ipv6 in (False, True)
        for _ in range(5)
    ]
    assert min(late_ns) >= -5000  # CLOCK_REALTIME is steered; nothing is ever early
    # four wake-ups of the emulator and one of a stamp, each 10 to 60 us here
    assert statistics.median(late_ns) < 300_000


@pytest.mark.parametrize("name", LINKS)
def test_no_packet_passes_that_no_socket_sent(make_lab, name):
    """From before the lab's first packet on: neither ARP nor groups nor addresses."""
    lab = make_lab(hosts=3, **LINKS[name])
    taps = []
    for namespace in (*map(lab.netns_of, lab.hosts), lab.middle_netns):
        how = socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)
        taps.append(socket_in(namespace, *how))
    before = packets_of(lab)
    assert sum(before.values()) == 0
    assert not select.select(taps, [], [], 1.5)[0]
    assert packets_of(lab) == before
    ping_ns(lab, "h0", "h1", ipv6=False)
    assert select.select(taps, [], [], DEADLINE_SECONDS)[0], "the taps do hear"
    for tap in taps:
        tap.close()
    assert sum(packets_of(lab).values()) == 8, "one packet each way at four interfaces"


def packets_of(lab: Lab) -> dict[tuple[str, str, str], int]:
    """Packets at each interface, by what is in it and its way."""
    counters = lab.counters()
    return {
        (where, host, way): of[host]["interface"][f"{way}_packets"]
        for where, of in (("host", counters), ("port", counters["ports"]))
        for host in lab.hosts
        for way in ("rx", "tx")
    }


class Iperf:
    """One iperf3 flow; `bps` waits and tells what the receiver got, in bit/s."""

    def __init__(
        self, lab: Lab, here: str, there: str, *how: str, port: int = 5201
    ) -> None:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True}
        words = ["iperf3", f"-p{port}"]
        self.server = lab.start(there, [*words, "-s1", "--forceflush"], **pipes)
        wait_until(self._listens, "iperf3 listens")
        words += ["-J", "-t3", *how, "-c", lab.address_of(there)]
        self.client = lab.start(here, words, **pipes)

    def _listens(self) -> bool:
        assert self.server.stdout
        return "listening" in self.server.stdout.readline()

    def result(self) -> dict[str, Any]:
        """What it says of all of it."""
        said, _ = self.client.communicate(timeout=DEADLINE_SECONDS)
        self.server.communicate(timeout=DEADLINE_SECONDS)
        end: dict[str, Any] = json.loads(said)["end"]
        return end

    def bps(self) -> float:
        return float(self.result()["sum_received"]["bits_per_second"])


@pytest.mark.timed
def test_tbf_holds_the_rate_between_any_two_hosts_and_at_the_receiver(make_lab):
    """100 Mbit/s of packets of 1514 bytes that carry 1448 of TCP."""
    lab = make_lab(hosts=10, rate_bps=100_000_000)
    goodput = 100e6 * 1448 / 1514
    assert lab.known["tcp_goodput_bps"] == int(goodput)
    for here, there in (("h0", "h9"), ("h7", "h1")):
        assert 0.97 * goodput < Iperf(lab, here, there).bps() < 1.01 * goodput
    # two that share the receiver's port, and two that share nothing
    one = together(Iperf(lab, "h1", "h3"), Iperf(lab, "h2", "h3", port=5202))
    # each tells its own three seconds, which are not quite the same
    assert 0.93 * goodput < one < 1.05 * goodput
    apart = together(Iperf(lab, "h4", "h5"), Iperf(lab, "h6", "h7"))
    assert 2 * 0.97 * goodput < apart < 2 * 1.01 * goodput
    assert one < apart / 1.5


@pytest.mark.timed
def test_what_two_senders_offer_too_much_is_dropped_at_the_receivers_port(make_lab):
    lab = make_lab(hosts=3, rate_bps=100_000_000)
    how = ("-u", "-b80M", "-l1400")
    flows = [
        Iperf(lab, h, "h0", *how, port=5201 + i) for i, h in enumerate(lab.hosts[1:])
    ]
    sums = [flow.result()["sum"] for flow in flows]
    counters = lab.counters()
    (port,) = counters["ports"]["h0"]["qdiscs"]
    senders = [counters[host]["qdiscs"][0] for host in lab.hosts[1:]]
    assert not any(sender["dropped_packets"] for sender in senders)
    came = sum(sender["sent_packets"] for sender in senders)
    assert came == port["sent_packets"] + port["dropped_packets"]
    # 160 of 97 Mbit/s; of what was sent last iperf3 does not know that it is lost
    assert port["dropped_packets"] > 0.3 * came
    lost = sum(one["lost_packets"] for one in sums)
    queue = lab.spec.queue() // 1442
    assert port["dropped_packets"] - queue < lost <= port["dropped_packets"]


def together(*flows: Iperf) -> float:
    """Throughput of flows that run at once, in bit/s of all."""
    return sum(flow.bps() for flow in flows)


def test_hosts_that_cannot_be_are_refused_in_one_line():
    for hosts in (1, 33):
        with pytest.raises(
            UsageError, match=f"--hosts must be from 2 to 32, got {hosts}"
        ):
            Lab(LinkSpec(), hosts=hosts)


@pytest.mark.timed
@pytest.mark.parametrize("link", [{}, {"delay_ns": MS, "rate_bps": 100_000_000}])
def test_32_hosts_leave_nothing_behind(link):
    for _ in range(2):
        with Lab(LinkSpec(**link), hosts=32) as lab:
            assert len(namespaces_left(lab)) == 33
            ping_ns(lab, "h0", "h31", ipv6=False)
        assert not namespaces_left(lab)


def namespaces_left(lab: Lab) -> list[str]:
    return [path.name for path in Path("/run/netns").glob(f"{lab.name}-*")]
