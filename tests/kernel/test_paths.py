"""Messages over several devices: bridges, VXLAN, macvlan, routers, NAT.

A packet passes `net_dev_queue` and `net_dev_start_xmit` once for each device, with
its socket or without, and netfilter may change its addresses. Whatever is between:
one row for each message, both ends in it. What counts here are the senders
themselves, iperf3, the devices' and nftables' counters, and a shaper's arithmetic.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections import Counter
from contextlib import contextmanager
from threading import Thread

import numpy as np
import paths
import pytest
from latprof_analysis.records.path_devices import last_devices
from paths import NIC
from recording import DEADLINE_SECONDS, Filter, recording, socket_in, wait_until
from shaper import Bucket, datagram_packets, tcp_header_bytes
from system_calls import Uring
from undisturbed import hidden_messages, undisturbed

SO_RCVBUFFORCE, SO_ZEROCOPY, MSG_ZEROCOPY = 33, 60, 0x4000000
STAMPS = ["send_ns", "queue_ns", "xmit_ns", "arrive_ns", "ready_ns", "read_ns"]
PARTS = ["send_queue_ns", "qdisc_ns", "transit_ns", "receive_stack_ns"]
PARTS += ["receive_queue_ns"]
DATAGRAMS = 400
SEND_SIZES = [64, 1400, 9000, 17, 60_000, 2800, 1, 1448] * 50

RATE_BPS = 10_000_000
BURST_BYTES = 8000
LATE_NS = 200_000  # see test_qdisc.py
ROUNDING_NS = 2_000

NAT = ("nat", "nat-bridge", "redirect", "service", "service-vxlan", "masquerade")
# Packets come into a container without the hook of its own devices.
CONTAINERS = ("macvlan-container", "redirect-peer")
all_paths = pytest.mark.parametrize("kind", [k for k in paths.STEPS if k != "ifb"])
nat_paths = pytest.mark.parametrize("kind", NAT)
before_and_after = pytest.mark.parametrize(
    "early", [True, False], ids=["opened-before", "opened-while-recording"]
)


def need(*programs):
    """Skip where a program is missing."""
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"needs {program}")


@pytest.fixture
def make_path(make_lab):
    """Make a path of a kind, see paths.STEPS; it is removed after the test."""

    def make(kind):
        if kind in NAT:
            need("nft")
        return paths.build(kind, make_lab())

    return make


def family_of(path):
    """The address family of the ends."""
    return socket.AF_INET6 if ":" in path.lab.a_address else socket.AF_INET


def listening(path, kind):
    """A socket at b, and where a reaches it."""
    sock = socket_in(path.lab.b_netns, family_of(path), kind)
    sock.settimeout(DEADLINE_SECONDS)
    sock.bind((path.lab.b_address, 0))
    return sock, paths.publish(path, sock.getsockname()[1])


def stream_pair(path):
    """TCP sockets at a and at b, connected over the path; Nagle off."""
    listener, target = listening(path, socket.SOCK_STREAM)
    with listener:
        listener.listen()
        client = socket_in(path.lab.a_netns, family_of(path), socket.SOCK_STREAM)
        client.settimeout(DEADLINE_SECONDS)
        client.connect(target)
        server, _ = listener.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setblocking(True)  # or a full buffer ends the call, and the message
    return client, server


def datagram_pair(path):
    """UDP sockets at a and at b, connected over the path, with room for all.

    One datagram has gone each way before, so all neighbours are known.
    """
    server, target = listening(path, socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    client = socket_in(path.lab.a_netns, family_of(path), socket.SOCK_DGRAM)
    client.settimeout(DEADLINE_SECONDS)
    client.connect(target)
    client.send(b"?")
    _, peer = server.recvfrom(1)
    server.connect(peer)
    server.send(b"!")
    client.recv(1)
    return client, server


def receive_bytes(receiver, count):
    """Receive until that many bytes have come."""
    while count:
        count -= len(receiver.recv(min(count, 1 << 20)))


def send_each(client, server, sizes):
    """Send these messages, each by one call, while a thread reads them."""
    reader = Thread(target=receive_bytes, args=(server, sum(sizes)))
    reader.start()
    for size in sizes:
        assert client.send(bytes(size)) == size
    reader.join()


def send_datagrams(client, server, sizes):
    """Send numbered datagrams and receive them all."""
    for number, size in enumerate(sizes, 1):
        client.send(number.to_bytes(8, "big") + bytes(size - 8))
    return [int.from_bytes(server.recv(65536)[:8], "big") for _ in sizes]


def protocol_of(connect):
    """What the pair that a function makes speaks."""
    return "udp" if connect is datagram_pair else "tcp"


@contextmanager
def recorded_pair(path, folder, connect, early):
    """Record a pair of sockets that is connected before, or while, it records."""
    protocol = protocol_of(connect)
    pair = connect(path)
    if not early:
        # all neighbours are known: what waits for one is sent by another's call
        for sock in pair:
            sock.close()
        pair = None
    try:
        with recording(path.lab, folder, (protocol,)) as recorded:
            pair = pair or connect(path)
            yield recorded, *pair
    finally:
        for sock in pair or ():
            sock.close()


def of_sender(recorded, path, port):
    """The rows of what one socket of a has sent; there is none of another host."""
    assert recorded.lost() == {}
    rows = recorded.messages()
    ends = {path.lab.a_address, path.lab.b_address}
    found = dict(Counter(rows["source_address"]))
    assert set(found) <= ends, f"rows of {found}, not only of {ends}"
    address = path.lab.a_address
    own = (rows["source_address"] == address) & (rows["source_port"] == port)
    return rows[own].sort_values("sequence", ignore_index=True)


def check_ends(rows, target):
    """Both ends in each row, the stages sum, nothing was merged."""
    assert set(rows["destination_address"]) == {target[0]}
    assert set(rows["destination_port"]) == {target[1]}
    assert rows[STAMPS].notna().all().all(), rows[STAMPS].notna().mean().to_dict()
    assert (rows[PARTS].sum(axis=1) == rows["end_to_end_ns"]).all()


def exchange_datagrams(path, folder, early):
    """Send and receive; the rows of what a sent, and what left its last device."""
    sizes = [100 + n % 1200 for n in range(DATAGRAMS)]

    def exchange():
        with recorded_pair(path, folder, datagram_pair, early) as made:
            recorded, client, server = made
            port, target = client.getsockname()[1], client.getpeername()[:2]
            before = path.statistics(path.lab.a_netns, NIC)["tx"]["packets"]
            numbers = send_datagrams(client, server, sizes)
            left = path.statistics(path.lab.a_netns, NIC)["tx"]["packets"] - before
        assert numbers == list(range(1, DATAGRAMS + 1))
        assert left >= DATAGRAMS  # ARP may be among them
        return recorded, port, target

    recorded, port, target = undisturbed(folder, all_devices(path), exchange)
    rows = of_sender(recorded, path, port)
    first = 0 if early else 1  # connecting sends one
    assert len(rows) == DATAGRAMS + first, f"{len(rows)} rows for {DATAGRAMS} datagrams"
    assert rows["size_bytes"].tolist() == [1] * first + sizes
    check_ends(rows, target)
    assert (rows["packets"] == 1).all()
    replies = recorded.messages()["source_address"] == path.lab.b_address
    assert replies.sum() == first
    return rows, recorded


def all_devices(path):
    """Names of every device that the path's packets may pass."""
    return sorted({*path.devices, NIC, *paths.MIDDLE.values(), "br0"})


