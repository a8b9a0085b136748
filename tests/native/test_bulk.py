"""Bulk channels against peers that know their wire only from its description."""

from __future__ import annotations

import itertools
import json
import mmap
import random
import re
import select
import signal
import socket
import struct
import subprocess
import time
from collections import Counter
from statistics import median

import bulk_peer as wire
import load_peer as peer
import pytest
from bulk_peer import bulk, bulk_plan
from load_peer import echo

SENT = 3000
# More than the gaps that a receiver remembers.
MANY_GAPS = 1 << 14
# What a session asks of --max-rate at once.
RATE_SHARE_BYTES = 1 << 16


def shuffled(sent, *, lost, doubled, reach, seed):
    """Numbers as a bad path delivers them: each at most `reach` late or early."""
    chance = random.Random(seed)
    kept = [n for n in range(sent) if chance.random() >= lost]
    kept += [n for n in kept if chance.random() < doubled]
    return sorted(kept, key=lambda n: n + chance.random() * reach)


def rfc_4737(order):
    """Extents of reordered arrivals, word for word; duplicates are discarded."""
    arrived = list(dict.fromkeys(order))
    extents = []
    greatest = -1
    for i, number in enumerate(arrived):
        if number < greatest:
            first = next(j for j in range(i) if arrived[j] > number)
            extents.append(i - first)
        greatest = max(greatest, number)
    return extents


def missing_runs(order, sent):
    """Numbers in a row that never came: (first, length)."""
    runs = []
    for number in sorted(set(range(sent)) - set(order)):
        if runs and number == sum(runs[-1]):
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return runs


def deliver(port, order, sent, receive_way=0):
    """Send these numbers to an echo, no faster than it reads; its account."""
    plan = bulk_plan(units=sent, receive_way=receive_way)
    with wire.sending_session(port, plan) as (control, data):
        for i, number in enumerate(order):
            data.send(wire.datagram(number))
            while i % 50 == 0 and wire.waiting_bytes(data):
                time.sleep(0)
        wire.send_sent(control, sent)
        return wire.read_received(wire.expect_frame(control, wire.RESULT))


@pytest.mark.parametrize("receive_way", [1, 2, 3], ids=["recv", "recvmmsg", "gro"])
@pytest.mark.parametrize(
    "path",
    [
        {"lost": 0.0, "doubled": 0.0, "reach": 0},
        {"lost": 0.1, "doubled": 0.0, "reach": 0},
        {"lost": 0.0, "doubled": 0.1, "reach": 3},
        {"lost": 0.5, "doubled": 0.2, "reach": 40},
        {"lost": 0.02, "doubled": 0.02, "reach": 1000},
    ],
    ids=["clean", "lossy", "doubled", "bad", "wild"],
)
def test_every_number_is_accounted_for_as_rfc_4737_and_a_set_say(path, receive_way):
    order = shuffled(SENT, seed=receive_way, **path)
    with echo() as server:
        seen = deliver(server.port, order, SENT, receive_way)
    extents, runs = rfc_4737(order), missing_runs(order, SENT)
    assert seen.totals["socket_drops"] == seen.totals["strays"] == 0
    assert seen.totals["received"] == len(set(order))
    assert seen.totals["bytes"] == len(set(order)) * wire.DATAGRAM.size
    assert sum(seen.slots) == seen.totals["bytes"]
    assert seen.totals["duplicates"] == len(order) - len(set(order))
    assert seen.totals["reordered"] == len(extents)
    assert seen.totals["extent_sum"] == sum(extents)
    assert seen.totals["extent_max"] == max(extents, default=0)
    assert seen.totals["lost"] == SENT - len(set(order))
    assert seen.totals["lost_in_socket"] == 0
    assert [run[:2] for run in seen.runs] == runs
    assert seen.totals["loss_runs"] == len(runs)
    powers = Counter(length.bit_length() - 1 for _, length in runs)
    assert seen.lengths == [powers[k] for k in range(wire.LENGTHS)]


def test_more_gaps_than_are_remembered_are_still_counted_exactly():
    sent = 2 * (MANY_GAPS + 1000)
    odd = list(range(1, sent, 2))
    # One that comes long after its gap was given up: late or doubled?
    with echo() as server:
        seen = deliver(server.port, [*odd, 0], sent)
    assert seen.totals["received"] == len(odd)
    assert seen.totals["lost"] == seen.totals["loss_runs"] == len(odd)
    assert seen.totals["stale"] == 1
    assert seen.lengths[0] == len(odd)
    assert [run[:2] for run in seen.runs] == [[n, 1] for n in range(0, 8192, 2)]


