"""A part of a run that dies or stands still ends it in time, and is named."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from failures import assert_failed, assert_readable, state_of
from latprof_agent.lab.child import END_SECONDS
from latprof_agent.probes.cgroup import cgroup2_mount
from latprof_agent.workload.generator import LATE_SECONDS
from latprof_process import Latprof, kill, run
from recording import wait_until

# TCP gives up a peer after 30 s: news within half of that did not come from there.
SOON_SECONDS = 15.0
DURATION_SECONDS = 3.0
CLOSED, OPEN = ("--protocol=tcp",), ("--protocol=tcp", "--interval=2ms", "--sizes=64")
EMULATOR, RESPONDER, CLIENT = "latprof-link", " echo ", "pingpong"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "run"


def started(out, *words: str) -> Latprof:
    """Start a run that has recorded something, and has more to record."""
    latprof = Latprof("run", "--quiet", f"--out={out}", *words)
    latprof.wait_for_rows(out / "round_trips.csv", 20)
    return latprof


@pytest.mark.parametrize("words", [CLOSED, OPEN, ("--protocol=udp",)])
def test_a_link_that_dies_ends_the_run_at_once_and_is_blamed(out, words):
    latprof = started(out, "--duration=30", *words)
    kill(latprof.wait_for_child(EMULATOR))
    killed = time.monotonic()
    latprof.finish()

    assert time.monotonic() < killed + SOON_SECONDS
    assert_failed(latprof, 1, "the link emulator failed", "signal 9 (SIGKILL)")
    assert assert_readable(out) > 0
    assert state_of(out) == "failed"


def test_a_link_that_dies_under_a_command_ends_both_and_is_blamed(out):
    latprof = Latprof("run", "--quiet", f"--out={out}", "--", "sleep", "60")
    latprof.wait_for((out / "run.json").exists, "the recording")
    latprof.wait_for_child("sleep 60")
    kill(latprof.wait_for_child(EMULATOR))
    killed = time.monotonic()
    latprof.finish()

    assert time.monotonic() < killed + SOON_SECONDS
    assert_failed(latprof, 1, "the link emulator failed", "signal 9 (SIGKILL)")
    assert state_of(out) == "failed"


def test_a_link_that_dies_while_the_lab_is_built_is_blamed(out):
    latprof = Latprof("run", "--quiet", f"--out={out}")
    kill(latprof.wait_for_child(EMULATOR))
    latprof.finish()
    assert_failed(latprof, 1, "the link emulator failed", "signal 9 (SIGKILL)")


@pytest.mark.parametrize("words", [CLOSED, OPEN])
@pytest.mark.parametrize(
    ("who", "named"),
    [
        (EMULATOR, "the link emulator failed"),
        (RESPONDER, "the responder failed"),
        (CLIENT, "the generator failed"),
    ],
)
def test_a_part_that_stands_still_does_not_hold_a_run_beyond_its_duration(
    out, who, named, words
):
    latprof = started(out, f"--duration={DURATION_SECONDS:g}", *words)
    kill(latprof.wait_for_child(who), signal.SIGSTOP)
    stopped = time.monotonic()
    latprof.finish()

    # END_SECONDS more for what takes its time on a busy machine
    most = DURATION_SECONDS + LATE_SECONDS + END_SECONDS
    assert time.monotonic() < stopped + most
    assert_failed(latprof, 1, named, "it is stopped (SIGSTOP)")
    assert assert_readable(out) > 0
    assert state_of(out) == "failed"


@pytest.mark.thorough
def test_what_a_slow_link_still_carries_is_waited_for(out):
    # each half of the handshake, and of the round trip, is still for longer
    delay = LATE_SECONDS * 0.75
    words = ("--protocol=tcp", f"--delay={delay}s", "--sizes=64", "--warmup=0")
    latprof = run("run", *words, "--duration=1ms", "--quiet", f"--out={out}")
    assert latprof.process.returncode == 0, latprof.err
    # a request and its reply, and what the two ends say before, two messages each
    assert assert_readable(out) == 2 + 4
    assert state_of(out) == "done"


def test_a_stopped_generator_that_is_asked_to_end_gives_what_it_has(out):
    latprof = started(out, "--duration=30", *CLOSED)
    kill(latprof.wait_for_child(CLIENT), signal.SIGSTOP)
    latprof.signal(signal.SIGINT)

    assert latprof.finish() == 0, latprof.err
    assert latprof.err == ""
    assert "was interrupted" in latprof.out
    assert assert_readable(out) > 0
    assert latprof.left() == []


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Keep a process from anything but being killed."""
    mount = cgroup2_mount()
    assert mount
    group = mount / f"test-{secrets.token_hex(4)}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / "cgroup.freeze").write_text("1")
        events = group / "cgroup.events"
        wait_until(lambda: "frozen 1" in events.read_text(), f"{pid} to freeze")
        yield
    finally:
        (group / "cgroup.kill").write_text("1")
        events = group / "cgroup.events"
        wait_until(lambda: "populated 0" in events.read_text(), f"end of {pid}")
        group.rmdir()


@pytest.mark.thorough
def test_a_generator_that_does_not_end_is_ended(out):
    latprof = started(out, "--duration=30", *CLOSED)
    with frozen(latprof.wait_for_child(CLIENT)):
        latprof.signal(signal.SIGINT)
        assert latprof.finish() == 1
    assert "the generator failed: it ended with signal 9 (SIGKILL)" in latprof.err
    assert "; response p50 " in latprof.out
    assert_readable(out)
    assert latprof.left() == []
