"""The process of latprof-link, our link emulator."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from latprof_agent.errors import LabError, remedy
from latprof_agent.lab import child
from latprof_agent.lab.host import Host
from latprof_agent.lab.link import LinkSpec
from latprof_agent.process_table import how_it_ended, is_stopped

_START_S = 15.0
_ANSWER_S = 5.0


def _rate_options(spec: LinkSpec) -> list[str]:
    # A qdisc that was asked for holds the rate instead.
    rate = 0 if spec.shaper("emulator") else spec.rate_bps
    options = {"rate": rate, "queue": spec.queue(), "mtu": spec.mtu, "seed": spec.seed}
    return [f"--{name}={value}" for name, value in options.items()]


def pair_options(spec: LinkSpec, hosts: Sequence[Host]) -> list[str]:
    """Write the link between two hosts as options of latprof-link's."""
    ends = [f"--{host.name}-netns={host.netns}" for host in hosts]
    path = [f"--delay={spec.delay_ns}", f"--loss={spec.loss}"]
    if spec.loss_burst:
        path.append(f"--loss-burst={spec.loss_burst}")
    return [*ends, *_rate_options(spec), *path, *spec.emulator_options]


def star_options(spec: LinkSpec, hosts: Sequence[Host], middle: str) -> list[str]:
    """Write the links between hosts and the middle as options of latprof-link's.

    From host to host is up (ab) one link and down (ba) another. What is asked for
    holds between hosts: each way has half of the delay, and the way up the loss.
    """
    up_ns = spec.delay_ns // 2
    path = [f"--delay-ab={up_ns}", f"--delay-ba={spec.delay_ns - up_ns}"]
    path.append(f"--loss-ab={spec.loss}")
    if spec.loss_burst:
        path.append(f"--loss-burst-ab={spec.loss_burst}")
    ends = [
        f"--a-netns={','.join(host.netns for host in hosts)}",
        f"--b-netns={middle}",
        f"--b-name={','.join(host.name for host in hosts)}",
    ]
    return [*ends, *_rate_options(spec), *path, *spec.emulator_options]


class LinkEmulator:
    """A running latprof-link."""

    def __init__(self, executable: Path, options: Sequence[str]) -> None:
        """Start it; `wait_ready` before its devices are used."""
        try:
            self._process = subprocess.Popen(
                [str(executable), "--die-with-parent", *options],
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
        """End it, and give its own message, else `why`, else its exit status."""
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
        """Wait until all devices exist."""
        self._line(_START_S)

    def check(self, seconds: float = 0.0) -> None:
        """Raise LabError where it has ended, or does so within these seconds."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            raise self._failure("")

    def counters(self) -> Any:
        """Read its counters while it goes on.

        They are "ab" and "ba" of a link, and a list of such of several.
        """
        self.check()
        if is_stopped(self.pid):
            raise self._failure("it is stopped (SIGSTOP)")
        self._process.send_signal(signal.SIGUSR1)
        return json.loads(self._line(_ANSWER_S))

    def close(self) -> None:
        """End it, stopped or not, and wait for its end."""
        child.ask_to_end(self._process)
        child.last_output(self._process)
