"""What goes wrong is one clear line and leaves nothing behind.

A step of the wall clock needs no test: all stamps are CLOCK_MONOTONIC.
"""

from __future__ import annotations

import json
import re
import signal
from dataclasses import replace

import pandas as pd
import pytest
from failures import assert_failed, assert_readable
from latprof_agent import session
from latprof_agent.errors import CaptureError
from latprof_agent.interrupts import Interrupt
from latprof_agent.lab.link import LinkSpec
from latprof_agent.lab.processes import ProcessId
from latprof_agent.probes.catalogue import PROBES, Way, capabilities
from latprof_agent.recorder import JOIN_NS
from latprof_agent.session import RunOptions
from latprof_agent.workload.generator import PingPong
from latprof_process import REGISTRY, Latprof, kill, run
from recording import wait_until

SHORT = ("--rate=0", "--delay=0", "--rounds=5", "--quiet")
LONG = ("--protocol=tcp", "--duration=30", "--quiet")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "run"


def assert_stages_shown(text: str, protocol: str) -> None:
    """The table of the stages of both kinds, with times in it."""
    head = rf"^ +{protocol}\n +request +reply\nstage +p50 .+\n"
    assert re.search(head + r"(.+\n)*transit +\d[\d.]* [mnu]s ", text, re.M), text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--sizes=17",), "18 to 10000000 bytes, got 17"),
        (("--sizes=70000", "--protocol=udp"), "18 to 65507 bytes, got 70000"),
        (("--interval=0",), "from 1ns to 60s, got '0'"),
        (("--interval=5x",), "got '5x'"),
        (("--ports=65536", "--", "true"), "from 1 to 65535, got '65536'"),
        (("--ring-bytes=5000",), "power of two"),
        (("--rate=1",), "got 1"),
        (("--delay=61s",), "from 0 to 60s, got '61s'"),
        (("--client-cpu=8000",), "got 8000"),
        (("--no-lab",), "it is of `latprof run -- COMMAND`"),
        (("--out=/etc/passwd",), "exists already"),
        (("--out=/etc/passwd/run",), "/etc/passwd is not a folder"),
        (("--out=/proc/run",), "cannot make run folder /proc/run"),
        (("--nosuch",), "unrecognized arguments"),
        (("--congestion=vegsa",), "--congestion must be one of "),
        (("--congestion=vegsa", "--", "true"), "got 'vegsa'"),
        (("--nagle", "--protocol=udp"), "--nagle: is for tcp"),
        (("--reply=0",), "18 to 10000000 bytes, got 0"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_made(words, text, tmp_path):
    short = SHORT if "--" not in words else ()
    assert_failed(run("run", *short, *words, cwd=tmp_path), 2, text)
    assert list(tmp_path.iterdir()) == []


def test_options_of_tcp_alone_leave_udp_as_it_is(out):
    latprof = run("run", *SHORT, "--nagle", "--congestion=reno", f"--out={out}")
    assert latprof.process.returncode == 0, latprof.err
    assert "\nudp: " in latprof.out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--spin",), "--spin; it is of `latprof run`"),
        (("--no-lab", "--mtu=900"), "--mtu: needs the lab"),
        (("--no-lab", "--server=true"), "--server: needs the lab"),
        (("--server='",), "no closing quotation"),
    ],
)
def test_options_that_do_not_go_with_a_command_are_refused(words, text):
    assert_failed(run("run", *words, "--", "true"), 2, text)


def test_without_root_it_says_how(tmp_path):
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    assert_failed(run("run", before=nobody, cwd="/"), 1, "root", "sudo latprof run")


def test_without_btf_it_says_what_the_kernel_lacks(out):
    hide = 'mount --bind /dev/null /sys/kernel/btf/vmlinux && exec "$@"'
    before = ("unshare", "--mount", "sh", "-c", hide, "sh")
    latprof = run("run", *SHORT, f"--out={out}", before=before)
    assert_failed(latprof, 1, "CONFIG_DEBUG_INFO_BTF")
    assert not out.exists()


@pytest.mark.thorough
def test_rings_without_memory_are_refused(out):
    limit = ("prlimit", f"--as={1 << 30}")  # the rings are mapped
    latprof = run("run", *SHORT, "--ring-bytes=512MiB", f"--out={out}", before=limit)
    assert_failed(latprof, 1, "memory", "--ring-bytes")
    assert not out.exists()


