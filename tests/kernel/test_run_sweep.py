"""`latprof run --sweep` as root: its folder, its table, its knee, and how it ends."""

from __future__ import annotations

import json
import re
import signal

import pandas as pd
import pytest
from latprof_process import REGISTRY, Latprof, kill, run, screen_of

US, MS = 1_000, 1_000_000
UDP = ("--protocol", "udp")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "sweep"


@pytest.mark.thorough
def test_the_knee_is_where_arithmetic_puts_it(out):
    # A datagram of 1400 bytes has 28 of headers, and a TUN link no others: at 10
    # Mbit/s it takes 1142.4 us, so that one each 1.1 ms fills the link's queue and
    # one each 1.3 ms does not.
    words = ("--rate", "10mbit", "--delay", "0", "--emulator", "always")
    words = (*words, *UDP, "--sizes", "1400", "--duration", "1s", "--json")
    sweep = ("--sweep", "interval=1.1ms,4ms,1.3ms,2ms", "--repeat", "2")
    latprof = run("run", *words, *sweep, "--out", str(out))

    assert latprof.process.returncode == 0, latprof.err
    told = json.loads(latprof.out)
    assert told == json.loads((out / "sweep.json").read_text())
    rows = {row["combination"]["interval"]: row for row in told["rows"]}
    assert list(rows) == ["1.1ms", "4ms", "1.3ms", "2ms"]
    for interval, row in rows.items():
        used = 1.1424 / float(interval.removesuffix("ms"))
        assert row["utilisation"]["median"] == pytest.approx(used, rel=1e-6)
    (knee,) = told["knees"]
    assert told["rows"][knee["row"]]["combination"] == {"interval": "1.1ms"}
    assert "capacity" in knee["rules"]
    assert knee["stage"] == "transit"  # the emulator's queue is on the way
    # What comes each 1.1 ms and leaves each 1.1424 ms: after 1 s 37 ms wait.
    slow = rows["1.1ms"]["rtt_p50_ns"]["median"]
    assert 10 * MS < slow < 60 * MS
    assert rows["2ms"]["rtt_p50_ns"]["median"] < 10 * MS


@pytest.mark.thorough
def test_figures_are_those_of_the_runs_own_rows(out):
    words = (*UDP, "--sizes", "64", "--duration", "0.5s", "--json", "--out", str(out))
    latprof = run("run", "--sweep", "interval=1ms,2ms", "--repeat", "3", *words)
    assert latprof.process.returncode == 0, latprof.err
    told = json.loads(latprof.out)
    for row in told["rows"]:
        label = "interval=" + row["combination"]["interval"]
        medians = []
        for repeat in "123":
            table = pd.read_csv(out / label / repeat / "round_trips.csv")
            rtt = table["rtt_ns"].dropna()
            medians.append(rtt.sort_values().iloc[(len(rtt) - 1) // 2])
        spread = row["rtt_p50_ns"]
        found = [spread[key] for key in ("low", "median", "high")]
        # a bucket's middle is at most 0.4% from any value in it
        assert found == pytest.approx(sorted(medians), rel=0.005)
        seconds = 0.5 / len(table)
        assert row["achieved_per_second"]["median"] == pytest.approx(
            1 / seconds, rel=0.02
        )


@pytest.mark.thorough
def test_runs_stand_in_one_folder_that_compare_and_analyze_take(out):
    words = (*UDP, "--sizes", "64", "--duration", "0.2s", "--out", str(out))
    latprof = run("run", "--sweep", "rate=10mbit,100mbit", "--repeat", "2", *words)
    assert latprof.process.returncode == 0, latprof.err
    found = sorted(str(path.parent.relative_to(out)) for path in out.rglob("run.json"))
    rates = ("100mbit", "10mbit")
    assert found == [f"rate={rate}/{n}" for rate in rates for n in (1, 2)]
    compared = run("compare", "--json", str(out))
    assert compared.process.returncode == 0, compared.err
    sides = json.loads(compared.out)["sides"]
    assert [len(side["runs"]) for side in sides] == [2, 2]
    analyzed = run("analyze", "--json", str(out))
    assert [len(one["runs"]) for one in json.loads(analyzed.out)["setups"]] == [2, 2]
    alone = run("analyze", "--json", str(out / "rate=10mbit"))
    assert len(json.loads(alone.out)["runs"]) == 2


@pytest.mark.thorough
def test_the_line_that_is_told_does_it_again(tmp_path):
    words = ("--sweep", "mtu=900,1500", *UDP, "--sizes", "64", "--rounds", "20")
    first = run("run", *words, "--json", cwd=tmp_path)
    assert first.process.returncode == 0, first.err
    told = json.loads(first.out)
    assert told["line"].split()[:2] == ["latprof", "run"]
    second = run(*told["line"].split()[1:], cwd=tmp_path)
    again = json.loads(second.out)
    orders = [[one["combination"] for one in d["runs"]] for d in (told, again)]
    assert orders[0] == orders[1]
    folders = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(folders) == 3
    assert folders[-1] == "latest"
    assert str((tmp_path / "runs/latest").readlink()) in folders[:2]


def test_a_failing_run_is_told_and_the_others_go_on(out):
    script = "test $(id -u) = 0"
    words = ("--no-lab", "--sweep", "user=nobody,root", "--repeat", "2")
    latprof = run("run", *words, "--out", str(out), "--", "sh", "-c", script)
    assert latprof.process.returncode == 1
    told = json.loads((out / "sweep.json").read_text())
    states = {(one["combination"]["user"], one["state"]) for one in told["runs"]}
    assert states == {("nobody", "failed"), ("root", "done")}
    assert "failed: user=nobody, repeat 1: the command ended with status 1" in (
        latprof.out
    )
    assert len(told["runs"]) == 4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--sweep", "interval=1ms,0"), "--interval must be from 1ns to 60s, got '0'"),
        (("--sweep", "congestion=reno,nosuch"), "got 'nosuch'"),
        (("--sweep", "sizes=64,7"), "a tcp message must be 18 to 10000000 bytes"),
        (("--sweep", "server-cpu=0,8000"), "--server-cpu: must be one of"),
    ],
)
def test_nothing_is_made_where_one_combination_cannot_be(out, words, told):
    latprof = run("run", *words, "--out", str(out))
    assert (latprof.process.returncode, latprof.out) == (2, "")
    assert told in latprof.err
    assert latprof.err.count("\n") == 1
    assert not out.exists()


