"""The process of latprof-link, our link emulator."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from latprof_agent.errors import LabError, remedy
from latprof_agent.lab import child
from latprof_agent.lab.link import LinkSpec
from latprof_agent.process_table import how_it_ended, is_stopped

_START_S = 15.0
_ANSWER_S = 5.0


def link_options(spec: LinkSpec) -> list[str]:
    """Write a link as options of latprof-link's."""
    # A qdisc that was asked for holds the rate instead.
    rate = 0 if spec.shaper("emulator") else spec.rate_bps
    options = {
        "rate": rate,
        "delay": spec.delay_ns,
        "queue": spec.queue(),
        "mtu": spec.mtu,
        "seed": spec.seed,
        "loss": spec.loss,
    }
    if spec.loss_burst:
        options["loss-burst"] = spec.loss_burst
    texts = [f"--{name}={value}" for name, value in options.items()]
    return [*texts, *spec.emulator_options]


class LinkEmulator:
    """A running latprof-link between the namespaces `a` and `b`."""

    def __init__(self, executable: Path, a: str, b: str, spec: LinkSpec) -> None:
        """Start it; `wait_ready` before its devices are used."""
        command = [str(executable), f"--a-netns={a}", f"--b-netns={b}"]
        try:
            self._process = subprocess.Popen(
                [*command, "--die-with-parent", *link_options(spec)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,  # a Ctrl-C is for us, and we end it last
            )
        except OSError as error:
            why = f"{error.strerror}; {remedy(error.errno, 'install latprof again')}"
            raise LabError(f"cannot start {executable}: {why}") from error
        self._unread = b""

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def _line(self, seconds: float) -> str:
        assert self._process.stdout
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._unread:
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([descriptor], [], [], left)
            read = os.read(descriptor, 65536) if ready else b""
            if not read:
                raise self._failure("" if ready else "it does not answer")
            self._unread += read
        line, self._unread = self._unread.split(b"\n", 1)
        return line.decode()

    def _failure(self, why: str) -> LabError:
        """End it if it has not; tell by its own words, by `why`, or by its status."""
        if not why:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_ANSWER_S)  # its output is closed: it ends
        self._process.kill()
        _, said = self._process.communicate()
        lines = said.decode(errors="replace").strip().splitlines()
        if lines:
            text = lines[-1].removeprefix("latprof-link: ")
            return LabError(f"link emulator: {text}")
        why = why or f"it ended with {how_it_ended(self._process.returncode)}"
        return LabError(
            f"the link emulator failed: {why}; see what did that, and try again"
        )

    def place(self, cpu: int) -> None:
        """Keep it on one CPU."""
        os.sched_setaffinity(self.pid, {cpu})

    def wait_ready(self) -> None:
        """Wait until both devices exist."""
        self._line(_START_S)

    def check(self, seconds: float = 0.0) -> None:
        """Raise LabError where it has ended, or does so within these seconds."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            raise self._failure("")

    def counters(self) -> dict[str, Any]:
        """Read its counters, "ab" and "ba", while it goes on."""
        self.check()
        if is_stopped(self.pid):
            raise self._failure("it is stopped (SIGSTOP)")
        self._process.send_signal(signal.SIGUSR1)
        counters: dict[str, Any] = json.loads(self._line(_ANSWER_S))
        return counters

    def close(self) -> None:
        """End it, stopped or not, and wait for its end."""
        child.ask_to_end(self._process)
        child.last_output(self._process)
