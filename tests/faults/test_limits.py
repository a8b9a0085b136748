"""Limits, refusals and lacks of every kind: one line with its remedy, nothing left."""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from agent_process import FREE
from failures import assert_failed, assert_readable, state_of
from latprof_agent import session
from latprof_agent.capture.attachment import Attachment
from latprof_agent.errors import CaptureError, LatprofError
from latprof_agent.interrupts import Interrupt
from latprof_agent.lab.link import LinkSpec
from latprof_agent.recorder import Recorder
from latprof_agent.session import RunOptions
from latprof_agent.workload.generator import DEFAULT_SIZES, PingPong
from latprof_analysis.cli.program import OPEN_FILES
from latprof_process import Latprof, run

SHORT = ("--protocol=tcp", "--rounds=5", "--quiet")  # over the link emulator
PLAIN = ("--rate=0", "--delay=0", *SHORT)
COMMAND = ("--quiet", "--no-lab", "--", "true")
LIVE = {"watch": ("--once", "--interval=200ms"), "agent": FREE}

CGROUP2 = "for m in $(grep ' cgroup2 ' /proc/mounts | cut -d' ' -f2); do"
NO_CGROUP2 = f"{CGROUP2} umount -l $m; done"
READ_ONLY = "mount --bind {0} {0} && mount -o remount,ro,bind {0}"