@all_paths
@before_and_after
def test_each_datagram_is_one_row_with_both_ends(make_path, tmp_path, kind, early):
    path = make_path(kind)
    rows, recorded = exchange_datagrams(path, tmp_path, early)
    assert recorded.recorder.joiner.unmatched == {}
    if path.translated:
        assert paths.translated_datagrams(path) >= len(rows)


def exchange_stream(path, folder, early):
    """Send message by message; the rows of what a sent."""

    def exchange():
        with recorded_pair(path, folder, stream_pair, early) as made:
            recorded, client, server = made
            port, target = client.getsockname()[1], client.getpeername()[:2]
            send_each(client, server, SEND_SIZES)
        return recorded, port, target

    recorded, port, target = undisturbed(folder, all_devices(path), exchange)
    rows = of_sender(recorded, path, port)
    merged = recorded.counters["merged_sends"]
    assert merged == 0, f"{merged} sends were merged into {len(rows)} rows"
    assert rows["size_bytes"].tolist() == SEND_SIZES
    assert rows["sequence"].tolist() == np.cumsum(SEND_SIZES).tolist()
    must = [stamp for stamp in STAMPS if stamp != "arrive_ns"]
    assert rows[must].notna().all().all(), rows[STAMPS].notna().mean().to_dict()
    assert (rows[PARTS].sum(axis=1) == rows["end_to_end_ns"]).all()
    assert set(rows["destination_address"]) == {target[0]}
    assert set(rows["destination_port"]) == {target[1]}
    return rows, recorded