def test_the_last_datagram_may_be_as_late_as_the_others_are_apart():
    with (
        echo() as server,
        wire.sending_session(server.port, bulk_plan(units=3)) as (control, data),
    ):
        data.send(wire.datagram(0))
        select.select([], [], [], 0.6)
        data.send(wire.datagram(1))
        wire.send_sent(control, 3)
        select.select([], [], [], 0.9)  # three times what the end is without gaps
        data.send(wire.datagram(2))
        seen = wire.read_received(wire.expect_frame(control, wire.RESULT))
    assert (seen.totals["received"], seen.totals["lost"]) == (3, 0)


def test_what_is_none_of_the_channels_is_a_stray():
    strange = [
        b"",
        b"LPbd",
        wire.datagram(0, channel=1),
        wire.datagram(0, size=25),
        wire.datagram(1 << 63),
        b"LPop" + wire.datagram(0)[4:],
    ]
    with (
        echo() as server,
        wire.sending_session(server.port, bulk_plan(units=1)) as (control, data),
    ):
        for message in strange:
            data.send(message)
        data.send(wire.datagram(0))
        wire.send_sent(control, 1)
        seen = wire.read_received(wire.expect_frame(control, wire.RESULT))
    assert seen.totals["strays"] == len(strange)
    assert (seen.totals["received"], seen.totals["lost"]) == (1, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"channels": 0},
        {"channel": 1},
        {"channels": 65},
        {"direction": 3},
        {"unit_bytes": 23},
        {"unit_bytes": 65508},
        {"units": 0},
        {"units": 2**50 + 1},
        {"slot_ns": 0},
        {"slot_ns": 3600 * 10**9 + 1},
        {"rate_bps": 999},
        {"rate_bps": 10**12 + 1},
        {"send_way": 4},
        {"receive_way": 4},
        {"duration_ns": 10**10 + 1},
        {"receive_buffer_bytes": 1},
        {"spin": 2},
    ],
    ids=str,
)
def test_an_unsound_plan_ends_the_session(fields):
    said = peer.hello(workload=wire.BULK, transport=1, duration_ns=10**10)
    with echo() as server:
        with peer.datagram_session(server.port, said) as (control, _):
            plan = bulk_plan(**fields)
            wire.send_frame(control, wire.PLAN, list(plan.values()))
            assert control.recv(1) == b""
        assert server.stop()["rejected"] == 1


@pytest.mark.parametrize(
    "frames",
    [
        b"\x63\0\0\0\0",
        wire.FRAME.pack(wire.PLAN, 1 << 30),
        wire.FRAME.pack(wire.PLAN, 8) + bytes(8),
        wire.FRAME.pack(wire.GO, 0),
        wire.FRAME.pack(wire.PLAN, 96) + bytes(10),
    ],
    ids=["type", "length", "short", "order", "truncated"],
)
def test_garbage_instead_of_a_plan_ends_the_session(frames):
    said = peer.hello(workload=wire.BULK, transport=0)
    with echo() as server, peer.session(server.port, said) as control:
        control.settimeout(peer.DEADLINE_S)
        control.sendall(frames)
        control.shutdown(socket.SHUT_WR)
        assert control.recv(1) == b""


def serve_datagrams(seen, count):
    """A responder of ours that takes `count` datagrams in, and says so."""

    def serve(control, data):
        plan = dict(
            zip(wire.PLAN_FIELDS, wire.expect_frame(control, wire.PLAN), strict=True)
        )
        wire.send_frame(control, wire.READY)
        assert wire.expect_frame(control, wire.GO) == []
        begun_ns = time.monotonic_ns()
        arrived = []
        for _ in range(count):
            message = data.recv(65536)
            arrived.append((time.monotonic_ns(), message))
        sent = wire.read_sent(wire.expect_frame(control, wire.SENT))
        received = dict.fromkeys(wire.RECEIVED_FIELDS, 0) | {"received": count}
        rest = [10**8, 0, *[0] * wire.LENGTHS, 0]
        wire.send_frame(control, wire.RESULT, [*received.values(), *rest])
        control.recv(1)
        seen.update(plan=plan, sent=sent, arrived=arrived, begun_ns=begun_ns)

    return serve


