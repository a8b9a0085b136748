"""Fits by stage and direction over simulated links: right within 1%, or refused."""

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest
import simulated_links
from known_links import ONE_WAY_NS, RATE, TCP
from latprof_analysis.fit.by_stage import QUANTITIES, fit_stages, link_rates
from latprof_analysis.fit.line import fit_one_way, fit_round_trips
from latprof_analysis.fit.rivals import compare_estimators, fit_means_of_five
from latprof_analysis.study.setup import reply_mode_of
from scipy import stats
from simulated_links import BURST, COPY_NS, LINKS, Fifo, ping_pong, trips_of

GOODPUT = RATE * 1448 / 1500
CUT = {"tcp": TCP}


@cache
def exchange(name, seed=1):
    return LINKS[name][1](seed)


@cache
def fits(name, seed=1):
    reply_mode, _ = LINKS[name]
    found = fit_stages(exchange(name, seed), reply_mode=reply_mode, packets=CUT)
    return {(f.direction, f.quantity): f for f in found}


def rates(found):
    """Each bandwidth that is told: of lines, and of a hinge's long side."""
    for key, stage in found.items():
        if stage.fit.bandwidth_bits_per_second:
            yield key, stage.fit, stage.fit.bandwidth_bits_per_second.value
        hinge = stage.fit.hinge
        if hinge and hinge.above.bandwidth_bits_per_second:
            yield key, stage.fit, hinge.above.bandwidth_bits_per_second.value


@pytest.mark.parametrize("name", LINKS)
def test_each_answer_is_within_1_percent_or_is_refused(name):
    for key, fit, rate in rates(fits(name)):
        # A direction without a link has the hosts' speed, and says so.
        if fit.host_limited:
            continue
        # No answer, and no rate: how full a bucket is after the other has waited.
        if name == "buckets, echo, no pause" and key[0] == "reply":
            assert fit.model == "hinge"
            continue
        assert rate == pytest.approx(RATE, rel=0.01), key


@pytest.mark.parametrize("name", ["serial, echo", "serial, short reply"])
def test_a_serialising_link_is_told_by_round_trip_and_by_each_direction(name):
    found = fits(name)
    assert found["round_trip", "response_time"].fit.model == "line"
    way = found["request", "one_way"].fit
    assert way.model == "line"
    assert (way.factor, way.reply_mode) == (1, 0)
    # The host's 4 us, a tenth of the queueing's 3 us, and the ready stamp's 1 us.
    floor_s = (ONE_WAY_NS + 4e3 / 2 + 1e3) / 1e9
    assert way.fixed_delay_seconds.value == pytest.approx(floor_s, abs=2e-6)


@pytest.mark.parametrize(("resent", "told"), [(0.01, True), (0.1, False)])
def test_where_tcp_slows_down_after_losses_there_is_no_rate(resent, told):
    messages = exchange("serial, echo").copy()
    again = np.random.default_rng(1).random(len(messages)) < resent
    messages["retransmits"] = again.astype(int)
    stages = fit_stages(messages, reply_mode="echo", packets=CUT)
    found = {(stage.direction, stage.quantity): stage.fit for stage in stages}
    for key in (("request", "one_way"), ("round_trip", "response_time")):
        fit = found[key]
        assert (fit.bandwidth_bits_per_second is not None) == told
        assert ("were sent again" in fit.reason) != told
    # What hosts take for a byte is no matter of the link's losses.
    own = found["request", "receive_stack"]
    assert "were sent again" not in own.reason


def test_the_factor_follows_the_recorded_reply_mode_and_is_told():
    echo = fits("serial, echo")["round_trip", "response_time"]
    short = fits("serial, short reply")["round_trip", "response_time"]
    assert (echo.fit.factor, short.fit.factor) == (2, 1)
    assert "each byte crosses twice" in echo.factor_reason
    assert "replies of 18 bytes" in short.factor_reason
    assert (reply_mode_of(None), reply_mode_of(18)) == ("echo", 18)


def test_without_a_recorded_reply_mode_there_is_no_bandwidth_of_round_trips():
    found = fit_stages(
        exchange("serial, echo"), reply_mode=None, quantities=["one_way"]
    )
    trip = found[-1]
    assert trip.quantity == "response_time"
    assert trip.fit.model == "none"
    assert trip.fit.bandwidth_bits_per_second is None
    assert "reply mode was not recorded" in trip.fit.reason
    # The slope is what it is: two crossings of 80 ns a byte, headers included.
    assert trip.fit.slope_ns_per_byte.value == pytest.approx(
        2 * 8e9 / GOODPUT, rel=0.01
    )
    assert found[0].fit.bandwidth_bits_per_second.value == pytest.approx(
        GOODPUT, rel=0.01
    )


