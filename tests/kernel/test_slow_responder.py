"""A responder that works for each message: where the messages then wait.

With a message every INTERVAL and THINK of work for each, the k-th waits k times the
difference: arithmetic of a queue with one server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from latprof_agent.workload.generator import Generator, PingPong

RUN = [sys.executable, "-m", "latprof_agent", "run", "--quiet", "--json"]
PLAIN = ("--rate=0", "--delay=0", "--sizes=64", "--warmup=0", "--rounds=100")
DEADLINE_SECONDS = 60
THINK_MS, INTERVAL_MS = 4, 2
SLOW = (f"--think={THINK_MS}ms", "--protocol=udp", "--timeout=5s")
APART = (f"--interval={INTERVAL_MS}ms", "--client-cpu=0", "--server-cpu=1")

timed = pytest.mark.timed
two_cpus = pytest.mark.skipif(
    not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1"
)


def run(folder: Path, *words: str) -> None:
    done = subprocess.run(
        [*RUN, *PLAIN, *words, "--out", folder],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not any(json.loads(done.stdout)["lost_records"].values())


def requests(folder: Path) -> pd.DataFrame:
    found = pd.read_csv(folder / "messages.csv")
    found = found[(found["kind"] == "request") & (found["protocol"] == "udp")]
    return found.sort_values("sequence").reset_index(drop=True)


def check_wait(folder: Path, stage: str) -> pd.DataFrame:
    """Hold a stage's times against the queue, and against the client's own clock."""
    found = requests(folder)
    trips = pd.read_csv(folder / "round_trips.csv").sort_values("sequence")
    assert len(found) == len(trips) == 100
    # each was due an interval after the one before, and none is read before the work
    # for all before it is done
    whole_ms = found["end_to_end_ns"] / 1e6
    least_ms = pd.Series(range(100)) * float(THINK_MS - INTERVAL_MS)
    assert (whole_ms >= least_ms).all()
    # and the work, which is longer where others take the CPU, comes behind the wait
    waited_ms = found[stage] / 1e6
    assert (waited_ms <= trips["rtt_ns"].to_numpy() / 1e6 - THINK_MS).all()
    # how late the sender was itself is not the queue's
    late_ms = 0 if stage == "application_ns" else found["application_ns"] / 1e6
    assert waited_ms.sum() > 0.95 * (whole_ms - late_ms).sum()
    return found


@timed
@two_cpus
def test_what_comes_faster_than_it_is_answered_waits_in_the_receive_queue(tmp_path):
    run(tmp_path / "run", *SLOW, *APART)
    check_wait(tmp_path / "run", "receive_queue_ns")
    plan = json.loads((tmp_path / "run" / "run.json").read_text())["workload"]["plan"]
    assert (plan["think_ns"], plan["max_acks"]) == (THINK_MS * 10**6, 0)


@timed
@two_cpus
def test_a_window_moves_the_wait_to_before_the_send_call(tmp_path):
    run(tmp_path / "run", *SLOW, *APART, "--max-acks=1")
    found = check_wait(tmp_path / "run", "application_ns")
    # one at a time: it finds the responder without work
    assert found["receive_queue_ns"].median() / 1e6 < THINK_MS / 4


@timed
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_the_responders_work_stands_in_the_servers_part(tmp_path, protocol):
    run(tmp_path / "run", f"--think={THINK_MS}ms", f"--protocol={protocol}")
    found = pd.read_csv(tmp_path / "run" / "exchanges.csv")
    found = found[found["kind"] != "warmup"]
    assert len(found) == 100
    work_ms = found["server_work_ns"] / 1e6
    assert (work_ms >= THINK_MS).all()  # it looks at the clock until then
    # others may take the CPU in most of them, not in all
    assert work_ms.min() < 1.1 * THINK_MS
    assert (found["server_ns"] >= found["server_work_ns"]).all()
    trips = pd.read_csv(tmp_path / "run" / "round_trips.csv")
    assert trips["rtt_ns"].min() / 1e6 >= THINK_MS


def test_the_responder_has_the_nice_level_that_was_asked_for(make_lab):
    lab = make_lab()
    before = children()
    with tempfile.TemporaryFile() as log:
        generator = Generator(lab, PingPong(rounds=1, priority=7), "tcp", log.fileno())
        (responder,) = children() - before
        levels = {
            os.getpriority(os.PRIO_PROCESS, int(task.name))
            for task in Path(f"/proc/{responder}/task").iterdir()
        }
        generator.start()
        while generator.running():
            generator.check()
        generator.finish()
    assert levels == {7}
    assert generator.result["received"] == 7, "each of the default sizes"


def children() -> set[int]:
    """Of this thread."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return set(map(int, found.split()))
