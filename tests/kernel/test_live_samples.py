"""Samples of real traffic against all of it, and against how the link was built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec
from latprof_agent.live.live_folder import Description, LiveFolder
from latprof_agent.monitor.samples import FITTED, NO_GROUP, RECEIVED, SENT, Samples
from latprof_agent.monitor.totals import (
    Counted,
    Fit,
    Group,
    GroupTotals,
    Own,
    Quantity,
    Totals,
)
from latprof_analysis.records.message_rows import Messages, joined_rows
from latprof_analysis.stats.kernel_histogram import CoarseHistogram
from latprof_analysis.stats.quantiles import quantile_ci
from latprof_analysis.study.analysis import analyze
from monitored import monitored
from natural_traffic import log_normal, natural_traffic, same_size
from recording import recording

pytestmark = pytest.mark.timed

MESSAGES = 2400
EVERY = 4  # of so many messages one is sampled
GROUPS = {0: Group("tcp", "client"), 1: Group("tcp", "server")}
LINK = {"rate_bps": 100_000_000, "delay_ns": 1_000_000, "emulator": "always"}
# What hosts add to 1 ms, also on a machine that others use.
HOSTS_NS = 300e3


class Traffic:
    """What was recorded of a lab in full: as rows, and as in messages.csv."""

    def __init__(self, lab: Lab, folder: Path, sizes=log_normal) -> None:
        self.known = lab.known
        kept: list[Messages] = []
        with recording(lab, folder, ("tcp",)) as recorded:
            write = recorded.totals.add_messages

            def add(rows: Messages) -> None:
                kept.append(rows)
                write(rows)

            recorded.totals.add_messages = add
            natural_traffic(lab, MESSAGES, sizes)
        assert recorded.lost() == {}
        self.rows = joined_rows(kept)
        self.table = recorded.messages()

    def sampled(self, every: int, seed: int = 0) -> np.ndarray:
        """Which messages are chosen, one in `every`; another seed chooses others."""
        return np.random.default_rng(seed).random(len(self.rows)) * every < 1

    def samples(self, every: int, seed: int = 0) -> Samples:
        """What the sample gives, all sent by group 0 and read by group 1."""
        chosen, samples = self.sampled(every, seed), Samples()
        ends = (np.where(chosen, number, NO_GROUP) for number in GROUPS)
        samples.add(self.rows, *ends)
        return samples

    def fits(self, every: int, seed: int = 0) -> dict[tuple[Group, Quantity], Fit]:
        """All fits of the sample."""
        samples = self.samples(every, seed)
        now_ns = int(self.rows.first_ns().max())
        for turn in range(1 + sum(map(len, FITTED))):
            samples.step(now_ns + turn * 60 * 1_000_000_000)
        return samples.fits(GROUPS)


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    """Natural traffic over a link of 100 Mbit/s and 1 ms."""
    with Lab(LinkSpec(**LINK)) as lab:
        return Traffic(lab, tmp_path_factory.mktemp("traffic"))


# Long messages share the link with those of other connections: up to 4% were seen.
SHARED = 0.08
# Half of the intervals are narrower than this share of the rate: wider tells nothing.
WIDE = 0.1
SAMPLES = 20
# Each interval is one of 95%. Of 814 fits of samples 0.4% lay above the link's rate.
HELD = 0.85


def check_fits(traffic: Traffic) -> None:
    """Hold fits against what the link was built to be.

    Of all messages the rate itself is held to it. What one sample tells may be off by
    right, so that of many samples of the same traffic most intervals must hold it.
    """
    rate = traffic.known["tcp_goodput_bps"] / 8
    for fit in traffic.fits(every=1).values():
        assert (1 - SHARED) * rate <= fit.bandwidth_bytes_per_second <= 1.01 * rate
        assert fit.bandwidth_high - fit.bandwidth_low <= WIDE * rate
        assert 1e6 <= fit.fixed_delay_ns <= 1e6 + HOSTS_NS
    for every in (2, EVERY):
        samples = [traffic.fits(every, seed) for seed in range(SAMPLES)]
        fits = [fit for found in samples for fit in found.values()]
        # on a machine that others use a sample may be too noisy for a line, not most
        assert len(fits) > SAMPLES
        low, high, fixed_ns = np.transpose(
            [(f.bandwidth_low, f.bandwidth_high, f.fixed_delay_ns) for f in fits]
        )
        holds = (low <= 1.01 * rate) & ((1 - SHARED) * rate <= high)
        assert holds.mean() >= HELD
        assert np.median(high - low) <= WIDE * rate
        assert ((fixed_ns >= 1e6) & (fixed_ns <= 1e6 + HOSTS_NS)).all()


def test_fits_of_natural_traffic_are_those_of_the_link(traffic):
    check_fits(traffic)


def durations(table: pd.DataFrame, first: str, last: str) -> np.ndarray:
    """Return how long it took between two stamps, where both are known."""
    both = table[[f"{first}_ns", f"{last}_ns"]].dropna().astype("i8")
    return (both[f"{last}_ns"] - both[f"{first}_ns"]).to_numpy()


@pytest.mark.parametrize(
    ("names", "first", "last"),
    [
        ((Quantity.TRANSIT, Quantity.RECEIVED_TRANSIT), "xmit", "arrive"),
        ((Quantity.END_TO_END, Quantity.RECEIVED_END_TO_END), "send", "read"),
    ],
)
def test_histograms_of_all_messages_are_those_of_the_file(traffic, names, first, last):
    found = traffic.samples(every=1).histograms()
    wanted = CoarseHistogram.of(durations(traffic.table, first, last))
    assert wanted.count > 0.8 * MESSAGES
    for way, quantity in zip((SENT, RECEIVED), names, strict=True):
        histogram = found[way, quantity]
        assert (histogram.counts == wanted.counts).all()
        assert histogram.sum_ns == wanted.sum_ns


def test_percentiles_of_the_sample_are_those_of_all_within_their_intervals(traffic):
    chosen = traffic.sampled(EVERY)
    assert 0.2 < chosen.mean() < 0.3
    rows = traffic.rows.numbers
    whole = (rows["read_ns"] > 0) & (rows["send_ns"] > 0)
    delay = rows["read_ns"] - rows["send_ns"]
    histogram = traffic.samples(EVERY).histograms()[0, Quantity.END_TO_END]
    for p in (0.25, 0.5, 0.75, 0.9):
        interval = quantile_ci(delay[whole & chosen], p, confidence=0.999)
        exact = np.quantile(delay[whole], p, method="inverted_cdf")
        assert interval.low <= exact <= interval.high
        # a bucket is 3.2% wide, and the quantile is its middle
        assert histogram.quantile(p) == pytest.approx(interval.value, rel=0.0162)


def test_a_recording_of_the_sample_is_analyzed_beside_the_histograms(traffic, tmp_path):
    chosen = np.flatnonzero(traffic.sampled(EVERY))
    histograms = traffic.samples(every=1).histograms()
    groups = {group: GroupTotals() for group in GROUPS.values()}
    for (number, quantity), histogram in histograms.items():
        groups[GROUPS[number]].histograms[quantity] = histogram
    totals = Totals(t_ns=10**15, groups=groups, own=Own(seconds=10))
    folder = LiveFolder(tmp_path / "run")
    folder.start(Description("all traffic", ("service",)))
    folder.add_messages(traffic.rows.take(chosen))
    folder.add_window(totals, totals)
    folder.finish(totals)
    document = analyze(tmp_path / "run").document
    assert document["runs"]["run"]["messages"] == len(chosen)
    (kind,) = document["kinds"].values()
    assert kind["stages"]["end_to_end"]["n"] <= len(chosen)
    told = document["histograms"]["tcp client"]["end_to_end"]
    exact = durations(traffic.table, "send", "read")
    assert told["n"] == exact.size
    median = np.quantile(exact, 0.5, method="inverted_cdf")
    assert told["p50_ns"] == pytest.approx(median, rel=0.016)


@pytest.mark.parametrize(
    ("link", "sizes"),
    [
        pytest.param({}, log_normal, id="no limit but the hosts' copying"),
        pytest.param({"rate_bps": 100_000_000}, log_normal, id="a token bucket"),
        pytest.param(LINK, same_size, id="one size"),
    ],
)
def test_where_no_line_is_the_links_nothing_is_told(
    make_lab: Callable[..., Lab], tmp_path, link, sizes
):
    traffic = Traffic(make_lab(**link), tmp_path, sizes)
    for every in (1, EVERY):
        assert traffic.fits(every) == {}


def test_segments_sent_again_leave_the_links_rate(make_lab, tmp_path):
    traffic = Traffic(make_lab(**LINK, loss=0.002), tmp_path)
    assert (traffic.rows.numbers["retransmits"] > 0).sum() > 5
    check_fits(traffic)


def test_a_recording_of_live_traffic_holds_all_in_histograms_and_the_sample(
    make_lab, tmp_path
):
    lab = make_lab(**LINK)
    folder = LiveFolder(tmp_path / "run")
    folder.start(Description("a lab", ("service",)))
    with monitored(lab, protocols=("tcp",)) as counted:
        counted.monitor.sinks.append(folder)
        natural_traffic(lab, MESSAGES)
    folder.add_window(counted.totals, counted.totals)
    folder.finish(counted.totals)

    document = analyze(tmp_path / "run").document
    told = document["histograms"]
    expected = {
        (" ".join(filter(None, (group.protocol, group.role, group.service))), quantity)
        for group, totals in counted.totals.groups.items()
        for quantity in totals.histograms
    }
    assert {(g, q) for g, found in told.items() for q in found} == expected
    sender = counted.group(role="client")
    (name,) = [group for group in told if "client" in group]
    sent = told[name]["send_queue"]
    assert sent["n"] == sender.histograms[Quantity.SEND_QUEUE].count
    # of a few the stamp may be missing
    messages = sender.counted[Counted.SENT_MESSAGES]
    assert 0.98 * messages <= sent["n"] <= messages
    assert messages >= MESSAGES
    sampled = document["runs"]["run"]["messages"]
    assert 0 < sampled < sent["n"]
    assert told[name]["end_to_end"]["n"] <= sampled
    for fit in counted.totals.fits.values():
        # of one sample: the highest of 814 lay 1.3% above the rate
        assert fit.bandwidth_low <= 1.03 * lab.known["tcp_goodput_bps"] / 8
