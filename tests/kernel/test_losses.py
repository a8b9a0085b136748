"""Losses of live traffic by place and cause, against the kernel's own counters."""

from __future__ import annotations

import fcntl
import socket
import struct
import subprocess
import termios
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from dropper import attach_dropper, run_tc
from latprof_agent import netns
from latprof_agent.monitor.losses import SETTLED_SECONDS
from latprof_agent.monitor.monitor import Monitor
from latprof_agent.monitor.totals import Drop
from latprof_agent.probes.filter import Filter
from latprof_agent.probes.grouping import Grouping
from monitored import LISTENERS, need_quantity
from recording import socket_in, tcp_pair, udp_pair, wait_until
from test_acknowledgements import captured
from undisturbed import undisturbed

both_families = pytest.mark.parametrize("ipv6", [False, True], ids=["v4", "v6"])

SOL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104
SO_MEMINFO, SK_MEMINFO_DROPS = 55, 8
OVERRUN = Drop("socket", "SOCKET_RCVBUFF", "udp_queue_rcv_one_skb")
OVERRUN_IPV6 = Drop("socket", "SOCKET_RCVBUFF", "udpv6_queue_rcv_one_skb")


@contextmanager
def watching(*labs, **how):
    """Count what the sockets of these labs lose; everything is attached."""
    inodes = tuple(inode for lab in labs for inode in (lab.a_inode, lab.b_inode))
    with Monitor(Filter(netns=inodes, **how), Grouping()) as monitor:
        monitor.start()
        monitor.step()
        yield monitor


def losses(monitor, **wanted):
    """All groups' counters added up, or those of the groups asked for."""
    monitor.step()
    added = {"drops": Counter(), "retransmits": Counter(), "arrivals": Counter()}
    for group, totals in monitor.totals().groups.items():
        if all(getattr(group, name) == value for name, value in wanted.items()):
            for name, counter in added.items():
                counter.update(getattr(totals, name))
    assert monitor.totals().own.unmatched["uncounted_drops"] == 0
    return added


def drops(monitor, **wanted):
    """Drops of the groups asked for."""
    return losses(monitor, **wanted)["drops"]


def at(found, place):
    """Packets that were lost at a place, whatever the reason."""
    return sum(n for drop, n in found.items() if drop.place == place)


def nstat(lab, end):
    """The counters of a namespace, as nstat names them."""

    def read():
        found = Counter()
        for name in ("snmp", "netstat"):
            lines = Path(f"/proc/thread-self/net/{name}").read_text().splitlines()
            for labels, values in zip(lines[::2], lines[1::2], strict=True):
                prefix, *names = labels.replace(":", "").split()
                for label, value in zip(names, values.split()[1:], strict=True):
                    found[prefix + label] += int(value)
        for line in Path("/proc/thread-self/net/snmp6").read_text().splitlines():
            label, value = line.split()
            found[label] += int(value)
        return found

    return netns.run_in(lab.netns_of(end), read)


def socket_drops(sock):
    """SO_MEMINFO: the datagrams that this socket has dropped."""
    words = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36)
    return struct.unpack("9I", words)[SK_MEMINFO_DROPS]


# full receive buffers


@pytest.mark.thorough
@both_families
def test_an_overrun_buffer_drops_what_the_kernel_says(make_lab, ipv6):
    lab = make_lab(ipv6=ipv6)
    counter = "Udp6RcvbufErrors" if ipv6 else "UdpRcvbufErrors"
    client, server = udp_pair(lab)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
    port = server.getsockname()[1]
    before = nstat(lab, "b")[counter]
    with watching(lab) as monitor, client, server:
        for _ in range(500):
            client.send(bytes(1000))
        told = nstat(lab, "b")[counter] - before
        found = drops(monitor, role="server", service=str(port))
        bytes_lost = sum(
            sum(totals.dropped_bytes.values())
            for totals in monitor.totals().groups.values()
        )
    assert found == {OVERRUN_IPV6 if ipv6 else OVERRUN: told}
    assert told > 0
    assert bytes_lost == told * 1000