def with_way(quantity: str, program: str, hook: str) -> tuple:
    """The probes, with one way for this quantity."""
    way = Way((program,), "tracepoint", (hook,))
    return tuple(
        replace(p, ways=(way,)) if p.quantity == quantity else p for p in PROBES
    )


def invented(quantity: str) -> tuple:
    """The probes, with one quantity on a hook that no kernel has."""
    return with_way(quantity, "on_invented", "invented_event")


def options(folder) -> RunOptions:
    plan = PingPong(sizes=(64,), rounds=10)
    return RunOptions(link=LinkSpec(), plan=plan, protocols=("tcp",), out=folder)


def no_progress(*_: object) -> None:
    """Show nothing."""


def test_a_missing_tracepoint_is_told_and_its_stages_are_merged(out):
    table = invented("arrive (tcp)")
    told = {c.quantity: c for c in capabilities(("tcp",), table)}["arrive (tcp)"]
    assert told.state == "unavailable"
    assert told.reason == "kernel has no tracepoint invented_event"

    outcome = session.run(options(out), no_progress, Interrupt(), table)
    stages = outcome.summary["kinds"]["tcp request"]["stages"]
    assert stages["transit+receive_stack"]["n"] == 10
    assert "transit" not in stages and "receive_stack" not in stages
    assert pd.read_csv(out / "messages.csv")["arrive_ns"].isna().all()


def refused(quantity: str) -> tuple:
    """The probes, with one quantity by a program that cannot be loaded."""
    return with_way(quantity, "on_invented", "tcp_probe")


def test_a_refused_program_is_told_and_the_run_goes_on(out):
    outcome = session.run(
        options(out), no_progress, Interrupt(), refused("retransmits")
    )
    told = {c["quantity"]: c for c in outcome.summary["capabilities"]}["retransmits"]
    assert told["state"] == "unavailable"
    assert told["reason"].startswith("kernel refuses ")
    assert outcome.summary["kinds"]["tcp request"]["stages"]["transit"]["n"] == 10


def test_without_the_core_tracepoints_it_ends_with_the_reason(out):
    with pytest.raises(CaptureError, match="xmit: kernel has no tracepoint invented"):
        session.run(options(out), no_progress, Interrupt(), invented("xmit"))
    assert not out.exists()


def test_a_folder_that_exists_is_kept_as_it_is(out):
    out.mkdir()
    (out / "mine").write_text("mine")
    assert_failed(run("run", *SHORT, f"--out={out}"), 2, "exists already")
    assert [p.name for p in out.iterdir()] == ["mine"]


def test_a_disk_that_fills_ends_the_run_with_whole_lines_and_a_summary(tmp_path):
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    script = (
        f"mount -t tmpfs -o size=1m none {disk} || exit 99; "
        f'"$@"; status=$?; cp -r {disk} {copy}; exit $status'
    )
    words = ("--rate=0", "--delay=0", "--duration=20", "--protocol=tcp", "--sizes=64")
    words += ("--interval=1ms",)  # some 800 bytes a message, so full within seconds
    before = ("unshare", "--mount", "sh", "-c", script, "sh")
    latprof = run("run", *words, f"--out={disk}/run", before=before)

    assert_failed(latprof, 1, "no space left on device")
    assert assert_readable(copy / "run") > 0
    # both tables begin with the first message, and end within the last two steps
    requests, trips = (
        pd.read_csv(copy / "run" / f"{table}.csv")
        for table in ("messages", "round_trips")
    )
    requests = requests[requests["kind"] == "request"]
    last = 2 * JOIN_NS // 1_000_000
    assert abs(len(requests) - len(trips)) < last
    assert (trips["sequence"].diff().dropna() == 1).all()
    # a message whose halves came in two steps is written with the later one, if at all
    ends = requests["sequence"].sort_values().diff().dropna()
    assert set(ends.iloc[:-last]) == {64}, "rows are missing in the middle"
    assert_stages_shown(latprof.out, "tcp")
    # what the generator's log took is free again, so there is room for it
    assert json.loads((copy / "run/summary.json").read_text())["state"] == "failed"


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize(("who", "name"), [(" echo ", "responder"), ("pingpong", "")])
def test_an_end_that_dies_midway_ends_the_run_and_keeps_what_was(
    out, protocol, who, name
):
    latprof = Latprof("run", *LONG, f"--protocol={protocol}", f"--out={out}")
    latprof.wait_for_rows(out / "round_trips.csv", 100)
    kill(latprof.wait_for_child(who))
    latprof.finish()

    assert_failed(latprof, 1, name)
    assert assert_readable(out) > 0
    assert_stages_shown(latprof.out, protocol)
    assert json.loads((out / "summary.json").read_text())["state"] == "failed"