# seccomp: a call gives EPERM, as in a container; two returns behind a comparison
NO_CALL = """
import ctypes, os, struct, sys
call = {numbers}[os.uname().machine]
code = [(0x20, 0, 0, 0), (0x15, 0, 1, call), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *c) for c in code))
program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""
NO_BPF = NO_CALL.format(numbers={"x86_64": 321, "aarch64": 280})
NO_PERF_EVENTS = NO_CALL.format(numbers={"x86_64": 298, "aarch64": 241})


def mounted(script: str) -> tuple[str, ...]:
    """Run what follows in a mount namespace of its own, after the script."""
    return ("unshare", "--mount", "sh", "-c", f'{script}; exec "$@"', "sh")


def without(capability: str) -> tuple[str, ...]:
    """Run what follows as root without a capability."""
    return ("setpriv", f"--bounding-set=-{capability}")


CAPABILITIES = "run as root with all capabilities"
WRITING = "mount that file system for writing"


@pytest.mark.parametrize(
    ("before", "words", "texts"),
    [
        *(
            pytest.param(
                ("prlimit", f"--nofile={n}"), PLAIN, ("ulimit -n",), id=f"nofile{n}"
            )
            for n in (6, 16, 40, 50, 60, 100)
        ),
        *(
            pytest.param(
                ("prlimit", f"--as={n << 20}"), PLAIN, ("ulimit -v",), id=f"as{n}"
            )
            for n in (100, 200, 250, 300)
        ),
        pytest.param(("prlimit", "--data=50000000"), PLAIN, ("ulimit -d",), id="data"),
        pytest.param(
            ("prlimit", "--fsize=20000"), SHORT, ("file too large",), id="fsize"
        ),
        pytest.param(without("net_admin"), PLAIN, (CAPABILITIES,), id="no-net_admin"),
        pytest.param(without("net_admin"), SHORT, (CAPABILITIES,), id="no-link"),
        pytest.param(without("sys_admin"), PLAIN, (CAPABILITIES,), id="no-sys_admin"),
        pytest.param(
            ("unshare", "-Urmn"), SHORT, ("root of a user namespace",), id="user-ns"
        ),
        pytest.param(
            (sys.executable, "-c", NO_BPF),
            PLAIN,
            (CAPABILITIES, "filter"),
            id="seccomp",
        ),
        pytest.param(
            mounted(READ_ONLY.format("/proc/sys")),
            PLAIN,
            ("/proc/sys/", WRITING),
            id="proc-sys",
        ),
        pytest.param(
            mounted(f"{CGROUP2} mount -o remount,ro,bind $m; done"),
            COMMAND,
            ("control group", WRITING),
            id="read-only-cgroup2",
        ),
        pytest.param(
            mounted(NO_CGROUP2), COMMAND, ("mount -t cgroup2",), id="no-cgroup2"
        ),
        pytest.param(mounted("umount -l /proc"), PLAIN, ("/proc",), id="no-proc"),
        pytest.param(mounted("umount -l /sys"), PLAIN, ("BTF",), id="no-sys"),
        pytest.param(
            mounted("mount -t tmpfs -o ro none /run"), PLAIN, (WRITING,), id="run"
        ),
        pytest.param(
            mounted("mount -t tmpfs none /dev/net"),
            SHORT,
            ("/dev/net/tun", "mknod"),
            id="no-tun",
        ),
        pytest.param(
            mounted("mount --bind /dev/null /dev/net/tun"),
            SHORT,
            ("TUN device", "mknod"),
            id="null-tun",
        ),
    ],
)
def test_a_run_that_is_refused_something_says_what_and_what_to_do(
    before, words, texts, tmp_path
):
    out = tmp_path / "run"
    latprof = run("run", f"--out={out}", *words, before=before)
    assert_failed(latprof, 1, *texts)
    assert not out.exists() or state_of(out) == "failed"


def test_stories_without_perf_events_have_no_stacks_and_say_so(tmp_path):
    out = tmp_path / "run"
    before = (sys.executable, "-c", NO_PERF_EVENTS)
    words = (*PLAIN, "--rounds=2000", "--story=10us", f"--out={out}")
    latprof = run("run", *words, before=before)
    assert latprof.process.returncode == 0, latprof.err
    offered = json.loads((out / "run.json").read_text())["capabilities"]
    (stacks,) = [row for row in offered if row["quantity"] == "stacks"]
    assert stacks["state"] == "unavailable"
    assert "Operation not permitted" in stacks["reason"]
    kinds: Counter[str] = Counter()
    for story in json.loads((out / "stories.json").read_text())["stories"]:
        for of in story["stages"].values():
            for part in of["parts"] or ():
                kinds[part["kind"]] += part["time_ns"]
                assert not part["functions"]
    assert kinds["busy"] + kinds["waiting"] + kinds["asleep"] > kinds["not recorded"]


@pytest.mark.parametrize("command", list(LIVE))
@pytest.mark.parametrize(
    ("before", "text"),
    [
        pytest.param(("prlimit", "--nofile=100"), "ulimit -n", id="nofile"),
        pytest.param(("prlimit", f"--as={300 << 20}"), "ulimit -v", id="as"),
        pytest.param(("prlimit", "--data=50000000"), "ulimit -d", id="data"),
        pytest.param(("unshare", "-Urmn"), "root of a user namespace", id="user-ns"),
        pytest.param((sys.executable, "-c", NO_BPF), CAPABILITIES, id="seccomp"),
        pytest.param(mounted("umount -l /proc"), "No such file", id="no-proc"),
        pytest.param(mounted("umount -l /sys"), "BTF", id="no-sys"),
    ],
)
def test_what_is_refused_to_watch_and_agent_is_one_line(command, before, text):
    assert_failed(run(command, *LIVE[command], before=before), 1, text)


WITH_STORIES = {
    "run": ("run", *PLAIN, "--story=10us", "--out=run"),
    "watch": ("watch", *LIVE["watch"], "--story"),
    "agent": ("agent", *FREE, "--story-dir=stories"),
}
# what a run has, and a clock of each CPU
STORY_FILES = OPEN_FILES + (os.cpu_count() or 1)


def most_files(pid: int) -> int:
    """The soft limit of a process."""
    (line,) = [
        line
        for line in Path(f"/proc/{pid}/limits").read_text().splitlines()
        if line.startswith("Max open files")
    ]
    return int(line.split()[3])


@pytest.mark.parametrize("command", list(WITH_STORIES))
def test_stories_that_cannot_have_their_files_are_refused_at_once(command, tmp_path):
    before = ("prlimit", f"--nofile={STORY_FILES - 1}")
    latprof = run(*WITH_STORIES[command], before=before, cwd=tmp_path)
    assert_failed(latprof, 1, "cannot start", "open files", "ulimit -n")
    assert list(tmp_path.iterdir()) == []


def test_a_soft_limit_is_raised_to_what_stories_need():
    before = ("prlimit", "--nofile=64:4096")
    latprof = Latprof(*WITH_STORIES["watch"], before=before)
    try:
        latprof.wait_for(
            lambda: most_files(latprof.process.pid) >= STORY_FILES, "files for stories"
        )
    finally:
        status = latprof.finish()
    assert status == 0, latprof.err


@pytest.mark.thorough
def test_an_agent_without_threads_is_one_line():
    # of its user; root has no such limit
    latprof = run("agent", *FREE, before=("prlimit", "--nproc=1"))
    assert_failed(latprof, 1, "starting a thread", "ulimit -u")


@pytest.fixture
def little_memory(megabytes):
    """What runs in a control group with room for the program, but not for its maps."""
    parent, limit = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
    if not parent.exists():
        parent, limit = Path("/sys/fs/cgroup"), "memory.max"
    group = parent / f"test-{secrets.token_hex(4)}"
    group.mkdir()
    try:
        if not (group / limit).exists():
            pytest.skip("needs the memory controller of cgroups")
        (group / limit).write_text(str(megabytes << 20))
        yield "sh", "-c", f'echo $$ >{group}/cgroup.procs; exec "$@"', "sh"
    finally:
        group.rmdir()


# by 10 MB less or more the kernel kills them in the middle of a map: what libraries
# take decides, which is no fault of the program
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "megabytes"),
    [
        (("agent", *LIVE["agent"]), 60),
        (("watch", *LIVE["watch"]), 50),
        (("watch", *LIVE["watch"], "--record=run"), 50),
    ],
)
def test_maps_without_memory_are_one_line(words, little_memory, tmp_path):
    latprof = run(*words, before=little_memory, cwd=tmp_path)
    assert_failed(latprof, 1, "no memory for them", "memory limit of the control group")
    assert list(tmp_path.iterdir()) == []


def write_full(*words: str, buffered: bool) -> Latprof:
    """Run latprof with a full disk for its output."""
    environment = os.environ | {"PYTHONUNBUFFERED": "" if buffered else "1"}
    with open("/dev/full", "w") as full:  # noqa: PTH123
        return run(*words, stdout=full, env=environment)


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("--version",),
        ("run", "--help"),
        ("completion", "bash"),
        ("probes",),
        ("probes", "--json"),
        ("run", *PLAIN),
        ("run", *PLAIN, "--json"),
    ],
    ids=" ".join,
)
def test_output_that_cannot_be_written_is_one_line(words, buffered, tmp_path):
    out = tmp_path / "run"
    more = (f"--out={out}",) if PLAIN[0] in words else ()
    latprof = write_full(*words, *more, buffered=buffered)
    assert_failed(latprof, 1, "cannot write the output: No space left on device")
    if more:  # what was recorded is all there: 10 rounds, warm-up too, there and back
        assert state_of(out) == "done"
        # ... and what the two ends say before, two messages each
        assert assert_readable(out) == 10 * len(DEFAULT_SIZES) * 2 + 4


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded") / "run"
    latprof = run("run", *PLAIN, f"--out={folder}")
    assert latprof.process.returncode == 0, latprof.err
    return folder


@pytest.mark.parametrize("command", ["analyze", "compare", "report"])
@pytest.mark.parametrize(
    ("before", "text"),
    [
        (("prlimit", "--nofile=10"), "ulimit -n"),
        (("prlimit", f"--as={400 << 20}"), "ulimit -v"),
        (("prlimit", f"--as={500 << 20}"), "ulimit -v"),
        (("sh", "-c", 'mkdir gone; cd gone; rmdir ../gone; exec "$@"', "sh"), ".: No"),
    ],
)
def test_reading_a_run_under_a_limit_is_one_line(
    command, before, text, recorded, tmp_path
):
    # a relative path needs the folder that it is relative to
    name = "run" if "gone" in before[-2] else str(recorded)
    names = (name, name) if command == "compare" else (name,)
    assert_failed(run(command, *names, before=before, cwd=tmp_path), 1, text)


@pytest.mark.parametrize("words", [(), ("--json",)])
@pytest.mark.parametrize("command", ["analyze", "compare"])
def test_what_was_read_and_cannot_be_written_is_one_line(command, words, recorded):
    names = (str(recorded),) * (2 if command == "compare" else 1)
    latprof = write_full(command, *names, *words, buffered=True)
    assert_failed(latprof, 1, "cannot write the output: No space left on device")


@pytest.mark.thorough
@pytest.mark.parametrize("out", ["/dev/full", "/proc/page.html"])
def test_a_page_that_cannot_be_written_is_one_line(out, recorded):
    latprof = run("report", str(recorded), f"--out={out}", "--format=html")
    assert_failed(latprof, 1, out)


def test_a_document_that_cannot_be_read_is_a_note(recorded, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in recorded.glob("*.csv"):
        (folder / path.name).symlink_to(path)
    (folder / "run.json").symlink_to("/proc/self/mem")  # EIO
    latprof = run("analyze", str(folder))
    assert latprof.process.returncode == 0, latprof.err
    assert "run.json:itisempty" in "".join(latprof.out.split())


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_document_that_is_no_file_is_told_and_left_out(make, recorded, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in recorded.glob("*.csv"):
        (folder / path.name).symlink_to(path)
    make(folder / "run.json")
    latprof = run("analyze", str(folder))
    assert latprof.process.returncode == 0, latprof.err
    assert "run.json is missing" in latprof.out


def test_closed_standard_streams_leave_the_tables_as_they_are(tmp_path):
    out = tmp_path / "run"
    closed = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    words = ("--no-lab", "--quiet", f"--out={out}")
    command = ("--", "sh", "-c", "echo told; echo told >&2")
    latprof = run("run", *words, *command, before=closed)
    assert latprof.process.returncode == 0
    assert state_of(out) == "done"
    for table in out.glob("*.csv"):
        assert "told" not in table.read_text(), table.name


def test_a_command_is_not_told_of_our_libraries_threads(tmp_path):
    words = ("--no-lab", "--quiet", f"--out={tmp_path / 'run'}")
    command = ("--", "sh", "-c", 'echo "threads: ${OPENBLAS_NUM_THREADS-any}" >&2')
    environment = {k: v for k, v in os.environ.items() if "OPENBLAS" not in k}
    latprof = run("run", *words, *command, env=environment)
    assert latprof.err == "threads: any\n"


def test_without_cgroup2_there_is_nothing_of_it_to_clean():
    latprof = run("lab", "clean", before=mounted(NO_CGROUP2))
    assert latprof.process.returncode == 0, latprof.err
    assert latprof.err == ""


def options(folder) -> RunOptions:
    plan = PingPong(sizes=(64,), rounds=10)
    return RunOptions(link=LinkSpec(), plan=plan, protocols=("tcp",), out=folder)


def do_run(folder):
    return session.run(options(folder), lambda *_: None, Interrupt())


def test_probes_that_cannot_be_attached_fail_the_run(tmp_path, monkeypatch):
    def refuse(*_):
        raise CaptureError("cannot attach probe on_x: refused; try again")

    monkeypatch.setattr(Attachment, "attach_all", refuse)
    outcome = do_run(tmp_path / "run")
    assert "cannot attach probe on_x" in str(outcome.failure)
    assert state_of(tmp_path / "run") == "failed"
    assert outcome.summary["state"] == "failed"


def test_a_thread_that_cannot_be_started_fails_the_run(tmp_path, monkeypatch):
    start = threading.Thread.start

    def refuse(thread):
        if "drain of the probes" in thread.name:
            raise RuntimeError("can't start new thread")  # Python's words
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    outcome = do_run(tmp_path / "run")
    assert "starting a thread" in str(outcome.failure)
    assert "ulimit -u" in str(outcome.failure)
    assert state_of(tmp_path / "run") == "failed"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError(), "Cannot allocate memory"),
        (OSError(5, "?"), "Input/output error"),
    ],
)
@pytest.mark.parametrize("where", ["join", "_give_out"])
def test_what_fails_while_recording_fails_the_run(
    where, error, text, tmp_path, monkeypatch
):
    def refuse(*_):
        raise error

    monkeypatch.setattr(Recorder, where, refuse)
    outcome = do_run(tmp_path / "run")
    assert isinstance(outcome.failure, LatprofError)
    assert text in str(outcome.failure)
    assert state_of(tmp_path / "run") == "failed"


@pytest.mark.parametrize("known", ["while it records", "at the end"])
def test_a_drain_that_fails_ends_the_run_with_what_was_recorded(
    known, tmp_path, monkeypatch
):
    if known == "at the end":  # as where the machine is busy, and the run short
        monkeypatch.setattr(Recorder, "step", lambda _: None)
    follow, seen = Attachment.follow, []

    def refuse(attachment, records):
        # of those before this one the other halves are there, too
        if sum(seen) >= 4:
            raise MemoryError
        seen.append(len(records["sent_messages"]))
        follow(attachment, records)

    monkeypatch.setattr(Attachment, "follow", refuse)
    outcome = do_run(tmp_path / "run")
    assert "cannot drain the probes: Cannot allocate memory" in str(outcome.failure)
    assert state_of(tmp_path / "run") == "failed"
    assert assert_readable(tmp_path / "run") >= 4


def test_a_bug_is_a_traceback_and_the_run_is_not_running(tmp_path, monkeypatch):
    def wrong(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(Recorder, "join", wrong)
    with pytest.raises(ZeroDivisionError):
        do_run(tmp_path / "run")
    assert state_of(tmp_path / "run") == "failed"
