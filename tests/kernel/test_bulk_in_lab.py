"""Bulk channels over a lab's link: no datagram is lost unexplained.

What the receiver says is held against the counters of its namespace
(/proc/net/snmp), against `tc -s`, a program that drops chosen packets, the
arithmetic of a shaper, and iperf3 in the same lab.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager

import pytest
from bulk_oracles import RATE_BPS, SIZE, run_iperf3, shaped_lab, udp_counters
from dropper import attach_dropper
from latprof_agent.executables import find_executable
from shaper import datagram_packets, tc_count

LOAD = find_executable("latprof-load")
DEADLINE_S = 60
EXACT = ("--send-way", "sendmmsg", "--receive-way", "recvmmsg")
# A packet each, so that the kernel counts datagrams. --receive-buffer: the
# kernel grants the double, and a datagram of 1400 bytes takes 2304 of it.
SMALL, LARGE = 8192, 64_000_000
# Where only the path may lose, though the receiver has no CPU for a while.
ROOMY = ("--receive-buffer", LARGE)


@contextmanager
def responder(lab, *options):
    """`latprof-load echo` at end b; gives its port."""
    words = [LOAD, "echo", "--address", lab.b_address, "--until-eof", *options]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = lab.start("b", list(map(str, words)), **pipes)
    yield int(process.stdout.readline().split()[1])
    process.communicate(timeout=DEADLINE_S)


def run_client(lab, port, *options):
    """Status, JSON and what was said by a client at end a."""
    words = [LOAD, "bulk", "--address", lab.b_address, "--port", port, *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    client = lab.start("a", list(map(str, words)), **pipes)
    stdout, stderr = client.communicate(timeout=DEADLINE_S)
    return client.returncode, json.loads(stdout) if stdout else {}, stderr


def bulk(lab, *options):
    """One run between the ends, which succeeds; its JSON."""
    with responder(lab) as port:
        status, said, stderr = run_client(lab, port, *options)
    assert status == 0, stderr
    return said


def receivers(direction):
    return [channel["receiver"] for channel in direction["channels"]]


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("buffer", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("channels", [1, 2, 4, 8])
def test_on_a_bare_veth_all_that_is_lost_died_in_the_receive_buffer(
    make_lab, channels, buffer, direction
):
    lab = make_lab()
    end = "b" if direction == "up" else "a"
    before = udp_counters(lab, end)
    said = bulk(
        lab,
        *("--channels", channels, "--bytes", "300m", "--receive-buffer", buffer),
        *("--direction", direction, *EXACT),
    )[direction]
    after = udp_counters(lab, end)
    dropped = after["RcvbufErrors"] - before["RcvbufErrors"]
    assert said["sent"] == -(-300_000_000 // SIZE)
    assert said["sent"] == said["received"] + dropped
    assert said["lost"] == said["lost_in_socket"] == said["socket_drops"] == dropped
    # also those of the handshake: an OPEN, or an OPENED, of each channel
    read = after["InDatagrams"] - before["InDatagrams"]
    assert said["received"] <= read <= said["received"] + channels
    for receiver in receivers(said):
        assert receiver["receive_buffer_bytes"] == 2 * buffer
        assert sum(run[3] for run in receiver["loss_run_list"]) == sum(
            run[1] for run in receiver["loss_run_list"]
        )
    if buffer == SMALL:
        assert dropped > 0


@pytest.mark.thorough
@pytest.mark.parametrize("channels", [1, 8])
def test_long_packets_die_as_one_and_each_datagram_of_them_is_told(make_lab, channels):
    lab = make_lab()
    before = udp_counters(lab, "b")
    said = bulk(lab, "--channels", channels, "--bytes", "2g")["up"]
    after = udp_counters(lab, "b")
    assert {c["sender"]["way"] for c in said["channels"]} == {"gso"}
    assert {r["way"] for r in receivers(said)} == {"gro"}
    packets = after["RcvbufErrors"] - before["RcvbufErrors"]
    assert said["socket_drops"] == packets
    assert said["sent"] == said["received"] + said["lost"]
    assert said["lost"] == said["lost_in_socket"]
    # Each packet held 46, the most that fit into 64 KiB; a channel's last less.
    assert 46 * packets - 46 * channels < said["lost"] <= 46 * packets


@pytest.mark.timed
def test_what_a_program_on_the_path_drops_is_missed_number_by_number(
    make_lab, tmp_path
):
    burst, single = range(1000, 1010), 2000
    lab = make_lab()
    attach_dropper(lab, "a", "egress", tmp_path, [*burst, single])
    said = bulk(lab, "--bytes", "10m", "--rate", "100mbit", *EXACT, *ROOMY)["up"]
    assert said["sent"] == said["received"] + len(burst) + 1
    assert said["lost"] == len(burst) + 1
    assert said["lost_in_socket"] == said["socket_drops"] == 0
    (receiver,) = receivers(said)
    (first, length, burst_ns, _), (other, one, single_ns, _) = receiver["loss_run_list"]
    assert (length, one, other - first) == (len(burst), 1, single - burst[0])
    assert receiver["loss_run_lengths"] == [1, 0, 0, 1]
    # At 100 Mbit/s a datagram each 112 us; see the run behind its last number.
    due_ns = (other - first - (length - 1)) * 112_000
    assert abs(single_ns - burst_ns - due_ns) < 20_000_000


def test_what_the_senders_own_qdisc_drops_is_tcs_to_the_packet(make_lab):
    lab = make_lab(
        qdisc="tbf", rate_bps=100_000_000, burst_bytes=20_000, queue_bytes=30_000
    )
    before = tc_count(lab, "a")
    # Its queue is shorter than the send buffer, so nothing holds the sender back.
    said = bulk(lab, "--bytes", "20m", "--rate", "200mbit", *EXACT, *ROOMY)["up"]
    dropped = (tc_count(lab, "a") - before).drops
    assert dropped > 1000
    assert said["sent"] == said["received"] + dropped
    assert said["lost"] == dropped
    assert said["lost_in_socket"] == said["socket_drops"] == 0


def test_both_directions_lose_in_the_same_two_places(make_lab):
    lab = make_lab()
    before = {end: udp_counters(lab, end) for end in "ab"}
    said = bulk(lab, "--direction", "both", "--channels", 2, "--bytes", "200m", *EXACT)
    for way, end in (("up", "b"), ("down", "a")):
        dropped = udp_counters(lab, end)["RcvbufErrors"] - before[end]["RcvbufErrors"]
        assert said[way]["sent"] == said[way]["received"] + dropped
        assert said[way]["lost_in_socket"] == dropped


@pytest.mark.parametrize("offloads", [True, False], ids=["offloads", "none"])
@pytest.mark.parametrize("way", ["auto", "gso"])
def test_datagrams_longer_than_the_mtu_cannot_be_cut_by_the_kernel(
    make_lab, way, offloads
):
    lab = make_lab(offloads=offloads)
    options = ("--size", 2000, "--bytes", "5m", "--rate", "200mbit", *ROOMY)
    with responder(lab) as port:
        status, said, stderr = run_client(lab, port, *options, "--send-way", way)
    if way == "gso":
        assert status == 1
        assert stderr.startswith("latprof-load: cannot send on channel 0 with ")
        assert stderr.count("\n") == 1
        assert said["up"]["sent"] == 0
        return
    assert status == 0, stderr
    assert said["up"]["channels"][0]["sender"]["way"] == "sendmmsg"
    assert said["up"]["sent"] == said["up"]["received"] == 2500


@pytest.mark.timed
@pytest.mark.parametrize("way", ["sendmmsg", "gso"])
@pytest.mark.parametrize("channels", [1, 4])
def test_datagrams_pass_a_shaper_as_fast_as_its_rate_and_iperf3_say(
    make_lab, channels, way
):
    lab = shaped_lab(make_lab)
    said = bulk(lab, "--channels", channels, "--duration", 3, "--send-way", way)["up"]
    (packet_bytes,) = datagram_packets(SIZE, 1500, False)
    due_bps = RATE_BPS * SIZE / packet_bytes
    assert said["received_bps"] == pytest.approx(due_bps, rel=0.02)
    theirs = run_iperf3(lab, *f"-u -b 0 -l {SIZE} -t 3 -P {channels}".split())["sum"]
    iperf3_bps = theirs["bits_per_second"] * (1 - theirs["lost_percent"] / 100)
    assert 0.95 < said["received_bps"] / iperf3_bps < 1.05


@pytest.mark.timed
def test_a_shaper_loses_as_much_of_it_as_of_iperf3s_datagrams(make_lab):
    """A quarter above the rate, before a queue that holds less than a send buffer."""
    shaper = {"qdisc": "tbf", "rate_bps": RATE_BPS, "burst_bytes": 200_000}
    lab = make_lab(**shaper, queue_bytes=60_000)
    (packet_bytes,) = datagram_packets(SIZE, 1500, False)
    due_bps = RATE_BPS * SIZE / packet_bytes
    offered = f"{1.25 * due_bps:.0f}"
    said = bulk(lab, "--duration", 3, "--rate", offered, "--send-way", "sendmmsg")["up"]
    theirs = run_iperf3(lab, *f"-u -b {offered} -l {SIZE} -t 3".split())["sum"]
    # what the bucket and the queue hold at the end is 2% of what was sent in 3 s
    for lost in (said["lost"] / said["sent"], theirs["lost_percent"] / 100):
        assert 0.2 - 0.02 < lost < 0.2 + 0.005
    assert said["lost"] / said["sent"] == pytest.approx(
        theirs["lost_percent"] / 100, abs=0.005
    )


@pytest.mark.timed
@pytest.mark.parametrize("direction", ["up", "down"])
def test_streams_pass_a_shaper_as_fast_as_iperf3s(make_lab, direction):
    lab = shaped_lab(make_lab)
    said = bulk(
        lab,
        "--protocol",
        "tcp",
        "--channels",
        2,
        "--direction",
        direction,
        "--duration",
        3,
    )[direction]
    assert said["sent"] == said["received"]
    reverse = ["-R"] if direction == "down" else []
    theirs = run_iperf3(lab, "-t", 3, "-P", 2, *reverse)["sum_received"]
    assert 0.95 < said["received_bps"] / theirs["bits_per_second"] < 1.05


@pytest.mark.timed
def test_a_rate_below_the_links_is_kept_and_nothing_is_lost(make_lab):
    lab = shaped_lab(make_lab)
    said = bulk(
        lab, "--channels", 4, "--rate", "80mbit", "--duration", 2, *EXACT, *ROOMY
    )["up"]
    assert said["sent"] == pytest.approx(2 * 80_000_000 / 8 / SIZE, abs=4)
    # Not their order: a thread that changes its CPU may overtake itself.
    assert (said["lost"], said["duplicates"]) == (0, 0)
    assert said["received_bps"] == pytest.approx(80_000_000, rel=0.01)
    for receiver in receivers(said):
        # Full slots of 100 ms hold a quarter of the rate, to two datagrams and
        # what a busy machine delivers late.
        slots = receiver["slot_bytes"][1:-1]
        assert sorted(slots)[len(slots) // 2] == pytest.approx(250_000, rel=0.02)