@all_paths
@before_and_after
def test_each_send_call_over_tcp_is_one_row_with_both_ends(
    make_path, tmp_path, kind, early
):
    _, recorded = exchange_stream(make_path(kind), tmp_path, early)
    assert recorded.recorder.joiner.unmatched == {}


@pytest.mark.parametrize("connect", [stream_pair, datagram_pair])
@pytest.mark.parametrize("kind", ["plain", "switch", "generic-xdp", *CONTAINERS])
def test_messages_one_at_a_time_have_all_stamps_both_ways(
    make_path, tmp_path, kind, connect
):
    path, asked, size = make_path(kind), 300, 64

    def exchange():
        with recorded_pair(path, tmp_path, connect, True) as (recorded, *ends):
            port = ends[0].getsockname()[1]
            for sender, receiver in [ends, ends[::-1]] * asked:
                sender.send(bytes(size))
                assert len(receiver.recv(size)) == size
        return recorded, port

    recorded, port = undisturbed(tmp_path, all_devices(path), exchange)
    assert recorded.lost() == {}
    rows = recorded.messages()
    assert Counter(rows["source_port"] == port) == {True: asked, False: asked}
    assert rows[STAMPS].notna().all().all(), rows[STAMPS].notna().mean().to_dict()
    assert (rows[PARTS] >= 0).all().all()
    assert recorded.recorder.joiner.unmatched == {}


def exchange_through_an_ifb(path, folder, connect, asked):
    """Requests of 1000 bytes and short replies; the rows of requests."""

    def exchange():
        with recorded_pair(path, folder, connect, True) as (recorded, *ends):
            client, server = ends
            for _ in range(asked):
                client.send(bytes(1000))
                receive_bytes(server, 1000)
                server.send(b"!")
                client.recv(1)
            said = path.tc(path.lab.b_netns, "-s -j qdisc show dev ifb0 root")
        return recorded, client, json.loads(said)[0]["packets"]

    recorded, _, passed = undisturbed(folder, [*all_devices(path), "ifb0"], exchange)
    rows = recorded.messages()
    return recorded, rows[rows["size_bytes"] == 1000], passed


@pytest.mark.parametrize("connect", [stream_pair, datagram_pair])
def test_what_a_queue_at_the_receivers_entry_held_is_counted(
    make_path, tmp_path, connect
):
    path, asked = make_path("ifb"), 40
    recorded, rows, passed = exchange_through_an_ifb(path, tmp_path, connect, asked)
    found = recorded.totals.entry_queues.as_dict()
    assert (found["queued"], found["received"]) == (asked, 2 * asked)
    assert passed >= asked
    assert rows[STAMPS].notna().all().all(), rows[STAMPS].notna().mean().to_dict()
    assert found["max_ns"] == rows["receive_stack_ns"].max()


@pytest.mark.timed
@pytest.mark.parametrize("connect", [stream_pair, datagram_pair])
def test_the_wait_at_the_receivers_entry_is_no_transit(make_path, tmp_path, connect):
    path = make_path("ifb")
    _, rows, _ = exchange_through_an_ifb(path, tmp_path, connect, 40)
    # the bucket lets 1000 bytes through each 8 ms, less what it has saved meanwhile
    assert rows["receive_stack_ns"].median() > 4_000_000
    assert rows["transit_ns"].median() < LATE_NS


