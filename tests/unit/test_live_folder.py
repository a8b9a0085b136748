"""A recording of live traffic: what was counted comes back, from all three readers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from latprof_agent.cli import SUBCOMMANDS
from latprof_agent.errors import CaptureError, UsageError
from latprof_agent.live.histogram_rows import COLUMNS, histogram_rows
from latprof_agent.live.live_folder import INTERVAL_NS, Description, LiveFolder
from latprof_agent.monitor.totals import Group, GroupTotals, Own, Quantity, Totals
from latprof_analysis import read_runs
from latprof_analysis.cli.program import run_program
from latprof_analysis.read.result import ReadError
from latprof_analysis.read.run_folder import EVERYTHING, read_histograms
from latprof_analysis.read.schema import HISTOGRAMS
from latprof_analysis.stages import BLANK
from latprof_analysis.stats.kernel_histogram import CoarseHistogram
from latprof_analysis.study.analysis import analyze
from latprof_analysis.study.runs import histogram_figures
from made_runs import write_run
from sampled_rows import link_stamps, messages_rows
from test_run_files import files_limited

SECOND = 1_000_000_000
BEGIN_NS = 5000 * SECOND
REDIS = Group("tcp", "server", "6379")
HOSTILE = Group("tcp", comm='=evil("x"),\n', cgroup="/a b/'c")
WATCHED = Description("port 6379", ("service",), ("watch", "--record", "x"))


def window(end_s: float, seconds: float, groups: dict) -> Totals:
    """Totals of a window with these durations by group and quantity."""
    return Totals(
        t_ns=BEGIN_NS + int(end_s * SECOND),
        groups={
            group: GroupTotals({q: CoarseHistogram.of(v) for q, v in found.items()})
            for group, found in groups.items()
        },
        own=Own(seconds=seconds, covered_seconds=seconds),
    )


def recorded(path: Path, seed: int = 1, factor: float = 1.0, windows: int = 100):
    """Record so many windows of 2 s; what was in them, by group and quantity."""
    rng = np.random.default_rng(seed)
    folder, counted = LiveFolder(path), {}
    folder.start(WATCHED)
    for i in range(windows):
        found = {
            group: {
                q: (factor * rng.lognormal(11, 1.5, rng.integers(0, 40))).astype(int)
                for q in (Quantity.RESPONSE, Quantity.SEND_QUEUE)
            }
            for group in (REDIS, HOSTILE)
        }
        folder.add_window(window(2 * (i + 1), 2, found), Totals())
        for group, quantities in found.items():
            for quantity, values in quantities.items():
                counted.setdefault((group, quantity), []).extend(values.tolist())
        size = rng.integers(1, 1000, 20)
        t_ns = (2 * i + 1) * SECOND + np.arange(20)
        delay_ns = np.full(20, int(factor * 80_000))
        folder.add_messages(messages_rows(size, link_stamps(t_ns, delay_ns)))
    summary = folder.finish(window(2 * windows, 2 * windows, {}))
    return summary, counted


def figures_of(path: Path):
    return json.loads((path / "summary.json").read_text())


@pytest.fixture
def latprof(capsys):
    """Run an offline command; its status, stdout and stderr."""

    def run(*words):
        try:
            status = run_program(SUBCOMMANDS, "0", list(map(str, words)))
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return run


def test_all_that_was_counted_comes_back_from_the_file(tmp_path):
    _, counted = recorded(tmp_path / "run")
    notes: list[str] = []
    found = read_histograms([tmp_path / "run"], notes)
    assert notes == []
    names = {"tcp server 6379": REDIS, "tcp /a b/'c " + '=evil("x"),\n': HOSTILE}
    assert len(found) == len(counted) == 4
    for (name, quantity), histogram in found.items():
        expected = CoarseHistogram.of(counted[names[name], Quantity(quantity)])
        assert (histogram.counts == expected.counts).all()
        assert histogram.sum_ns == expected.sum_ns


def test_what_stands_for_pauses_makes_no_percentile(tmp_path):
    folder = LiveFolder(tmp_path / "run")
    folder.start(WATCHED)
    for i in range(3):  # of each interval a tenth was measured
        made = window(60 * (i + 1), 60, {REDIS: {Quantity.RESPONSE: [5000] * 1000}})
        made.groups[REDIS].histograms[Quantity.RESPONSE].unmeasured = 900
        folder.add_window(made, Totals())
    folder.finish(Totals())
    (found,) = read_histograms([tmp_path / "run"], []).values()
    assert (found.count, found.measured) == (3000, 300)
    figures = histogram_figures([tmp_path / "run"], [])["tcp server 6379"]["response"]
    assert figures["n"] == 3000
    assert figures["p90_ns"] == pytest.approx(5000, rel=1 / 32)
    assert figures["p99_ns"] is None


def test_intervals_are_of_a_minute_and_none_is_counted_twice(tmp_path):
    _, counted = recorded(tmp_path / "run", windows=100)
    lines = (tmp_path / "run" / "histograms.csv").read_text().split("\n")
    assert lines[0].split(",") == list(COLUMNS)
    rows = [line.split(",") for line in lines if line.startswith("tcp,server")]
    begin, end, count = (COLUMNS.index(n) for n in ("begin_ns", "end_ns", "count"))
    spans = sorted({(int(row[begin]), int(row[end])) for row in rows})
    # 200 s: three whole minutes, and the rest when it was over
    ends = [*(i * INTERVAL_NS for i in range(4)), 200 * SECOND]
    assert [begin - BEGIN_NS for begin, _ in spans] == ends[:-1]
    assert [end - BEGIN_NS for _, end in spans] == ends[1:]
    whole = sum(len(v) for (group, _), v in counted.items() if group == REDIS)
    assert sum(int(row[count]) for row in rows) == whole


def test_the_columns_are_those_that_are_documented():
    assert all(column.about for column in HISTOGRAMS.columns)


def test_analyze_takes_percentiles_of_all_traffic_from_the_histograms(tmp_path):
    _, counted = recorded(tmp_path / "run", windows=300)
    document = analyze(tmp_path / "run").document
    found = document["histograms"]["tcp server 6379"]["response"]
    values = np.array(counted[REDIS, Quantity.RESPONSE])
    assert found["n"] == values.size
    assert found["mean_ns"] == pytest.approx(values.mean())
    for name, p in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        exact = np.quantile(values, p, method="inverted_cdf")
        assert found[f"{name}_ns"] == pytest.approx(exact, rel=0.016)
    assert document["runs"]["run"]["messages"] == 6000
    assert any("are a sample of what was watched" in n for n in document["notes"])


def test_all_three_readers_show_all_traffic_beside_the_sample(tmp_path, latprof):
    recorded(tmp_path / "a", windows=300)
    recorded(tmp_path / "b", seed=2, factor=2.0, windows=300)
    status, text, errors = latprof("analyze", tmp_path / "a")
    assert (status, errors) == (0, "")
    assert "tcp server 6379: all traffic, counted in histograms" in text
    assert "messages and exchanges are a sample" in text
    assert "attached to port 6379 for" in text
    assert "\x1b" not in text
    status, text, _ = latprof("compare", tmp_path / "a", tmp_path / "b")
    assert status == 0
    rows = [line for line in text.splitlines() if "6379 response p" in line]
    assert [row.split()[4] for row in rows] == ["p50", "p99"]
    assert all("x2" in row or "x1.9" in row or "+9" in row for row in rows), rows
    status, text, _ = latprof(
        "report", tmp_path / "a", "--out", tmp_path / "report.html"
    )
    assert status == 0
    page = (tmp_path / "report.html").read_text()
    assert "All traffic" in page
    assert "tcp server 6379" in page
    assert "=evil" in page


def test_a_folder_without_histograms_is_read_as_before(tmp_path, latprof):
    write_run(tmp_path / "old")
    document = analyze(tmp_path / "old").document
    assert document["histograms"] == {}
    assert document["kinds"]
    assert "all traffic" not in latprof("analyze", tmp_path / "old")[1]


def test_a_recording_that_was_killed_is_read_as_far_as_it_goes(tmp_path):
    folder = LiveFolder(tmp_path / "run")
    folder.start(WATCHED)
    values = {REDIS: {Quantity.RESPONSE: [1000] * 100}}
    for minute in range(1, 4):
        folder.add_window(window(60 * minute, 60, values), Totals())
    document = analyze(tmp_path / "run").document
    found = document["histograms"]["tcp server 6379"]["response"]
    assert (found["n"], found["p50_ns"]) == (300, 1000)
    assert any("the run is running" in note for note in document["notes"])
    folder.finish(window(180, 180, {}))


def test_a_full_disk_loses_nothing_that_finds_room_later(tmp_path):
    folder = LiveFolder(tmp_path / "run")
    folder.start(WATCHED)
    size = np.full(3000, 10)
    rows = messages_rows(size, link_stamps(np.arange(1, 3001), size * 9000))
    values = {REDIS: {Quantity.RESPONSE: range(100, 100_000, 7)}}
    with files_limited(5000):
        folder.add_messages(rows)
        folder.add_window(window(60, 60, values), Totals())
    assert "file too large; what was recorded until now is kept" in str(folder.failure)
    summary = folder.finish(window(60, 60, {}))
    assert summary["state"] == "failed"
    assert "file too large" in figures_of(tmp_path / "run")["failure"]
    assert len(read_runs(tmp_path / "run").messages) == 3000
    (found,) = read_histograms([tmp_path / "run"], []).values()
    assert found.count == len(range(100, 100_000, 7))


def test_what_stays_without_room_ends_with_whole_lines(tmp_path):
    folder = LiveFolder(tmp_path / "run")
    folder.start(WATCHED)
    values = {REDIS: {Quantity.RESPONSE: range(100, 100_000, 7)}}
    with files_limited(8000):
        folder.add_window(window(60, 60, values), Totals())
        folder.finish(window(60, 60, {}))
    text = (tmp_path / "run" / "histograms.csv").read_text()
    assert text.endswith("\n")
    assert 10 < text.count("\n") < 200
    assert {line.count(",") for line in text.splitlines()} == {len(COLUMNS) - 1}


def test_what_ended_the_watching_is_in_the_documents(tmp_path):
    folder = LiveFolder(tmp_path / "run")
    folder.start(WATCHED)
    own = Own(10, 5, {"sent_messages": 7}, {}, {}, {"on_read": 0.5}, 0.1, 1)
    told = {"groups": [{"name": "x"}]}
    folder.finish(Totals(own=own), told, CaptureError("cannot watch: no more"))
    summary = figures_of(tmp_path / "run")
    assert (summary["state"], summary["failure"]) == ("failed", "cannot watch: no more")
    assert summary["coverage_ratio"] == 0.5
    assert summary["cost"]["probes_cpu_share"] == 0.05
    assert "lost 7 records of sent messages" in summary["warnings"][0]
    assert summary["groups"] == [{"name": "x"}]
    assert not [n for n in analyze(tmp_path / "run").document["notes"] if "not as" in n]


def test_a_folder_that_is_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"--record: .* exists already"):
        LiveFolder(tmp_path)


def test_names_that_are_no_text_do_no_harm(tmp_path):
    rows = histogram_rows(
        {
            (Group(comm="a\udcff"), Quantity.QDISC): CoarseHistogram.of([5, 2**40]),
            (Group(), Quantity.SERVER): CoarseHistogram.of([7]),
            (REDIS, Quantity.SERVER): CoarseHistogram(),
        },
        1,
        2,
    )
    assert [rows.row(i)["comm"] for i in range(3)] == ["a?", "a?", None]
    assert rows.numbers["bucket_high_ns"].tolist() == [64, BLANK, 64]
    assert rows.numbers["sum_ns"].tolist() == [5 + 2**40, BLANK, 7]
    folder = LiveFolder(tmp_path / "run")
    folder.start(WATCHED)
    values = {
        Group(comm="a\udcff"): {Quantity.QDISC: [5]},
        Group(): {Quantity.QDISC: [6]},
    }
    folder.add_window(window(60, 60, values), Totals())
    folder.finish(Totals())
    found = read_histograms([tmp_path / "run"], [])
    assert {key.group for key in found} == {"a?", EVERYTHING}


@pytest.mark.parametrize(
    ("row", "why"),
    [("65,1,65", "no bucket begins at 65"), (f"64,{2**60},1", "count must be less")],
)
def test_wrong_rows_are_left_out_and_told(tmp_path, row, why):
    run = tmp_path / "run"
    run.mkdir()
    good = "a,64,3,200\n" * 5
    header = "quantity,bucket_low_ns,count,sum_ns\n"
    (run / "histograms.csv").write_text(f"{header}{good}a,{row}\n")
    notes: list[str] = []
    (found,) = read_histograms([run], notes).values()
    assert (found.count, found.sum_ns) == (15, 1000)
    assert "rows that were wrong and left out: 1" in notes[0]
    (run / "histograms.csv").write_text(header + f"a,{row}\n" * 9)
    with pytest.raises(ReadError, match=why):
        read_histograms([run], [])
