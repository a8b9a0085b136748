"""A scan of the files of a run gives the figures that the run itself gave."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest
from latprof_analysis.read import batches
from latprof_analysis.study.scan import scan_runs
from latprof_process import run

LAB = ("--rate", "0", "--delay", "0")
# a connection of a program's own, with half of its messages never read
TALK = """\
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
for i in range(50):
    client.sendall(bytes(100 * i + 1))
    if i % 2:
        peer.recv(100 * i + 1)
"""


def as_json(document):
    """As it reads back from summary.json."""
    return json.loads(json.dumps(document))


def answered_of(of_protocol):
    """Sizes and round trip times of what was answered."""
    kept = [(t.size_bytes[~t.lost], t.rtt_ns[~t.lost]) for t in of_protocol]
    sizes, times = zip(*kept, strict=True)
    return np.concatenate(sizes), np.concatenate(times)


@pytest.mark.parametrize(
    "words",
    [
        (*LAB, "--rounds=200", "--sizes=18,5000"),
        ("--protocol=udp", "--loss=0.05", "--rounds=200", "--sizes=64,3000"),
        ("--no-lab", "--", sys.executable, "-c", TALK),
    ],
    ids=["both protocols", "lost datagrams", "a command"],
)
def test_the_scan_of_a_run_has_the_figures_of_its_summary(tmp_path, monkeypatch, words):
    monkeypatch.setattr(batches, "PIECE_BYTES", 20_000)
    out = tmp_path / "run"
    latprof = run("run", f"--out={out}", *words)

    assert latprof.process.returncode in (0, 1), latprof.err
    summary = json.loads((out / "summary.json").read_text())
    found = scan_runs(out)
    kinds = as_json(found.messages.as_dict())
    assert kinds.keys() == summary["kinds"].keys()
    for name, figures in summary["kinds"].items():
        assert {key: kinds[name][key] for key in figures} == figures
    assert as_json(found.messages.time_warp()) == summary["time_warp"]
    assert as_json(found.messages.slowest) == summary["slowest"]
    assert found.messages.warmup == summary["warmup_messages"]
    for protocol, figures in summary["round_trips"].items():
        of_protocol = [trips for (_, p), trips in found.trips.items() if p == protocol]
        times = answered_of(of_protocol)
        trips = as_json(found.trip_totals[protocol].as_dict(times))
        assert trips.items() <= figures.items()
    assert found.skipped == []


def test_what_was_sent_while_our_cost_was_measured_is_in_all_figures(tmp_path):
    out = tmp_path / "run"
    words = (*LAB, "--protocol=tcp", "--sizes=64", "--duration=2.5")
    latprof = run("run", "--verbose", f"--out={out}", *words)

    assert latprof.process.returncode == 0, latprof.err
    rows = pd.read_csv(out / "messages.csv", low_memory=False)
    trips = pd.read_csv(out / "round_trips.csv")
    summary = json.loads((out / "summary.json").read_text())
    found = summary["kinds"]["tcp request"]
    rows = rows[rows["kind"] == "request"]
    met = rows["probe_statistics"] == 1
    assert (found["messages"], found["probe_statistics"]) == (len(rows), met.sum())
    assert found["packets"] == rows["packets"].sum()
    whole = found["stages"]["end_to_end"]
    # on a busy host some lack a stamp
    assert whole["n"] == rows["end_to_end_ns"].notna().sum()
    assert whole["max_ns"] == rows["end_to_end_ns"].max()
    # once a second: 10 ms, what was sent 10 ms before, and until the next drain
    assert 0 < met.sum() < 0.2 * len(rows)
    sampled = rows[met]["send_ns"]  # half a second after the start, and each second
    assert 2 <= (sampled.diff() > 500_000_000).sum() + 1 <= 4
    of_trips = trips["probe_statistics"] == 1
    rtt = summary["round_trips"]["tcp"]
    assert (rtt["sent"], rtt["probe_statistics"]) == (len(trips), of_trips.sum())
    assert rtt["rtt"]["max_ns"] == trips["rtt_ns"].max()
    said = f"while our own cost was measured, which slows: {met.sum()} messages"
    assert said in latprof.out


def test_parquet_holds_the_rows_of_the_csvs(tmp_path):
    out = tmp_path / "run"
    latprof = run("run", *LAB, "--rounds=20", "--parquet", f"--out={out}")

    assert latprof.process.returncode == 0, latprof.err
    for table in ("messages", "round_trips"):
        text = pd.read_csv(out / f"{table}.csv", dtype_backend="pyarrow")
        written = pd.read_parquet(out / f"{table}.parquet", dtype_backend="pyarrow")
        assert written.to_csv() == text.to_csv()
        assert len(written) > 100 or table == "round_trips"
    assert latprof.left() == []
