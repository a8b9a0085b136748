"""`latprof compare`: its texts, its tables, its exit status, and hostile input."""

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from compared_runs import write_run
from latprof_analysis.cli.program import Subcommand, run_program

DATA = Path(__file__).parent.parent / "data"
COMMANDS = {"compare": Subcommand("say what changed", "latprof_analysis.cli.compare")}
# Published by the authors of ProxyStore's benchmarks: Theta to Theta, mean ms.
PUBLISHED = """\
GET    | 1000      |    1.605 |    0.227
GET    | 10000     |    1.987 |    0.155
GET    | 100000    |    7.639 |    0.236
GET    | 1000000   |   68.930 |    0.803
GET    | 10000000  |  608.133 |    9.151
SET    | 1000      |    1.620 |    0.155
SET    | 10000     |    2.113 |    0.167
SET    | 100000    |    7.925 |    0.182
SET    | 1000000   |   72.135 |    0.744
SET    | 10000000  |  611.600 |    6.503
EVICT  | N/A       |    1.381 |    0.106
EXISTS | N/A       |    1.434 |    0.158
"""
HEADER = (
    "backend,op,payload_size_bytes,repeat,total_time_ms,avg_time_ms,min_time_ms,"
    "max_time_ms\n"
)


@pytest.fixture
def compare(capsys):
    """Run the command; returns its status, stdout and stderr."""

    def run(*words):
        try:
            status = run_program(COMMANDS, "0", ["compare", *map(str, words)])
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    base = tmp_path_factory.mktemp("runs")
    for i in range(3):
        write_run(base / "a" / str(i), i)
        write_run(base / "b" / str(i), 20 + i, factors={"transit": 1.1})
    return base


def backends_csv(path):
    rows = []
    for line in PUBLISHED.splitlines():
        op, size, endpoint, redis = (cell.strip() for cell in line.split("|"))
        payload = "" if size == "N/A" else size
        for name, ms in (("REDIS", redis), ("ENDPOINT", endpoint)):
            rows.append(f"{name},{op},{payload},5,{3 * float(ms)},{ms},{ms},{ms}\n")
    path.write_text(HEADER + "".join(sorted(rows, reverse=True)))
    return path


def test_the_answer_comes_first_and_the_rest_is_a_count(compare, runs):
    status, text, errors = compare(runs / "a", runs / "b")
    assert (status, errors) == (0, "")
    first = text.splitlines()[0]
    assert f"{runs}/b against {runs}/a: slower in" in first
    assert "tcp request transit 64 B" in text
    assert "tcp request application 64 B" not in text
    assert "groups: " in text
    assert "tcp request application 64 B" in compare(runs / "a", runs / "b", "--all")[1]


def test_the_answer_is_of_what_took_how_long_as_a_whole_and_stages_explain_it(
    compare, tmp_path
):
    # transit is most of all time; three stages that are slower are little of it
    factors = {"transit": 1 / 6, "application": 3, "send_queue": 3, "qdisc": 3}
    for i in range(3):
        write_run(tmp_path / "a" / str(i), i)
        write_run(tmp_path / "b" / str(i), 10 + i, factors=factors)
    _, text, _ = compare(tmp_path / "a", tmp_path / "b")
    # of two sizes: end to end of requests and of replies, and round trips
    answer = re.search(r": faster in 6 of 6 groups; most in tcp .*", text)[0]
    # of each way and size three stages slower, transit faster, two as before
    assert "Of their stages: slower in 12, faster in 4 of 2" in answer


def test_the_gate_fails_on_what_is_slower_and_names_it(compare, runs):
    words = (runs / "a", runs / "b", "--only", "transit", "--percentile", "p50")
    status, text, _ = compare(*words, "--fail-if-slower", "5%")
    assert status == 3
    assert text.startswith("failed: 4 beyond it with the whole interval (slower by")
    assert "failed: {} tcp reply transit 64 B p50 +".format(runs / "b") in text
    assert compare(*words, "--fail-if-slower", "20%")[0] == 0
    assert compare(runs / "b", runs / "a", "--fail-if-slower", "0%")[0] == 0
    report = json.loads(compare(*words, "--fail-if-slower", "5%", "--json")[1])
    assert report["gate"]["outcome"] == "failed"
    assert {one["stage"] for one in report["gate"]["findings"]} == {"transit"}


