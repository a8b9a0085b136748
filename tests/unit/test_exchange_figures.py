"""Exchanges in a report: its first sentence, its table, its figures."""

from __future__ import annotations

import numpy as np
import pytest
from exchange_rows import exchange, frame_of, write_exchanges
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_analysis.report.build import build_report
from latprof_analysis.report.exchange_figures import (
    bands_figure,
    percentiles_figure,
    response_figure,
    summed_parts,
)
from latprof_analysis.report.html import html_page
from latprof_analysis.report.parts import Figure, Fold, Table, Text
from latprof_analysis.report.words import duration_text
from latprof_analysis.study.analysis import Study, analyze
from made_runs import messages, write_table

WAY = "cli -> srv:80"
NAME = f"tcp {WAY}"
N = 2_000


def rows_of(n=N, seed=1, **values):
    """Exchanges most of whose time is work; the slowest 1% wait to be read."""
    gaps = np.random.default_rng(seed).integers(1_000, 2_000, (n, 4)) * [1, 1, 10, 1]
    gaps[:: n // 20 or 1, 1] += 500_000
    sent = 10**12 + 10**6 * np.arange(n)
    stamps = sent[:, None] + np.c_[np.zeros(n, int), gaps.cumsum(axis=1)]
    return [exchange(tuple(row), **values) for row in stamps.tolist()]


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Study:
    folder = tmp_path_factory.mktemp("run")
    rows = [*rows_of(), *rows_of(200, 2, way="dig -> dns:53", protocol="udp")]
    write_exchanges(folder / "exchanges.csv", rows)
    return analyze(folder)


def test_the_report_begins_with_the_sentences_of_the_terminal(found):
    report = build_report(found, "run")
    assert report.answer[0].startswith(f"{WAY}, 2,000 exchanges: response p50 1")
    assert (
        "in srv (pid 812), not yet read; of all time 61.3% not yet answered"
        in (report.answer[0])
    )
    assert report.answer[1].startswith("dig -> dns:53 (udp), 200 exchanges: ")
    first = report.sections[0]
    assert first.name == "exchanges"
    assert [type(part) for part in first.parts] == [Figure, Table, Figure, Figure, Fold]
    names = [figure.name for figure in report.figures()]
    assert len(set(names)) == len(names)


def test_a_way_of_one_exchange_is_named_and_not_drawn(tmp_path):
    ways = [f"cli -> srv{i}:80" for i in range(3)]
    rows = [row for i, way in enumerate(ways) for row in rows_of(1, i, way=way)]
    write_exchanges(tmp_path / "exchanges.csv", [*rows_of(50), *rows])
    report = build_report(analyze(tmp_path), "run")
    assert not [one for one in report.figures() if "srv0" in one.title]
    (text,) = (
        part.text
        for part in report.sections[0].parts
        if isinstance(part, Text) and part.text.startswith("One exchange each: ")
    )
    for i, way in enumerate(ways):
        (row,) = rows_of(1, i)
        response_ns = float(frame_of([row])["response_ns"].iloc[0])
        assert f"{way} {duration_text(response_ns)}" in text


def test_the_picture_has_the_responses_in_parts_that_sum_to_all_of_them(found):
    picture = build_report(found, "run").picture
    data = picture.data[picture.data["whole"] == "response"]
    assert set(data["group"]) == {WAY, "dig -> dns:53 (udp)"}
    assert data.groupby("group")["to_share"].last().tolist() == pytest.approx([1, 1])
    shares = data[data["group"] == WAY].set_index("stage")["share"]
    rows = frame_of(rows_of())
    response = float(rows["response_ns"].sum())
    for part, column in (
        ("not yet answered", "server_work"),
        ("reply's way", "reply_way"),
    ):
        spent = float(rows[f"{column}_ns"].sum())
        assert shares[part] == pytest.approx(spent / response, rel=1e-6)


def test_a_study_without_exchanges_has_no_word_of_them(tmp_path):
    write_table(tmp_path / "messages.csv", messages(40))
    report = build_report(analyze(tmp_path), "run")
    assert "exchanges" not in {section.name for section in report.sections}
    assert not any("exchange" in text for text in report.answer)


def test_the_table_has_the_figures_of_all_and_their_intervals(found):
    (table,) = (
        p for p in build_report(found, "r").sections[0].parts if type(p) is Table
    )
    labels = [str(row[0]).strip() for row in table.rows]
    assert labels == [
        *("response", "request's way", "server", "not yet read", "not yet answered"),
        "reply's way",
    ]
    p50 = table.rows[0][1]
    low, high = p50.under.removesuffix(" µs").split(" to ")
    assert float(low) <= float(p50.text.removesuffix(" µs")) <= float(high)
    assert "p99.9" not in table.columns  # of 2000: too few
    assert table.note.endswith("p99.9 needs n 10,000.")


def test_bands_have_the_mean_of_each_part():
    rows = frame_of(rows_of()).assign(run="r")
    figure = bands_figure(NAME, rows, "x")
    data = figure.data.set_index(["group", "part"])["mean_ns"]
    ascending = rows.sort_values("response_ns", kind="stable")
    fast, slow = ascending.iloc[: N // 2], ascending.iloc[-2:]
    for part, column in (
        ("request's way", "request_way_ns"),
        ("not yet read", "server_queue_ns"),
        ("not yet answered", "server_work_ns"),
        ("reply's way", "reply_way_ns"),
    ):
        assert data["up to p50", part] == pytest.approx(fast[column].mean())
        assert data["above p99.9", part] == pytest.approx(slow[column].mean())
    tail = ascending.iloc[-20:]
    share = tail["server_queue_ns"].sum() / tail["response_ns"].sum()
    assert (
        f"of the slowest 1%'s time {100 * share:.0f}% is not yet read" in figure.title
    )
    assert "of the faster half's" in figure.title
    assert figure.title.endswith("is not yet answered")


def test_over_time_slow_exchanges_have_the_part_that_took_most():
    rows = frame_of(rows_of()).assign(run="r")
    figure = response_figure(NAME, rows, "x")
    slow = figure.data[figure.data["role"] == "slow"]
    assert len(slow) == 150
    assert (slow["part"] == "not yet read").sum() == 20  # those that waited
    assert set(slow["part"]) == {"not yet read", "not yet answered"}
    assert slow["latency_ns"].max() == rows["response_ns"].max()
    spans = figure.data[figure.data["role"] == "span"]
    assert spans["messages"].sum() == N


@pytest.mark.parametrize("known", [0, 3])
def test_exchanges_that_do_not_tell_when_they_began_are_in_no_time_line(
    tmp_path, known
):
    rows = rows_of(20)
    for row in rows[known:]:
        row["request_sent_ns"] = None
    write_exchanges(tmp_path / "exchanges.csv", rows)
    report = build_report(analyze(tmp_path), "run")
    if known:
        assert len(report.sections[0].parts[-1].data) == known
    else:
        untold = report.sections[-1].parts[-1].parts
        reasons = {part.reason for part in untold}
        assert "no exchange has the time at which it began" in reasons


def test_percentiles_by_way_are_those_of_the_document(found):
    told = found.document["exchanges"]
    data = percentiles_figure(told).data
    assert set(data["way"]) == {WAY, "dig -> dns:53 (udp)"}
    for one in data.itertuples():
        name = NAME if one.way == WAY else "udp dig -> dns:53"
        response = told[name]["parts"]["response"]
        assert one.response_ns == response[f"{one.percentile}_ns"]
    assert "p99.9" not in set(data["percentile"])  # of 2000: too few


gaps = st.lists(st.integers(0, 10**6), min_size=5, max_size=5)
present = st.lists(st.booleans(), min_size=3, max_size=3)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(gaps, present), min_size=1, max_size=8))
def test_parts_sum_to_the_response_whatever_stamp_is_missing(drawn):
    rows = []
    for steps, there in drawn:
        sent, *between, got = (np.cumsum(steps) + 1).tolist()
        kept = [s if t else None for s, t in zip(between, there, strict=True)]
        rows.append(exchange((sent, *kept, got)))
    frame = frame_of(rows)
    whole = frame[frame["reply_way_ns"].notna()]
    total = sum((np.nan_to_num(v) for v in summed_parts(whole).values()), np.zeros(1))
    if len(whole):
        assert (total == whole["response_ns"].to_numpy("float64")).all()