@pytest.mark.parametrize("kind", ["switch", "nat"])
def test_of_many_sockets_that_ask_at_once_no_half_is_lost_or_there_twice(
    make_path, tmp_path, kind
):
    path, clients, sockets, asked = make_path(kind), 2, 500, 5

    def answer(server):
        for _ in range(clients * sockets * asked):
            question, client = server.recvfrom(100)
            server.sendto(question, client)

    def ask(target, seed):
        numbers = np.random.default_rng(seed)
        for _ in range(sockets):
            sock = socket_in(path.lab.a_netns, socket.AF_INET, socket.SOCK_DGRAM)
            with sock:
                sock.settimeout(DEADLINE_SECONDS)
                sock.connect(target)
                for _ in range(asked):
                    sock.send(numbers.bytes(32))
                    sock.recv(100)

    def exchange():
        server, target = listening(path, socket.SOCK_DGRAM)
        server.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        threads = [Thread(target=answer, args=[server])]
        threads += [Thread(target=ask, args=[target, n]) for n in range(clients)]
        with recording(path.lab, tmp_path, ("udp",)) as recorded, server:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return recorded, len(threads)

    recorded, _ = undisturbed(tmp_path, all_devices(path), exchange)
    assert recorded.lost() == {}
    unmatched = recorded.recorder.joiner.unmatched
    # what no hook could see is counted, and lacks its receiver's half
    unseen = recorded.counters["unmatched_datagram_reads"]
    assert unmatched == ({"sent, no receiver's half": unseen} if unseen else {})
    rows = recorded.messages()
    assert len(rows) == 2 * clients * sockets * asked
    assert rows["read_ns"].notna().sum() == len(rows) - unseen


@pytest.mark.parametrize("call", ["sendmsg", "io_uring"])
def test_what_is_sent_without_a_copy_has_its_arrival(make_path, tmp_path, call):
    # its pages are copied when it arrives, and its headers with them
    path, payload, asked = make_path("plain"), bytes(1000), 100
    uring = Uring(tmp_path)

    def send(sock):
        if call == "sendmsg":
            return sock.sendmsg([payload], [], MSG_ZEROCOPY)
        return uring.send_zero_copy(sock, payload)

    def exchange():
        with recorded_pair(path, tmp_path, stream_pair, True) as made:
            recorded, client, server = made
            client.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
            for _ in range(asked):
                assert send(client) == len(payload)
                receive_bytes(server, len(payload))
        return recorded, len(payload)

    recorded, _ = undisturbed(tmp_path, all_devices(path), exchange)
    rows = recorded.messages()
    assert rows["size_bytes"].tolist() == [len(payload)] * asked
    assert rows[STAMPS].notna().all().all(), rows[STAMPS].notna().mean().to_dict()
    assert (rows[PARTS] >= 0).all().all()


@pytest.mark.parametrize("connect", [stream_pair, datagram_pair])
@pytest.mark.parametrize("kind", ["bridge", "switch", "bridge-switch-bridge", *NAT])
def test_devices_of_other_namespaces_add_no_rows_where_ports_are_watched(
    make_path, tmp_path, kind, connect
):
    # as `run --no-lab`: packets keep their socket through a bridge in the middle
    path = make_path(kind)
    sizes, protocol = [100 + n for n in range(100)], protocol_of(connect)

    def exchange():
        client, server = connect(path)
        port = client.getsockname()[1]
        ports = (client.getpeername()[1], server.getsockname()[1])
        watched = Filter(ports=ports, protocols=(protocol,))
        with recording(watched, tmp_path) as recorded, client, server:
            act = send_datagrams if connect is datagram_pair else send_each
            act(client, server, sizes)
        return recorded, port

    recorded, port = undisturbed(tmp_path, all_devices(path), exchange)
    rows = of_sender(recorded, path, port)
    assert rows["size_bytes"].tolist() == sizes
    assert recorded.recorder.joiner.unmatched == {}


@nat_paths
@before_and_after
@pytest.mark.parametrize("exchange", [exchange_stream, exchange_datagrams])
def test_translated_messages_carry_the_senders_addresses_and_say_so(
    make_path, tmp_path, kind, early, exchange
):
    path = make_path(kind)
    rows, recorded = exchange(path, tmp_path, early)
    assert set(rows["source_address"]) == {path.lab.a_address}
    assert set(rows["destination_address"]) == {path.front[0]}
    assert rows["read_ns"].notna().all()
    assert (rows["translated"] == 1).all()
    # b's answers, if any, have b's own addresses: it never saw another
    answers = recorded.messages()
    answers = answers[answers["source_address"] == path.lab.b_address]
    assert (answers["translated"] == 1).all()