def test_a_gate_that_passes_says_on_what(compare, tmp_path):
    rng = np.random.default_rng(1)
    for name in "ab":
        rows = "".join(f"{ms}\n" for ms in rng.lognormal(0, 0.5, 3000))
        (tmp_path / f"{name}.csv").write_text("ms\n" + rows)
    words = [tmp_path / "a.csv", tmp_path / "b.csv", "--latency-column=ms", "--unit=ms"]
    status, text, _ = compare(*words, "--fail-if-slower", "10%")
    first, second = text.splitlines()[:2]
    assert status == 0
    assert first.startswith("passed: nothing slower by more than 10%, with the whole ")
    assert f"interval: p50, p90 of {tmp_path}/b.csv" in first
    assert second.startswith(" does not decide: p99 of 1 group: up to ")
    assert second.endswith(" values on each side would decide if it is as estimated")
    assert compare(*words, "--fail-if-slower", "1%")[0] == 4
    assert compare(*words, "--accept-estimate")[0] == 2


def test_a_gate_that_can_tell_nothing_does_not_pass(compare, tmp_path):
    rng = np.random.default_rng(5)
    for name, median in (("a", 2.3), ("b", 6.6)):
        rows = "".join(f"{ms}\n" for ms in rng.lognormal(np.log(median), 0.1, 9))
        (tmp_path / f"{name}.csv").write_text("ms\n" + rows)
    words = [tmp_path / "a.csv", tmp_path / "b.csv", "--latency-column=ms", "--unit=ms"]
    status, text, _ = compare(*words, "--fail-if-slower", "5%")
    assert status == 4
    assert text.startswith("undecided: 1 not known to be within it")
    assert text.splitlines()[1].endswith("worth 7 independent ones, 10 are needed")


