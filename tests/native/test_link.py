"""latprof-link against arithmetic and against its own counters.

Lower bounds are physics: nothing may arrive early. Upper bounds are of those that
arrive first, since a loaded machine delays many packets by milliseconds.
"""

import os
import statistics
import time

import pytest
from stamped import (
    CLOCK_NS,
    LATE_NS,
    UDP_IPV4_HEADER_BYTES,
    Flow,
    lateness_ns,
    wait_for_counters,
)

pytestmark = [
    pytest.mark.timed,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
]


def test_back_to_back_datagrams_are_spaced_by_their_serialisation(link):
    payload_bytes, count, rate_bps = 1000, 60, 10_000_000
    lab = link(rate_bps=rate_bps)
    packet_ns = (payload_bytes + UDP_IPV4_HEADER_BYTES) * 8 * 10**9 / rate_bps

    with Flow(lab) as flow:
        flow.wait_for_stamps()
        first_ns = flow.send(0, payload_bytes)
        for number in range(1, count):
            flow.send(number, payload_bytes)
        arrivals = flow.receive_all(count)

    assert [arrival.number for arrival in arrivals] == list(range(count))
    late_ns = [
        arrival.t_ns - first_ns - (arrival.number + 1) * packet_ns
        for arrival in arrivals
    ]
    assert min(late_ns) >= -CLOCK_NS  # no bit is faster than the rate
    assert statistics.median(late_ns) <= min(late_ns) + LATE_NS
    # The train's end is as late as its beginning: no drift, the rate is exact.
    halves = late_ns[: count // 2], late_ns[count // 2 :]
    drift_ns = statistics.median(halves[1]) - statistics.median(halves[0])
    assert abs(drift_ns) < 0.01 * count / 2 * packet_ns


@pytest.mark.parametrize("delay_ns", [0, 100_000, 5_000_000])
def test_one_way_delay_is_never_short_and_barely_long(link, delay_ns):
    lab = link(delay_ns=delay_ns)
    late_ns = []
    with Flow(lab) as flow:
        flow.wait_for_stamps()
        for number in range(100):
            sent_ns = flow.send(number, 100)
            late_ns.append(flow.receive().t_ns - sent_ns - delay_ns)
    assert min(late_ns) >= -CLOCK_NS
    assert lateness_ns(late_ns) <= LATE_NS


def test_delay_follows_serialisation(link):
    rate_bps, delay_ns, count = 2_000_000, 1_000_000, 20
    lab = link(rate_bps=rate_bps, delay_ns=delay_ns)
    with Flow(lab) as flow:
        flow.wait_for_stamps()
        for payload_bytes in (8, 500, 1172):
            bits = (payload_bytes + UDP_IPV4_HEADER_BYTES) * 8
            known_ns = delay_ns + bits * 10**9 / rate_bps
            late_ns = []
            for number in range(count):
                sent_ns = flow.send(number, payload_bytes)
                late_ns.append(flow.receive().t_ns - sent_ns - known_ns)
            assert min(late_ns) >= -CLOCK_NS
            assert lateness_ns(late_ns) <= LATE_NS


def test_each_direction_has_its_own_options(link):
    lab = link("--delay-ab=2000000", "--delay-ba=6000000")
    for sender, delay_ns in (("a", 2_000_000), ("b", 6_000_000)):
        with Flow(lab, sender) as flow:
            flow.wait_for_stamps()
            late_ns = []
            for number in range(20):
                sent_ns = flow.send(number, 8)
                late_ns.append(flow.receive().t_ns - sent_ns - delay_ns)
            assert min(late_ns) >= -CLOCK_NS
            assert lateness_ns(late_ns) <= LATE_NS


@pytest.mark.parametrize("sender", ["a", "b"])
def test_exactly_the_listed_packets_with_payload_are_dropped(link, sender):
    lab = link(f"--drop-{sender}=9,3,4,30")
    with Flow(lab, sender) as flow:
        for number in range(1, 31):
            flow.send_empty()  # carries no payload, so it does not count
            flow.send(number, 100)
        arrivals = flow.receive_all(26)
    counters = wait_for_counters(lab, "ab" if sender == "a" else "ba", 60)
    expected = [number for number in range(1, 31) if number not in (3, 4, 9, 30)]
    assert [arrival.number for arrival in arrivals] == expected
    assert counters["dropped_listed"] == 4
    assert counters["packets_out"] == 56


def test_listed_drops_count_ipv6_payload(link):
    lab = link("--drop-a=2", mtu=1500, ipv6=True)
    with Flow(lab) as flow:
        for number in range(1, 4):
            flow.send(number, 100)
        assert [arrival.number for arrival in flow.receive_all(2)] == [1, 3]
    assert lab.counters()["emulator"]["ab"]["dropped_listed"] == 1


def test_a_full_queue_drops_the_tail_and_counts_it(link):
    payload_bytes, count, rate_bps = 972, 100, 1_000_000  # 1000 bytes, 8 ms each
    lab = link(rate_bps=rate_bps, queue_bytes=10_500)
    with Flow(lab) as flow:
        begin_ns = time.monotonic_ns()
        for number in range(count):
            flow.send(number, payload_bytes)
        # Until the emulator has seen the last, packets may depart and make room.
        counters = wait_for_counters(lab, "ab", count)
        elapsed_ns = time.monotonic_ns() - begin_ns
        arrivals = flow.receive_all(counters["packets_out"])
    assert [arrival.number for arrival in arrivals][:10] == list(range(10))
    assert 10 <= len(arrivals) <= 10 + elapsed_ns // 8_000_000
    assert counters["packets_out"] + counters["dropped_queue"] == count
    assert counters["max_queue_bytes"] == 10_000
    assert counters["bytes_in"] == count * 1000


def test_listed_packets_are_overtaken(link):
    lab = link("--reorder-ab=3,7", "--reorder-delay-ab=200000000")
    with Flow(lab) as flow:
        for number in range(1, 11):
            flow.send(number, 8)
        arrivals = flow.receive_all(10)
    order = [arrival.number for arrival in arrivals]
    assert order == [1, 2, 4, 5, 6, 8, 9, 10, 3, 7]
    assert lab.counters()["emulator"]["ab"]["reordered"] == 2


def test_a_flood_leaves_every_packet_in_a_counter(link):
    count, payload_bytes = 50_000, 1000
    lab = link(rate_bps=100_000_000, loss=0.01, delay_ns=1_000_000)
    with Flow(lab) as flow:
        for number in range(count):
            flow.send(number, payload_bytes)
        sent = lab.counters()["a"]
        kernel_dropped = sent["interface"]["tx_dropped"]
        kernel_dropped += sum(qdisc["dropped_packets"] for qdisc in sent["qdiscs"])
        counters = wait_for_counters(lab, "ab", count - kernel_dropped)
        received = len(flow.receive_all(counters["packets_out"]))
    dropped = counters["dropped_queue"] + counters["dropped_loss"]
    assert received + dropped + counters["dropped_write"] + kernel_dropped == count