@pytest.mark.parametrize("kind", ["plain", "bridge", "router", "vxlan"])
@pytest.mark.parametrize("exchange", [exchange_stream, exchange_datagrams])
def test_messages_that_nothing_translates_do_not_say_so(
    make_path, tmp_path, kind, exchange
):
    rows, _ = exchange(make_path(kind), tmp_path, early=True)
    assert (rows["translated"].fillna(0) == 0).all()


def due_times(path, rows, packets, left):
    """When each datagram is due by the shaper's arithmetic, which begins full."""
    bucket = Bucket("tbf", RATE_BPS, BURST_BYTES)
    moments = zip(rows, packets, left, strict=True)
    return np.array([bucket.depart(t, size, out) for t, size, out in moments])


@pytest.mark.timed
@pytest.mark.parametrize("kind", ["plain", *paths.STACKED])
def test_a_datagrams_wait_below_the_stack_of_devices_is_qdisc_time(
    make_path, tmp_path, kind
):
    path = make_path(kind)
    sizes = [1000 - n % 7 for n in range(60)]
    packets = [datagram_packets(n, 1500, False)[0] + path.overhead_bytes for n in sizes]
    tbf = f"tbf rate {RATE_BPS}bit burst {BURST_BYTES} limit 2000000"

    def burst():
        with (
            recorded_pair(path, tmp_path, datagram_pair, True) as (recorded, *pair),
            paths.shaped(path, path.lab.a_netns, NIC, tbf),
        ):
            port = pair[0].getsockname()[1]
            send_datagrams(*pair, sizes)
            said = path.tc(path.lab.a_netns, f"-s -j qdisc show dev {NIC} root")
        return recorded, port, json.loads(said)[0]

    recorded, port, counted = undisturbed(tmp_path, all_devices(path), burst)
    # the arithmetic's packets are those that tc saw
    assert (counted["packets"], counted["bytes"]) == (len(sizes), sum(packets))
    rows = of_sender(recorded, path, port)
    assert rows["size_bytes"].tolist() == sizes
    send, queue, xmit = (rows[f"{s}_ns"].to_numpy() for s in ("send", "queue", "xmit"))
    low = due_times(path, send, packets, np.zeros(len(rows)))
    assert (xmit >= low - ROUNDING_NS).all(), f"early by {(low - xmit).max()} ns"
    late = xmit - due_times(path, queue, packets, xmit)
    assert np.median(late) < LATE_NS, f"{late=}"
    assert np.median(rows["transit_ns"]) < LATE_NS
    # the first hand-over to a device: before any wait
    assert np.median(queue - send) < LATE_NS