@pytest.mark.thorough
@pytest.mark.parametrize("merged", [False, True], ids=["cut", "merged"])
def test_segments_of_one_send_are_counted_each(make_lab, merged):
    """UDP_SEGMENT: cut before the socket, or dropped as one where it takes GRO."""
    lab = make_lab()
    client, server = udp_pair(lab)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
    client.setsockopt(SOL_UDP, UDP_SEGMENT, 1000)
    if merged:
        server.setsockopt(SOL_UDP, UDP_GRO, 1)
    with watching(lab) as monitor, client, server:
        for _ in range(50):
            client.send(bytes(10_000))
        found, dropped = drops(monitor), socket_drops(server)
    # the kernel counts what it had merged once
    assert found == {OVERRUN: dropped * (10 if merged else 1)}
    assert dropped > 0


@pytest.mark.thorough
def test_iperf3_that_overruns_a_buffer(make_lab):
    lab = make_lab()
    server = lab.start(
        "b", ["iperf3", "-s", "-1", "--forceflush"], stdout=subprocess.PIPE
    )
    assert server.stdout
    wait_until(lambda: b"listening" in server.stdout.readline(), "iperf3 listens")
    before = nstat(lab, "b")["UdpRcvbufErrors"]
    with watching(lab) as monitor:
        command = f"iperf3 -u -c {lab.b_address} -b 0 -l 1400 -w 8K -t 2".split()
        client = lab.start("a", command, stdout=subprocess.DEVNULL)
        assert client.wait(30) == 0
        assert server.wait(30) == 0
        told = nstat(lab, "b")["UdpRcvbufErrors"] - before
        found = drops(monitor, protocol="udp", role="server")
    assert told == found[OVERRUN] > 0


@pytest.mark.thorough
def test_each_of_many_sockets_has_its_own_group(make_lab):
    lab = make_lab()
    pairs = [udp_pair(lab) for _ in range(50)]
    with watching(lab) as monitor:
        for number, (client, server) in enumerate(pairs):
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 5_000)
            for _ in range(20 + number):
                client.send(bytes(1000))
        for _, server in pairs:
            port = str(server.getsockname()[1])
            found = drops(monitor, role="server", service=port)
            assert found == {OVERRUN: socket_drops(server)}
            assert found[OVERRUN] > 0
    for pair in pairs:
        for end in pair:
            end.close()


@pytest.mark.thorough
def test_connections_that_a_full_listener_refuses_are_the_kernels(make_lab):
    need_quantity(LISTENERS)
    lab = make_lab()
    listener = socket_in(lab.b_netns, socket.AF_INET, socket.SOCK_STREAM)
    before = nstat(lab, "b")["TcpExtListenDrops"]
    with watching(lab) as monitor, listener:
        listener.bind((lab.b_address, 0))
        listener.listen(1)
        address = listener.getsockname()
        clients = [
            socket_in(lab.a_netns, socket.AF_INET, socket.SOCK_STREAM)
            for _ in range(10)
        ]
        for client in clients:
            client.setblocking(False)
            client.connect_ex(address)
        wait_until(
            lambda: nstat(lab, "b")["TcpExtListenDrops"] - before >= 16,
            "they try again",
        )
        for client in clients:
            client.close()
        wait_until(lambda: not half_open(lab, address[1]), "nobody tries any more")
        told = nstat(lab, "b")["TcpExtListenDrops"] - before
        of_listener = {"service": str(address[1]), "role": "server"}
        # the kernel may refuse for a moment to go through the listeners
        wait_until(lambda: drops(monitor, **of_listener), "a look at the listeners")
        found = drops(monitor, **of_listener)
    assert at(found, "socket") == sum(found.values()) == told


def half_open(lab, port):
    """Handshakes that the listener still waits for."""
    command = ["ss", "-Htn", "state", "syn-recv", "sport", "=", f":{port}"]
    seen = lab.start("b", command, stdout=subprocess.PIPE, text=True)
    return seen.communicate(timeout=20)[0]


# queueing disciplines


def tc_drops(lab, end):
    """What `tc -s qdisc` says of the root."""
    return lab.counters()[end]["qdiscs"][0]["dropped_packets"]


def silence(lab):
    """Leave the link to watched traffic: no look for IPv6 routers, nor for a peer."""
    net, device = Path("/proc/sys/net"), lab.interface

    def set_up():
        (net / f"ipv6/conf/{device}/disable_ipv6").write_text("1")
        (net / f"ipv4/neigh/{device}/base_reachable_time_ms").write_text("3600000")
        (net / f"ipv4/neigh/{device}/delay_first_probe_time").write_text("3600")

    for end in ("a", "b"):
        netns.run_in(lab.netns_of(end), set_up)


