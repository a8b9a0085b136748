"""Modes, levels and groups in the report, against how the data were made."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from latprof_analysis.fit.line import fit_one_way
from latprof_analysis.fit.wire import Packets
from latprof_analysis.read.result import Samples, samples_frame
from latprof_analysis.read.rows import Columns
from latprof_analysis.report.answer import answer, link_parts
from latprof_analysis.report.build import build_report
from latprof_analysis.report.groups import group_parts
from latprof_analysis.report.parts import (
    Cell,
    Figure,
    Fold,
    Items,
    Missing,
    Table,
    Text,
)
from latprof_analysis.report.tails import mode_parts
from latprof_analysis.report.time import level_parts, level_rows
from latprof_analysis.stats.change_points import level_changes
from latprof_analysis.study import findings
from latprof_analysis.study.findings import When, placed_levels, since_first_read
from latprof_analysis.study.messages import message_figures, name_stages
from latprof_analysis.study.samples import study_samples
from latprof_analysis.study.setup import RunSetup
from studies import histogram_percentiles, messages, study

FAST_NS, SLOW_NS = 1e6, 6e6


def figure_of(parts: Any, name: str) -> Figure:
    (found,) = [one for one in parts if isinstance(one, Figure) and one.name == name]
    return found


def table_of(parts: Any) -> Table:
    return next(one for one in parts if isinstance(one, Table))


def two_delays(n: int, slow: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Lognormal, of which the density over the logarithm is highest at the median."""
    rng = np.random.default_rng(4)
    at = np.where(rng.random(n) < slow, SLOW_NS, FAST_NS)
    return at * rng.lognormal(0, 0.05, n)


def test_two_modes_stand_where_they_were_made_under_a_density_of_area_1() -> None:
    tail = findings.tail(two_delays(1500, 0.25), np.full(1500, 64))
    (figure,) = mode_parts("udp request", tail, "end to end")
    assert isinstance(figure, Figure)
    modes = figure.data[figure.data["role"] == "mode"]
    assert modes["mode"].tolist() == ["fast", "slow"]
    # 0.05 / sqrt(375) is 0.3% of the location; a top wanders more than a mean
    assert modes["latency_ns"].tolist() == pytest.approx([FAST_NS, SLOW_NS], rel=0.03)
    # three times the spread of a share of 1500
    assert modes["share"].tolist() == pytest.approx([0.75, 0.25], abs=0.034)
    curve = figure.data[figure.data["role"] == "curve"]
    area = np.trapezoid(curve["density"], np.log(curve["latency_ns"]))
    assert area == pytest.approx(1, abs=0.02)
    assert "2 modes: fast at 1.0" in figure.title or "fast at 99" in figure.title


def test_one_mode_has_a_figure_and_none_has_its_reason() -> None:
    one = findings.tail(two_delays(800, 0.0), np.zeros(800))
    (figure,) = mode_parts("ping", one, "latency")
    assert isinstance(figure, Figure)
    assert (figure.data["role"] == "mode").sum() == 1
    for values, why in ((np.ones(49), "at least 50"), (np.ones(60), "all values are")):
        (missing,) = mode_parts("ping", findings.tail(values, values), "latency")
        assert isinstance(missing, Missing)
        assert why in missing.reason


def test_a_slower_mode_is_named_by_the_stage_that_makes_it_slower() -> None:
    rows = messages(400)
    slow = np.arange(400) % 4 == 0
    for name in ("qdisc_ns", "end_to_end_ns"):
        rows[name] = rows[name] + np.where(slow, 50_000_000, 0)
    modes = [{"low": 0.0}, {"low": 30e6}]
    name_stages(modes, Columns.of(rows))
    assert "longer_in" not in modes[0]
    told: Any = modes[1]["longer_in"]
    assert (told["stage"], told["n"]) == ("qdisc", 400)
    # qdisc takes up to 9 us besides
    assert told["by_ns"] == pytest.approx(50e6, abs=9000)


def test_where_a_stamp_is_missing_the_slower_mode_is_named_by_both_stages() -> None:
    rows = messages(100)
    rows[["arrive_ns", "transit_ns"]] = pd.NA
    rows["receive_stack_ns"] = np.where(np.arange(100) < 50, 10**6, 10**9)
    rows["end_to_end_ns"] = rows["receive_stack_ns"]
    modes = [{"low": 0.0}, {"low": 1e8}]
    name_stages(modes, Columns.of(rows))
    assert modes[1]["longer_in"]["stage"] == "transit+receive_stack"


def stepped(n: int = 900, at: int = 600, step: float = 2e6) -> dict[str, Any]:
    """Findings of messages at 10 ms from each other, of which the level rises once."""
    rng = np.random.default_rng(5)
    times = 5e6 + rng.exponential(1e5, n) + np.where(np.arange(n) >= at, step, 0)
    when = When(np.zeros(n, int), ["a"], np.arange(n) * 0.01)
    return {
        "tail": findings.tail(times, np.full(n, 64)),
        "time": findings.over_time(times - np.median(times), when),
    }