def write_trips(folder, lost, gap_ns, seed, offered_ns=None):
    """A run of 2,000 round trips of 64 B that says when each was sent."""
    rng = np.random.default_rng(seed)
    folder.mkdir()
    sent = np.cumsum(rng.exponential(0.1 * gap_ns, 2000) + 0.9 * gap_ns).astype(int)
    intended = sent if offered_ns is None else offered_ns * np.arange(2000)
    rows = [
        f"udp,{i},64,64,{due},{at},{'' if gone else at + 900},{'' if gone else 900},"
        f"{int(gone)},"
        for i, (due, at, gone) in enumerate(
            zip(intended, sent, rng.random(2000) < lost, strict=True)
        )
    ]
    header = "protocol,sequence,size_bytes,reply_bytes,intended_ns,sent_ns,received_ns,"
    header += "rtt_ns,lost,probe_statistics"
    (folder / "round_trips.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder


def test_loss_and_throughput_have_limits_of_their_own(compare, tmp_path):
    before = write_trips(tmp_path / "before", 0.0, 1e6, 1)
    after = write_trips(tmp_path / "after", 0.083, 2.06e6, 2)
    slower = ("--fail-if-slower", "5%")
    assert compare(before, after, *slower)[0] == 0  # the latencies are the same
    status, text, _ = compare(before, after, "--fail-if-lossier", "1%")
    assert (status, f"failed: {after} udp loss +" in text) == (3, True)
    status, text, _ = compare(before, after, "--fail-if-throughput-lower", "10%")
    assert (status, "udp throughput -51" in text) == (3, True)
    limits = ("--fail-if-lossier", "1%", "--fail-if-throughput-lower", "10%")
    again = write_trips(tmp_path / "again", 0.0, 1e6, 3)
    assert compare(before, again, *limits, *slower)[0] == 0
    assert compare(after, before, *limits, *slower)[0] == 0
    few = write_trips(tmp_path / "few", 0.002, 1e6, 4)
    assert compare(before, few, "--fail-if-lossier", "0.1%")[0] == 4
    (tmp_path / "a.csv").write_text("ms\n" + "2\n1\n" * 100)
    csv = (tmp_path / "a.csv", tmp_path / "a.csv", "--latency-column=ms", "--unit=ms")
    status, text, _ = compare(*csv, "--fail-if-lossier", "1%")
    assert (status, "no round trips of a load generator" in text) == (4, True)


def test_what_was_offered_more_often_is_not_faster(compare, tmp_path):
    slow = write_trips(tmp_path / "slow", 0.0, 1e6, 1, offered_ns=1_000_000)
    fast = write_trips(tmp_path / "fast", 0.0, 0.5e6, 2, offered_ns=500_000)
    (found,) = json.loads(compare(slow, fast, "--json")[1])["throughput"]
    assert found["verdict"] == "too few"
    assert found["reason"].startswith("open loops of 1000 to 2000 a second")
    closed = write_trips(tmp_path / "closed", 0.0, 0.5e6, 3)
    (found,) = json.loads(compare(closed, fast, "--json")[1])["throughput"]
    assert found["reason"] == "one side is a closed loop, the other an open one"


def test_like_and_like_says_how_small_a_change_would_have_been_seen(compare, tmp_path):
    rng = np.random.default_rng(6)
    for name in "ab":
        rows = "".join(f"{ms}\n" for ms in rng.lognormal(0, 0.1, 1000))
        (tmp_path / f"{name}.csv").write_text("ms\n" + rows)
    words = (tmp_path / "a.csv", tmp_path / "b.csv", "--latency-column=ms", "--unit=ms")
    answer = compare(*words)[1].splitlines()[0]
    assert "would have been seen in 4 of 5 cases." in answer
    assert " in p50, " in answer


def test_a_percentile_is_no_word_of_only(compare, runs):
    status, _, errors = compare(runs / "a", runs / "b", "--only", "p99")
    assert status == 2
    assert "must be of 'application', 'end_to_end'" in errors
    assert "for percentiles: --percentile p99" in errors


def test_backends_stand_side_by_side_with_the_published_figures(compare, tmp_path):
    path = backends_csv(tmp_path / "theta.csv")
    report = json.loads(compare(path, "--json")[1])
    assert report["baseline"] == "REDIS"
    told = {(row["kind"], row["size_bytes"]): row["sides"] for row in report["figures"]}
    for line in PUBLISHED.splitlines():
        op, size, endpoint, redis = (cell.strip() for cell in line.split("|"))
        sides = told[op, None if size == "N/A" else int(size)]
        assert sides["ENDPOINT"]["value_ns"] / 1e6 == pytest.approx(float(endpoint))
        assert sides["REDIS"]["value_ns"] / 1e6 == pytest.approx(float(redis))
        ratio = float(endpoint) / float(redis)
        assert sides["ENDPOINT"]["ratio"] == pytest.approx(ratio)
    text = compare(path)[1]
    assert "7.07 to 97 times as long in 12 figures" in text
    assert "none can be judged" in text


def test_several_systems_and_another_baseline(compare, tmp_path):
    paths = [backends_csv(tmp_path / f"{name}.csv") for name in ("theta", "midway")]
    words = (*paths, "--by", "backend", "--baseline", "ENDPOINT", "--json")
    report = json.loads(compare(*words)[1])
    assert report["baseline"] == "ENDPOINT"
    kinds = {row["kind"] for row in report["figures"]}
    assert {"theta GET", "midway EVICT"} <= kinds
    assert "midway REDIS GET" not in kinds
    status, _, errors = compare(*paths, "--baseline", "NONE")
    assert status == 2
    assert errors.startswith("latprof: --baseline must be one of")


def test_figures_that_sum_up_are_not_judged(compare):
    path = DATA / "sockperf_ping_pong.txt"
    report = json.loads(compare(path, path, "--json")[1])
    assert report["groups"] == []
    assert report["warnings"] == []
    assert {row["sides"][f"{path} (2)"]["ratio"] for row in report["figures"]} == {1.0}
    assert "cannot" in report["answer"] or "none can be judged" in report["answer"]


def test_smoothed_round_trip_times_stand_side_by_side_by_their_median(compare):
    path = DATA / "iperf3_tcp.json"
    end = json.loads(path.read_text())["end"]["streams"]
    report = json.loads(compare(path, path, "--json")[1])
    for row, stream in zip(report["figures"], end, strict=True):
        for side in row["sides"].values():
            assert side["value_ns"] >= 1000 * stream["sender"]["min_rtt"]
            assert side["value_ns"] <= 1000 * stream["sender"]["max_rtt"]


def test_a_csv_of_it_has_one_row_for_each_percentile(compare, runs, tmp_path):
    path = tmp_path / "out.csv"
    words = (runs / "a", runs / "b", "--percentile", "p50,p90", "--csv", path, "--json")
    report = json.loads(compare(*words)[1])
    rows = list(csv.DictReader(path.open(newline="")))
    rates = len(report["throughput"] + report["loss"])
    assert len(rows) == 2 * len(report["groups"]) + rates
    row = next(r for r in rows if (r["stage"], r["figure"]) == ("transit", "p50"))
    entry = next(g for g in report["groups"] if g["stage"] == "transit")
    assert float(row["ratio"]) == entry["percentiles"]["p50"]["ratio"]["value"]
    assert row["verdict"] == "slower"


def test_names_from_files_reach_neither_terminal_nor_spreadsheet(compare, tmp_path):
    evil = "=HYPERLINK(1)\x1b[2J[red]\u202e"
    path = tmp_path / "evil.csv"
    rows = "".join(f'"{name}",{evil},1,5,3,1,1,1\n' for name in (evil, "B"))
    path.write_text(HEADER + rows)
    out = tmp_path / "out.csv"
    status, text, errors = compare(path, "--csv", out)
    assert (status, errors) == (0, "")
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]" in text
    cells = [cell for row in csv.reader(out.open(newline="")) for cell in row]
    assert not [cell for cell in cells if cell.startswith("=")]


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (["missing", "b"], 1, "cannot read missing: no such file"),
        (["a"], 2, "one input is nothing to compare"),
        (
            ["a", "b", "--fail-if-slower", "5"],
            2,
            "must be a share like 1% or 0.01, got '5'",
        ),
        (["a", "b", "--percentile", "100"], 2, "must be percentiles like p50,p99.9"),
        (["a", "b", "--sizes", "x"], 2, "must be a size like 18, 64k or 1MiB"),
        (["a", "b", "--unit", "ms"], 2, "a unit goes with a latency column, or with"),
        (["a", "b", "--only", "rrt"], 2, "got 'rrt'; did you mean rtt"),
        (["a", "b", "--only", "rtt", "--sizes", "7"], 1, "no input has what --only"),
        (["a", "b", "--by", "backend"], 1, "has no such column"),
        (["a", "b", "--csv", "no/such/folder/x.csv"], 1, "no such folder; make"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    compare, runs, monkeypatch, words, status, why
):
    monkeypatch.chdir(runs)
    got, text, errors = compare(*words)
    assert (got, text) == (status, "")
    assert why in errors
    assert errors.startswith("latprof: ")
    assert errors.count("\n") == 1


def test_an_empty_and_a_truncated_run_are_said(compare, runs, tmp_path):
    empty = tmp_path / "empty"
    shutil.copytree(runs / "a/0", empty)
    for table in ("messages", "round_trips"):
        file = empty / f"{table}.csv"
        file.write_text(file.read_text().splitlines()[0] + "\n")
    status, _, errors = compare(empty, runs / "a/0")
    assert status == 1
    assert "nothing to compare" in errors
    (empty / "messages.csv").write_bytes(b"\x00\xff" * 100)
    assert compare(empty, runs / "a/0")[0] == 1
    killed = tmp_path / "killed"
    shutil.copytree(runs / "a/0", killed)
    (killed / "summary.json").unlink()
    status, text, _ = compare(runs / "a/1", killed)
    assert status == 0
    assert "summary.json is missing: the run was killed" in text