def flood(client, count=400, size=1000):
    """Send as fast as it goes; the qdisc drops what it cannot hold."""
    for _ in range(count):
        client.send(bytes(size))


QDISCS = {
    "tbf": ["root handle 10: tbf rate 2mbit burst 3000 limit 20000"],
    "pfifo": [
        "root handle 20: tbf rate 2mbit burst 3000 limit 100000",
        "parent 20:1 handle 30: pfifo limit 10",
    ],
}


@both_families
@pytest.mark.parametrize("kind", QDISCS)
def test_a_qdisc_drops_what_tc_says(make_lab, kind, ipv6):
    lab = make_lab(ipv6=ipv6)
    client, server = udp_pair(lab)
    if not ipv6:
        silence(lab)
    for arguments in QDISCS[kind]:
        run_tc(lab, "a", *f"qdisc add dev {lab.interface} {arguments}".split())
    handle = QDISCS[kind][0].split()[2]
    with watching(lab) as monitor, client, server:
        flood(client)
        found, told = drops(monitor), tc_drops(lab, "a")
    by_device = {drop.device for drop in found}
    assert by_device == {f"{lab.interface} {handle}"}
    assert at(found, "qdisc") == sum(found.values()) == told > 0


@pytest.mark.thorough
def test_classes_of_htb_drop_what_tc_says(make_lab):
    lab = make_lab()
    device = lab.interface
    for arguments in (
        f"qdisc add dev {device} root handle 5: htb default 1",
        f"class add dev {device} parent 5: classid 5:1 htb rate 1mbit",
        f"class add dev {device} parent 5: classid 5:2 htb rate 2mbit",
        f"qdisc add dev {device} parent 5:1 handle 51: pfifo limit 5",
        f"qdisc add dev {device} parent 5:2 handle 52: pfifo limit 7",
    ):
        run_tc(lab, "a", *arguments.split())
    ordinary, urgent = udp_pair(lab), udp_pair(lab)
    urgent[0].setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 0x50002)
    with watching(lab) as monitor:
        for client, _ in (ordinary, urgent):
            flood(client, 200)
        rows = {q["handle"]: q for q in lab.counters()["a"]["qdiscs"]}
        for (_, server), leaf in ((ordinary, "51:"), (urgent, "52:")):
            service = str(server.getsockname()[1])
            found = drops(monitor, service=service)
            assert at(found, "qdisc") == rows[leaf]["dropped_packets"] > 0
            assert {drop.device for drop in found} == {f"{device} 5:"}
    for pair in (ordinary, urgent):
        for end in pair:
            end.close()


@pytest.mark.thorough
@pytest.mark.parametrize("offloads", [True, False], ids=["tso", "no tso"])
def test_tcp_through_a_short_queue_drops_what_tc_says(make_lab, tmp_path, offloads):
    """With TSO `tc` counts a drop of many segments once."""
    lab = make_lab(rate_bps=20_000_000, queue_bytes=30_000, offloads=offloads)
    silence(lab)

    def overflow():
        before = tc_drops(lab, "a")
        client, server = tcp_pair(lab)
        with watching(lab) as monitor, client, server:
            transfer(client, server, 2_000_000)
            wait_until(lambda: not unacknowledged(client), "nothing is sent any more")
            found, told = drops(monitor), tc_drops(lab, "a") - before
            freed, own = buffers(monitor), monitor.totals().own
            # what died here did not die elsewhere
            time.sleep(SETTLED_SECONDS + 0.5)
            later = drops(monitor)
        return found, told, freed, own.unmatched["missed_losses"], later

    found, told, freed, missed, later = undisturbed(tmp_path, lab.interface, overflow)
    assert told > 0 and told - missed <= freed <= told
    assert at(found, "qdisc") == sum(found.values())
    assert offloads or told - missed <= at(found, "qdisc") <= told
    assert at(later, "transit") == 0


def unacknowledged(sock):
    """Bytes that TCP keeps to send them again (SIOCOUTQ)."""
    return struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0]


