"""`latprof rebuild` makes the same files of a recording as the run did."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from elsewhere import echo
from latprof_analysis.records.recording import NAME
from latprof_process import Latprof, run

# The ends of connections that wait, push, talk at once and are closed by either end.
TALK = """
import socket, threading
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
for n in range(200):
    client.sendall(b"a" * 50)
    server.recv(100)
    server.sendall(b"b" * 3000)
    while (n := n - 1) > 0 and not client.recv(3000):
        pass
client.sendall(b"late")
client.close()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(100):
    sender.sendto(b"c" * 99, udp.getsockname())
    udp.recv(99)
sender.sendto(b"never read", udp.getsockname())
"""
ANSWERS = """
import socket, time
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
while True:
    client.sendall(b"a" * 50)
    server.recv(100)
    server.sendall(b"b" * 30)
    client.recv(100)
    time.sleep(0.0005)
"""
SYSTEM_PYTHON = "/usr/bin/python3"
"""Which any user may start."""
RUNS = {
    "closed loop": ("--rounds", "100"),
    "open loop with losses": ("--loss=2%", "--interval=2ms", "--rounds=400"),
    "trains": ("--train=8", "--rounds=20"),
    "as Parquet": ("--parquet", "--rounds=50", "--sizes=64"),
    "pieces": ("--pieces", "--interval=5ms", "--rounds=100"),
    "under load": ("--load=tcp:4", "--protocol=tcp", "--duration=2"),
    "stories": ("--story=2ms", "--rounds=50"),
    "stories of the slowest": ("--story=p99.9", "--rounds=300", "--sizes=64"),
    "stories of losses": ("--story=5ms", "--loss=2%", "--rounds=300", "--sizes=2k"),
    "mesh": ("mesh", "--hosts=3", "--tests=1", "--interval=10ms"),
    "operations": ("ops", "--rounds=2"),
    "a command": ("--no-lab", "--", sys.executable, "-c", TALK),
    "another user's": ("--no-lab", "--user=nobody", "--", SYSTEM_PYTHON, "-c", TALK),
}
MADE = ("run.json", "summary.json")  # which name the folder, and the rebuild


def without(path: Path) -> dict:
    document = json.loads(path.read_text())
    return {k: v for k, v in document.items() if k not in ("folder", "rebuilt")}


def done(*words: str) -> str:
    """What latprof printed, which must not have failed."""
    ended = run(*words)
    assert ended.process.returncode == 0, ended.err
    return ended.out


def check_same(folder: Path) -> dict:
    """All files of a run folder, and of what was made of its recording."""
    again = folder.with_name("again")
    done("rebuild", str(folder), f"--out={again}", "--json")
    names = {path.name for path in folder.iterdir()} - {NAME}
    assert {path.name for path in again.iterdir()} == names
    for name in names - set(MADE):
        assert (again / name).read_bytes() == (folder / name).read_bytes(), name
    for name in MADE:
        assert without(again / name) == without(folder / name), name
    return without(again / "summary.json")


@pytest.mark.parametrize("kind", RUNS)
def test_all_files_are_the_same(kind, tmp_path):
    folder = tmp_path / "run"
    form = [word for word in RUNS[kind][:1] if not word.startswith("-")]
    done("run", *form, "--quiet", f"--out={folder}", *RUNS[kind][len(form) :])
    summary = check_same(folder)
    assert summary["kinds"] and summary["records"] > 100
    others = 0 if "--story" in RUNS[kind][0] else 4  # may read it
    assert (folder / NAME).stat().st_mode & 0o7 == others


def test_what_was_attached_to_is_the_same(tmp_path):
    folder = tmp_path / "run"
    words = [sys.executable, "-c", f"input()\n{TALK}"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as peer:
        latprof = Latprof(
            *("run", "attach", "--quiet", f"--out={folder}"),
            *(f"--pid={peer.pid}", "--protocol=tcp", "--not=port=1"),
        )
        latprof.wait_for(lambda: _has_begun(folder), "the probes")
        peer.communicate(b"\n")
        assert latprof.finish() == 0, latprof.err
    summary = check_same(folder)
    assert {kind.partition(" ")[0] for kind in summary["kinds"]} == {"tcp"}
    assert sum(kind["messages"] for kind in summary["kinds"].values()) == 401


def _has_begun(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / "run.json").read_text())["workload"]["runs"])
    except FileNotFoundError:
        return False


def test_both_halves_of_a_run_with_another_host_are_the_same(tmp_path):
    here, there = tmp_path / "here" / "run", tmp_path / "there" / "run"
    for folder in (here, there):
        folder.parent.mkdir()
    plan = ("--rounds=50", "--sizes=64,1k", "--quiet", f"--out={here}")
    with echo("--port", 0, "--record", there) as (port, _):
        done("run", f"--to=127.0.0.1:{port}", *plan)
    assert check_same(here)["round_trips"]["udp"]["sent"] == 100
    assert check_same(there)["records"] > 100


@contextmanager
def talking():
    """A program that answers itself until the end; its pid."""
    words = [sys.executable, "-c", ANSWERS]
    with subprocess.Popen(words) as peer:
        try:
            yield peer.pid
        finally:
            peer.kill()


@pytest.mark.thorough
def test_what_was_watched_is_the_same(tmp_path):
    folder = tmp_path / "run"
    with talking() as pid:
        watched = f"--pid={pid}", "--duration=3s", "--interval=1s"
        done("watch", f"--record={folder}", "--json", *watched)
    summary = check_same(folder)
    sampled = summary["sampled"]
    assert sampled["messages"] > 10 < sampled["exchanges"]
    written = sum(group["messages"] for group in summary["groups"])
    counts = pd.read_csv(folder / "histograms.csv").groupby("quantity")["count"].sum()
    assert counts["send_queue"] == pytest.approx(written, rel=0.02)
    # a half of messages.csv, and the whole of it, as Parquet holds
    done("rebuild", str(folder), f"--out={tmp_path / 'other'}", "--parquet")
    table = pd.read_parquet(tmp_path / "other" / "histograms.parquet")
    assert table["count"].sum() == counts.sum()


def test_of_a_killed_watch_all_is_made_that_was_recorded(tmp_path):
    folder, again = tmp_path / "run", tmp_path / "again"
    with talking() as pid:
        words = (f"--record={folder}", f"--pid={pid}", "--max-overhead=100%")
        latprof = Latprof("watch", *words, "--json")
        latprof.wait_for_rows(folder / "messages.csv", 300)
        latprof.process.send_signal(signal.SIGKILL)
        latprof.finish()
    summary = json.loads(done("rebuild", str(folder), f"--out={again}", "--json"))
    assert summary["state"] == "killed" and "groups" not in summary
    assert summary["coverage_ratio"] is None
    assert summary["workload"]["runs"] == []  # nobody says how long it was
    assert " for 0" not in done("analyze", str(again))
    assert any("killed" in text for text in summary["warnings"])
    written, made = ((run / "messages.csv").read_text() for run in (folder, again))
    assert made.startswith(written) or written.startswith(made)
    assert made.count("\n") > 200


def test_of_a_killed_run_all_is_made_that_was_recorded(tmp_path):
    folder, again = tmp_path / "run", tmp_path / "again"
    words = ("--sizes=64", "--duration=60", "--protocol=tcp", f"--out={folder}")
    latprof = Latprof("run", *words)
    latprof.wait_for_rows(folder / "messages.csv", 2000)
    latprof.process.send_signal(signal.SIGKILL)
    latprof.finish()
    written = (folder / "messages.csv").read_text()
    summary = json.loads(done("rebuild", str(folder), f"--out={again}", "--json"))
    assert summary["state"] == "killed"
    assert any("killed" in text for text in summary["warnings"])
    # what the run wrote of a step that it did not end is the last of it
    made = (again / "messages.csv").read_text()
    shared = min(len(made), len(written))
    assert made[:shared] == written[:shared]
    assert shared > len(written) / 2


def test_a_run_may_leave_its_recording_out_and_then_says_so(tmp_path):
    folder = tmp_path / "run"
    words = ("--rounds=5", "--sizes=64", "--no-recording", f"--out={folder}")
    done("run", *words)
    assert not (folder / NAME).exists()
    refused = run("rebuild", str(folder))
    assert refused.process.returncode == 1
    assert "--no-recording" in refused.err and len(refused.err.splitlines()) == 1
