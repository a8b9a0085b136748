"""`latprof run attach --with ssh:HOST`: the same on other hosts meanwhile, by OpenSSH.

Each ssh runs `latprof run attach --lend-until-eof` there: it says that it records,
until its standard input ends, then sends its recording on standard output
(`lend/frames.py`) and leaves no file. So whatever ends the connection ends all of it.
"""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from latprof_analysis.calling_user import ROOT, calling_user
from latprof_analysis.records.recording import NAME as RECORDING

from latprof_agent.errors import LendError, UsageError, WorkloadError
from latprof_agent.interrupts import Interrupt
from latprof_agent.lab.child import last_output, start
from latprof_agent.lab.lab import Lab
from latprof_agent.lend.frames import Ending, Inlet, Outlet
from latprof_agent.probes.filter import Word
from latprof_agent.values import P999
from latprof_agent.workload.attached import Attached, Target
from latprof_agent.workload.programs import STARTED
from latprof_agent.workload.workload import Look, OtherEnd, Progress

CONNECT_SECONDS = 15
BEGIN_SECONDS = 90.0  # for ssh, and for the probes there
SILENT_SECONDS = 60.0  # while it sums up, on a busy machine
SPARE_SECONDS = 300.0  # that a host records longer, where nobody ends it
# Of this host alone: elsewhere they are others, or none.
LOCAL_KINDS = ("pid", "cgroup", "container", "netns")
_LOOK_SECONDS = 0.05
_AT_ONCE = 1 << 18
# Nothing is asked, nothing is forwarded, and no connection of others is held open.
_SSH = (
    *("-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECONDS}"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
    *(
        "-o",
        "ClearAllForwardings=yes",
        "-o",
        "ForwardAgent=no",
        "-o",
        "ControlPath=none",
    ),
)
_AS_ROOT = '[ "$(id -u)" = 0 ] || set -- sudo -n "$@"; exec "$@"'


class SshHost(NamedTuple):
    """Where ssh leads: [USER@]HOST[:PORT], as its configuration understands it."""

    destination: str
    port: str  # digits; empty: as configured

    def __str__(self) -> str:
        return f"{self.destination}:{self.port}" if self.port else self.destination

    def words(self, command: Sequence[str]) -> list[str]:
        """Words of the command that runs one there, as root.

        There a shell reads it, of whatever kind: each word is quoted.
        """
        port = ["-p", self.port] if self.port else []
        there = shlex.join(["sh", "-c", _AS_ROOT, "sh", *command])
        return ["ssh", *_SSH, *port, "--", self.destination, there]


def command_there(
    words: Sequence[Word], story_ns: int | None, seconds: float
) -> list[str]:
    """Words of what runs on the other hosts, so long at most."""
    command = [
        "latprof",
        "run",
        "attach",
        "--quiet",
        "--lend-until-eof",
        f"{seconds:g}s",
    ]
    for word in words:
        if word.negated:
            command += ["--not", f"{word.kind}={word.text}"]
        else:
            command += [f"--{word.kind}", word.text]
    if story_ns is not None:
        command += ["--story", f"{story_ns}ns" if story_ns else P999]
    return command


class AttachedThere(OtherEnd):
    """A host on which the same is recorded; `close` ends it."""

    kind = "with"
    numbered = True

    def __init__(self, host: SshHost, command: Sequence[str]) -> None:
        self.host = host
        caller = calling_user()
        user = caller if os.geteuid() == ROOT != caller.uid else None
        # never full, unlike a pipe
        self._complaint = tempfile.TemporaryFile()  # noqa: SIM115
        streams = {"stdin": subprocess.PIPE, "stderr": self._complaint, "text": False}
        self._ssh: subprocess.Popen[bytes] = start(
            host.words(command), user=user, **STARTED | streams
        )
        assert self._ssh.stdout
        self._inlet = Inlet(self._ssh.stdout.fileno(), SILENT_SECONDS)

    def described(self) -> dict[str, Any]:
        """For run.json."""
        return {"host": str(self.host)}

    def begun(self) -> bool:
        """Whether it records; raises WorkloadError where it will not."""
        begun = self.heard()
        if self._inlet.is_foreign:
            raise WorkloadError(
                f"cannot record on {self.host}: what it says is not of latprof; let "
                "login shells there print nothing where there is no terminal"
            )
        if not begun and self._inlet.ended:
            raise WorkloadError(f"cannot record on {self.host}: {self.why()}")
        return begun

    def heard(self) -> bool:
        """Take in that it still records: it must not wait for us to read it."""
        return not self._inlet.ended and self._inlet.heard()

    def why(self) -> str:
        """Why it has ended: its last line, or ssh's."""
        with suppress(subprocess.TimeoutExpired):
            self._ssh.wait(_LOOK_SECONDS)
        self._complaint.seek(0)
        lines = self._complaint.read(_AT_ONCE).decode("utf-8", "replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "")
        return last.strip().removeprefix("latprof: ") or "ssh ended without a word"

    def end(self) -> None:
        """Let it record no more, and send what it has."""
        if self._ssh.stdin:
            self._ssh.stdin.close()
        self._ssh.stdin = None  # of whoever waits for the end

    def fetch(
        self, write: Callable[[bytes], object], most_bytes: int, look: Look
    ) -> None:
        """Take its recording; raises LendError with what ssh says of it."""
        self.end()
        try:
            self._inlet.take(write, most_bytes, look)
        except LendError as error:
            if self._inlet.ended:
                raise LendError(f"{error}: {self.why()}") from error
            raise

    def close(self) -> None:
        """End it: ssh's end is its end there."""
        self.end()
        self._ssh.terminate()
        last_output(self._ssh)
        self._complaint.close()


@dataclass(frozen=True)
class TargetOfHosts(Target):
    """Sockets that were asked for, on this host and on others."""

    others: tuple[SshHost, ...] = ()
    story_ns: int | None = None

    def open(self, lab: Lab | None) -> AttachedOnHosts:
        """Find its processes, and begin on the other hosts."""
        assert not lab
        return AttachedOnHosts(self)


class AttachedOnHosts(Attached):
    """A target that is recorded on several hosts at once."""

    def __init__(self, target: TargetOfHosts) -> None:
        super().__init__(target)
        self._hosts = target.others
        self._there: list[AttachedThere] = []
        seconds = target.duration_seconds + SPARE_SECONDS
        command = command_there(target.chosen.words, target.story_ns, seconds)
        try:
            for host in target.others:
                self._there.append(AttachedThere(host, command))
        except WorkloadError:
            self.close()
            raise

    def make_ready(self, interrupt: Interrupt, progress: Progress) -> None:
        """Wait until all of them record: whatever this host sees, they see, too."""
        waited = list(self._there)
        until = time.monotonic() + BEGIN_SECONDS
        while waited := [one for one in waited if not one.begun()]:
            interrupt.check()
            progress(f"waiting for {waited[0].host}", 0, 0, 0)
            if time.monotonic() > until:
                raise WorkloadError(
                    f"cannot record on {waited[0].host}: it has not begun within "
                    f"{BEGIN_SECONDS:g} s; see what `ssh {waited[0].host} latprof "
                    "--version` says"
                )
            time.sleep(_LOOK_SECONDS)

    def running(self) -> bool:
        """Whether there may be more to see."""
        for one in self._there:
            one.heard()
        return super().running()

    def other_ends(self) -> Sequence[OtherEnd]:
        """Those hosts; none of them records any longer than it is asked for."""
        for one in self._there:
            one.end()
        return self._there

    def as_dict(self) -> dict[str, Any]:
        """For run.json."""
        said = super().as_dict()
        said["attached"]["with"] = [str(host) for host in self._hosts]
        return said

    def close(self) -> None:
        """End it everywhere."""
        while self._there:
            self._there.pop().close()
        super().close()


class UntilEof:
    """The other end: says on stdout that it records, until stdin ends."""

    def __init__(self, interrupt: Interrupt, most_seconds: float) -> None:
        self._interrupt = interrupt
        self._until = time.monotonic() + most_seconds
        self._outlet = Outlet(_write_out, sys.maxsize)

    def __call__(
        self, what: str, _messages: int, _done: float, _planned: float
    ) -> None:
        """Look, as the progress of a run: it records."""
        if _stdin_ended() or time.monotonic() > self._until:
            self._interrupt.seen = True
        try:
            self._outlet.wait()
        except OSError:  # nobody reads it any more
            self._interrupt.seen = True

    def send(self, folder: Path) -> None:
        """Send the recording of a run folder, whole."""
        with (folder / RECORDING).open("rb") as file:
            while data := file.read(_AT_ONCE):
                self._outlet.write(data)
        self._outlet.end(Ending.WHOLE)


def _stdin_ended() -> bool:
    ready = select.select([sys.stdin], [], [], 0)[0]
    return bool(ready) and not os.read(sys.stdin.fileno(), _AT_ONCE)


def _write_out(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


@contextmanager
def folder_for_a_while() -> Iterator[Path]:
    """Give a name for a run folder that is removed with what is in it."""
    with tempfile.TemporaryDirectory(prefix="latprof-") as folder:
        yield Path(folder) / "run"


def check_kinds(words: Sequence[Word]) -> None:
    """Raise UsageError for what means nothing on another host."""
    for word in words:
        if word.kind in LOCAL_KINDS:
            raise UsageError(
                f"--{word.kind}: is of this host, not with --with; use --port or --comm"
            )