@pytest.mark.timed
@pytest.mark.parametrize("way", ["send", "sendmmsg", "gso"])
def test_datagrams_are_the_described_bytes_and_keep_their_schedule(way):
    rate_bps, size, duration_s = 4_000_000, 1000, 0.2
    gap_ns = size * 8e9 / rate_bps
    count = round(duration_s * rate_bps / 8 / size)
    seen = {}
    with peer.udp_session_peer(serve_datagrams(seen, count)) as port:
        status, said, stderr = bulk(
            port,
            *("--size", size, "--rate", rate_bps, "--duration", duration_s),
            *("--send-way", way),
        )
    assert status == 0, stderr
    assert said["up"]["sent"] == seen["sent"]["sent"] == count
    assert seen["sent"]["bytes"] == count * size
    heads = [wire.DATAGRAM.unpack_from(message) for _, message in seen["arrived"]]
    assert {len(message) for _, message in seen["arrived"]} == {size}
    assert [head[:3] for head in heads] == [(wire.MAGIC, 0, n) for n in range(count)]
    start_ns = seen["sent"]["start_ns"]
    lateness_ns = []
    for (arrived_ns, _), (_, _, number, sent_ns) in zip(
        seen["arrived"], heads, strict=True
    ):
        due_ns = start_ns + int(number * gap_ns)
        assert due_ns <= sent_ns <= arrived_ns
        lateness_ns.append(sent_ns - due_ns)
    assert median(lateness_ns) < gap_ns  # none is made to wait for the next
    assert seen["begun_ns"] - 10**7 < start_ns


def test_channels_share_volume_and_rate_in_turn():
    with echo() as server:
        status, said, stderr = bulk(
            server.port,
            *("--channels", 3, "--bytes", 10_001, "--size", 1000),
            *("--rate", "4mbit"),
        )
    assert status == 0, stderr
    channels = said["up"]["channels"]
    assert [c["sender"]["sent"] for c in channels] == [4, 4, 3]  # 11 in all
    assert [c["receiver"]["received"] for c in channels] == [4, 4, 3]
    for i, channel in enumerate(channels):
        sender = channel["sender"]
        # 2 ms each, its turn among three; the last is due 9 turns later.
        assert sender["first_ns"] - sender["start_ns"] >= i * 2_000_000
        assert sender["last_ns"] - sender["start_ns"] >= 6_000_000 * (
            sender["sent"] - 1
        )


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("direction", ["up", "down", "both"])
@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_both_ends_tell_the_same_of_each_direction(protocol, direction, address):
    with echo("--address", address) as server:
        status, said, stderr = bulk(
            server.port,
            *("--address", address, "--protocol", protocol, "--channels", 2),
            *("--direction", direction, "--duration", 0.3, "--slot", "10ms"),
        )
        served = server.stop()
    assert status == 0, stderr
    asked = {"up", "down"} if direction == "both" else {direction}
    assert {way for way in ("up", "down") if said[way]} == asked
    for way in asked:
        for channel in said[way]["channels"]:
            sender, receiver = channel["sender"], channel["receiver"]
            lost = receiver.get("lost", 0)
            assert sender["sent"] == receiver["received"] + lost
            assert sender["bytes"] == sender["sent"] * said["size_bytes"]
            assert sum(sender["slot_bytes"]) == sender["bytes"]
            assert sum(receiver["slot_bytes"]) == receiver["bytes"]
            assert receiver["bytes"] == receiver["received"] * said["size_bytes"]
            assert lost == receiver.get("lost_in_socket", 0)  # loopback loses none
            assert not sender["stopped"] and not sender["error"]
    assert (served["sessions"], served["rejected"]) == (2, 0)


def test_all_ways_go_together():
    ways = itertools.product(("send", "sendmmsg", "gso"), ("recv", "recvmmsg", "gro"))
    with echo() as server:
        for send_way, receive_way in ways:
            status, said, stderr = bulk(
                server.port,
                *("--send-way", send_way, "--receive-way", receive_way),
                *("--bytes", "3m", "--rate", "400mbit"),
            )
            assert status == 0, stderr
            (channel,) = said["up"]["channels"]
            assert channel["sender"]["way"] == send_way
            assert channel["receiver"]["way"] == receive_way
            assert channel["sender"]["sent"] == 2143