@pytest.mark.timed
@pytest.mark.parametrize("kind", ["plain", *paths.STACKED])
def test_a_streams_wait_below_the_stack_of_devices_is_qdisc_time(
    make_path, tmp_path, kind
):
    path = make_path(kind)
    sizes = [20_000] * 10
    tbf = f"tbf rate {RATE_BPS}bit burst {BURST_BYTES} limit 2000000"

    def exchange():
        with (
            recorded_pair(path, tmp_path, stream_pair, True) as (recorded, *pair),
            paths.shaped(path, path.lab.a_netns, NIC, tbf),
        ):
            port = pair[0].getsockname()[1]
            for size in sizes:
                send_each(*pair, [size])
            said = path.tc(path.lab.a_netns, f"-s -j qdisc show dev {NIC} root")
        return recorded, port, json.loads(said)[0]

    recorded, port, counted = undisturbed(tmp_path, all_devices(path), exchange)
    rows = of_sender(recorded, path, port)
    assert rows["size_bytes"].tolist() == sizes
    assert rows[["queue_ns", "xmit_ns"]].notna().all().all()
    header = tcp_header_bytes(False) + path.overhead_bytes
    payload = 1514 - header  # of a whole packet
    wire = 20_000 + -(-20_000 // payload) * header
    assert counted["bytes"] >= len(sizes) * wire  # and perhaps what was sent again
    drain = (wire - BURST_BYTES) * 8e9 / RATE_BPS
    held = rows["send_queue_ns"] + rows["qdisc_ns"]
    assert (held >= drain - ROUNDING_NS).all(), f"{held.tolist()}, at least {drain}"
    # the window lets all of it go at once, so most of that is the qdisc's
    assert np.median(rows["qdisc_ns"]) > drain / 2
    transit = (rows["ready_ns"] - rows["xmit_ns"]).to_numpy()
    assert np.median(transit) < LATE_NS, f"{transit=}"


@pytest.mark.timed
@pytest.mark.parametrize("connect", [stream_pair, datagram_pair])
def test_a_wait_in_another_namespace_is_transit(make_path, tmp_path, connect):
    # a bridge hands packets on with their socket, which is not of its namespace
    path = make_path("switch")
    sizes = [1000] * 40
    tbf = f"tbf rate {RATE_BPS}bit burst {BURST_BYTES} limit 2000000"

    def burst():
        with (
            recorded_pair(path, tmp_path, connect, True) as (recorded, *pair),
            paths.shaped(path, path.middle, paths.MIDDLE["b"], tbf),
        ):
            port = pair[0].getsockname()[1]
            act = send_datagrams if connect is datagram_pair else send_each
            act(*pair, sizes)
        return recorded, port

    recorded, port = undisturbed(tmp_path, all_devices(path), burst)
    rows = of_sender(recorded, path, port)
    assert rows["size_bytes"].tolist() == sizes
    assert np.median(rows["qdisc_ns"]) < LATE_NS
    transit = (rows["ready_ns"] - rows["xmit_ns"]).to_numpy()
    full = (40_000 - BURST_BYTES) * 8e9 / RATE_BPS
    assert transit.max() > full / 2, f"{transit.max()} of {full}"


def kind_of(path, device):
    """What `ip -d link` calls a device of a; empty for one that is not virtual."""
    (found,) = json.loads(path.ip(path.lab.a_netns, f"-d -j link show dev {device}"))
    return found.get("linkinfo", {}).get("info_kind", "")


@pytest.mark.parametrize("connect", [stream_pair, datagram_pair])
@pytest.mark.parametrize("kind", ["plain", "switch", "nat", *paths.STACKED])
def test_the_devices_of_the_sender_are_told_in_the_order_that_packets_pass_them(
    make_path, tmp_path, kind, connect
):
    path = make_path(kind)
    with recorded_pair(path, tmp_path, connect, True) as (recorded, *pair):
        act = send_datagrams if connect is datagram_pair else send_each
        act(*pair, [1000] * 20)
    assert recorded.lost() == {}
    joiner = recorded.recorder.joiner
    (told,) = joiner.path_devices.as_list()
    devices = [(device["name"], device["kind"]) for device in told["devices"]]
    assert devices == [(name, kind_of(path, name)) for name in path.devices]
    assert (told["protocol"], told["flows"]) == (protocol_of(connect), 1)
    shown = last_devices([told])
    assert bool(shown) == (kind in paths.STACKED)
    for sentence in shown:
        assert f"at the driver of {NIC}, below {path.devices[0]} (" in sentence


@pytest.mark.parametrize("kind", ["plain", "bridge", "nat"])
def test_datagrams_unread_when_their_socket_closes_are_told_as_such(
    make_path, tmp_path, kind
):
    path, sent, read = make_path(kind), 100, 37

    def half_read():
        with recorded_pair(path, tmp_path, datagram_pair, True) as made:
            recorded, client, server = made
            port = client.getsockname()[1]
            client.send((0).to_bytes(8, "big"))
            each = wait_until(lambda: receive_memory(server), "the first has come")
            for number in range(1, sent):
                client.send(number.to_bytes(8, "big"))
            all_of_them = sent * each
            wait_until(lambda: receive_memory(server) == all_of_them, "all have come")
            for number in range(read):
                assert int.from_bytes(server.recv(100), "big") == number
            server.close()
        return recorded, port

    recorded, port = undisturbed(tmp_path, all_devices(path), half_read)
    rows = of_sender(recorded, path, port)
    assert rows["sequence"].nunique() == len(rows) == sent
    assert rows["read_ns"].notna().sum() == read
    assert recorded.recorder.joiner.unmatched == {"unread at close": sent - read}
    left = rows[rows["read_ns"].isna()]
    assert left[["arrive_ns", "ready_ns"]].notna().all().all()
    assert left["end_to_end_ns"].isna().all()


def receive_memory(sock):
    """SO_MEMINFO: bytes of memory that wait to be read."""
    return int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, 55, 4), "little")