@pytest.mark.parametrize("where", [(), ("--no-lab",)])
def test_a_command_that_is_not_found_is_named(out, where):
    latprof = run("run", *where, f"--out={out}", "--", "/no/such/program")
    assert_failed(latprof, 1, "/no/such/program", "not found")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_during_the_run_shows_what_was_recorded(out, number):
    latprof = Latprof("run", *LONG, f"--out={out}")
    latprof.wait_for_rows(out / "round_trips.csv", 50)
    latprof.signal(number)

    assert latprof.finish() == 0, latprof.err
    assert latprof.err == ""
    assert_stages_shown(latprof.out, "tcp")
    assert "was interrupted" in latprof.out
    assert assert_readable(out) > 0
    assert json.loads((out / "summary.json").read_text())["state"] == "interrupted"
    assert latprof.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("what", ["imports", "registered", "namespaces", "probes"])
def test_an_interrupt_before_the_first_message_leaves_nothing(out, number, what):
    latprof = Latprof("run", *LONG, f"--out={out}")
    reached = {
        "imports": lambda: b"numpy" in maps_of(latprof.process.pid),
        "registered": lambda: registered(latprof.process.pid),
        "namespaces": lambda: latprof.namespaces,
        "probes": lambda: latprof.bpf,
    }
    latprof.wait_for(reached[what], what)
    latprof.signal(number)

    status = latprof.finish()
    # by then the first messages may have been sent, of the warm-up perhaps
    assert status in (0, 1), latprof.err
    assert ("was interrupted" in latprof.out) == (status == 0)
    if status:
        assert_failed(latprof, 1, "interrupted: nothing was recorded")
    assert latprof.left() == []


def maps_of(pid: int) -> bytes:
    with open(f"/proc/{pid}/maps", "rb") as maps:  # noqa: PTH123
        return maps.read()


def registered(pid: int) -> bool:
    return any(f'"pid": {pid},' in path.read_text() for path in REGISTRY.glob("*.lab"))


def test_an_interrupt_at_the_end_changes_nothing_but_the_wait(out):
    latprof = Latprof("run", "-v", "--protocol=tcp", "--rounds=30", f"--out={out}")
    latprof.wait_for_child("pingpong")
    latprof.wait_for(lambda: not latprof.children("pingpong"), "the end")
    latprof.signal(signal.SIGINT)

    assert latprof.finish() == 0, latprof.err
    assert "tcp request: 210 messages" in latprof.out
    assert latprof.left() == []


def test_two_interrupts_end_at_once_and_leave_nothing(out):
    latprof = Latprof("run", *LONG, f"--out={out}")
    latprof.wait_for_rows(out / "round_trips.csv", 50)
    kill(latprof.wait_for_child("pingpong"), signal.SIGSTOP)  # so it cannot end
    latprof.signal(signal.SIGINT)
    latprof.signal(signal.SIGINT)

    # the second may be one with the first, or come when all is done
    assert latprof.finish() in (0, 1)
    assert "Traceback" not in latprof.err
    assert_readable(out)
    assert latprof.left() == []


def test_after_sigkill_the_files_are_whole_and_the_next_run_cleans_up(out, tmp_path):
    latprof = Latprof("run", *LONG, f"--out={out}")
    latprof.wait_for_rows(out / "messages.csv", 50)
    latprof.signal(signal.SIGKILL)
    latprof.finish()

    # they end on their own, but not before their parent is gone
    for process in latprof.processes:
        wait_until(lambda p=process: ProcessId.of(p.pid) != p, f"end of {process}")
    assert assert_readable(out, killed=True) >= 50
    assert run("analyze", str(out)).process.returncode == 0
    assert json.loads((out / "run.json").read_text())["state"] == "running"
    # or less, if somebody else's latprof came first
    assert set(latprof.left()) <= latprof.namespaces
    following = run("run", *SHORT, f"--out={tmp_path / 'next'}")
    assert following.process.returncode == 0, following.err
    assert latprof.left() == []


def test_a_reader_that_leaves_early_is_no_error_to_talk_about(out):
    script = '"$@" | head -n 1'
    before = ("sh", "-c", script, "sh")
    latprof = run("run", *SHORT, f"--out={out}", before=before)
    assert latprof.err == ""
    assert len(latprof.out.splitlines()) == 1
    assert (out / "summary.json").exists()