def test_levels_and_the_change_between_them_stand_at_their_times() -> None:
    rows = level_rows(stepped())
    levels, changes = (rows[rows["role"] == role] for role in ("level", "change"))
    # a wait of 100 us, exponential: its median is 69 us, and that of all, its upper
    # quartile, 139; the medians' spread is 100 / sqrt(300)
    assert levels["above_ns"].tolist() == pytest.approx([-6.9e4, 1.931e6], abs=2e4)
    assert levels["t_s"].tolist() == pytest.approx([0, 6.0], abs=0.02)
    assert levels["to_s"].tolist() == pytest.approx([5.99, 8.99], abs=0.02)
    (change,) = changes.itertuples()
    assert change.t_s == pytest.approx(6.0, abs=0.02)
    assert change.from_s <= 6.0 <= change.to_s
    assert change.above_ns - change.before_ns == pytest.approx(2e6, abs=3e4)


def test_a_table_tells_when_the_level_changed_and_by_how_much() -> None:
    (fold,) = level_parts({"udp request": stepped()})
    assert isinstance(fold, Fold)
    table = table_of(fold.parts)
    ((when, before, after, step),) = table.rows
    assert isinstance(when, Cell)
    assert float(when.text.removesuffix(" s")) == pytest.approx(6.0, abs=0.02)
    assert isinstance(before, Cell)
    assert before.text.startswith("5.0")
    assert isinstance(after, Cell)
    assert after.text.startswith("7.0")
    assert isinstance(step, Cell)
    assert step.text == "+2 ms" or step.text.startswith(("+1.9", "+2.0"))
    assert re.search(
        r"from (6|5\.9\d|6\.0\d) s on (2|1\.9\d|2\.0\d) ms slower", fold.title
    )


def test_no_change_of_level_is_one_quiet_sentence_and_no_mark() -> None:
    steady = stepped(step=0.0)
    assert level_rows(steady).empty
    (text,) = level_parts({"udp request": steady})
    assert isinstance(text, Text)
    assert text.quiet
    assert text.text == (
        "No evidence that the level changed by 1.0% of the median or more: udp "
        "request, n 900."
    )
    few = {"time": findings.over_time(np.arange(9.0))}
    (missing,) = level_parts({"udp reply": few})
    assert isinstance(missing, Missing)
    assert "at least 30 values" in missing.reason


def test_a_level_over_two_runs_lies_in_both_and_every_nth_value_is_placed() -> None:
    x = np.repeat([1.0, 9.0], [300, 100]) + np.random.default_rng(2).random(400)
    when = When(np.repeat([0, 1], 400), ["a", "b"], np.tile(np.arange(400.0), 2))
    low, high = placed_levels(level_changes(x), 2, when)["levels"]
    assert [(s["run"], s["from_s"], s["to_s"]) for s in low["spans"]] == [
        ("a", 0, 399),
        ("b", 0, 199),
    ]
    assert [(s["run"], s["from_s"]) for s in high["spans"]] == [("b", 200)]
    assert high["spans"][0]["first"] == 600


def test_only_changes_of_level_are_looked_for_in_some_of_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(findings, "_MOST_IN_SERIES", 500)
    rng = np.random.default_rng(1)
    x = np.empty(4000)
    x[0] = rng.normal()
    for i, step in enumerate(rng.normal(size=3999)):  # a chain: each 0.8 of the last
        x[i + 1] = 0.8 * x[i] + 0.6 * step
    found = findings.over_time(x)
    assert found["every"] == 8
    assert found["autocorrelation"]["n"] == 4000
    # of every eighth value it would be 0.8 to the eighth, 0.17
    assert found["autocorrelation"]["lag_1"] == pytest.approx(0.8, abs=0.04)


def test_the_levels_of_a_study_are_on_the_clock_of_its_time_line() -> None:
    rows = messages(900)
    rows["source_port"], rows["destination_port"] = 7, 8
    rows["destination_address"], rows["packets"] = "10.0.0.2", 1
    rows["probe_statistics"] = pd.array([None] * 900, "Int64")
    later = rows.index >= 600
    for name in ("read_ns", "receive_queue_ns", "end_to_end_ns"):
        rows[name] = rows[name] + np.where(later, 50_000_000, 0)
    columns, effort = Columns.of(rows), findings.Effort.SCREEN
    found = message_figures(columns, columns, {}, RunSetup(), effort=effort, every=1)
    levels = found["messages"]["tcp request"]["time"]["level_changes"]
    (change,) = levels["changes"]
    # a message each 5 ms; the first of the new level is read 50 ms later
    assert change["t_s"] == pytest.approx(3.05, abs=0.02)
    assert since_first_read(rows)[600] == pytest.approx(3.05, abs=0.02)


