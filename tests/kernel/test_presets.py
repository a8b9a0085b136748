"""`latprof run --preset`: what was sent is what the preset says, and its own files."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from latprof_process import run


@pytest.mark.thorough
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
    counted = rows.groupby("size_bytes")["rtt_ns"]
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
    given = {one["size_bytes"]: one for one in kind["given"]}
    for size, times in counted:
        assert given[size]["mean_ns"] == pytest.approx(times.mean(), abs=1)
        assert sums[size] / len(times) == pytest.approx(times.mean() / 1e6, abs=1e-6)


def test_timewarp_sends_at_random_times_and_gets_short_replies(tmp_path):
    out = tmp_path / "run"
    words = ("--preset", "timewarp", "--scale", "0.02", "--max-acks", "20", "--json")
    latprof = run("run", *words, "--out", str(out))
    assert latprof.process.returncode == 0, latprof.err
    rows = pd.read_csv(out / "round_trips.csv")
    assert len(rows) == 4 * 257  # 0.02 of a quarter of 51424
    gaps = rows.sort_values("intended_ns")["intended_ns"].diff().dropna()
    # of exponential gaps the mean is the deviation; of 1027 of them within 5 of 3%
    assert gaps.mean() == pytest.approx(1e6, rel=0.16)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.25)
    messages = pd.read_csv(out / "messages.csv")
    assert (messages.loc[messages["kind"] == "reply", "size_bytes"] == 18).all()


@pytest.mark.timed
def test_timewarp_has_a_small_and_a_large_window_side_by_side(tmp_path):
    out = tmp_path / "run"
    words = ("--preset", "timewarp", "--scale", "0.05", "--out", str(out))
    latprof = run("run", *words, before=("chrt", "--fifo", "10"))
    assert latprof.process.returncode == 0, latprof.err
    told = json.loads((out / "sweep.json").read_text())
    assert told["swept"] == [{"name": "max-acks", "values": ["2", "20"]}]
    small, large = (
        {name: f["mean_ns"]["median"] for name, f in row["time_warp"].items()}
        for row in told["rows"]
    )
    for window, found in ((2, small), (20, large)):
        rows = pd.read_csv(out / f"max-acks={window}" / "1" / "messages.csv")
        rows = rows[rows["kind"] == "request"]
        waits = rows["read_ns"] - rows["arrive_ns"]
        assert found["D"] == pytest.approx(waits.mean(), rel=1e-9)
    # the same work comes at the same moments: a window only moves the wait, from the
    # reader's queue to the sender
    assert small["B"] > 2 * large["B"]
    assert small["D"] < large["D"]
    assert small["B"] + small["D"] == pytest.approx(large["B"] + large["D"], rel=0.3)
    title = "requests: Time Warp's latencies, A = B + C + D"
    assert title in latprof.out


@pytest.mark.thorough
def test_tmsn_is_a_mesh_that_leaves_its_log(tmp_path):
    out = tmp_path / "run"
    words = ("--preset", "tmsn", "--scale", "0.1", "--messages", "10", "--json")
    latprof = run("run", *words, "--out", str(out))
    assert latprof.process.returncode == 0, latprof.err
    cells = json.loads(latprof.out)["mesh"]["cells"]
    told = json.loads(run("analyze", "--json", str(out / "tmsn.log")).out)
    assert told["input"]["format"] == "tmsn"
    rows = pd.read_csv(out / "round_trips.csv")
    rows = rows[rows["heartbeat"] == 0]
    # three hosts, two others each, ten messages of each size
    assert rows.groupby("size_bytes").size().to_dict() == dict.fromkeys(
        [1024 * k for k in (1, 5, 10, 100, 200)], 60
    )
    # whole microseconds, as TMSN counts
    means = (rows["rtt_ns"] // 1000).groupby(rows["size_bytes"]).mean()
    of_log = told["samples"]["kinds"]["message"]["given"]
    again = {one["size_bytes"]: one["mean_ns"] for one in of_log}
    for cell in cells:
        average_us = cell["table"]["avg_msg"]
        assert average_us == pytest.approx(means[cell["size_bytes"]], rel=1e-3)
        assert again[cell["size_bytes"]] == pytest.approx(1000 * average_us)


def test_mcdtp_sends_its_volume_over_each_number_of_channels(tmp_path):
    out = tmp_path / "run"
    latprof = run(
        "run", "--preset", "mcdtp", "--scale", "0.01", "--json", "--out", str(out)
    )
    assert latprof.process.returncode == 0, latprof.err
    parts = json.loads(latprof.out)["bulk"]["parts"]
    assert sorted(part["channels"] for part in parts) == [1, 2, 4, 8]
    for part in parts:
        # whole datagrams on each channel
        sent = part["directions"]["up"]["sent_bytes"]
        assert 10**7 <= sent < 10**7 + 1400 * part["channels"]
        assert part["balance"]["unexplained"] == 0
    again = json.loads(run("analyze", "--json", str(out)).out)
    assert again["bulk"] == json.loads(latprof.out)["bulk"]


@pytest.mark.thorough
def test_proxystore_does_its_operations_on_redis_and_an_endpoint(tmp_path):
    pytest.importorskip("proxystore")
    out = tmp_path / "run"
    words = ("--preset", "proxystore", "--payload-sizes", "1000,10000", "--json")
    latprof = run("run", *words, "--out", str(out))
    assert latprof.process.returncode == 0, latprof.err
    table = pd.read_csv(out / "remote_ops.csv")
    assert (table["repeat"] == 5).all()
    # GET and SET of two sizes, EXISTS and EVICT of none
    assert table.groupby("backend").size().to_dict() == {"ENDPOINT": 6, "REDIS": 6}
    told = json.loads(run("analyze", "--json", str(out / "remote_ops.csv")).out)
    given = {
        (kind, row["size_bytes"]): row["mean_ns"]
        for kind, figures in told["samples"]["kinds"].items()
        for row in figures["given"]
    }
    cells = json.loads(latprof.out)["ops"]["cells"]
    assert given == {
        (f"{cell['backend']} {cell['op']}", cell["payload_size_bytes"]): pytest.approx(
            1e6 * cell["avg_time_ms"]
        )
        for cell in cells
    }
