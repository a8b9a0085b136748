"""A responder on another host, that may lend what it recorded of a run.

The connection is that of `latprof-load fetch`: the same handshake, secret and limits as
a session's.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from latprof_agent.errors import LendError
from latprof_agent.executables import find_executable
from latprof_agent.lab.child import last_output, start
from latprof_agent.lend.frames import Inlet
from latprof_agent.workload.programs import STARTED, ending_words, secret_words
from latprof_agent.workload.workload import Look, OtherEnd

_LOOK_SECONDS = 0.2


def place_text(place: tuple[str, int]) -> str:
    """Write a responder's host, and its port.

    Examples
    --------
    >>> place_text(("2001:db8::7", 7107)), place_text(("host", 7107))
    ('[2001:db8::7]:7107', 'host:7107')
    """
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class ResponderEnd(OtherEnd):
    """It answers from now on; what is older is not asked for."""

    address: str
    port: int
    secret_file: Path | None
    since_ns: int = field(default_factory=time.monotonic_ns)

    kind = "responder"

    def described(self) -> dict[str, Any]:
        """For run.json."""
        return {"host": place_text((self.address, self.port))}

    def fetch(
        self, write: Callable[[bytes], object], most_bytes: int, look: Look
    ) -> None:
        """Ask it; raises LendError with the reason why there is none."""
        with self._agreed(most_bytes, look) as connection:
            Inlet(connection.fileno()).take(write, most_bytes, look)

    def _agreed(self, most_bytes: int, look: Look) -> socket.socket:
        """Connect to it as a session does."""
        age_ns = time.monotonic_ns() - self.since_ns
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [str(find_executable("latprof-load")), "fetch", "--die-with-parent"]
        words += ["--address", self.address, "--port", str(self.port)]
        words += secret_words(self.secret_file)
        words += ["--hand-over", str(its.fileno()), "--since", str(age_ns)]
        words += ["--most-bytes", str(most_bytes)]
        with ours:
            with its:
                process = start(words, pass_fds=[its.fileno()], **STARTED)
            try:
                # its time is bounded: connecting, and the handshake
                while not select.select([ours], [], [], _LOOK_SECONDS)[0]:
                    look(0)
                _, found, _, _ = socket.recv_fds(ours, 1, 1)
            except BaseException:
                process.kill()
                process.communicate()
                raise
        _, complaint = last_output(process)
        if not found:
            raise LendError(ending_words(complaint, "latprof-load fetch", process))
        return socket.socket(fileno=found[0])