def buffers(monitor):
    """How many the sender's queues freed, in the kernel's counting, ACKs included."""
    layout = monitor.capture.layout
    keys, values = monitor.capture.entries("drops", layout.drop, layout.dropped)
    in_queue = keys["place"] == layout.drop_places["at_sender"]
    return int(values["buffers"][in_queue].sum())


def transfer(client, server, size):
    """Send so much and read it."""
    client.setblocking(False)
    left, got = size, 0
    until = time.monotonic() + 60
    while got < size:
        assert time.monotonic() < until
        if left:
            with suppress(BlockingIOError):
                left -= client.send(bytes(min(left, 65536)))
        server.settimeout(0.05)
        try:
            got += len(server.recv(1 << 20))
        except TimeoutError:
            continue
    client.setblocking(True)


# at close


def test_what_nobody_read_is_told_at_close(make_lab):
    lab = make_lab()
    with watching(lab) as monitor:
        client, server = udp_pair(lab)
        flood(client, 30)
        server.close()
        client.close()
        assert drops(monitor, protocol="udp") == {Drop("close", "unread"): 30}
        client, server = tcp_pair(lab)
        client.send(bytes(5000))
        wait_until(lambda: unread(server) == 5000, "all is there")
        server.recv(2000)
        client.close()  # with a FIN behind the bytes
        server.close()
        found = wait_until(lambda: drops(monitor, protocol="tcp"), "it is closed")
        lost_bytes = [
            totals.dropped_bytes[Drop("close", "unread")]
            for group, totals in monitor.totals().groups.items()
            if group.protocol == "tcp" and group.role == "server"
        ]
    assert found == {Drop("close", "unread"): 1}
    assert lost_bytes == [3000]


def unread(sock):
    """Bytes that wait, as recv(MSG_PEEK) shows them."""
    return len(sock.recv(1 << 16, socket.MSG_PEEK))


@pytest.mark.thorough
def test_all_read_is_nothing_unread(make_lab):
    lab = make_lab()
    with watching(lab) as monitor:
        client, server = tcp_pair(lab)
        client.send(bytes(5000))
        got = 0
        while got < 5000:
            got += len(server.recv(5000))
        client.close()
        assert server.recv(1) == b""
        server.close()
        assert losses(monitor)["drops"] == {}


# on the way, and what TCP does about it


RESENT = ("TCPTimeouts", "TCPFastRetrans", "TCPLossProbes", "TCPSlowStartRetrans")


def resent_since(lab, before, end="a"):
    """What TCP says that it has sent again."""
    now = nstat(lab, end)
    return {name.removeprefix("TcpExt"): now[name] - before[name] for name in now}


@pytest.mark.thorough
@both_families
def test_causes_of_retransmits_are_the_kernels(make_lab, tmp_path, ipv6):
    """Single losses in a stream; the last segment's is found by a probe or timer."""
    lab = make_lab(ipv6=ipv6)
    client, server = tcp_pair(lab)
    attach_dropper(lab, "b", "ingress", tmp_path, [12, 30, 31, 60])
    before = nstat(lab, "a")
    with watching(lab) as monitor, client, server:
        for _ in range(15):
            transfer(client, server, 50_000)
        told = resent_since(lab, before)
        found = losses(monitor)
    assert sum(found["retransmits"].values()) == told["TcpRetransSegs"] > 0
    assert found["retransmits"]["fast"] == told["TCPFastRetrans"]
    assert found["retransmits"]["handshake"] == told["TCPSynRetrans"] == 0
    assert found["retransmits"]["probe"] <= told["TCPLossProbes"]
    assert at(found["drops"], "receiver") == sum(found["drops"].values()) > 0
    assert {drop.reason for drop in found["drops"]} == {"TC_INGRESS"}