def test_replies_that_are_not_as_recorded_take_the_factor_away():
    found = fit_stages(exchange("serial, short reply"), reply_mode="echo")
    trip = found[-1].fit
    assert trip.model == "none"
    assert "replies are not as recorded, a full echo" in trip.reason


@pytest.mark.parametrize(
    "name", ["buckets, echo, no pause", "one bucket, echo, no pause"]
)
def test_a_bucket_without_pauses_is_not_told_as_twice_its_rate(name):
    size, rtt, index = trips_of(exchange(name))
    blind = fit_round_trips(size, rtt, index, reply_mode="echo", packets=TCP)
    # A good line, and twice the rate: but short messages would be early, and those
    # behind a long one late.
    assert blind.unexplained_share < 0.002
    assert blind.model == "none"
    trip = fits(name)["round_trip", "response_time"].fit
    assert trip.model == "none"
    assert trip.bandwidth_bits_per_second is None
    against = " ".join((trip.reason, *trip.caveats))
    assert "the factor 2 of an echo does not hold" in against


def test_a_hinge_of_one_direction_has_no_rate_with_the_factor_of_two():
    found = fits("one bucket, echo, pause")
    trip = found["round_trip", "response_time"].fit
    assert trip.model == "hinge"
    assert trip.hinge.above.bandwidth_bits_per_second is None
    assert "factor 2 of an echo does not hold" in trip.caveats[-1]
    way = found["request", "one_way"].fit.hinge
    assert way.above.bandwidth_bits_per_second.value == pytest.approx(RATE, rel=0.01)


@pytest.mark.parametrize("direction", ["request", "reply"])
def test_after_pauses_the_bend_is_at_the_buckets_burst(direction):
    hinge = fits("buckets, echo, pause")[direction, "one_way"].fit.hinge
    payload = BURST - np.ceil(BURST / 1500) * 52
    assert hinge.knot_bytes.value == pytest.approx(payload, rel=0.01)
    assert hinge.above.bandwidth_bits_per_second.value == pytest.approx(RATE, rel=0.01)


def test_a_cut_through_echo_has_no_round_trips_of_messages_and_says_why():
    found = fits("serial, cut-through")
    trip = found["round_trip", "response_time"]
    assert trip.fit.model == "none"
    assert set(trip.left_out) == {
        "the reply came in several messages",
        "the reply began before the request was read",
    }
    way = found["request", "one_way"].fit.bandwidth_bits_per_second
    assert way.value == pytest.approx(RATE, rel=0.01)
    size, rtt, index = trips_of(exchange("serial, cut-through"))
    blind = fit_round_trips(size, rtt, index, reply_mode="echo", packets=TCP)
    assert blind.model == "hinge"  # at one segment, where the overlap begins
    assert blind.hinge.knot_bytes.value == pytest.approx(TCP.mss_bytes, rel=0.1)


def naive(name):
    """1 / slope of means, in Mbit/s: without a factor, as is often written."""
    size, rtt, _ = trips_of(exchange(name))
    found = fit_means_of_five(size, rtt, outliers="kept")
    return found.bandwidth_as_written.value / 1e6, found.fixed_delay_seconds.value


def test_least_squares_names_five_rates_for_one_link():
    # Measured on real links of 100 Mbit/s: 46, 93, 94, 95.8 and 110 to 222.
    assert naive("serial, echo")[0] == pytest.approx(48.3, abs=1)
    assert naive("serial, short reply")[0] == pytest.approx(96.5, abs=1)
    assert naive("buckets, echo, no pause")[0] == pytest.approx(95, abs=2)
    assert naive("one bucket, echo, no pause")[0] == pytest.approx(96, abs=2)
    paused, delay = naive("buckets, echo, pause")
    assert 1.1 * 96.5 < paused < 1.6 * 96.5
    assert delay < -100e-6  # a delay below zero
    assert naive("one bucket, echo, pause")[0] > 2 * 96.5


def test_a_robust_line_does_not_repair_a_wrong_model():
    size, rtt, index = trips_of(exchange("buckets, echo, pause"))
    lines = compare_estimators(
        size,
        rtt,
        index,
        reply_mode="echo",
        packets=TCP,
        names=["p10_theil_sen", "least_squares", "tukey", "minimum"],
        resamples=100,
    )
    for line in lines:
        assert line.bandwidth_bits_per_second.value > 2 * RATE, line.name
    fit = fit_round_trips(size, rtt, index, reply_mode="echo", packets=TCP)
    assert fit.model == "hinge"


