"""Between which rates a link's own lies, and where TCP itself may be the slow one."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import simulated_links
from known_links import ONE_WAY_NS, RATE, TCP, exponential, link
from latprof_analysis.fit.by_stage import fit_stages
from latprof_analysis.fit.caveats import slowed_by_losses, slowed_by_sender
from latprof_analysis.fit.line import fit_one_way, fit_round_trips
from latprof_analysis.fit.wire import Packets
from latprof_analysis.study import run_figures
from latprof_analysis.study.run_figures import round_trip_fit
from latprof_analysis.study.totals import MessageTotals
from message_rows import MessageRows
from simulated_links import Fifo, TokenBucket, ping_pong, trips_of

CUT = {"tcp": TCP}
RUN = {"workload": {"plan": {"reply_bytes": None}}, "lab": None}
PACE = 126e6  # what BBR gave on a real link of 500 Mbit/s and 10 ms


def with_host_work(byte_ns, rate):
    """Round trips to which hosts add so much for each byte."""
    size, rtt, rounds = link(1, rate=rate)
    crossing = 2 * TCP.wire_bytes(size)
    return size, rtt + byte_ns * crossing, rounds


@pytest.mark.parametrize("rate", [20e6, 100e6, 1e9])
@pytest.mark.parametrize("byte_ns", [0.0, 0.5, 1.6])
def test_the_links_own_rate_is_in_the_range_whatever_hosts_do(rate, byte_ns):
    fit = fit_round_trips(
        *with_host_work(byte_ns, rate), reply_mode="echo", packets=TCP, resamples=200
    )
    if fit.model != "line":
        assert fit.link_rate_range is None
        return
    within = fit.link_rate_range
    assert within.low <= rate <= within.high
    # said where it is more than a percent, and not where it is less
    share = 1.7 / fit.slope_ns_per_byte.value * 2 / TCP.payload_share
    assert bool(within.reason) == (share > 0.01)
    assert any("the link's own rate is" in c for c in fit.caveats) == (share > 0.01)


@pytest.mark.parametrize("seed", range(5))
def test_headers_too_small_to_be_told_are_in_the_range(seed):
    # Short messages found the hosts asleep and are 2 us late, as measured; so
    # fragments' headers of 20 bytes, 1.6 us each, are not told from none.
    cut = Packets.udp(mtu_bytes=1500)
    rng = np.random.default_rng(seed)
    sizes = np.array([64.0, 256, 512, 1024, 1400, 2000, 2800, 4096, 8192, 16384, 65000])
    rounds, nth = np.divmod(np.arange(100 * sizes.size), sizes.size)
    size = sizes[nth]
    asleep_ns = 2000 * (cut.packets(size) == 1)
    delay = (
        1e6 + 80 * cut.wire_bytes(size) + asleep_ns + rng.exponential(1e4, size.size)
    )
    fit = fit_one_way(
        size, delay, rounds, packets=replace(cut, overhead_bytes=0), resamples=200
    )
    assert fit.packet_cost.per_packet_ns.low <= 0
    assert fit.bandwidth_bits_per_second.value < 99e6
    within = fit.link_rate_range
    assert within.low <= 100e6 <= within.high
    assert "us a packet may be beyond its bytes" in within.reason
    assert any("us a packet may be" in caveat for caveat in fit.caveats)


@pytest.mark.parametrize("cost_ns", [0, 2e3, 5e3, 20e3])
def test_where_packets_are_not_known_the_link_has_no_upper_end(cost_ns):
    size, rtt, rounds = link(1, reply_mode=18, noise=exponential)
    rtt = rtt + cost_ns * TCP.packets(size)
    fit = fit_one_way(size, rtt, rounds)
    # headers are 3.6% of the link's bytes, and packets take more or less
    assert fit.bandwidth_bits_per_second.high < 0.97 * RATE
    within = fit.link_rate_range
    assert within.low < RATE
    assert within.high is None
    assert not fit.packets_told
    (told,) = [c for c in fit.caveats if "the link's own rate is" in c]
    assert "how messages are cut into packets is not known" in told
    assert "Mbit/s or more" in told
    # and with it, or of messages of one packet, there is one: 20 us were 20 percent
    cut = fit_one_way(size, rtt, rounds, packets=TCP).link_rate_range
    assert cut.low <= 1.001 * RATE  # of 95 of a hundred it is below
    assert cut.high >= RATE
    short = link(1, 18, exponential, sizes=np.arange(18, 1208, 70))
    alone = fit_one_way(*short)
    assert alone.packets_told
    assert alone.link_rate_range.low <= RATE <= alone.link_rate_range.high


def test_where_all_may_be_the_hosts_work_the_range_has_no_end():
    fit = fit_round_trips(*link(2, rate=6e9), reply_mode="echo", packets=TCP)
    assert fit.host_limited is False
    assert fit.link_rate_range.high is None
    assert any("or more" in caveat for caveat in fit.caveats)


def test_what_hosts_hide_has_no_range():
    fit = fit_round_trips(*link(2, rate=40e9), reply_mode="echo", packets=TCP)
    assert fit.bandwidth_bits_per_second is None
    assert fit.link_rate_range is None


@pytest.mark.parametrize(
    ("messages", "resent", "slowed"),
    [(100, 3, False), (100, 4, True), (0, 0, False), (10_000, 300, False)],
)
def test_tcp_is_slowed_by_losses_of_over_3_percent_of_messages(
    messages, resent, slowed
):
    assert bool(slowed_by_losses(messages, resent)) == slowed


def paced(rate=PACE, seed=1):
    """Messages that TCP hands over at a pace below what the link carries.

    Their last packet never waits: it takes as long as a packet by itself.
    """
    messages = ping_pong(seed, Fifo(rate), Fifo(rate))
    wire = TCP.wire_bytes(messages["size_bytes"].to_numpy())
    own = np.minimum(wire, 1500) * 8e9 / 500e6 + ONE_WAY_NS
    packets = TCP.packets(messages["size_bytes"].to_numpy()).astype(int)
    arrive = messages["arrive_ns"]
    return messages.assign(
        queue_ns=(arrive - own).astype("int64"),
        xmit_ns=(arrive - own).astype("int64"),
        packets=packets,
    )


def queued():
    """The same round trips over a link of that rate, before which packets wait."""
    return ping_pong(1, Fifo(PACE), Fifo(PACE))


def test_a_pace_is_no_rate_of_the_link_by_round_trips_nor_by_one_way():
    messages = paced()
    stages = fit_stages(messages, reply_mode="echo", packets=CUT)
    found = {(stage.direction, stage.quantity): stage.fit for stage in stages}
    for key in (("request", "one_way"), ("round_trip", "response_time")):
        assert found[key].bandwidth_bits_per_second is None
        assert "did not wait behind others" in found[key].reason


def test_a_message_that_fits_the_first_window_is_not_held_for_paced():
    assert slowed_by_sender(packets=9, slope_ns=80, waited_ns=0) is None
    assert slowed_by_sender(packets=46, slope_ns=80, waited_ns=0)
    assert slowed_by_sender(packets=46, slope_ns=80, waited_ns=4500 * 80) is None
    assert slowed_by_sender(packets=46, slope_ns=80, waited_ns=np.inf) is None


def rows_of(messages):
    """The rows as totals take them in."""
    frame = messages.astype(object).where(messages.notna(), None)
    stages = {
        "transit_ns": messages["arrive_ns"] - messages["xmit_ns"],
        "qdisc_ns": messages["xmit_ns"] - messages["queue_ns"],
        "end_to_end_ns": messages["read_ns"] - messages["send_ns"],
    }
    return MessageRows(frame.assign(**stages).to_dict("records"))


@pytest.mark.parametrize(("make", "told"), [(paced, False), (queued, True)])
def test_a_runs_own_fit_is_refused_where_its_messages_were_paced(make, told):
    messages = make()
    totals = MessageTotals()
    totals.add(rows_of(messages))
    trips = messages[messages["kind"] == "request"]
    size = trips["size_bytes"].to_numpy(float)
    rounds = pd.Series(size).groupby(size).cumcount().to_numpy(float)
    rtt = 2 * ONE_WAY_NS + 2 * TCP.wire_bytes(size) * 8e9 / PACE + rounds
    fit = round_trip_fit(size, rtt, rounds, "tcp", RUN, totals)
    assert (fit["bandwidth_bits_per_second"] is not None) == told
    assert ("did not wait behind others" in fit["reason"]) != told
    # UDP has no pace of its own
    udp = round_trip_fit(size, rtt, rounds, "udp", RUN, totals)
    assert udp["bandwidth_bits_per_second"] is not None


def datagrams(monkeypatch, copy_ns, link_of):
    """Figures of a run of datagrams, and what the fit of its round trips says."""
    monkeypatch.setattr(simulated_links, "COPY_NS", copy_ns)
    messages = ping_pong(1, link_of(), link_of()).assign(protocol="udp")
    totals = MessageTotals(most=0)
    totals.add(rows_of(messages))
    trips = [np.asarray(column, float) for column in trips_of(messages)]
    monkeypatch.setattr(run_figures, "packets_of", lambda lab, protocol: TCP)
    alone = fit_round_trips(*trips, reply_mode="echo", packets=TCP)
    return round_trip_fit(*trips, "udp", RUN, totals), alone, messages


def test_hosts_that_copy_slower_than_idle_ones_are_in_the_range(monkeypatch):
    rate = 100e6
    found, alone, messages = datagrams(monkeypatch, 3.0, Fifo)
    assert alone.link_rate_range.high < rate
    assert found["link_rate_range"]["low"] <= rate <= found["link_rate_range"]["high"]
    # 3 ns of 83 a byte, and a tenth more since medians of stages need not add up
    assert "up to 4.0%" in found["link_rate_range"]["reason"]
    assert found["bandwidth_bits_per_second"]["value"] == pytest.approx(
        alone.bandwidth_bits_per_second.value
    )
    # and so of each stage that holds the hosts' work, of one way and of both
    cut = {"udp": TCP}
    for stage in fit_stages(messages, reply_mode="echo", packets=cut, resamples=200):
        within = stage.fit.link_rate_range
        if within:
            assert within.low <= rate * 1.001, stage.quantity
            assert rate * 0.999 <= within.high, stage.quantity


def test_a_slope_that_is_mostly_the_hosts_tells_no_bandwidth(monkeypatch):
    # A bucket lets all messages by at once: what is left is the hosts' copying.
    found, alone, _ = datagrams(
        monkeypatch, 1.5, lambda: TokenBucket(burst_bytes=1e9, delay_ns=1e6)
    )
    assert alone.bandwidth_bits_per_second is not None
    assert found["bandwidth_bits_per_second"] is None
    assert found["link_rate_range"] is None
    assert found["host_limited"]
    assert found["slope_ns_per_byte"] is not None
    assert "no bandwidth of the link: hosts and link" in found["caveats"][-1]


def test_packets_that_crossed_before_the_last_was_handed_over_lower_the_range():
    messages = ping_pong(1, Fifo(), Fifo())
    wire = TCP.wire_bytes(messages["size_bytes"].to_numpy())
    # a tenth of the link's time for a message passes before its last packet leaves
    later = (0.1 * wire * 80).astype("int64")
    messages = messages.assign(
        protocol="udp",
        xmit_ns=messages["xmit_ns"] + later,
        packets=1,
    )
    stages = fit_stages(messages, reply_mode="echo", packets={"udp": TCP})
    found = {(stage.direction, stage.quantity): stage.fit for stage in stages}
    fit = found["request", "transit"]
    assert fit.bandwidth_bits_per_second.low > 105e6
    within = fit.link_rate_range
    assert within.low <= 100e6 <= within.high
    assert "first packets crossed" in within.reason
    assert any("first packets crossed" in caveat for caveat in fit.caveats)