@pytest.mark.parametrize("chosen", [(0, 0), (0, 60)], ids=["all", "none"])
def test_of_what_is_sampled_each_segment_that_is_sent_again_has_a_record(
    make_lab, tmp_path, chosen
):
    lab = make_lab()
    client, server = tcp_pair(lab)
    attach_dropper(lab, "b", "ingress", tmp_path, [12, 30, 31, 60])
    before = nstat(lab, "a")
    with captured(lab, Grouping(), chosen) as records, client, server:
        segment_bytes = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        for _ in range(15):
            transfer(client, server, 50_000)
        told = resent_since(lab, before)
    again = records["retransmits"]
    segments = -(-(again["end"] - again["start"]).astype("i8") // segment_bytes)
    assert told["TcpRetransSegs"] > 0
    assert segments.sum() == (told["TcpRetransSegs"] if chosen == (0, 0) else 0)
    assert set(again["flow"]) <= set(records["sent_messages"]["flow"])
    assert (again["end"] <= 15 * 50_000).all()


@pytest.mark.thorough
def test_a_lost_handshake_is_sent_again_for_that(make_lab):
    """The queue takes no packet that is so large."""
    lab = make_lab()
    client = socket_in(lab.a_netns, socket.AF_INET, socket.SOCK_STREAM)
    narrow = f"qdisc add dev {lab.interface} root tbf rate 1kbit burst 50 limit 50"
    run_tc(lab, "a", *narrow.split())
    before = nstat(lab, "a")
    with watching(lab) as monitor, client:
        client.settimeout(1.5)
        with pytest.raises(TimeoutError):
            client.connect((lab.b_address, 7))
        client.close()
        told = resent_since(lab, before)
        found = losses(monitor, service="7", role="client")
    assert found["retransmits"] == {"handshake": told["TCPSynRetrans"]}
    assert told["TCPSynRetrans"] >= 1
    assert at(found["drops"], "qdisc") == told["TCPSynRetrans"] + 1


@pytest.mark.thorough
def test_what_dies_unseen_is_of_the_transit(make_lab):
    """The emulator drops in user space, where no hook of the kernel tells it."""
    listed = [40, 41, 90, 130]
    lab = make_lab(emulator_options=(f"--drop-a={','.join(map(str, listed))}",))
    client, server = tcp_pair(lab)
    with watching(lab) as monitor, client, server:
        transfer(client, server, 500_000)
        lost = lab.counters()["emulator"]["ab"]["dropped_listed"]
        assert at(drops(monitor), "transit") == 0  # not yet settled
        time.sleep(SETTLED_SECONDS + 0.5)
        found = drops(monitor)
    assert found == {Drop("transit", "unseen"): lost}


@pytest.mark.thorough
def test_arrivals_before_their_turn_are_the_kernels(make_lab, tmp_path):
    lab = make_lab(offloads=False)
    client, server = tcp_pair(lab)
    attach_dropper(lab, "b", "ingress", tmp_path, [12, 30, 31, 60])
    before = nstat(lab, "b")
    with watching(lab) as monitor, client, server:
        for _ in range(15):
            transfer(client, server, 50_000)
        told = resent_since(lab, before, "b")
        found = losses(monitor)["arrivals"]
    assert found["early"] == told["TCPOFOQueue"] > 0


# what is no loss


@pytest.mark.thorough
def test_probes_of_closed_ports_are_no_loss(make_lab):
    """Datagrams, connects, a scan and a storm of pings beside a watched flow."""
    lab = make_lab()
    client, server = udp_pair(lab)
    scanner = socket_in(lab.a_netns, socket.AF_INET, socket.SOCK_DGRAM)
    with watching(lab) as monitor, client, server, scanner:
        for _ in range(20):
            client.send(bytes(100))
            server.recv(1000)
        before = nstat(lab, "b")["UdpNoPorts"]
        for port in range(20_000, 20_200):
            scanner.sendto(b"anybody?", (lab.b_address, port))
            probe = socket_in(lab.a_netns, socket.AF_INET, socket.SOCK_STREAM)
            with probe, pytest.raises(ConnectionRefusedError):
                probe.connect((lab.b_address, port))
        assert nstat(lab, "b")["UdpNoPorts"] - before == 200
        ping(lab, 500)
        found = losses(monitor)
    assert found == {"drops": {}, "retransmits": {}, "arrivals": {}}


def ping(lab, count):
    """Echo requests as fast as they are answered."""
    request = bytes([8, 0, 0, 0, 0, 1, 0, 1])
    checksum = (~sum(struct.unpack("!4H", request)) & 0xFFFF).to_bytes(2, "big")
    request = request[:2] + checksum + request[4:]
    raw = socket_in(lab.a_netns, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with raw:
        raw.settimeout(5)
        for _ in range(count):
            raw.sendto(request, (lab.b_address, 0))
            while raw.recv(1500)[20] != 0:  # not yet the reply
                continue