def test_a_short_reply_behind_a_bucket_is_told_neither_by_round_trips_nor_stages():
    # A plain line reads 1.7% too much, and leaves 0.1% of the variance.
    name = "buckets, short reply, no pause"
    size, rtt, index = trips_of(exchange(name))
    blind = fit_round_trips(size, rtt, index, reply_mode=18, packets=TCP)
    trip = fits(name)["round_trip", "response_time"].fit
    for fit in (blind, trip):
        assert fit.model == "none"
        assert fit.unexplained_share < 0.002
        assert fit.bandwidth_bits_per_second is None
        assert "a line misses the delay of messages of 18 bytes" in fit.reason


def test_stages_of_hosts_have_slopes_and_no_bandwidth():
    found = fits("serial, echo")
    whole = ("one_way", "end_to_end", "transit", "response_time")
    singles = [f for (_, q), f in found.items() if q not in whole]
    assert len(singles) == 2 * 5
    for stage in singles:
        assert stage.fit.bandwidth_bits_per_second is None
        assert stage.fit.host_share is None
    assert {q for _, q in found} == {*QUANTITIES, "response_time"}
    # Half of the copying stands between send and queue. To 1%: times of day as floats.
    queue = found["request", "send_queue"].fit.slope_ns_per_byte
    assert queue.value == pytest.approx(COPY_NS / 2, rel=0.01)


@pytest.mark.parametrize("copy_ns", [0.06, 1.2])
def test_transit_tells_the_link_without_the_hosts_work(copy_ns, monkeypatch):
    # As of datagrams above the MTU: copied whole before the first byte is sent.
    monkeypatch.setattr(simulated_links, "COPY_NS", copy_ns)
    found = fit_stages(
        ping_pong(1, Fifo(), Fifo()), reply_mode="echo", packets=CUT, resamples=100
    )
    rate = {(f.direction, f.quantity): f.fit.bandwidth_bits_per_second for f in found}
    for direction in ("request", "reply"):
        assert rate[direction, "transit"].value == pytest.approx(RATE, rel=0.001)
    shares = {f.quantity: f.fit.host_share for f in found}
    # what stamps may be off, 5 us, of what the longest messages took
    span_ns = 8e9 / RATE * np.ptp(TCP.wire_bytes(simulated_links.SIZES))
    assert shares["transit"] == pytest.approx(5e3 / span_ns, rel=0.01)
    assert shares["one_way"] == pytest.approx(1.7 / 80, rel=0.03)
    trip = rate["round_trip", "response_time"].value
    assert trip == pytest.approx(RATE / (1 + copy_ns / 80), rel=0.002)


@pytest.mark.parametrize("name", LINKS)
def test_each_directions_link_is_told_within_1_percent_or_not_at_all(name):
    told = link_rates(fits(name).values())
    assert set(told) == {("tcp", "request"), ("tcp", "reply")}
    for stage in told.values():
        if stage is not None:
            rate = stage.fit.bandwidth_bits_per_second.value
            assert rate == pytest.approx(RATE, rel=0.01)
    if name == "serial, echo":
        assert [stage.quantity for stage in told.values()] == ["transit", "transit"]


def test_without_transit_the_one_way_delay_tells_the_link():
    rows = exchange("serial, echo").drop(columns="arrive_ns")
    told = link_rates(fit_stages(rows, reply_mode="echo", packets=CUT, resamples=100))
    assert told["tcp", "request"].quantity == "one_way"


def test_transit_of_messages_that_waited_to_be_sent_has_no_bandwidth():
    # A window: half of each message's time passes before its last byte is handed over.
    rows = exchange("serial, echo").copy()
    for stamp in ("queue_ns", "xmit_ns"):
        rows[stamp] += 40 * rows["size_bytes"]
    found = fit_stages(rows, reply_mode="echo", packets=CUT, quantities=["transit"])
    assert [f.fit.bandwidth_bits_per_second for f in found[:2]] == [None, None]
    assert found[0].fit.slope_ns_per_byte is not None


