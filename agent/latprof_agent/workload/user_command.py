"""A program of the user's, with its whole process tree, as the workload.

The tree runs in a control group of its own, which distinguishes its sockets from
others, and nothing of it stays behind. It runs as the user who asked for it.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latprof_analysis.calling_user import User

from latprof_agent.errors import LabError, WorkloadError, close_after
from latprof_agent.interrupts import signals_deferred
from latprof_agent.kernel_text import lines_of
from latprof_agent.lab import child, processes
from latprof_agent.lab.control_group import ControlGroup
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.processes import ProcessId
from latprof_agent.lab.registry import Registration, clean_dead_labs
from latprof_agent.probes.filter import Filter
from latprof_agent.process_table import how_it_ended, processes_below
from latprof_agent.recorder import STEP_SECONDS
from latprof_agent.workload.workload import Plan, RunContext, Workload

READY_SECONDS = 10.0  # for a server to listen
END_SECONDS = 5.0  # between asking a command to end and ending it
TCP_LISTEN = "0A"


def _need(word: str, user: User | None) -> None:
    if not _can_run(word, user):
        whom = f" as {user.name}" if user else ""
        raise WorkloadError(
            f"cannot run {word}{whom}: not found or not executable; "
            "check its name and PATH"
        )


def _can_run(word: str, user: User | None) -> bool:
    """Whether a program is there for that user, which only a process of theirs sees."""
    if not user:
        return shutil.which(word) is not None
    drop = child.become(user)
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1] == 0
    found = False
    try:
        drop()
        found = shutil.which(word) is not None
    except OSError:
        found = True  # to start it says what is wrong
    finally:
        os._exit(0 if found else 1)


def _register() -> Registration:
    clean_dead_labs()
    return Registration(secrets.token_hex(4))


@dataclass(frozen=True)
class CommandPlan(Plan):
    """A command, and that of its server at the lab's other end, if any.

    `user`: whom they run as; None: as we do.
    """

    words: tuple[str, ...]
    server: str = ""
    user: User | None = None
    in_lab: bool = True
    ports: tuple[int, ...] = ()  # of which only these are watched

    kind = "command"

    def open(self, lab: Lab | None) -> Command:
        """Make its control group."""
        return Command(self, lab)


class Command(Workload):
    """The user's command, and a second one at the lab's other end."""

    def __init__(self, plan: CommandPlan, lab: Lab | None) -> None:
        """Make the control group; nothing is started before `start`."""
        super().__init__()
        words, user = plan.words, plan.user
        self._plan = plan
        self._words = self._fill(list(words), lab)
        self._server_words = self._fill(shlex.split(plan.server), lab)
        self._lab = lab
        self._user = user if user and user.uid != os.geteuid() else None
        for command in filter(None, (self._words, self._server_words)):
            _need(command[0], self._user)
        self._process: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._seen: set[ProcessId] = set()
        self._asked_to_end: float | None = None
        self.result: dict[str, Any] = {"command": list(words)}
        with signals_deferred():
            self._alone = None if lab else _register()
            registration = lab.registration if lab else self._alone
            assert registration
            try:
                self._group = ControlGroup(registration.add_cgroup())
            except LabError as error:
                if self._alone:
                    close_after(error, self._alone.close)
                raise

    @staticmethod
    def _fill(words: list[str], lab: Lab | None) -> list[str]:
        if not lab:
            return words
        return [word.replace("{server}", lab.b_address) for word in words]

    def watched(self, protocols: tuple[str, ...]) -> Filter:
        """All of the lab, or the tree's control group and its peers."""
        alone = self._lab is None
        return Filter(
            netns=self._lab.inodes if self._lab else (),
            ports=self._plan.ports,
            cgroups=(self._group.id,) if alone else (),
            peers=alone,
            protocols=protocols,
        )

    def follow(self, scene: RunContext) -> None:
        """Run it to its end; raises WorkloadError where it failed."""

        def drain() -> None:
            scene.interrupt.check()
            scene.recorder.step_for(STEP_SECONDS)

        self.start(meanwhile=drain)
        try:
            while self.running():
                if scene.interrupt.seen:
                    self.stop()
                if self._lab:
                    self._lab.check()
                scene.recorder.step_for(STEP_SECONDS)
                scene.progress("command", scene.totals.written, 0, 0)
            self.finish()
        finally:
            self.runs.append(self.result)

    def as_dict(self) -> dict[str, Any]:
        """For run.json."""
        user = self._plan.user
        return {
            "command": list(self._plan.words),
            "server_command": self._plan.server,
            "user": user.name if user else None,
        }

    def start(self, meanwhile: Callable[[], None]) -> None:
        """Start the server, if any, and when it listens the command.

        `meanwhile` is called again and again until then, and may take its time.
        """
        meanwhile()
        if self._server_words:
            self._server = self._spawn("b", self._server_words)
            self._wait_for_server(self._server, meanwhile)
        self._process = self._spawn("a", self._words)

    def _spawn(self, end: str, words: list[str]) -> subprocess.Popen[bytes]:
        options: dict[str, Any] = {
            "user": self._user,
            "stdout": 2,  # its output must not mix with ours
            "start_new_session": True,  # its Ctrl-C comes from us
        }
        # it is in the group before it can make a socket
        enter = self._group.enter
        if self._alone:
            with signals_deferred():
                started = child.start(words, enter, **options)
                self._alone.add_process(started.pid)
            return started
        assert self._lab
        environment = {
            "LATPROF_SERVER": self._lab.b_address,
            "LATPROF_CLIENT": self._lab.a_address,
        }
        options["env"] = os.environ | environment
        return self._lab.start(end, words, enter, **options)

    def _wait_for_server(
        self, server: subprocess.Popen[bytes], meanwhile: Callable[[], None]
    ) -> None:
        """Wait until something listens in the lab's other namespace.

        A server that listens to nothing in time (it may wait for something else)
        is taken for ready.
        """
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until:
            status = server.poll()
            if status is not None:
                raise WorkloadError(
                    f"the server ended with {how_it_ended(status)} before it "
                    f"listened: {shlex.join(self._server_words)}; "
                    f"{self._as_whom()}see what it said above"
                )
            if any(listening(Path(f"/proc/{server.pid}/net"))):
                return
            meanwhile()

    def running(self) -> bool:
        """Whether the command itself still runs."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Ask the command's tree to end; after a while end it."""
        now = time.monotonic()
        if self._asked_to_end is None:
            self._asked_to_end = now
            self._signal_all(signal.SIGTERM)
        elif now > self._asked_to_end + END_SECONDS:
            self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: int) -> None:
        pids = self._pids()
        found = {process for process in map(ProcessId.of, pids) if process}
        # who is still there was there in between: the number is not another's
        still = self._pids()
        self._seen |= {process for process in found if process.pid in still}
        # the oldest first: a shell that outlives its child says so, and goes on
        for process in sorted(self._seen, key=lambda one: (one.start_ticks, one.pid)):
            processes.send(process, number)

    def _pids(self) -> set[int]:
        """The tree: who is in the group, and those below us, who may have left it."""
        ours = {p.pid for p in (self._process, self._server) if p and p.poll() is None}
        below = processes_below(ours) if ours else set()
        return {*self._group.pids()} | ours | below

    def finish(self) -> None:
        """Take the command's status; raises WorkloadError where it failed."""
        assert self._process
        status = self._process.wait()
        self.result["status"] = status
        if status and self._asked_to_end is None:
            raise WorkloadError(
                f"the command ended with {how_it_ended(status)}: "
                f"{shlex.join(self._words)}; {self._as_whom()}"
                "what was recorded until then is kept"
            )

    def _as_whom(self) -> str:
        if not self._user:
            return ""
        return f"it ran as {self._user.name}, --user root would keep root; "

    def close(self) -> None:
        """End what is left of the tree and remove the group.

        Raises LabError where something cannot be ended, after some seconds.
        """
        with signals_deferred():
            self._signal_all(signal.SIGKILL)
            try:
                (self._alone or self._group).close()
            finally:
                self._alone = None
                for process in filter(None, (self._process, self._server)):
                    process.poll()


def listening(net: Path) -> Iterator[str]:
    """TCP sockets that listen and UDP sockets that are bound, of a namespace."""
    for name in ("tcp", "tcp6", "udp", "udp6"):
        try:
            lines = [line.decode() for line in lines_of(net / name)[1:]]
        except OSError:
            continue  # its process is gone, or the kernel has no such family
        for line in lines:
            if name.startswith("udp") or line.split()[3] == TCP_LISTEN:
                yield line