def test_datagrams_of_which_a_packet_holds_one_are_sent_another_way():
    with echo() as server:
        options = ("--size", 65507, "--bytes", "2m", "--rate", "400mbit")
        status, said, stderr = bulk(server.port, *options)
    assert status == 0, stderr
    assert said["up"]["channels"][0]["sender"]["way"] == "sendmmsg"
    assert said["up"]["sent"] == 31


WITHOUT_GSO = """
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

int setsockopt(int fd, int level, int name, const void *value, unsigned int size)
{
	if (level != 17 || name != 103) /* IPPROTO_UDP, UDP_SEGMENT */
		return syscall(SYS_setsockopt, fd, level, name, value, size);
	errno = ENOPROTOOPT;
	return -1;
}
"""


def test_a_kernel_without_gso_is_sent_to_another_way_or_named(tmp_path, monkeypatch):
    library = tmp_path / "without_gso.so"
    preload(library, WITHOUT_GSO, monkeypatch)
    with echo() as server:
        words = ("--bytes", "1m", "--rate", "400mbit")
        status, said, stderr = bulk(server.port, *words)
        refused = bulk(server.port, *words, "--send-way", "gso")
    assert status == 0, stderr
    (channel,) = said["up"]["channels"]
    assert channel["sender"]["way"] == "sendmmsg"
    sender, receiver = channel["sender"], channel["receiver"]
    # each by itself; what a busy machine's receiver had no room for the kernel counts
    assert sender["sent"] == receiver["received"] + receiver["socket_drops"] == 715
    status, _, stderr = refused
    assert status == 1
    assert "cannot send on channel 0" in stderr
    assert "Protocol not available" in stderr
    assert stderr.count("\n") == 1


def preload(library, source, monkeypatch):
    """Have programs that start now begin with these functions."""
    words = ["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"]
    subprocess.run(words, input=source, text=True, check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))


def running_client(server, *options):
    """A client that sends for ten minutes, once it has begun."""
    client = peer.load("bulk", "--port", server.port, "--duration", 600, *options)
    deadline = time.monotonic() + peer.DEADLINE_S
    while time.monotonic() < deadline:
        # its threads run: main, control and data of each channel
        if len(list(peer.Path(f"/proc/{client.pid}/task").iterdir())) > 1:
            return client
        time.sleep(0.01)
    raise AssertionError("it does not begin")


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
@pytest.mark.parametrize("direction", ["up", "down", "both"])
def test_ctrl_c_ends_the_sending_and_fetches_the_result(protocol, direction):
    words = ("--protocol", protocol, "--direction", direction, "--channels", 2)
    with echo() as server:
        client = running_client(server, *words)
        client.send_signal(signal.SIGINT)
        stdout, stderr = client.communicate(timeout=peer.DEADLINE_S)
    said = json.loads(stdout)
    assert client.returncode == 0, stderr
    assert said["stopped"]
    for way in {"up", "down"} if direction == "both" else {direction}:
        lost = said[way].get("lost", 0)
        assert said[way]["sent"] == said[way]["received"] + lost
        assert all(c["sender"]["stopped"] for c in said[way]["channels"])


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
@pytest.mark.parametrize("direction", ["up", "down", "both"])
def test_a_responder_that_dies_leaves_what_is_known(protocol, direction):
    words = ("--protocol", protocol, "--direction", direction, "--channels", 2)
    with echo() as server:
        client = running_client(server, *words)
        server.process.kill()
        stdout, stderr = client.communicate(timeout=peer.DEADLINE_S)
    said = json.loads(stdout)
    assert client.returncode == 1
    # its sender may see it first
    assert re.match("latprof-load: cannot (finish|send on) channel ", stderr)
    assert stderr.count("\n") == 1
    if direction != "down":
        assert said["up"]["sent"] >= 0 and said["up"]["received"] is None
    if direction != "up":
        assert said["down"]["received"] >= 0 and said["down"]["sent"] is None


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_a_second_ctrl_c_waits_for_no_responder(protocol):
    words = ("--protocol", protocol, "--direction", "both")
    with echo() as server:
        client = running_client(server, *words)
        server.process.send_signal(signal.SIGSTOP)
        client.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            client.wait(1)  # it waits for the result
        client.send_signal(signal.SIGINT)
        stdout, stderr = client.communicate(timeout=peer.DEADLINE_S)
    said = json.loads(stdout)
    assert client.returncode == 1
    assert "it was not waited for" in stderr
    assert stderr.count("\n") == 1
    assert said["stopped"] and said["up"]["received"] is None


