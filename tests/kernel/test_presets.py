"""`latprof run --preset`: what was sent is what the preset says, and its own files."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from latprof_process import run


def test_clear_leaves_its_result_text_with_the_means_of_its_rows(tmp_path):
    out = tmp_path / "run"
    words = ("--preset", "clear", "--scale", "0.02", "--json", "--out", str(out))
    latprof = run("run", *words)
    assert latprof.process.returncode == 0, latprof.err
    assert latprof.err.startswith("latprof: preset clear: latprof run --protocol tcp")
    assert json.loads(latprof.out)["workload"]["plan"]["wire"] == "clear"
    rows = pd.read_csv(out / "round_trips.csv")
    assert (rows["size_bytes"].min(), rows["size_bytes"].max()) == (18, 65535)
    assert (rows.groupby("size_bytes").size() == 10).all()

    told = run("analyze", "--json", str(out / "clear_result.txt"))
    document = json.loads(told.out)
    assert document["input"]["format"] == "clear"
    (kind,) = document["samples"]["kinds"].values()
    counted = rows[rows["probe_statistics"].isna()].groupby("size_bytes")["rtt_ns"]
    assert {one["size_bytes"]: one["messages"] for one in kind["given"]} == dict(
        counted.count()
    )
    lines = (out / "clear_result.txt").read_text().splitlines()[1:-1]
    fields = [line.replace(",", "").split() for line in lines]
    sums: dict[int, float] = {}
    for words in fields:  # Size = N bytes Count = N average latency = X ms
        sums[int(words[2])] = sums.get(int(words[2]), 0) + int(words[6]) * float(
            words[10]
        )
    for size, times in counted:
        assert sums[size] / len(times) == pytest.approx(times.mean() / 1e6, abs=1e-6)


def test_timewarp_sends_at_random_times_and_gets_short_replies(tmp_path):
    out = tmp_path / "run"
    words = ("--preset", "timewarp", "--scale", "0.02", "--json", "--out", str(out))
    latprof = run("run", *words)
    assert latprof.process.returncode == 0, latprof.err
    rows = pd.read_csv(out / "round_trips.csv")
    assert len(rows) == 4 * 257  # 0.02 of a quarter of 51424
    gaps = rows.sort_values("intended_ns")["intended_ns"].diff().dropna()
    # of exponential gaps the mean is the deviation; of 1027 of them within 5 of 3%
    assert gaps.mean() == pytest.approx(1e6, rel=0.16)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.25)
    messages = pd.read_csv(out / "messages.csv")
    assert (messages.loc[messages["kind"] == "reply", "size_bytes"] == 18).all()