def test_ctrl_c_ends_the_run_keeps_all_and_shows_what_there_is(out):
    words = (*UDP, "--sizes", "64", "--interval", "1ms", "--duration", "1s")
    latprof = Latprof("run", "--sweep", "mtu=900,1500", *words, "--repeat=50",
                      f"--out={out}")  # fmt: skip
    latprof.wait_for(lambda: len(list(out.glob("*/*/summary.json"))) > 1, "two runs")
    running = latprof.wait_for(lambda: _going(out), "a third")
    latprof.wait_for_rows(running / "messages.csv", 100)
    kill(latprof.process.pid, signal.SIGINT)
    assert latprof.finish() == 0, latprof.err
    assert not latprof.left()
    told = json.loads((out / "sweep.json").read_text())
    assert [one["state"] for one in told["runs"]][-1] == "interrupted"
    assert (running / "summary.json").exists()
    assert "of 100 runs" in latprof.out
    assert all(row["rtt_p50_ns"] for row in told["rows"])


def _going(out):
    """The folder of a run that has begun and is not over."""
    for path in out.glob("*/*"):
        if (path / "run.json").exists() and not (path / "summary.json").exists():
            return path
    return None


def test_what_sigkill_leaves_is_removed_by_the_next_lab(out):
    words = (*UDP, "--sizes", "64", "--duration", "5s")
    latprof = Latprof("run", "--sweep", "mtu=900,1500", *words, f"--out={out}")
    latprof.wait_for(lambda: _going(out), "a run")
    latprof.look()
    kill(latprof.process.pid, signal.SIGKILL)
    latprof.process.wait()
    assert latprof.namespaces
    assert run("lab", "clean").process.returncode == 0
    assert not latprof.left()
    assert not list(REGISTRY.glob(f"*{latprof.process.pid}*"))


@pytest.mark.thorough
def test_the_bar_tells_which_run_it_is_and_the_time_left(tmp_path):
    words = (*UDP, "--sizes", "64", "--duration", "0.4s", "--repeat", "3")
    words = ("run", "--sweep", "mtu=900,1500", *words)
    status, lines = screen_of(*words, columns=120, shown="stderr", cwd=tmp_path)
    assert status == 0
    bar = [line for line in "\n".join(lines).split("\r") if "run 6 of 6" in line]
    assert any("mtu=900 udp" in line or "mtu=1500 udp" in line for line in bar)
    assert any(re.search(r"\d:\d\d left", line) for line in bar)