def test_a_client_that_dies_ends_its_sessions():
    with echo() as server:
        client = running_client(server, "--direction", "both", "--channels", 4)
        client.kill()
        client.communicate()
        status, _, stderr = bulk(server.port, "--bytes", 10_000)
        assert status == 0, stderr
        assert server.stop()["sessions"] == 5


def test_the_responders_rate_bounds_what_it_takes_in_and_sends():
    for direction in ("up", "down"):
        with echo("--max-rate", "2m") as server:
            began = time.monotonic()
            status, said, stderr = bulk(
                server.port, "--direction", direction, "--bytes", "2m"
            )
            took_s = time.monotonic() - began
        assert status == 0, stderr
        received = said[direction]["received_bytes"]
        # A burst goes free; what the socket held at the end is taken in later.
        assert received / took_s < 2.5e6


@pytest.mark.parametrize("unit_bytes", [24, 1400, 65507])
def test_no_datagram_leaves_before_the_responders_rate_pays_for_it(unit_bytes):
    with echo("--max-rate", 1000) as server:
        plan = bulk_plan(direction=wire.DOWN, unit_bytes=unit_bytes, units=10**6)
        for _ in range(3):
            with wire.sending_session(server.port, plan) as (_, data):
                select.select([data], [], [], 0.5)
        is_alone(server)
        served = server.stop()
    # what passes at once; the next would be due in a minute
    assert 0 < served["bytes"] <= RATE_SHARE_BYTES


def test_no_write_leaves_before_the_responders_rate_pays_for_it():
    with echo("--max-rate", 1000) as server:
        plan = bulk_plan(direction=wire.DOWN, unit_bytes=1 << 20, units=10**6)
        for _ in range(3):
            with wire.stream_session(server.port, plan) as control:
                assert not select.select([control], [], [], 0.5)[0]
        is_alone(server)
        served = server.stop()
    assert (served["sessions"], served["bytes"]) == (3, 0)


def test_who_left_before_its_turn_holds_up_nobody():
    plan = bulk_plan(direction=wire.DOWN, unit_bytes=65507, units=10**6)
    with echo("--max-rate", 50_000) as server:
        for _ in range(20):
            with wire.sending_session(server.port, plan):
                select.select([], [], [], 0.1)
        is_alone(server)
        with wire.sending_session(server.port, plan) as (_, data):
            # a datagram is 1.3 s; those of the others would be 26 s
            assert select.select([data], [], [], 10)[0]


CLOCK = """
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile long *ahead;

__attribute__((constructor)) static void find(void)
{
	int fd = open(getenv("SECONDS_AHEAD"), O_RDONLY);

	ahead = mmap(0, sizeof(*ahead), PROT_READ, MAP_SHARED, fd, 0);
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int error = syscall(SYS_clock_gettime, clock, ret);

	ret->tv_sec += *ahead;
	return error;
}
"""


@pytest.fixture
def set_ahead(tmp_path, monkeypatch):
    """Give programs that start now a clock that can be set ahead."""
    library, seconds = tmp_path / "clock.so", tmp_path / "seconds"
    preload(library, CLOCK, monkeypatch)
    seconds.write_bytes(bytes(8))
    monkeypatch.setenv("SECONDS_AHEAD", str(seconds))
    with seconds.open("r+b") as file, mmap.mmap(file.fileno(), 8) as ahead:
        yield lambda value: ahead.__setitem__(slice(8), struct.pack("q", value))


# Of seconds, while a unit is under way: four times what a channel waits for one that
# does not move. A look at the clock in between may be missed, two in a row are not.
SLOWLY = range(0, 300, 30)


def test_a_unit_that_comes_slowly_is_waited_for(set_ahead):
    plan = bulk_plan(unit_bytes=1 << 20)
    unit = wire.FRAME.pack(wire.DATA, (1 << 20) - wire.FRAME.size).ljust(1 << 20)
    with echo() as server, wire.stream_session(server.port, plan) as control:
        for part, seconds in enumerate(SLOWLY):
            set_ahead(seconds)
            control.sendall(unit[part * 1000 :][:1000])
            select.select([], [], [], 0.1)
        control.sendall(unit[len(SLOWLY) * 1000 :])
        wire.send_sent(control, 1)
        seen = wire.read_received(wire.expect_frame(control, wire.RESULT))
    assert (seen.totals["received"], seen.totals["bytes"]) == (1, 1 << 20)


