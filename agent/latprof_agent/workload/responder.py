"""The responder of `latprof echo`: its limits, its process, and its own recording."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latprof_agent.errors import UsageError, WorkloadError
from latprof_agent.executables import find_executable
from latprof_agent.lab.child import ask_to_end, last_output, start
from latprof_agent.workload.programs import STARTED, ending_words, ready_words

_IF_INET6 = Path("/proc/net/if_inet6")
_LOOPBACK6 = "::1"
_USAGE = 2  # exit status
# Of a session beside its receive buffer, at most: 13 MB in batches of 64 KiB.
_SESSION_BYTES = 16 << 20
_FIRST_BUFFER_BYTES = 4 << 20  # of a receive buffer, until its plan comes


def loopback_addresses(interfaces: Path = _IF_INET6) -> tuple[str, ...]:
    """Those of this host, IPv6's where it has it."""
    try:
        has_it = f"{1:032x} " in interfaces.read_text()
    except OSError:
        has_it = False
    return ("127.0.0.1", _LOOPBACK6) if has_it else ("127.0.0.1",)


@dataclass(frozen=True)
class Limits:
    """What a responder bears. None: as much as `latprof-load echo` does by itself."""

    workloads: tuple[str, ...] = ()
    sessions: int | None = None
    memory_bytes: int | None = None
    message_bytes: int | None = None
    rate_bps: int | None = None
    cpu_percent: int | None = None
    host_sessions: int | None = None
    host_memory_bytes: int | None = None
    host_cpu_percent: int | None = None
    duration_seconds: float | None = None
    idle_seconds: float | None = None

    def words(self) -> list[str]:
        """Arguments of its process."""
        rate = None if self.rate_bps is None else self.rate_bps // 8
        given = (
            ("--workloads", ",".join(self.workloads) or None),
            ("--max-sessions", self.sessions),
            ("--max-memory", self.memory_bytes),
            ("--max-message", self.message_bytes),
            ("--max-cpu", self.cpu_percent),
            ("--max-host-sessions", self.host_sessions),
            ("--max-host-memory", self.host_memory_bytes),
            ("--max-host-cpu", self.host_cpu_percent),
            ("--max-rate", rate),
            ("--max-duration", self.duration_seconds),
            ("--idle", self.idle_seconds),
        )
        return [
            word
            for name, value in given
            if value is not None
            for word in (name, str(value))
        ]


def limits_of_strangers(cpus: int) -> dict[str, int]:
    """What anyone may take of a responder on a machine of so many CPUs.

    A host's sessions do for bulk transfers as they are by default, and one CPU is more
    than a ping-pong can take: neither is ended.
    """
    return {
        "cpu_percent": max(100, 100 * cpus // 2),
        "host_sessions": 16,
        "host_memory_bytes": 256 << 20,
        "host_cpu_percent": 100,
    }


def limits_of_bulk(channels: int, receive_buffer_bytes: int = 0) -> Limits:
    """What so many channels at once need: in a lab nobody else asks its responder."""
    # the kernel grants twice what is asked for
    own_bytes = _SESSION_BYTES + 2 * max(receive_buffer_bytes, _FIRST_BUFFER_BYTES)
    return Limits(("bulk",), sessions=channels, memory_bytes=channels * own_bytes)


class Responder:
    """Answers on one port, TCP and UDP, until `stop`.

    Raises WorkloadError with the process's own words where it cannot.
    """

    def __init__(
        self,
        addresses: tuple[str, ...],
        port: int,
        limits: Limits,
        secret_file: Path | None = None,
        hand_over: int | None = None,
    ) -> None:
        """`hand_over` is a Unix socket, for who asks for the recording, if any is."""
        words = ["--address", ",".join(addresses), "--port", str(port)]
        words += ["--secret-file", str(secret_file)] if secret_file else []
        load = str(find_executable("latprof-load"))
        lent = [] if hand_over is None else [hand_over]
        words += [word for to in lent for word in ("--hand-over", str(to))]
        command = [load, "echo", "--die-with-parent", *words, *limits.words()]
        self._process: subprocess.Popen[str] = start(command, pass_fds=lent, **STARTED)
        try:
            own_port, *workloads = ready_words(self._process)
        except WorkloadError as error:
            if self._process.returncode == _USAGE:
                raise UsageError(f"{error}; see latprof echo --help") from error
            raise
        self.addresses = addresses
        self.port, self.workloads = int(own_port), tuple(workloads)
        self._began = time.monotonic()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended by itself; whether it has."""
        ended = os.pidfd_open(self.pid)
        try:
            return bool(select.select([ended], [], [], seconds)[0])
        finally:
            os.close(ended)

    def stop(self) -> dict[str, Any]:
        """End it; what it did.

        Raises WorkloadError where it failed before.
        """
        if self._process.poll() is None:
            ask_to_end(self._process)
        text, complaint = last_output(self._process)
        if self._process.returncode:
            raise WorkloadError(ending_words(complaint, "the responder", self._process))
        found: dict[str, Any] = json.loads(text)
        return found | {"seconds": time.monotonic() - self._began}