def run_iperf3(path, options, trace=None):
    """Run iperf3 from a to b and return its report."""
    port = 5201
    server = path.lab.start(
        "b",
        ["iperf3", "-s", "-1", "--forceflush", "-p", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while "listening" not in (line := server.stdout.readline()):
        assert line, "iperf3 -s ended"
    address, port = paths.publish(path, port)
    command = ["iperf3", "-c", address, "-p", str(port), "--json", *options.split()]
    if trace:
        calls = "trace=write,sendto,sendmsg"
        command = ["strace", "-f", "-yy", "-s", "1", "-o", trace, "-e", calls, *command]
    client = path.lab.start("a", command, stdout=subprocess.PIPE, text=True)
    said, _ = client.communicate(timeout=30)
    server.communicate(timeout=10)
    report = json.loads(said)
    assert "error" not in report, report["error"]
    return report


def calls_of(trace, port):
    """What each call on the socket of this local port gave, in order, as strace saw."""
    line = re.compile(rf"\d+ +\w+\(\d+<TCP:\[[^>]*:{port}->.* = (\d+)$")
    found = (line.match(text) for text in trace.read_text().splitlines())
    return [int(match[1]) for match in found if match and int(match[1])]


@pytest.mark.timed
@all_paths
def test_iperf3_counts_as_many_datagrams_as_there_are_rows(make_path, tmp_path, kind):
    need("iperf3")
    path = make_path(kind)
    with hidden_messages(tmp_path, all_devices(path)) as hidden:
        dropped = path.dropped()
        with recording(path.lab, tmp_path, ("udp",)) as recorded:
            report = run_iperf3(path, "-u -b 100M -t 1 -l 1000")
        dropped, unseen = path.dropped() - dropped, hidden(1000)
    (data,) = (c["local_port"] for c in report["start"]["connected"])
    rows = of_sender(recorded, path, data)
    rows = rows[rows["size_bytes"] == 1000]
    count = report["end"]["sum"]["packets"]
    assert count > 10_000
    assert 0 <= count - len(rows) <= unseen, f"{len(rows)} rows of {count}, {unseen=}"
    assert dropped == 0
    assert rows["xmit_ns"].isna().sum() <= unseen
    arrived = rows["arrive_ns"].notna().sum()
    assert count - arrived <= unseen, f"{arrived} arrived of {count}, {unseen=}"
    # the server stops reading when the client says so: the last may stay
    last = rows["sequence"][rows["read_ns"].notna()].max()
    gaps = rows["read_ns"][rows["sequence"] < last].isna().sum()
    assert abs(gaps - report["end"]["sum"]["lost_packets"]) <= unseen
    assert last > 0.9 * count


@pytest.mark.parametrize("kind", ["plain", *paths.STACKED, *NAT])
def test_each_of_iperf3s_calls_that_strace_sees_is_one_row(make_path, tmp_path, kind):
    need("iperf3", "strace")
    path, trace = make_path(kind), tmp_path / "calls"
    with (
        hidden_messages(tmp_path, all_devices(path)) as hidden,
        recording(path.lab, tmp_path, ("tcp",)) as recorded,
    ):
        report = run_iperf3(path, "-n 8M -l 8K", trace)
        unseen = hidden(8192)
    (data,) = (c["local_port"] for c in report["start"]["connected"])
    calls = calls_of(trace, data)
    assert sum(calls) == report["end"]["sum_sent"]["bytes"] + 37  # its cookie
    rows = of_sender(recorded, path, data)
    merged = recorded.counters["merged_sends"]
    assert merged == 0, f"{merged} of {len(calls)} sends were merged"
    assert Counter(rows["size_bytes"]) == Counter(calls)
    # the server closes when it knows the end, which resets what has not left yet
    came = report["end"]["sum_received"]["bytes"] + 37
    due = rows[rows["sequence"] <= came]
    lacking = due[due["xmit_ns"].isna()]["sequence"].tolist()
    assert came > 0.5 * sum(calls)
    assert len(lacking) <= unseen, f"{lacking} of {sum(calls)} lack xmit, {unseen=}"
    unready = due["ready_ns"].isna().sum()
    assert unready <= unseen, f"{unready} of {len(due)}"
