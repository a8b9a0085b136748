"""A figure has one value on a screen, and words that the file bears."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from compared_runs import write_run
from latprof_agent.sinks.round_trip_rows import RoundTrips
from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_analysis.cli import OFFLINE, VERSION
from latprof_analysis.cli.program import run_program
from latprof_analysis.read import read_samples
from latprof_analysis.stages import BLANK, PROBE_STATISTICS
from latprof_analysis.study import findings

DATA = Path(__file__).parents[1] / "data"


def analyzed(capsys, *words):
    assert run_program(OFFLINE, VERSION, ["analyze", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_percentiles_of_a_table_are_those_of_the_sentence_and_exact(tmp_path, capsys):
    path = tmp_path / "seq.csv"
    path.write_text("rtt\n" + "".join(f"{i}\n" for i in range(1, 1001)))
    words = (path, "--latency-column=rtt", "--unit=ms")
    shown = analyzed(capsys, *words)
    assert "p50 500 ms, p99 990 ms" in shown
    row = next(line for line in shown.splitlines() if line.startswith("any"))
    assert re.findall(r"[\d.]+ m?s", row) == (
        ["500 ms", "900 ms", "950 ms", "990 ms", "1.00 s"]
    )
    every = analyzed(capsys, *words, "--all")
    assert "992 ms" not in every
    (kind,) = json.loads(analyzed(capsys, *words, "--json"))["samples"][
        "kinds"
    ].values()
    exact = kind["tail"]["percentiles"]
    for p in ("p50", "p90", "p95", "p99"):
        assert kind["sizes"]["any"][f"{p}_ns"] == exact[p]["value_ns"]


@pytest.mark.parametrize("n", [1, 9, 10, 150, 5000])
def test_exact_figures_have_the_names_of_those_of_a_histogram(n, monkeypatch):
    times = np.random.default_rng(n).lognormal(11, 0.5, n).round()
    exact = findings.figures_of_times(times)
    monkeypatch.setattr(findings, "MOST_EXACT", 0)
    counted = findings.figures_of_times(times)
    assert exact.keys() == counted.keys()
    for name, value in exact.items():
        # a bucket is at most 0.8% wide
        assert value == (value and pytest.approx(counted[name], rel=0.009)), (
            name
        )  # None where none is known
    assert exact["n"] == n
    assert exact["max_ns"] == times.max()


def test_the_direction_of_irtts_losses_is_shown_as_irtt_says_it(capsys):
    path = DATA / "irtt.json"
    trips = json.loads(path.read_text())["round_trips"]
    said = [str(trip["lost"]) for trip in trips]
    up, down = said.count("true_up"), said.count("true_down")
    unknown = said.count("true")
    assert up
    assert down
    shown = analyzed(capsys, path)
    assert f"lost (33.3%): {up} up, {down} down, {unknown} unknown\n" in shown
    both = read_samples([path, DATA / "irtt.json.gz"]).meta["lost_where"]
    assert both["round trip"]["up"] >= up
    (kind,) = json.loads(analyzed(capsys, path, "--json"))["samples"]["kinds"].values()
    assert kind["lost_where"] == {"up": up, "down": down, "unknown": unknown}
    # the other formats do not say it
    assert "lost_where" not in read_samples(DATA / "sockperf_tcp.csv").meta


def test_the_size_of_a_playbacks_messages_is_not_known(capsys):
    shown = analyzed(capsys, DATA / "sockperf_playback.csv")
    assert "14 B" not in shown
    samples = read_samples(DATA / "sockperf_playback.csv")
    assert samples.frame["size_bytes"].isna().all()
    assert samples.meta["message_bytes"] is None
    # a ping-pong of messages as long writes the same size, and that is theirs
    of_ping_pong = read_samples(DATA / "sockperf_histogram.csv")
    assert set(of_ping_pong.frame["size_bytes"]) == {14}


def test_run_analyze_and_compare_have_the_same_percentiles_of_round_trips(
    tmp_path, capsys
):
    for name, seed in (("a", 1), ("b", 2)):
        write_run(tmp_path / name, seed, rounds=301, lost=0.1)
    table = pd.read_csv(tmp_path / "a" / "round_trips.csv")
    totals = RoundTripTotals("tcp", 2, 2, open_loop=False)
    totals.add(RoundTrips("tcp", as_recorded(table), 0))
    of_run = totals.as_dict()
    found = json.loads(analyzed(capsys, tmp_path / "a", "--json"))["round_trips"]["tcp"]
    words = ["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]
    assert run_program(OFFLINE, VERSION, words) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    compared = {
        g["size_bytes"]: g["percentiles"]["p50"]["a"]
        for g in groups
        if g["stage"] == "rtt"
    }
    for size, rows in table[table["lost"] == 0].groupby("size_bytes"):
        ascending = sorted(rows["rtt_ns"].astype(int))
        # the first that half of all, or more, do not exceed
        median, n = ascending[(len(ascending) + 1) // 2 - 1], len(ascending)
        for sizes in (found["sizes"], of_run["sizes"]):
            assert (sizes[str(size)]["p50_ns"], sizes[str(size)]["n"]) == (median, n)
        assert (compared[size]["value_ns"], compared[size]["n"]) == (median, n)
    assert found["rtt"] == of_run["rtt"]


def as_recorded(table):
    """Return columns of round trips as the agent has them."""
    names = ("sequence", "size_bytes", "rtt_ns", "sent_ns", "intended_ns", "lost")
    numbers = {
        name: table[name].fillna(BLANK).astype("int64").to_numpy()
        if name in table
        else np.full(len(table), BLANK)
        for name in (*names, PROBE_STATISTICS)
    }
    return numbers
