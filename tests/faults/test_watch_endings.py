"""`latprof watch` ended in every way: nothing is left, nothing recorded is lost."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import termios
import threading
from contextlib import contextmanager

import pandas as pd
import pytest
from agent_process import FREE
from failures import assert_failed, state_of
from latprof_agent.live.screen import _ENTER
from latprof_process import Latprof, run
from recording import wait_until

SIZE = 100
QUICK = ("--interval", "200ms", "--max-overhead", "none")


class Exchanging:
    """A client and its server over loopback."""

    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port = listening.getsockname()[1]
            self.client = socket.create_connection(listening.getsockname())
            self.server, _ = listening.accept()

    def exchange(self, count):
        for _ in range(count):
            for sender, reader in (
                (self.client, self.server),
                (self.server, self.client),
            ):
                sender.sendall(bytes(SIZE))
                reader.recv(SIZE, socket.MSG_WAITALL)

    @contextmanager
    def going_on(self):
        """Exchange in a thread until the end of the block."""
        ending = threading.Event()

        def go_on():
            while not ending.is_set():
                self.exchange(10)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()


@pytest.fixture
def traffic():
    traffic = Exchanging()
    with traffic.client, traffic.server:
        yield traffic


@pytest.fixture
def out(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def watching(traffic, out):
    """Start one that watches that traffic; killed if the test leaves it."""
    started = []

    def start(*words, **options):
        options = {"stdout": -1} | options
        port = ("--port", str(traffic.port))
        started.append(Latprof("watch", *QUICK, *port, *words, **options))
        return started[-1]

    yield start
    for watch in started:
        watch.process.kill()
        watch.process.communicate()


def counted(out, port):
    """Messages of the client, by the histograms of the run folder."""
    rows = pd.read_csv(out / "histograms.csv", dtype={"service": str})
    rows = rows[(rows["service"] == str(port)) & (rows["role"] == "client")]
    return rows[rows["quantity"] == "send_queue"]["count"].sum()


def assert_readable_by_all(out, cut=0):
    """Whole lines, but for so many in a table; analyze and report take the rest."""
    for table in out.glob("*.csv"):
        lines = table.read_text().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        assert len(lines) - len(whole) <= cut
        assert len({line.count(",") for line in whole}) == 1, table
    for words in (("analyze", out), ("report", out, "--out", f"{out}.html")):
        read = run(*map(str, words))
        assert (read.process.returncode, read.err) == (0, "")
        assert cut or "left out" not in read.out


def measuring(watch):
    """Wait until it has told of an interval."""
    watch.process.stdout.readline()
    watch.look()
    assert watch.bpf  # or there would be nothing to leave


@pytest.mark.thorough
def test_a_reader_that_leaves_loses_nothing_of_the_recording(watching, traffic, out):
    watch = watching("--json", "--record", str(out))
    measuring(watch)
    traffic.exchange(300)
    watch.process.stdout.close()
    watch.process.stdout = None

    assert watch.finish() == 1
    assert watch.err == ""
    assert watch.left() == []
    assert state_of(out) == "done"
    assert counted(out, traffic.port) == 300
    assert_readable_by_all(out)


@pytest.mark.thorough
def test_output_that_cannot_be_written_ends_it_with_the_recording(traffic, out):
    with open("/dev/full", "w") as full, traffic.going_on():  # noqa: PTH123
        port = ("--port", str(traffic.port))
        watch = run("watch", *QUICK, *port, "--record", str(out), stdout=full)

    assert_failed(watch, 1, "cannot write the output: No space left on device")
    assert state_of(out) == "failed"
    assert counted(out, traffic.port) > 0
    assert_readable_by_all(out)


@pytest.mark.thorough
def test_a_disk_that_fills_ends_it_with_whole_lines(traffic, tmp_path):
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    script = (
        f"mount -t tmpfs -o size=1m none {disk} || exit 99; "
        f'"$@"; status=$?; cp -r {disk} {copy}; exit $status'
    )
    words = ("--port", str(traffic.port), "--record", f"{disk}/run")
    before = ("unshare", "--mount", "sh", "-c", script, "sh")
    with traffic.going_on():
        watch = run("watch", *QUICK, *words, "--duration", "50s", before=before)

    assert_failed(watch, 1, "no space left on device")
    assert state_of(copy / "run") == "failed"
    assert counted(copy / "run", traffic.port) > 0
    assert_readable_by_all(copy / "run")


def once(port):
    """The next start."""
    watch = run("watch", "--once", *QUICK, "--port", str(port))
    assert watch.process.returncode == 0, watch.err
    assert watch.left() == []


@pytest.mark.thorough
@pytest.mark.parametrize("words", [("--json",), ("--record",)])
def test_killed_it_leaves_nothing_but_what_was_recorded(watching, traffic, out, words):
    record = (str(out),) if "--record" in words else ()
    watch = watching(*words, *record)
    measuring(watch)
    if record:
        with traffic.going_on():
            watch.wait_for_rows(out / "messages.csv", 50)
    watch.signal(signal.SIGKILL)

    assert watch.finish() == -signal.SIGKILL
    wait_until(lambda: watch.left() == [], "nothing is left")
    once(traffic.port)
    if record:
        assert state_of(out) == "running"
        assert_readable_by_all(out, cut=1)  # of which the kernel wrote a part


@pytest.mark.thorough
def test_killed_on_a_terminal_it_leaves_nothing_but_the_screen(watching, traffic):
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    terminal = {"stdin": its, "stdout": its, "env": os.environ | {"TERM": "xterm"}}
    try:
        watch = watching(**terminal)
        written = b""
        while b"measured" not in written or not watch.bpf:
            written += os.read(ours, 1 << 16)
            watch.look()
        watch.signal(signal.SIGKILL)
        assert watch.finish() == -signal.SIGKILL
        wait_until(lambda: watch.left() == [], "nothing is left")
        assert _ENTER in written  # nobody can leave what it has entered: `reset` does
        again = watching("--duration", "500ms", **terminal)
        reader = threading.Thread(target=_read_all, args=(ours,), daemon=True)
        reader.start()
        assert again.finish() == 0, again.err
        assert again.left() == []
    finally:
        os.close(its)
        reader.join(timeout=10)
        os.close(ours)


def _read_all(terminal):
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:  # EIO: nobody has the other side
        pass


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_all_that_was_counted(watching, traffic, out, number):
    watch = watching("--json", "--record", str(out))
    measuring(watch)
    traffic.exchange(100)
    watch.signal(number)

    assert watch.finish() == 0
    assert watch.err.startswith("watched ")
    assert watch.left() == []
    assert state_of(out) == "done"
    assert counted(out, traffic.port) == 100


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_two_signals_end_it_at_once_and_leave_nothing(watching, traffic, out, number):
    watch = watching("--json", "--record", str(out))
    measuring(watch)
    with traffic.going_on():
        watch.wait_for_rows(out / "messages.csv", 50)
        watch.signal(number)
        watch.signal(number)
        # the second may be one with the first, or come when all is done
        status = watch.finish()

    assert status in (0, 1), watch.err
    assert "Traceback" not in watch.err
    assert watch.left() == []
    assert_readable_by_all(out)


def imported(process):
    """Whether it has begun with the large libraries."""
    with open(f"/proc/{process.pid}/maps", "rb") as maps:  # noqa: PTH123
        return b"numpy" in maps.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("reached", ["imports", "probes"])
@pytest.mark.parametrize("command", ["watch", "agent"])
def test_a_signal_before_it_measures_leaves_nothing(number, reached, command):
    words = {"watch": QUICK, "agent": FREE}[command]
    latprof = Latprof(command, *words)
    holds = {
        "imports": lambda: imported(latprof.process),
        "probes": lambda: latprof.bpf,
    }
    latprof.wait_for(holds[reached], reached)
    latprof.signal(number)

    assert latprof.finish() in (0, -number), latprof.err
    assert "Traceback" not in latprof.err
    assert latprof.left() == []
