"""Programs of our own that a workload runs: their start, their words, their end."""

from __future__ import annotations

import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from latprof_agent.errors import UsageError, WorkloadError
from latprof_agent.executables import find_executable
from latprof_agent.kernel_text import lines_of
from latprof_agent.lab.child import END_SECONDS, ask_to_end, last_output
from latprof_agent.process_table import how_it_ended, is_stopped

READY_SECONDS = 10.0
# Where not even a lost segment is sent again, a server stands still.
STILL_SECONDS = 30.0
LOOK_SECONDS = 0.1  # that one look may stand for: a machine may stand still, too
KEPT = "what was recorded until then is kept"
# How programs of ours are started: Ctrl-C reaches us, and we end them.
STARTED: dict[str, Any] = {
    "stdin": subprocess.DEVNULL,
    "stdout": subprocess.PIPE,
    "stderr": subprocess.PIPE,
    "text": True,
    "start_new_session": True,
}


def check_secret(file: Path | None) -> None:
    """Raise UsageError where a file, if any, holds no secret that can be used."""
    if not file:
        return
    load = str(find_executable("latprof-load"))
    words = [load, "echo", "--check", "--secret-file", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(done.stderr.strip().removeprefix("latprof-load: "))


def secret_words(file: Path | None) -> list[str]:
    """Arguments of a client's process that say where the secret is, if any."""
    return ["--secret-file", str(file)] if file else []


def ready_words(
    process: subprocess.Popen[str], who: str = "the responder"
) -> list[str]:
    """Wait until a responder listens; its port, and the workloads that it serves.

    Raises WorkloadError with its own words where it does not.
    """
    assert process.stdout
    readable, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
    word, *rest = (process.stdout.readline() if readable else "").split() or [""]
    if word != "ready":
        check_stopped({who: process})
        raise WorkloadError(last_words(process, who))
    return rest


def ending_words(complaint: str, who: str, process: subprocess.Popen[str]) -> str:
    """Why a program has ended: the last line of its complaint, or its status."""
    line = complaint.strip().splitlines()[-1] if complaint.strip() else ""
    if line:
        return line.removeprefix("latprof-load: ")
    return f"{who} failed: it ended with {how_it_ended(process.returncode)}; {KEPT}"


def last_words(process: subprocess.Popen[str], who: str) -> str:
    """End a program; the last line that it complained in, or how it ended."""
    ask_to_end(process)
    _, complaint = last_output(process)
    return ending_words(complaint, who, process)


class Ending:
    """Asks programs to end, and after a while ends those that have not."""

    def __init__(self) -> None:
        self._asked: float | None = None

    @property
    def asked(self) -> bool:
        """Whether they were."""
        return self._asked is not None

    def ask(self, processes: Iterable[subprocess.Popen[Any]]) -> None:
        """Ask those that run, or end them; to be called again until none does."""
        left = [process for process in processes if process.poll() is None]
        if not left:
            return
        now = time.monotonic()
        if self._asked is None:
            self._asked = now
            for process in left:
                ask_to_end(process, signal.SIGINT)
        elif now > self._asked + END_SECONDS:
            for process in left:
                process.kill()

    def ended_unbegun(self, process: subprocess.Popen[Any]) -> bool:
        """Whether it was asked to end before it could say anything."""
        return self.asked and process.returncode == -signal.SIGINT


def check_stopped(processes: Mapping[str, subprocess.Popen[str]]) -> None:
    """Raise WorkloadError where somebody has stopped one of these, by their names."""
    for who, process in processes.items():
        if process.poll() is None and is_stopped(process.pid):
            why = "it is stopped (SIGSTOP)"
            raise WorkloadError(f"{who} failed: {why}; {KEPT}")


def traffic_of(pid: int) -> Callable[[], str]:
    """What a process's end of the link has counted, to be read again and again."""
    return Path(f"/proc/{pid}/net/dev").read_text


def turns_of(pid: int) -> Callable[[], list[bytes]]:
    """How often a process has had a CPU, to be read again and again.

    Who waits for bytes has one whenever some come or leave.
    """
    status = Path(f"/proc/{pid}/status")

    def read() -> list[bytes]:
        return [line for line in lines_of(status) if b"ctxt_switches:" in line]

    return read


class ProgressWatchdog:
    """For how long what is read has not changed, such as `traffic_of` a process."""

    def __init__(self, read: Callable[[], object]) -> None:
        self._read = read
        self._last: object = None
        self._looked = time.monotonic()
        self._seconds = 0.0

    def seconds(self) -> float:
        """Look again."""
        before, now = self._looked, time.monotonic()
        found = self._last
        with suppress(OSError):  # it has just ended
            found = self._read()
        self._seconds += min(now - before, LOOK_SECONDS)
        if found != self._last:
            self._seconds = 0.0
        self._last, self._looked = found, now
        return self._seconds