def test_what_is_within_a_part_is_taken_off_it():
    within = {"server_wakeup_ns": 12, "reply_pauses_ns": 60}
    client = {"client_queue_ns": 30, "client_wakeup_ns": 25}
    row = exchange((10, 20, 50, 90, 200), **within, **client)
    work = {"server_cpu_ns": 25, "server_cpu_wait_ns": 5, "server_sleep_ns": 10}
    apart = {
        "request's way": 10,
        "not yet read": 18,
        "waiting for CPU": 12,
        "reply's way": 20,
        "server paused": 60,
        "not yet read by client": 5,
        "client waiting for CPU": 25,
    }
    done = {"on CPU": 25, "waiting for CPU again": 5, "asleep": 10}
    for one, parts in ((row, {"not yet answered": 40}), (row | work, done)):
        found = summed_parts(frame_of([one]))
        assert {name: times[0] for name, times in found.items()} == apart | parts
        assert sum(times[0] for times in found.values()) == row["response_ns"]


def test_the_half_that_was_seen_has_its_table_and_no_figure(tmp_path):
    rows = [exchange((None, 20, 30, 70, None), way="elsewhere -> srv:80")] * 40
    write_exchanges(tmp_path / "exchanges.csv", rows)
    report = build_report(analyze(tmp_path), "run")
    assert "the client's end was not seen" in report.answer[0]
    assert [type(part) for part in report.sections[0].parts] == [Table]


def test_names_of_strangers_are_text_and_long_ones_no_long_file_names(tmp_path):
    ways = ["<script>alert(1)</script> -> b:1", "a" * 500 + " -> b:1", "a-b -> b:1"]
    ways.append("a.b -> b:1")
    rows = [row for i, way in enumerate(ways) for row in rows_of(60 - i, way=way)]
    write_exchanges(tmp_path / "exchanges.csv", rows)
    report = build_report(analyze(tmp_path), "run")
    names = [figure.name for figure in report.figures()]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) < 80
    assert "<script>alert(1)" not in html_page(report)
