"""LogGP's parameters from trains over links and hosts whose figures are known."""

import json
from functools import partial

import numpy as np
import pytest
from known_links import ONE_WAY_NS, RATE
from known_trains import BYTE_NS, LOW_NOISE, SINGLE, Hosts, trains, truths
from latprof_analysis.fit.loggp import fit_loggp
from latprof_analysis.fit.wire import Packets
from scipy import stats
from simulated_links import BURST, Fifo, TokenBucket

SIZES = np.unique(np.geomspace(18, 65_000, 12).astype(int))
OF_A_RUN = np.array([18, 256, 1024, 4096, 16_384, 32_768, 65_507])
TRAIN = (16, 0.0)
QUICK = Hosts(gap_ns=0.0)


def loggp(turns, reply_mode="echo", *, calls=True, **options):
    columns, timed = turns
    told = (timed if calls else {}) | {"resamples": 200} | options
    return fit_loggp(*columns, reply_mode=reply_mode, **told)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rounds", "messages", "queue_ns", "sizes"),
    [
        (40, 5, 3e3, SIZES),
        (30, 8, 30e3, OF_A_RUN),
    ],
)
def test_intervals_hold_the_truth(rounds, messages, queue_ns, sizes):
    hosts = Hosts(queue_ns=queue_ns)
    found = [
        loggp(
            trains(seed, [SINGLE, (messages, 0.0)], sizes, hosts=hosts, rounds=rounds)
        )
        for seed in range(200)
    ]
    assert {one.model for one in found} == {"line"}
    for name, truth in truths(hosts).items():
        estimates = [getattr(one, name) for one in found]
        # 95% of 200: a standard error of 1.5%
        assert np.mean([e.low <= truth <= e.high for e in estimates]) >= 0.92, name


@pytest.mark.parametrize("reply", ["echo", 18])
def test_the_reply_cancels_so_no_factor_is_needed(reply):
    turns = trains(1, [SINGLE, TRAIN], SIZES, reply=reply)
    for told in ("echo", 18):  # right or wrong
        found = loggp(turns, told)
        assert found.bandwidth_bits_per_second.value == pytest.approx(RATE, rel=0.001)
        assert found.gap_ns.value == pytest.approx(3000, abs=300)


def test_replies_longer_than_messages_are_what_short_messages_wait_for():
    found = loggp(trains(1, [SINGLE, TRAIN], SIZES, reply=4000), 4000)
    assert found.bandwidth_bits_per_second.value == pytest.approx(RATE, rel=0.001)
    assert found.gap_ns.value == pytest.approx(3000 + (4000 - 18) * BYTE_NS, rel=0.01)
    assert found.missing["gap_ns"] == "the bytes of longer replies are in it"


def test_latency_knows_the_replys_bytes():
    for reply in ("echo", 18):
        found = loggp(trains(1, [SINGLE, TRAIN], SIZES, reply=reply), reply)
        assert found.latency_ns.value == pytest.approx(ONE_WAY_NS, abs=600)


def test_netgauges_own_least_squares_of_medians_finds_the_same_line():
    turns = trains(2, [SINGLE, TRAIN], SIZES)
    size, messages, _, time, _ = turns[0]
    gap = [
        np.median(time[(size == s) & (messages == 16)])
        - np.median(time[(size == s) & (messages == 1)])
        for s in SIZES
    ]
    line = stats.linregress(SIZES - 1, np.array(gap) / 15)
    found = loggp(turns)
    assert found.gap_per_byte_ns.value == pytest.approx(line.slope, rel=0.001)
    assert found.gap_ns.value == pytest.approx(line.intercept, abs=500)


def test_headers_are_in_the_byte_of_payload_and_not_in_the_bandwidth():
    tcp = Packets.tcp()
    size, messages, _, _, rounds = trains(3, [SINGLE, TRAIN], SIZES)[0]
    time = 2e6 + (messages + 1) * BYTE_NS * tcp.wire_bytes(size)
    columns = (size, messages, np.zeros_like(size), time, rounds), {}
    found = loggp(columns, packets=tcp)
    assert found.bandwidth_bits_per_second.value == pytest.approx(RATE)
    assert found.gap_per_byte_ns.value == pytest.approx(BYTE_NS * 1500 / 1448)
    assert found.goodput_bits_per_second.value == pytest.approx(RATE * 1448 / 1500)