def test_units_that_leave_slowly_are_waited_for(set_ahead):
    # More than a send buffer holds, so that the last ones must wait.
    plan = bulk_plan(unit_bytes=1 << 20, direction=wire.DOWN, units=8)
    with echo() as server, socket.socket() as control:
        # What is on its way at once is less than what is read at a time.
        control.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
        control.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000)
        control.connect((peer.LOOPBACK, server.port))
        peer.greet(control, wire.channel_hello(0, plan))
        wire.begin(control, plan)
        for seconds in SLOWLY:
            set_ahead(seconds)
            assert peer.receive_exactly(control, 50_000)
            select.select([], [], [], 0.1)
        control.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        assert peer.receive_exactly(control, (8 << 20) - 50_000 * len(SLOWLY))
        sent = wire.read_sent(wire.expect_frame(control, wire.SENT))
    assert (sent["sent"], sent["bytes"]) == (8, 8 << 20)


def is_alone(server):
    """Wait until no session of it is left, whatever its rate still owes."""
    tasks = peer.Path(f"/proc/{server.process.pid}/task")
    deadline = time.monotonic() + peer.DEADLINE_S
    while len(list(tasks.iterdir())) > 1:
        assert time.monotonic() < deadline
        select.select([], [], [], 0.01)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--channels", "0"), "--channels must be a whole number from 1 to 64"),
        (("--size", "23"), "--size must be a size from 24"),
        (("--size", "65508"), "--size must be at most 65507 here"),
        (("--rate", "1bit"), "--rate must be a rate from 1kbit"),
        (("--bytes", "0"), "--bytes must be a size from 1"),
        (("--bytes", 1400, "--channels", 2), "--bytes must be more than 1400 for 2"),
        (
            ("--bytes", "128kib", "--channels", 2, "--protocol", "tcp"),
            "--bytes must be more than 131072 for 2 channels of --size 131072",
        ),
        (("--bytes", "1g", "--duration", "1"), "--bytes and --duration do not go"),
        (("--direction", "left"), "--direction must be one of up|down|both"),
        (("--send-way", "fast"), "--send-way must be one of auto|send|sendmmsg|gso"),
        (("--protocol", "tcp", "--receive-way", "gro"), "--receive-way does not go"),
        (("--protocol", "tcp", "--receive-buffer", "1m"), "--receive-buffer does"),
        (("--receive-buffer", "1g"), "--receive-buffer must be a size from 1kib"),
        (("--slot", "1us"), "--slot must be a time from 1ms"),
        (("--spin",), "--spin needs --rate"),
        (("--wire", "clear"), "--wire clear does not go with bulk"),
        (("--port", "0"), "--port is needed"),
    ],
    ids=str,
)
def test_a_wrong_value_is_one_line_and_status_2(options, words):
    status, said, stderr = bulk(1, *options)
    assert (status, said) == (2, {})
    assert stderr.startswith(f"latprof-load: {words}")
    assert stderr.count("\n") == 1


def test_what_a_channel_may_queue_before_its_plan_is_memory_too():
    """The kernel grants the double of 4 MiB; 4 MiB of the channel come on top."""
    said = wire.channel_hello(1, bulk_plan())
    with echo("--max-memory", "16mib") as server:
        with peer.datagram_session(server.port, said):
            status, _, stderr = bulk(server.port, "--bytes", 1000)
        served = server.stop()
    assert status == 1
    assert "as much memory as they may" in stderr
    assert (served["refused_memory"], served["sessions"]) == (1, 1)


def test_a_responders_memory_does_for_as_many_channels_as_there_may_be():
    with echo() as server:
        status, said, stderr = bulk(server.port, "--channels", 64, "--bytes", "1m")
    assert status == 0, stderr
    assert said["up"]["sent"] == said["up"]["received"] + said["up"]["lost"]


def test_a_responders_limits_are_told_in_one_line():
    cases = [
        (("--workloads", "pingpong"), "it does not serve this workload"),
        (("--max-message", "1000"), "it takes messages of at most 1000 bytes"),
        (("--max-duration", "5"), "it takes sessions of at most 5 seconds"),
        (("--max-memory", "1mib"), "its sessions have as much memory as they may"),
    ]
    for limits, words in cases:
        with echo(*limits) as server:
            status, said, stderr = bulk(server.port, "--duration", 6)
        assert (status, said) == (1, {})
        assert words in stderr
        assert stderr.count("\n") == 1
