"""The ping-pong with a responder elsewhere: this host's half of its messages."""

from __future__ import annotations

import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from latprof_agent.errors import WorkloadError
from latprof_agent.lab import child
from latprof_agent.lab.lab import Lab
from latprof_agent.probes.filter import Filter
from latprof_agent.workload.generator import Client, PingPong, PingPongRuns
from latprof_agent.workload.workload import Workload

_NETNS = Path("/proc/self/ns/net")


@dataclass(frozen=True)
class RemotePingPong(PingPong):
    """A run against the `latprof echo` of a host."""

    to: str = ""
    port: int = 0
    secret_file: Path | None = None

    in_lab = False

    def open(self, lab: Lab | None) -> Workload:
        """Find the host; raises WorkloadError where it has no address."""
        assert not lab
        return RemotePingPongRuns(self, address_of(self.to, self.port))

    def client_words(self, protocol: str, address: str, port: int) -> list[str]:
        """Arguments of the client's process, but for where it logs."""
        words = super().client_words(protocol, address, port)
        secret = self.secret_file
        return [*words, "--secret-file", str(secret)] if secret else words


def address_of(host: str, port: int) -> str:
    """Look it up once: the run has one responder."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise WorkloadError(
            f"cannot find the host {host}: {why}; give --to a name that `getent hosts` "
            "finds, or an address"
        ) from error
    return str(found[0][4][0])


class RemotePingPongRuns(PingPongRuns):
    """One protocol after the other, with a responder that is not ours."""

    _one_clock = False

    def __init__(self, plan: RemotePingPong, address: str) -> None:
        super().__init__(plan)
        self._responder = address, plan.port

    def watched(self, protocols: tuple[str, ...]) -> Filter:
        """Sockets of its port here; others' namespaces may have that port, too."""
        return Filter(
            ports=self._responder[1:],
            netns=(_NETNS.stat().st_ino,),
            peers=True,
            protocols=protocols,
        )

    def as_dict(self) -> dict[str, Any]:
        """For run.json."""
        plan = asdict(self._plan)
        secret = plan.pop("secret_file")
        address, _ = self._responder
        return {"plan": {**plan, "address": address, "secret": secret is not None}}

    def _client(self, plan: PingPong, protocol: str, log: int, port: int) -> Client:
        assert not port
        return Client(plan, protocol, log, self._responder, child.start)