@pytest.mark.parametrize("reply", ["echo", 18])
@pytest.mark.parametrize("known", [Packets.tcp(), None], ids=["lab", "elsewhere"])
def test_latency_holds_the_headers_whether_packets_are_known_or_not(known, reply):
    """Without hosts: a wire alone, so that L is what a message of a byte takes."""
    tcp = Packets.tcp()
    size, messages, _, _, rounds = trains(3, [SINGLE, TRAIN], SIZES)[0]
    there, back = (tcp.wire_bytes(size if r == "echo" else r) for r in ("echo", reply))
    time = 2e6 + BYTE_NS * (there + back + (messages - 1) * np.maximum(there, back))
    columns = (size, messages, np.zeros_like(size), time, rounds), {}
    found = loggp(columns, reply, packets=known)
    one_byte_ns = 1e6 + BYTE_NS * tcp.wire_bytes(1)
    per_byte_ns = found.gap_per_byte_ns.value
    # G has headers in it, so that 17 of its bytes are not quite 17 on the wire
    assert found.latency_ns.value == pytest.approx(one_byte_ns, abs=17 * 0.04 * BYTE_NS)
    for one in found.sizes:
        replied = one.size_bytes if reply == "echo" else reply
        prtt_ns = 2 * found.latency_ns.value
        prtt_ns += (one.size_bytes - 1 + replied - 1) * per_byte_ns
        # to the headers of a packet each way, which G has evenly in its bytes
        assert one.single_ns.value == pytest.approx(prtt_ns, abs=2 * 52 * BYTE_NS)


def test_hosts_slower_than_the_link_with_short_messages_do_not_bend_the_slope():
    busy = Hosts(send_ns=40e3, gap_ns=0.0)
    found = loggp(trains(1, [SINGLE, TRAIN], OF_A_RUN, hosts=busy))
    assert found.gap_per_byte_ns.value == pytest.approx(BYTE_NS, rel=0.001)
    # the responder receives and sends, longer than the link takes for 18 bytes
    assert found.gap_ns.value == pytest.approx(40.7e3 - 17 * BYTE_NS, rel=0.02)


def test_what_each_size_took_is_told():
    kinds = [SINGLE, TRAIN, (16, 2e5), (16, 6e6)]
    found = loggp(trains(1, kinds, SIZES))
    assert (found.messages, found.spacing_ns, found.rounds) == (16, 6e6, 40)
    assert [one.size_bytes for one in found.sizes] == SIZES.tolist()
    for one in found.sizes:
        each = 3000 + BYTE_NS * (one.size_bytes - 1)
        assert one.gap_ns.value == pytest.approx(each, abs=400)
        assert one.train_ns.value == pytest.approx(
            one.single_ns.value + 15 * one.gap_ns.value
        )
        # of 16 messages one every 6 ms none waits for another
        spaced = one.spaced_ns.value - one.single_ns.value
        assert spaced / 15 == pytest.approx(6e6, abs=400)
        assert one.send_ns.value == pytest.approx(1000 + 200 * LOW_NOISE, abs=40)
    stored = found.as_dict()
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored


def test_calls_that_were_not_timed_leave_overhead_in_the_latency():
    hosts = Hosts()
    found = loggp(trains(1, [SINGLE, TRAIN], SIZES, hosts=hosts), calls=False)
    assert found.send_overhead_ns is None
    assert found.receive_overhead_ns is None
    assert found.missing["latency_ns"] == (
        "o_s is in it, which nothing tells; o_r is in it, which nothing tells"
    )
    held = ONE_WAY_NS + hosts.send_ns + hosts.receive_ns
    assert found.latency_ns.value == pytest.approx(held, abs=600)


def test_all_sizes_beyond_a_token_bucket_tell_its_rate():
    sizes = np.linspace(34_000, 130_000, 10).astype(int)
    found = loggp(trains(3, [SINGLE, TRAIN], sizes, link=TokenBucket, hosts=QUICK))
    assert found.model == "line"
    assert found.bandwidth_bits_per_second.value == pytest.approx(RATE, rel=0.001)


def test_a_token_bucket_shows_with_its_rate_and_its_bytes():
    sizes = np.array([18, 1024, 4096, 8192, 16_384, 40_000, 65_507])
    found = loggp(trains(3, [SINGLE, TRAIN], sizes, link=TokenBucket, hosts=QUICK))
    assert found.model == "bucket"
    assert "token bucket" in found.reason
    assert found.bandwidth_bits_per_second.value == pytest.approx(RATE, rel=0.002)
    assert found.bucket_bytes.value == pytest.approx(BURST, rel=0.01)
    assert found.gap_ns is None
    assert found.latency_ns.value == pytest.approx(0, abs=600)


