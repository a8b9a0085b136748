"""What the figures are made of, against sums, ranks and lines computed otherwise."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_analysis.csv_cells import csv_text, guarded, unguarded
from latprof_analysis.fit.line import fit_round_trips
from latprof_analysis.fit.rounds import low_delays
from latprof_analysis.fit.wire import Crossing, Packets
from latprof_analysis.report.build import whole_messages
from latprof_analysis.report.first_screen import first_picture, key_figures
from latprof_analysis.report.fit import (
    _with_bars,
    fit_parts,
    line_with_band,
    size_points,
)
from latprof_analysis.report.groups import queue_figure
from latprof_analysis.report.loss_parts import places_of_loss
from latprof_analysis.report.overview import losses
from latprof_analysis.report.parts import Cell, Figure, Missing
from latprof_analysis.report.percentile_tables import figures_of, percentile_cells
from latprof_analysis.report.stage_parts import (
    means_by_group,
    named_stages,
    percentile_bands,
    stage_table,
)
from latprof_analysis.report.tails import pieces_figure
from latprof_analysis.report.time import over_time
from latprof_analysis.report.words import duration_text, span
from latprof_analysis.stats.quantiles import share_interval
from latprof_analysis.study.analysis import analyze
from latprof_analysis.study.messages import above_usual
from latprof_analysis.text import rate_span
from scipy import stats
from studies import BANDWIDTH_BPS, FIXED_NS, messages, round_trips


def test_the_stages_of_each_group_sum_to_its_mean_end_to_end() -> None:
    rows = messages(500)
    group = pd.Categorical(np.where(rows["size_bytes"] > 4096, "b", "a"))
    means = means_by_group(named_stages(rows), group)
    whole = rows["end_to_end_ns"].astype("float64").groupby(np.asarray(group)).mean()
    for name, parts in means.groupby("group"):
        assert parts["mean_ns"].sum() == pytest.approx(whole[name], rel=1e-12)
        assert parts["to_share"].iloc[-1] == pytest.approx(1)
        assert parts["from_share"].iloc[0] == 0


def test_where_a_stamp_is_missing_two_stages_are_told_as_one() -> None:
    rows = messages(100)
    rows.loc[:49, ["arrive_ns", "transit_ns"]] = pd.NA
    rows["receive_stack_ns"] = rows["receive_stack_ns"].where(
        rows["arrive_ns"].notna(), rows["ready_ns"] - rows["xmit_ns"]
    )
    named = named_stages(rows)
    assert list(named)[3:] == [
        "transit",
        "receive_stack",
        "transit+receive_stack",
        "receive_queue",
    ]
    total = np.nansum(list(named.values()), axis=0)
    assert total.tolist() == rows["end_to_end_ns"].tolist()


def test_a_percentile_is_the_documents_wherever_it_stands_in_its_interval() -> None:
    found = analyze(Path(__file__).parents[1] / "data" / "run")
    told = found.document["kinds"]["tcp request"]
    rows = dict(whole_messages(found.messages))["tcp request"]
    table = stage_table("tcp request", rows, told, thinned=False)
    seen = 0
    for name, p50, *_ in table.rows:
        stage = str(name).removeprefix("of which ")
        assert isinstance(p50, Cell)
        assert p50.text == duration_text(told["stages"][stage]["p50_ns"])
        both = re.fullmatch(r"([0-9.]+)( \S+)? to ([0-9.]+) (\S+)", p50.under)
        if both and not both[2] and p50.text.endswith(both[4]):
            value = float(p50.text.split()[0])
            assert float(both[1]) <= value <= float(both[3])
            seen += 1
    assert seen >= 3


def test_an_interval_narrower_than_a_bucket_is_widened_to_hold_its_middle() -> None:
    times = np.append(np.full(2000, 1_363_900.0), 9e9)  # the slowest is kept exactly
    figures = figures_of(times)
    assert figures["p50_ns"] != 1_363_900
    assert figures["p50_ns"] == pytest.approx(1_363_900, rel=0.004)
    ends = {"p50_low_ns": 1_363_900.0, "p50_high_ns": 1_363_900.0}
    (p50, *_) = percentile_cells(figures | ends)
    low, high = sorted([1_363_900, figures["p50_ns"]])
    assert p50.under == span(low, high)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=3000))
def test_bands_hold_the_share_of_messages_that_they_name(values: list[int]) -> None:
    bands = percentile_bands(np.array(values, float))
    n = len(values)
    up_to = np.cumsum([int((bands == name).sum()) for name in bands.categories])
    for count, p in zip(up_to, (0.5, 0.9, 0.99, 0.999, 1), strict=True):
        assert count == max(1, math.ceil(round(p * n, 6)))


@given(st.integers(1, 4000), st.integers(0, 9))
def test_over_time_counts_every_message_once_and_keeps_the_slowest(
    n: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    t_s, latency = np.sort(rng.uniform(0, 9, n)), rng.exponential(1e6, n)
    series = {"t_s": t_s, "above_ns": latency, "latency_ns": latency}
    drawn = over_time(pd.DataFrame(series))
    all_of_them = drawn[drawn["role"] != "slow"]
    assert all_of_them["messages"].sum() == n
    assert drawn["latency_ns"].max() == pytest.approx(latency.max())
    assert drawn["above_ns"].max() == pytest.approx(latency.max())
    if n > 800:
        assert all_of_them["max_ns"].max() == latency.max()
        assert all_of_them["min_ns"].min() == latency.min()


def test_the_line_is_that_of_the_known_link_and_its_band_holds_it() -> None:
    trips = round_trips(1200)
    sizes, rtt = (trips[name].to_numpy("float64") for name in ("size_bytes", "rtt_ns"))
    rounds = np.arange(len(trips)) // 6.0
    low = low_delays(sizes, rtt, rounds, fewest=10, resamples=400, seed=1)
    line = line_with_band(low, Packets(), "echo")
    # the 10th percentile of noise that is even over 20 us is 2 us
    truth = FIXED_NS + 2000 + 2 * 8e9 * line["size_bytes"] / BANDWIDTH_BPS
    assert np.abs(line["line_ns"] - truth).max() < 1000
    assert (line["band_low_ns"] <= line["line_ns"]).all()
    assert (line["line_ns"] <= line["band_high_ns"]).all()
    # one size's percentile alone: 2 * 1.96 * 20 us * sqrt(0.1 * 0.9 / 200) = 1.66 us
    assert ((line["band_high_ns"] - line["band_low_ns"]) < 3 * 1660).all()


def test_the_lines_band_covers_the_truth_at_each_size_as_often_as_it_says() -> None:
    rng, times = np.random.default_rng(11), 80
    sizes = np.tile([18.0, 1024, 4096, 16384, 65507], 60)
    rounds = np.repeat(np.arange(60.0), 5)
    at, covered = np.array([1024.0, 16384.0]), np.zeros(2)
    truth = 2e6 + 160 * at + 2000
    for _ in range(times):
        rtt = 2e6 + 160 * sizes + rng.uniform(0, 20_000, sizes.size)
        low = low_delays(sizes, rtt, rounds, fewest=10, resamples=200, seed=1)
        line = line_with_band(low, Packets(), "echo").set_index("size_bytes").loc[at]
        covered += (line["band_low_ns"] <= truth) & (truth <= line["band_high_ns"])
    # 95% or more, less three times the spread of a share of 80
    assert (covered / times >= 0.95 - 3 * 0.024).all()


def test_the_drawn_line_is_that_of_the_fit() -> None:
    rng, packets = np.random.default_rng(3), Packets.tcp()
    sizes = np.tile([18.0, 256, 1024, 4096, 16384, 65507], 40)
    rounds = np.repeat(np.arange(40.0), 6)
    rtt = 2e6 + 160 * packets.wire_bytes(sizes) + rng.exponential(3e4, sizes.size)
    fit = fit_round_trips(sizes, rtt, rounds, reply_mode="echo", packets=packets)
    low = low_delays(sizes, rtt, rounds, fewest=10, resamples=200, seed=1)
    line = line_with_band(low, packets, "echo")
    crossing = 2 * packets.wire_bytes(line["size_bytes"].to_numpy())
    assert fit.bandwidth_bits_per_second is not None
    assert fit.fixed_delay_seconds is not None
    byte_ns = 8e9 / fit.bandwidth_bits_per_second.value
    told = 1e9 * fit.fixed_delay_seconds.value + byte_ns * crossing
    assert np.allclose(line["line_ns"], told, rtol=1e-9)


def test_a_percentile_without_intervals_has_no_bars() -> None:
    few, many = (
        size_points(np.repeat([64.0], n), np.arange(1.0 * n)) for n in (20, 90)
    )
    assert _with_bars(few) == {"median"}
    assert _with_bars(many) == {"median", "p10"}


def test_residuals_are_the_points_less_the_line() -> None:
    way = Crossing.round_trip(np.array([100.0]), Packets.tcp(), "echo")
    crossing = way.wire_bytes
    assert crossing.tolist() == [2 * (100 + 52)]
    points = size_points(np.repeat([64.0], 20), np.arange(20.0))
    # ranks of Binomial(20, 0.1): the 2.5% quantile is 0, the 97.5% quantile 5
    row = points.iloc[0]
    assert (row["p10_ns"], row["p10_high_ns"]) == (1, 5)
    assert np.isnan(row["p10_low_ns"])


def test_the_three_pieces_hold_every_message() -> None:
    latency = np.random.default_rng(5).lognormal(13, 1, 5000)
    figure = pieces_figure("tcp request", latency, "end to end")
    for _, rows in figure.data.groupby("bins"):
        counts = rows.groupby("piece")["messages"].sum()
        assert counts["fastest 95%"] == 4750
        assert counts["95% to 99.9%"] == 245
        assert counts["slowest 0.1%"] == 5


def test_what_cannot_be_told_of_a_queue_is_a_stated_reason() -> None:
    alike = queue_figure("udp reply", np.zeros(50), np.arange(50.0))
    assert isinstance(alike, Missing)
    assert "must vary" in alike.reason


def test_every_place_of_loss_is_told_with_how_many_came_there() -> None:
    told = {
        "round_trips": {"udp": {"sent": 10, "lost": 2}},
        "runs": {
            "a": {
                "counters": {"datagrams_dropped_at_socket": 1},
                "unread_at_close": 5,
            },
            "b": {
                "link_counters": {
                    "emulator": {"ab": {"packets_in": 9, "dropped_loss": 3}},
                    "a": {
                        "qdiscs": [
                            {"kind": "tbf", "sent_packets": 6, "dropped_packets": 4},
                            {"kind": "pfifo", "sent_packets": 6, "dropped_packets": 4},
                        ]
                    },
                }
            },
            "c": {
                "link_counters": {
                    "emulator": {
                        "h1 up": {
                            "packets_in": 8,
                            "dropped_loss": 2,
                            "dropped_queue": 0,
                        }
                    },
                    "h0": {"qdiscs": []},
                    "ports": {
                        "h0": {
                            "qdiscs": [
                                {"kind": "htb", "sent_packets": 7, "dropped_packets": 1}
                            ]
                        }
                    },
                }
            },
        },
    }
    places = places_of_loss(told).set_index("place")
    assert places["lost"].to_dict() == {
        "udp round trips without a reply": 2,
        "a: full socket of the receiver": 1,
        "a: unread at close": 5,
        "b: a: qdisc tbf": 4,  # not twice: what a leaf drops its root counts, too
        "b: emulator ab, loss": 3,
        "c: emulator h1 up, loss": 2,
        "c: emulator h1 up, queue": 0,
        "c: port to h0: qdisc htb": 1,
    }
    assert places.loc["b: a: qdisc tbf", "of"] == 10
    said = losses({"runs": {"c": told["runs"]["c"]}})
    assert said == "2 packets (h1 up) on the link, 1 packet (port to h0) in a qdisc"


@given(st.integers(1, 500), st.data())
def test_the_interval_of_a_share_is_scipys_exact_one(
    of: int, data: st.DataObject
) -> None:
    lost = data.draw(st.integers(0, of))
    exact = stats.binomtest(lost, of).proportion_ci(0.95, method="exact")
    assert share_interval(lost, of) == pytest.approx((exact.low, exact.high), abs=1e-9)


@given(st.text(max_size=30))
def test_no_text_begins_a_formula_in_a_spreadsheet(text: str) -> None:
    frame = pd.DataFrame({"name": [text], "n": [-1.5]})
    (header, row) = csv.reader(io.StringIO(csv_text(frame), newline=""))
    assert header == ["name", "n"]
    assert not row[0].lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))
    assert unguarded(row[0]) == " ".join(text.splitlines())
    assert float(row[1]) == -1.5


@pytest.mark.parametrize("text", ["\t=1+1", "  @SUM(A1)", "-2+3", "+1", "＝1"])
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(text: str) -> None:
    assert guarded(text) == f"'{text}"


def test_the_picture_has_a_bar_of_every_kind_whose_stages_sum_to_all_its_time() -> None:
    found = analyze(Path(__file__).parents[1] / "data" / "run")
    picture = first_picture(found.document)
    assert picture is not None
    kinds = dict(whole_messages(found.messages))
    assert set(picture.data["group"]) == set(kinds)
    for kind, bar in picture.data.groupby("group"):
        assert bar["to_share"].iloc[-1] == pytest.approx(1)
        whole = float(kinds[kind]["end_to_end_ns"].sum())
        for one in bar.itertuples():
            if "+" not in one.stage:
                spent = float(kinds[kind][f"{one.stage}_ns"].sum())
                assert one.share == pytest.approx(spent / whole)
    assert first_picture({}) is None


def test_key_figures_are_of_every_protocol_and_of_the_surest_direction() -> None:
    def direction(low: float, high: float) -> dict[str, object]:
        rate = {"value": 1e8, "low": 9.9e7, "high": 1.01e8}
        fit = {"n": 9, "bandwidth_bits_per_second": rate}
        fit["link_rate_range"] = {"low": low, "high": high}
        fit["fixed_delay_seconds"] = {"value": 1e-3, "low": 9e-4, "high": 2e-3}
        return {"direction": "request", "quantity": "transit", "fit": fit}

    rtt = {"n": 1200, "p50_ns": 2_000_000, "p99_ns": 9_000_000}
    found = key_figures(
        {
            "round_trips": {"tcp": {"rtt": rtt}, "udp": {"rtt": rtt}},
            "link": {
                "tcp request": direction(9e7, 1.2e8),
                "udp reply": direction(9.9e7, 1.01e8),
            },
        }
    )
    assert [(one.label, one.value) for one in found] == [
        ("tcp round trips, p50", "2.00 ms"),
        ("udp round trips, p50", "2.00 ms"),
        ("the link's own rate", rate_span(9.9e7, 1.01e8)),
        ("fixed delay", duration_text(1e6, 4)),
    ]
    assert found[0].under == "p99 9.00 ms; n 1,200"
    assert found[2].under.startswith("by transit times of udp reply")
    (alone, slow) = key_figures({"round_trips": {"tcp": {"rtt": rtt}}})
    assert (alone.value, slow.value) == ("2.00 ms", "9.00 ms")
    assert slow.label == "tcp round trips, p99"


def test_sizes_are_no_spikes_over_time_and_a_change_of_level_is_seen() -> None:
    rng, n = np.random.default_rng(3), 1400
    size = pd.Series(rng.choice([64, 1024, 65536], n))
    step = np.where(np.arange(n) >= 1000, 5e4, 0)
    times = 1e6 + 80.0 * size.to_numpy() + step + rng.uniform(0, 1e4, n)
    series = {"t_s": np.arange(n) * 0.01, "above_ns": above_usual(size, times)}
    drawn = over_time(pd.DataFrame(series | {"latency_ns": times}))
    spans = drawn[drawn["role"] == "span"]
    early, late = (
        spans.loc[spans["t_s"].between(*at)] for at in ((0, 9.9), (10.1, 14))
    )
    # 65536 bytes take 5 ms more than 64: within a level there is the noise of 10 us
    assert (early["max_ns"].max() - early["min_ns"].min()) < 1.1e4
    assert late["above_ns"].median() - early["above_ns"].median() == pytest.approx(
        5e4, abs=2000
    )


def test_two_slopes_are_drawn_as_two_lines_and_told_with_both_rates() -> None:
    rng, knot = np.random.default_rng(5), 8000
    sizes = np.tile([64.0, 1000, 2000, 4000, 16000, 32000, 48000, 65000], 60)
    # an echo crosses twice: 160 ns/B are 100 Mbit/s, 16 ns/B are 1 Gbit/s
    over = np.maximum(0, sizes - knot)
    truth = 2e6 + 160 * np.minimum(sizes, knot) + 16 * over
    rtt = truth + rng.uniform(0, 20_000, sizes.size)
    rounds = np.repeat(np.arange(60), 8)
    fit = fit_round_trips(sizes, rtt, rounds, reply_mode="echo").as_dict()
    assert fit["model"] == "hinge"
    trips = pd.DataFrame(
        {"size_bytes": sizes, "rtt_ns": rtt, "sent_ns": np.arange(sizes.size) * 1e7}
    )
    figure, residuals = fit_parts("tcp", trips, fit, Packets())
    assert isinstance(figure, Figure)
    line = figure.data[figure.data["line_ns"].notna()].drop_duplicates("size_bytes")
    at = line["size_bytes"].to_numpy()
    # the 10th percentile of noise that is even over 20 us is 2 us
    drawn = 2e6 + 160 * np.minimum(at, knot) + 16 * np.maximum(0, at - knot) + 2000
    assert np.abs(line["line_ns"] - drawn).max() < 3000
    told = re.search(
        r"at ([\d,]+) B .*: ([\d.]+) Mbit/s .* below and ([\d.]+) Gbit/s .* above",
        figure.title,
    )
    assert told
    assert float(told[1].replace(",", "")) == pytest.approx(knot, rel=0.05)
    assert float(told[2]) == pytest.approx(100, rel=0.02)
    assert float(told[3]) == pytest.approx(1, rel=0.05)
    assert isinstance(residuals, Figure)
    # of 8 ms between the ends a single line would leave hundreds of microseconds
    assert residuals.data["residual_ns"].abs().max() < 3000