def test_percentiles_by_size_are_numpys_of_the_rows_within_the_histogram() -> None:
    found = study(3000)
    parts = group_parts("tcp request", found.document["kinds"]["tcp request"])
    figure = figure_of(parts, "by-size-tcp-request")
    rows = found.messages[found.messages["kind"] == "request"]
    for one in figure.data.itertuples():
        times = rows.loc[rows["size_bytes"] == one.at, "end_to_end_ns"]
        p = float(str(one.percentile).removeprefix("p")) / 100
        exact = np.quantile(times.astype("float64"), p, method="inverted_cdf")
        assert one.latency_ns == pytest.approx(exact, rel=0.004)
        assert one.n == len(times)
    # 500 of each size: enough for p95 (200), too few for p99 (1000)
    assert set(figure.data["percentile"]) == {"p50", "p90", "p95"}
    fold = parts[-1]
    assert isinstance(fold, Fold)
    assert len(table_of(fold.parts).rows) == rows["size_bytes"].nunique()


def test_a_single_group_has_no_figure_and_hops_may_be_none() -> None:
    one = histogram_percentiles(np.full(200, 5000))
    assert group_parts("a", {"by_packets": {"1": one}, "by_hops": {"0": one}}) == []
    assert group_parts("a", None) == []
    (figure, _) = group_parts("a", {"by_hops": {"0": one, "2": one, "unknown": one}})
    assert isinstance(figure, Figure)
    assert list(figure.charts[0].scales) == ["linear", "semi-log"]
    assert set(figure.data["at"]) == {0, 2}


def test_a_report_of_samples_has_modes_and_levels_in_the_order_of_the_file() -> None:
    values = two_delays(1200, 0.2) + np.where(np.arange(1200) >= 800, 4e5, 0)
    frame = samples_frame(1200, "a", kind="GET", size_bytes=64, latency_ns=values)
    found = study_samples(Samples(frame, [], 0, "csv", {"latency": "x"}), None)
    report = build_report(found, "a")
    named = {figure.name: figure for figure in report.figures()}
    assert "modes-get" in named
    data = named["over-time"].data
    (change,) = data[data["role"] == "change"].itertuples()
    # places count from 1
    assert change.place == pytest.approx(801, abs=15)


def test_a_whole_study_shows_its_findings_in_their_sections() -> None:
    report = build_report(study(1500), "run-1")
    names = {figure.name for figure in report.figures()}
    for name in ("modes-tcp-request", "modes-tcp-reply", "by-size-tcp-request"):
        assert name in names
    assert "by-packets-tcp-request" not in names


def test_the_link_each_way_is_told_with_its_range_or_why_it_is_not() -> None:
    rng = np.random.default_rng(1)
    sizes, rounds = np.tile([64.0, 1000, 4000, 16000, 64000], 40), np.arange(200) // 5
    delays = 1e6 + 80 * sizes + rng.uniform(0, 5e4, 200)
    fit = fit_one_way(sizes, delays, rounds, packets=Packets(mss_bytes=1448))
    best = {"quantity": "one_way", "fit": fit.as_dict()}
    document = {
        "link": {"udp request": best, "tcp reply": {"reason": "it was paced"}},
        "dispersion": {
            "udp message": {
                "bandwidth_bits_per_second": {"value": 1e8, "low": 9e7, "high": 1.1e8},
                "trains": 6,
                "packets": 600,
            },
            "tcp message": {"bandwidth_bits_per_second": None},
        },
    }
    table, notes = link_parts(document)
    assert isinstance(table, Table)
    by_fit, by_trains = table.rows
    assert isinstance(by_fit[1], Cell)
    assert 99 < float(by_fit[1].text.removesuffix(" Mbit/s")) < 101
    low, high = str(by_fit[2]).removesuffix(" Mbit/s").split(" to ")
    # of 80 ns a byte 1.7 may be the hosts'
    assert float(high) == pytest.approx(1.02 * float(low), rel=0.01)
    assert by_fit[4] == "200"
    assert by_trains[1] == Cell("100.0 Mbit/s", "90.00 to 110.0 Mbit/s")
    assert isinstance(notes, Items)
    assert notes.items[-1] == "tcp reply: refused: it was paced"
    assert any("the link's own rate is" in item for item in notes.items)
    (missing,) = link_parts({"link": {"tcp reply": {"reason": "it was paced"}}})
    assert isinstance(missing, Missing)
    assert link_parts({}) == []


def test_where_no_line_tells_the_rate_trains_do_if_there_are_any() -> None:
    bandwidth = {"value": 5.0004e8, "low": 4.9999e8, "high": 5.0009e8, "n": 106}
    document: dict[str, Any] = {
        "fit": {"model": "none", "reason": "one size"},
        "dispersion": {"udp request": {"bandwidth_bits_per_second": bandwidth}},
    }
    assert answer(document) == [
        "request: the link carries 500.0 to 500.1 Mbit/s, by udp trains."
    ]
    document["dispersion"]["udp request"]["bandwidth_bits_per_second"] = None
    assert answer(document) == ["round trips: no bandwidth: one size."]
