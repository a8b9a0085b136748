"""`latprof` as a process of its own, and what belongs to it while it lives."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

from latprof_agent.lab.processes import ProcessId
from printed import check_printed
from recording import wait_until

REGISTRY = Path("/run/latprof")
NETNS = Path("/run/netns")
DEADLINE_SECONDS = 180.0
# Before others: what a busy machine adds is not what these tests are about.
FIRST = ("nice", "-n", "-20")
COMMAND = (sys.executable, "-m", "latprof_agent")


class Latprof:
    """A running latprof; `look` notes what it holds, `left` what outlived it."""

    def __init__(self, *words: str, before: tuple[str, ...] = (), **options: Any):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        self.words = words
        self.process = subprocess.Popen([*before, *COMMAND, *words], **options)
        self.namespaces: set[str] = set()
        self.processes: set[ProcessId] = set()
        self.bpf: set[str] = set()
        self.out = self.err = ""

    def look(self) -> None:
        """Note namespaces, children and BPF objects of this moment."""
        with suppress(OSError, ValueError):
            for path in REGISTRY.glob("*.lab"):
                content = json.loads(path.read_text())
                if content["pid"] == self.process.pid:
                    names = {entry["name"] for entry in content["namespaces"]}
                    self.namespaces |= {n for n in names if (NETNS / n).exists()}
        self.processes |= {p for p in map(ProcessId.of, self.children()) if p}
        with suppress(OSError):
            self.bpf |= bpf_objects(self.process.pid)

    def children(self, word: str = "") -> list[int]:
        """Pids of children whose command line holds a word."""
        found = []
        with suppress(OSError):
            for task in Path(f"/proc/{self.process.pid}/task").iterdir():
                found += [int(pid) for pid in (task / "children").read_text().split()]
        return [pid for pid in found if word in _command_line(pid)]

    def wait_for(self, holds: Any, what: str) -> Any:
        """Wait for a condition of the running process."""

        def check() -> Any:
            self.look()
            ended = self.process.poll() is not None
            assert not ended, (what, self.process.stderr and self.process.stderr.read())
            return holds()

        return wait_until(check, what)

    def wait_for_child(self, word: str) -> int:
        """Wait until a child with this word runs; its pid."""
        return self.wait_for(lambda: self.children(word), word)[0]

    def wait_for_rows(self, path: Path, count: int) -> None:
        """Wait until a file has so many lines."""
        self.wait_for(
            lambda: path.exists() and path.read_bytes().count(b"\n") > count,
            f"{count} lines in {path}",
        )

    def signal(self, number: int) -> None:
        """Send a signal to latprof alone."""
        self.look()
        self.process.send_signal(number)

    def finish(self) -> int:
        """Wait for the end; the exit status."""
        try:
            out, err = self.process.communicate(timeout=DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        self.out, self.err = (text.decode() if text else "" for text in (out, err))
        if self.process.returncode in (0, 3, 4) and self.out:  # 3, 4: of a gate
            check_printed(self.words, self.out)
        return self.process.returncode

    def left(self) -> list[str]:
        """What it held and what is still there; must be empty."""
        found = [name for name in self.namespaces if (NETNS / name).exists()]
        found += [str(p) for p in self.processes if ProcessId.of(p.pid) == p]
        kept = self.bpf & set().union(*map(bpf_objects, _pids()))
        # the kernel frees a program some time after its last user is gone
        until = time.monotonic() + 5
        while (alive := self.bpf & _kernel_bpf_objects()) and time.monotonic() < until:
            Event().wait(0.05)
        return found + sorted(kept | alive)


def run(*words: str, **options: Any) -> Latprof:
    """Run latprof to its end."""
    process = Latprof(*words, **options)
    process.finish()
    return process


def screen_of(
    *words: str, columns: int, shown: str = "stdout", **options: Any
) -> tuple[int, list[str]]:
    """Run latprof on a terminal of so many columns; its exit status, its plain lines.

    Only one stream is the terminal: stdout has no progress bar, `shown="stderr"` has.
    """
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", 40, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    environment |= {"TERM": "xterm"}
    try:
        latprof = Latprof(*words, env=environment, **{shown: its}, **options)
        os.close(its)
        read = b""
        with suppress(OSError):  # EIO: nobody has the terminal any more
            while some := os.read(ours, 1 << 16):
                read += some
        status = latprof.finish()
    finally:
        os.close(ours)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", read.decode())
    return status, plain.replace("\r\n", "\n").splitlines()


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _command_line(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return text.replace(b"\0", b" ").decode()


def bpf_objects(pid: int) -> set[str]:
    """Programs and maps that a process holds by descriptor, by kind and id."""
    found = set()
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
            for line in entry.read_text().splitlines():
                name, _, value = line.partition(":")
                if name in ("prog_id", "map_id"):
                    found.add(f"{name} {value.strip()}")
    return found


def _kernel_bpf_objects() -> set[str]:
    """All programs and maps that the kernel has."""
    libbpf = ctypes.CDLL("libbpf.so.1")
    found = set()
    for kind in ("prog", "map"):
        next_id = getattr(libbpf, f"bpf_{kind}_get_next_id")
        number = ctypes.c_uint32()
        while next_id(number, ctypes.byref(number)) == 0:
            found.add(f"{kind}_id {number.value}")
    return found


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that the test started."""
    os.kill(pid, number)
