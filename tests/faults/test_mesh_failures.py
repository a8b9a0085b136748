"""A mesh that is ended midway, or one of whose programs fails: a line, and all kept."""

from __future__ import annotations

import json
import os
import signal

import pandas as pd
import pytest
from failures import LINE, assert_failed, assert_readable
from latprof_process import Latprof, kill, run
from seed_tmsn import get_stats

LONG = (
    *("run", "mesh", "--rate=0", "--delay=0", "--quiet"),
    *("--sizes=1024,2048", "--messages=100", "--interval=50ms", "--tests=20"),
)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--hosts=1",), "from 2 to 32, got '1'"),
        (("--hosts=33",), "from 2 to 32, got '33'"),
        (("--hosts=32", "--messages=5000"), "--messages must be at most 2016"),
        (("--messages=0",), "got '0'"),
        (("--tests=0",), "got '0'"),
        (("--sizes=17",), "18 to 10000000 bytes, got 17"),
        (("--sizes=102400", "--protocol=udp"), "18 to 65507 bytes, got 102400"),
        (("--reply=7",), "18 to 10000000 bytes, got 7"),
        (("--interval=0",), "from 1ns to 60s, got '0'"),
        (("--heartbeat-interval=1us",), "from 1ms to 1h, got '1us'"),
        (("--protocol=both",), "--protocol must be one of tcp, udp, got 'both'"),
        (("--wire=clear",), "--wire=clear; it is of `latprof run`"),
        (("--duration=5",), "--duration=5; it is of `latprof run`"),
        (("--pid=1",), "--pid=1; it is of `latprof run attach`"),
        (("--", "true"), "true; a COMMAND goes with `latprof run -- COMMAND`"),
        (("--nagle", "--protocol=udp"), "--nagle: is for tcp"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_made(words, text, tmp_path):
    latprof = run("run", "mesh", *words, cwd=tmp_path)
    assert latprof.process.returncode == 2
    (line,) = latprof.err.splitlines()
    assert line.startswith("latprof: ") and text in line
    assert list(tmp_path.iterdir()) == []


def test_its_options_are_refused_without_it(tmp_path):
    latprof = run("run", "--hosts=4", cwd=tmp_path)
    assert latprof.process.returncode == 2
    assert "--hosts=4; it is of `latprof run mesh`" in latprof.err


def running(out) -> Latprof:
    """A mesh in its first test, which has rows already."""
    latprof = Latprof(*LONG, f"--out={out}")
    latprof.wait_for_rows(out / "round_trips.csv", 20)
    return latprof


def trips_of(out) -> pd.DataFrame:
    """Its messages, all of which were told in the table, too."""
    assert_readable(out)
    trips = pd.read_csv(out / "round_trips.csv")
    messages = trips[trips["heartbeat"] == 0]
    mesh = json.loads((out / "summary.json").read_text())["mesh"]
    assert sum(cell["sent"] for cell in mesh["cells"]) == len(messages) > 0
    return messages


@pytest.mark.thorough
def test_ctrl_c_keeps_what_was_measured_and_shows_it(tmp_path):
    out = tmp_path / "run"
    latprof = running(out)
    latprof.signal(signal.SIGINT)
    assert latprof.finish() == 0, latprof.err
    assert latprof.left() == []
    trips = trips_of(out)
    assert "mesh of 3 hosts, tcp: 1 test" in latprof.out
    assert "the run was interrupted" in latprof.out
    counts = trips.groupby(["source", "destination"]).size()
    assert len(counts) == 6
    assert json.loads((out / "run.json").read_text())["state"] == "interrupted"
    log = (out / "tmsn.log").read_text()
    assert log.count("stress perf,1024,local") == 1
    assert get_stats(out / "tmsn.log", 3)["msg"].iloc[0] > 0


@pytest.mark.thorough
def test_a_trial_that_ctrl_c_cut_short_decides_no_knee(tmp_path):
    out = tmp_path / "run"
    # a link that takes 0.2 s for what is due at once: of the first trial 20 take 6 s
    words = ("--find-knee", "--messages=1", "--tests=1", "--sizes=1024")
    words = (*LONG[:2], *words, "--rate=100kbit", "--delay=0", "--quiet", "--json")
    latprof = Latprof(*words, f"--out={out}")
    latprof.wait_for_rows(out / "round_trips.csv", 6 + 30)
    latprof.signal(signal.SIGINT)
    assert latprof.finish() == 0, latprof.err
    assert latprof.left() == []
    mesh = json.loads(latprof.out)["mesh"]
    assert [cell["sent"] for cell in mesh["cells"]] == [6]
    assert mesh["knees"] == []
    _, trial = json.loads((out / "run.json").read_text())["workload"]["runs"]
    assert trial["trial"]
    assert all(5 < client["sent"] < 40 for client in trial["clients"].values())
    assert_readable(out)


@pytest.mark.thorough
@pytest.mark.parametrize("word", ["pingpong", "echo"])
def test_a_program_that_dies_is_named_in_a_line_and_all_before_is_kept(tmp_path, word):
    out = tmp_path / "run"
    latprof = running(out)
    kill(latprof.children(word)[1], signal.SIGKILL)
    latprof.finish()
    who = "client" if word == "pingpong" else "responder"
    assert latprof.process.returncode == 1
    lines = [line for line in latprof.err.splitlines() if LINE.fullmatch(line)]
    assert len(lines) == len(latprof.err.splitlines()) == 1, latprof.err
    told = f"the {who} of h1 failed: it ended with signal 9"
    closed = "closed the connection" if word == "echo" else told
    assert told in lines[0] or closed in lines[0]
    assert latprof.left() == []
    trips_of(out)


@pytest.mark.thorough
def test_a_responder_that_is_stopped_is_named_in_a_line(tmp_path):
    out = tmp_path / "run"
    latprof = running(out)
    os.kill(latprof.children("echo")[2], signal.SIGSTOP)
    latprof.finish()
    stopped = "the responder of h2 failed: it is stopped (SIGSTOP)"
    assert_failed(latprof, 1, stopped, "what was recorded until then is kept")
    trips_of(out)