def test_slopes_of_stages_are_scipys():
    rows = exchange("serial, echo")
    way = rows[rows["kind"] == "reply"]
    low = (
        (way["arrive_ns"] - way["xmit_ns"])
        .groupby(way["size_bytes"])
        .agg(lambda v: np.quantile(v, 0.1, method="median_unbiased"))
    )
    line = stats.theilslopes(low, TCP.wire_bytes(low.index), method="joint")
    found = fits("serial, echo")["reply", "transit"].fit
    # Pairs weighted or not: the same link, and not the same noise.
    slope = line.slope * 1500 / 1448
    assert found.slope_ns_per_byte.value == pytest.approx(slope, rel=1e-4)
    assert found.fixed_delay_seconds.value == pytest.approx(line.intercept / 1e9, 1e-3)


def test_messages_without_a_stamp_are_left_out_and_counted():
    rows = exchange("serial, echo").copy()
    requests = rows.index[rows["kind"] == "request"]
    rows.loc[requests[::7], "arrive_ns"] = np.nan
    rows.loc[requests[1], "ready_ns"] = rows.loc[requests[1], "send_ns"] - 1
    found = fit_stages(rows, reply_mode="echo", quantities=["transit", "one_way"])
    transit, way = found[0], found[1]
    assert transit.left_out == {"a stamp is missing": len(requests[::7])}
    assert transit.fit.n == len(requests) - len(requests[::7])
    assert way.left_out == {"stamps run backwards": 1}


def test_warm_up_is_not_in_the_fit():
    rows = exchange("serial, echo").copy()
    rows.loc[rows.index[:58], "kind"] = "warmup"
    found = fit_stages(rows, reply_mode="echo", quantities=["one_way"])
    assert [f.fit.n for f in found] == [len(rows) // 2 - 29] * 3


def test_each_fit_is_json():
    for stage in fits("buckets, echo, pause").values():
        stored = stage.as_dict()
        assert json.loads(json.dumps(stored, allow_nan=False)) == stored


def test_a_missing_column_is_named():
    rows = exchange("serial, echo").drop(columns="size_bytes")
    with pytest.raises(ValueError, match="must have the column size_bytes"):
        fit_stages(rows, reply_mode="echo")


def test_an_unknown_quantity_is_refused():
    rows = exchange("serial, echo")
    with pytest.raises(ValueError, match=r"quantities must be of .* got speed"):
        fit_stages(rows, reply_mode="echo", quantities=["speed"])


def test_no_messages_have_no_fits():
    empty = exchange("serial, echo").iloc[:0]
    assert fit_stages(empty, reply_mode="echo") == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([64], [1, 2], [0]), "equal length, got 1, 2 and 1"),
        (([64], [-1], [0]), "delay_ns must be 0 or more, got -1"),
        (([0], [1], [0]), "size_bytes must be more than 0, got 0"),
        (([64], [np.nan], [0]), "delay_ns must be finite"),
    ],
)
def test_bad_delays_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        fit_one_way(*columns)


@pytest.mark.parametrize("rate_bps", [20e6, 1e9])
def test_sizes_that_hardly_repeat_have_a_line_through_all_of_them(rate_bps):
    rng = np.random.default_rng(4)
    size = np.clip(rng.lognormal(8, 1.5, 2000), 32, 60_000).astype(np.int64)
    send = 20_000_000 * np.arange(2000) + 1
    xmit = send + 2000 + rng.integers(0, 500, 2000)
    arrive = xmit + 1_000_000 + (8e9 / rate_bps * size).astype(np.int64)
    ready = arrive + 3000 + rng.exponential(3000, 2000).astype(np.int64)
    ends = {"source_address": "a", "source_port": 1, "destination_address": "b"}
    stamps = {"send": send, "queue": send + 900, "xmit": xmit, "arrive": arrive}
    stamps |= {"ready": ready, "read": ready + 900}
    rows = pd.DataFrame(
        {"protocol": "udp", **ends, "destination_port": 2, "kind": "message"}
        | {"size_bytes": size, "packets": 1, "retransmits": 0}
        | {f"{name}_ns": times for name, times in stamps.items()}
    )
    assert rows["size_bytes"].nunique() > 1000
    found = {fit.quantity: fit.fit for fit in fit_stages(rows, reply_mode=None)}
    for quantity in ("transit", "one_way", "end_to_end"):
        rate = found[quantity].bandwidth_bits_per_second
        assert rate.value == pytest.approx(rate_bps, rel=0.005), quantity
    fixed = found["transit"].fixed_delay_seconds
    assert fixed.value == pytest.approx(1e-3, abs=1e-6)
    assert found["qdisc"].bandwidth_bits_per_second is None
