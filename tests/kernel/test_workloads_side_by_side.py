"""Sweeps of ops, bulk and mesh: their table, and compare and analyze of their folders.

Real runs write the folders; what is said of several is held against the rows that each
of them left, by pandas and scipy, and against the arithmetic of the link.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from latprof_process import run
from scipy import stats

pytestmark = pytest.mark.timed

RUN = ("run",)
MS = 1_000_000


def swept(out, *words):
    """The document of a sweep, and the folders of its runs by combination."""
    latprof = run(*RUN, *words, "--json", f"--out={out}")
    assert latprof.process.returncode == 0, latprof.err
    assert not latprof.left()
    told = json.loads(latprof.out)
    folders = [sorted((out / name).iterdir()) for name in told["folders"]]
    return told, folders


def said(command, *paths):
    latprof = run(command, "--json", *map(str, paths))
    assert latprof.process.returncode == 0, latprof.err
    return json.loads(latprof.out)


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def welch_of_logs(a, b):
    """Ratio of geometric means, its interval and probability, by scipy."""
    logs = np.log(a), np.log(b)
    found = stats.ttest_ind(logs[1], logs[0], equal_var=False)
    interval = found.confidence_interval(0.95)
    ends = [logs[1].mean() - logs[0].mean(), interval.low, interval.high]
    return pytest.approx(np.exp(ends).tolist()), pytest.approx(found.pvalue)


def check_change(told, a, b):
    ratio, p_value = welch_of_logs(a, b)
    assert [told["ratio"][end] for end in ("value", "low", "high")] == ratio
    assert told["p"] == p_value


@pytest.fixture(scope="module")
def ops(tmp_path_factory):
    """Operations on the floor, with and without 3 ms each way, three runs of each."""
    words = ("ops", "--backend=floor", "--ops=GET,SET", "--payload-sizes=1000")
    words += ("--rounds=20", "--rate=0", "--sweep", "delay=0,3ms", "--repeat=3")
    out = tmp_path_factory.mktemp("ops") / "sweep"
    return out, *swept(out, *words)


def times_of(folder, op):
    rows = pd.read_csv(folder / "operations.csv")
    return rows.query(f"phase == 'measured' and op == '{op}'")["time_ns"].to_numpy()


def test_each_operation_of_a_sweep_has_the_figures_of_its_runs_own_rows(ops):
    _, told, folders = ops
    assert [(row["combination"]["delay"], row["of"]) for row in told["rows"]] == [
        (delay, f"FLOOR {op} 1000 B") for delay in ("0", "3ms") for op in ("GET", "SET")
    ]
    for place, row in enumerate(told["rows"]):
        op, of_runs = row["of"].split()[1], folders[place // 2]
        medians = sorted(np.median(times_of(folder, op)) for folder in of_runs)
        spread = row["operation_p50_ns"]
        assert [spread[key] for key in ("low", "median", "high")] == medians
        published = [
            pd.read_csv(folder / "remote_ops.csv").query(f"op == '{op}'")
            for folder in of_runs
        ]
        averages = sorted(1e6 * rows["avg_time_ms"].item() for rows in published)
        assert row["avg_ns"]["median"] == pytest.approx(averages[1])
        rate = 8 * 1000 / (medians[1] / 1e9)
        assert row["goodput_bps"]["median"] == pytest.approx(rate)
        assert row["rtt_p50_ns"] is None
    slow = [row for row in told["rows"] if row["combination"]["delay"] == "3ms"]
    for row in slow:
        # there and back 6 ms, and what the hosts take
        assert 6 * MS < row["operation_p50_ns"]["median"] < 9 * MS
        assert row["largest_stage"] == "network"


def test_operations_of_a_sweep_are_compared_as_scipy_compares_them(ops):
    out, _, folders = ops
    told = said("compare", out)
    groups = {
        (group["kind"], group["stage"]): group["percentiles"]["p50"]
        for group in told["groups"]
    }
    for op in ("GET", "SET"):
        # the 10th of 20, as a percentile of compare is one of the values
        a, b = (
            [np.sort(times_of(folder, op))[9] for folder in side] for side in folders
        )
        change = groups[f"FLOOR {op}", "operation"]
        check_change(change, a, b)
        assert change["verdict"] == "slower"
        assert groups[f"FLOOR {op}", "network"]["verdict"] == "slower"
    assert not [text for text in told["warnings"] if "not compared" in text]
    (differences,) = told["setup_differences"].values()
    differs = {one["key"] for one in differences}
    # with an emulator in the lab, since only it delays
    assert "lab.known.delay_ns" in differs
    assert not [key for key in differs if key.startswith("ops.")]


def test_operations_of_repeats_are_analyzed_together(ops):
    _, _, (_, folders) = ops
    told = said("analyze", folders[0].parent)
    assert told["ops"]["remarks"][0] == "operations of 3 runs are taken together"
    for cell in told["ops"]["cells"]:
        times = np.concatenate([times_of(folder, cell["op"]) for folder in folders])
        assert cell["n"] == len(times) == 60
        assert cell["mean_ns"] == pytest.approx(times.mean())
        assert cell["p50_ns"] == np.median(times)
        # as published, without the first and the last of each run
        kept = [times_of(folder, cell["op"])[1:-1] for folder in folders]
        assert cell["avg_time_ms"] == pytest.approx(np.concatenate(kept).mean() / 1e6)


@pytest.fixture(scope="module")
def bulk(tmp_path_factory):
    """Datagrams at 30 Mbit/s over links of 10 and of 20, three runs of each."""
    words = ("bulk", "--protocol=udp", "--channels=1,2", "--offer=30mbit")
    words += ("--duration=1s", "--delay=0", "--emulator=always")
    out = tmp_path_factory.mktemp("bulk") / "sweep"
    return out, *swept(out, *words, "--sweep", "rate=10mbit,20mbit", "--repeat=3")


def part_of(folder, channels):
    rows = pd.read_csv(folder / "bulk.csv")
    (row,) = rows[(rows["channel"] == "all") & (rows["channels"] == channels)].to_dict(
        "records"
    )
    return row


def test_each_part_of_a_sweep_has_throughput_loss_and_where_it_died(bulk):
    _, told, folders = bulk
    assert [row["of"] for row in told["rows"]] == 2 * ["udp 1", "udp 2"]
    for place, row in enumerate(told["rows"]):
        rate_bps = (10e6, 20e6)[place // 2]
        parts = [part_of(folder, place % 2 + 1) for folder in folders[place // 2]]
        received = sorted(part["server_average_bps"] for part in parts)
        found = row["received_bps"]
        assert [found[key] for key in ("low", "median", "high")] == pytest.approx(
            received
        )
        shares = sorted(part["lost"] / part["sent"] for part in parts)
        assert row["loss_ratio"]["median"] == pytest.approx(shares[1])
        # 1400 bytes of payload are 1428 on a TUN link
        assert row["utilisation"]["median"] == pytest.approx(
            30e6 * 1428 / 1400 / rate_bps
        )
        payload_bps = rate_bps * 1400 / 1428
        assert 0.95 * payload_bps < received[1] < 1.05 * payload_bps
        assert row["largest_place"]
        # no more of it elsewhere than the sessions' own packets
        assert row["largest_place_share"] > 0.99
    # the wider link is the quiet end, and full already
    assert {
        told["rows"][knee["row"]]["combination"]["rate"] for knee in told["knees"]
    } == {"20mbit"}
    assert all("capacity" in knee["rules"] for knee in told["knees"])


# a link that is never idle carries almost the same in each run
@pytest.mark.filterwarnings("ignore:Precision loss occurred")
def test_parts_of_a_sweep_are_compared_as_scipy_compares_them(bulk):
    out, _, folders = bulk
    told = said("compare", out)
    rates = {one["protocol"]: one for one in told["throughput"]}
    losses = {one["protocol"]: one for one in told["loss"]}
    for channels in (1, 2):
        sides = [[part_of(folder, channels) for folder in side] for side in folders]
        a, b = ([part["server_average_bps"] for part in side] for side in sides)
        check_change(rates[f"udp {channels}"], a, b)
        assert rates[f"udp {channels}"]["verdict"] == "faster"
        lost = losses[f"udp {channels}"]
        sums = [
            [sum(part[of] for part in side) for of in ("lost", "sent")]
            for side in sides
        ]
        assert [lost["a"]["value"], lost["b"]["value"]] == [n / of for n, of in sums]
        shares = [[part["lost"] / part["sent"] for part in side] for side in sides]
        if not any(map(np.ptp, shares)):
            assert lost["reason"].startswith("the runs of each side do not differ")
            continue
        p_value = stats.ttest_ind(*shares, equal_var=False).pvalue
        assert lost["p"] == pytest.approx(p_value, rel=1e-3)
        assert lost["verdict"] == "less"


def test_the_knee_of_bulk_transfers_is_where_the_link_is_full(tmp_path):
    words = ("bulk", "--protocol=udp", "--channels=1", "--rate=10mbit", "--delay=0")
    words += ("--emulator=always", "--duration=2s")
    out = tmp_path / "sweep"
    told, _ = swept(out, *words, "--sweep", "offer=14mbit,5mbit,9mbit")
    (knee,) = told["knees"]
    assert told["rows"][knee["row"]]["combination"] == {"offer": "14mbit"}
    assert knee["rules"] == ["capacity", "loss"]
    # 10 / 1.02 of 14 are carried, and what stands in the queue at the end
    share = 1 - 10 * 1400 / 1428 / 14
    assert (
        share - 0.06 < told["rows"][knee["row"]]["loss_ratio"]["median"] < share + 0.01
    )
    page = tmp_path / "page.md"
    report = run("report", str(out), "--out", str(page))
    assert report.process.returncode == 0, report.err
    for text in ("died at", "loss sets in", "14mbit"):
        assert text in page.read_text()
    assert "loss sets in" in run("analyze", str(out)).out


def test_each_run_of_bulk_repeats_is_told(bulk):
    _, _, (folders, _) = bulk
    told = said("analyze", folders[0].parent)["bulk"]
    for folder in folders:
        own = summary(folder)["bulk"]["parts"]
        again = [
            {key: value for key, value in part.items() if key != "run"}
            for part in told["parts"]
            if part["run"] == folder.name
        ]
        assert again == own
    assert len(told["parts"]) == 6
    text = run("analyze", str(folders[0].parent)).out
    sent = sum(part_of(folder, n)["sent"] for folder in folders for n in (1, 2))
    assert f"of {sent:,} datagrams lost" in text
    assert "udp 1, run 2" in text


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    """Messages of 10 KiB between three hosts of 20 Mbit/s, below and above the rate."""
    words = ("mesh", "--protocol=udp", "--sizes=10240", "--messages=50", "--tests=1")
    words += ("--rate=20mbit", "--delay=0", "--sweep", "interval=40ms,5ms")
    out = tmp_path_factory.mktemp("mesh") / "sweep"
    return out, *swept(out, *words, "--repeat=2")


def messages_of(folder):
    rows = pd.read_csv(folder / "round_trips.csv")
    return rows[rows["heartbeat"] == 0]


def median_ns(folder):
    """The median response."""
    took = messages_of(folder)["rtt_ns"].dropna().sort_values()
    return took.iloc[(len(took) + 1) // 2 - 1]


def test_each_size_of_a_mesh_has_its_table_and_the_links_utilisation(mesh):
    _, told, folders = mesh
    for row, of_runs in zip(told["rows"], folders, strict=True):
        cells = [summary(folder)["mesh"]["cells"][0] for folder in of_runs]
        assert row["of"] == "udp 10240 B"
        averages = [1000 * cell["table"]["avg_msg"] for cell in cells]
        assert row["avg_ns"]["median"] == pytest.approx(np.mean(averages))
        medians = [median_ns(folder) for folder in of_runs]
        found = [row["rtt_p50_ns"][key] for key in ("low", "high")]
        assert found == pytest.approx(sorted(medians), rel=0.005)
        lost = [(messages_of(folder)["lost"] > 0).mean() for folder in of_runs]
        assert row["loss_ratio"]["low"] == pytest.approx(min(lost))
        interval_ns = float(row["combination"]["interval"].removesuffix("ms")) * MS
        # to two others: 7 packets of 10248 bytes with 7 IP headers, an echo in one,
        # and heartbeats both ways each second
        on_wire = 10240 + 8 + 7 * 34 + 150 + 42
        bps = 8 * 2 * (on_wire / (interval_ns / 1e9) + 2 * (150 + 42))
        assert row["utilisation"]["median"] == pytest.approx(bps / 20e6, rel=0.001)
    (knee,) = told["knees"]
    assert told["rows"][knee["row"]]["combination"] == {"interval": "5ms"}
    assert "capacity" in knee["rules"]


def test_a_mesh_is_compared_by_size_without_its_heartbeats(mesh):
    out, _, folders = mesh
    told = said("compare", out)
    (group,) = [
        one
        for one in told["groups"]
        if one["stage"] == "rtt" and one["kind"] == "udp round trip"
    ]
    assert group["size_bytes"] == 10240
    medians = [[median_ns(folder) for folder in side] for side in folders]
    check_change(group["percentiles"]["p50"], *medians)
    (lost,) = [one for one in told["loss"] if one["protocol"] == "udp"]
    flags = [pd.concat([messages_of(f)["lost"] for f in side]) > 0 for side in folders]
    assert lost["size_bytes"] == 10240
    assert [lost["a"]["value"], lost["b"]["value"]] == [side.mean() for side in flags]
    (rate,) = told["throughput"]
    # 6 pairs, every 40 and every 5 ms
    assert rate["reason"] == "150 to 1200 a second are what was asked for"
    keys = {one["key"] for of in told["setup_differences"].values() for one in of}
    assert "mesh.interval_ns" in keys


def test_the_mesh_of_each_repeat_is_told(mesh):
    _, _, (_, folders) = mesh
    told = said("analyze", folders[0].parent)
    assert told["meshes"] == {f.name: summary(f)["mesh"] for f in folders}
    text = run("analyze", str(folders[0].parent)).out
    for folder in folders:
        assert f"run {folder.name}, mesh of 3 hosts, udp: 1 test" in text


def test_the_load_of_each_repeat_is_told(tmp_path):
    out = tmp_path / "loaded"
    words = ("pingpong", "--protocol=udp", "--sizes=64", "--rounds=50", "--rate=10mbit")
    swept_told, _ = swept(out, *words, "--load=udp:1", "--repeat=2")
    idle, loaded = swept_told["rows"]
    assert (idle["of"], loaded["of"]) == ("udp", "udp loaded")
    rows = [pd.read_csv(out / name / "round_trips.csv") for name in "12"]
    for phase, row in (("idle", idle), ("loaded", loaded)):
        medians = []
        for of_run in rows:
            took = of_run[of_run["phase"] == phase]["rtt_ns"].dropna().sort_values()
            medians.append(took.iloc[(len(took) + 1) // 2 - 1])
        found = [row["rtt_p50_ns"][key] for key in ("low", "high")]
        assert found == pytest.approx(sorted(medians), rel=0.005)
    assert loaded["largest_stage"] == "transit"  # where the emulator's queue is
    told = said("analyze", out)["load"]
    for name in "12":
        own = summary(out / name)["load"]["protocols"]["udp"]
        assert told["protocols"][f"udp, run {name}"] == own
    text = run("analyze", str(out)).out
    assert "udp, run 1 under load: " in text
    assert "udp, run 2 under load: " in text