@pytest.mark.parametrize(
    "sizes", [SIZES[SIZES < BURST], np.linspace(9000, 32_000, 10).astype(int)]
)
def test_below_a_token_buckets_burst_there_is_no_bandwidth(sizes):
    # Of trains from a fifteenth of the burst on the gap is a line again, (16 s - B) /
    # 15: of 94 Mbit/s.
    found = loggp(trains(3, [SINGLE, TRAIN], sizes, link=TokenBucket, hosts=QUICK))
    assert found.model == "bucket"
    assert found.bandwidth_bits_per_second is None
    assert found.gap_per_byte_ns is None
    assert "no two sizes are beyond it" in found.missing["gap_per_byte_ns"]


def test_what_only_hosts_take_is_no_bandwidth():
    link = partial(Fifo, rate=20e9, delay_ns=5e3)
    hosts = Hosts(queue_ns=200.0)
    found = loggp(trains(1, [SINGLE, TRAIN], SIZES, link=link, hosts=hosts))
    assert found.gap_ns.value == pytest.approx(3000, rel=0.02)
    assert found.gap_per_byte_ns.value == pytest.approx(0.4, rel=0.02)
    assert found.bandwidth_bits_per_second is None
    assert "hosts" in found.missing["bandwidth_bits_per_second"]


def test_gaps_that_are_no_line_are_refused():
    columns, timed = trains(1, [SINGLE, TRAIN], SIZES)
    size, messages, spacing, time, rounds = columns
    time = time + (messages - 1) * np.where(size == SIZES[-2], 4e5, 0)
    found = loggp(((size, messages, spacing, time, rounds), timed))
    assert found.model == "none"
    assert "no line of the size" in found.reason
    assert found.gap_per_byte_ns is None


@pytest.mark.parametrize("step_ns", [1e3, 1e5])
def test_a_coarse_clock_widens_the_intervals(step_ns):
    held = {name: [] for name in ("latency_ns", "gap_ns", "gap_per_byte_ns")}
    hosts = Hosts()
    for seed in range(60):
        columns, _ = trains(seed, [SINGLE, TRAIN], SIZES, hosts=hosts, rounds=30)
        size, messages, spacing, time, rounds = columns
        time = time - time % step_ns
        found = loggp(((size, messages, spacing, time, rounds), {}))
        truth = truths(hosts)
        truth["latency_ns"] += sum(
            truth[f"{call}_overhead_ns"] for call in ("send", "receive")
        )
        for name, each in held.items():
            estimate = getattr(found, name)
            each.append(estimate.low <= truth[name] <= estimate.high)
    # errors of one clock are alike in all runs of the same link
    assert {name: np.mean(each) >= 0.9 for name, each in held.items()} == dict.fromkeys(
        held, True
    )


def test_without_trains_nothing_is_told():
    found = loggp(trains(1, [SINGLE], SIZES))
    assert found.model == "none"
    assert "as many trains each, got 0" in found.reason
    assert found.as_dict()["gap_ns"] is None
    assert found.missing["latency_ns"] == found.reason


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([64], [1], [0], [1, 2], [0]), "must have equal length"),
        (([64], [0], [0], [1], [0]), "messages must be 1 or more, got 0"),
        (([64], [2], [-5], [1], [0]), "spacing_ns must be 0 or more, got -5"),
        (([64], [2], [0], [-1], [0]), "train_ns must be 1 or more, got -1"),
        (([0], [2], [0], [1], [0]), "size_bytes must be 1 or more, got 0"),
        (([np.inf], [2], [0], [1], [0]), "size_bytes must be finite"),
    ],
)
def test_bad_trains_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        fit_loggp(*columns, reply_mode="echo")


@pytest.mark.parametrize(
    ("send_ns", "message"),
    [([1.0, 2.0], "send_ns must have shape"), ([-3.0], "send_ns must be 0 or more")],
)
def test_bad_call_times_are_refused(send_ns, message):
    with pytest.raises(ValueError, match=message):
        fit_loggp([64], [1], [0], [9], [0], reply_mode="echo", send_ns=send_ns)
