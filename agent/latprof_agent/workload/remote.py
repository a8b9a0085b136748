"""The ping-pong with a responder elsewhere: this host's half of its messages."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from latprof_agent.errors import WorkloadError
from latprof_agent.lab import child
from latprof_agent.lab.lab import Lab
from latprof_agent.probes.filter import Filter
from latprof_agent.workload.generator import Client, PingPong
from latprof_agent.workload.pingpong import PingPongRuns
from latprof_agent.workload.programs import check_secret, secret_words
from latprof_agent.workload.responder_half import ResponderEnd
from latprof_agent.workload.workload import Workload

_NETNS = Path("/proc/self/ns/net")
# Over TCP nothing else shows that a responder hangs.
_GIVEN_UP_NS = 30_000_000_000


@dataclass(frozen=True)
class RemotePingPong(PingPong):
    """A run against the `latprof echo` of a host."""

    to: str = ""
    port: int = 0
    secret_file: Path | None = None

    in_lab = False

    def check_host(self) -> None:
        """Refuse a secret that cannot be used, too."""
        super().check_host()
        check_secret(self.secret_file)

    def open(self, lab: Lab | None) -> Workload:
        """Find the host; raises WorkloadError where it has no address."""
        assert not lab
        return RemotePingPongRuns(self, address_of(self.to, self.port))

    def client_words(self, protocol: str, address: str, port: int) -> list[str]:
        """Arguments of the client's process, but for where it logs."""
        words = super().client_words(protocol, address, port)
        words += secret_words(self.secret_file)
        return words + patience_words(protocol, self.timeout_ns)


def patience_words(protocol: str, timeout_ns: int) -> list[str]:
    """Arguments by which a client gives a responder up where the plan says nothing."""
    # over UDP a timeout is that of a datagram
    given = protocol == "udp" or timeout_ns
    return [] if given else ["--timeout", str(_GIVEN_UP_NS)]


def address_of(host: str, port: int) -> str:
    """Look a host up once; raises WorkloadError where it has no address."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        # UnicodeError: a part of it is empty, or longer than one may be
        why = (getattr(error, "strerror", None) or "no host can have it").lower()
        raise WorkloadError(
            f"cannot find the host {host}: {why}; give --to a name that `getent hosts` "
            "finds, or an address"
        ) from error
    address, _, *more = found[0][4]
    scope = more[-1] if more else 0  # of a link-local IPv6 address: its interface
    return f"{address}%{socket.if_indextoname(scope)}" if scope else str(address)


def own_sockets(ports: tuple[int, ...], protocols: tuple[str, ...]) -> Filter:
    """Sockets of responders' ports here: others' namespaces may have them, too."""
    return Filter(
        ports=ports,
        netns=(_NETNS.stat().st_ino,),
        peers=True,
        protocols=protocols,
    )


def reported_plan(plan: Any, address: str | list[str]) -> dict[str, Any]:
    """A plan for run.json, which does not say where a secret is."""
    reported = asdict(plan)
    secret = reported.pop("secret_file")
    return {**reported, "address": address, "secret": secret is not None}


class RemotePingPongRuns(PingPongRuns):
    """One protocol after the other, with a responder that is not ours."""

    _one_clock = False

    def __init__(self, plan: RemotePingPong, address: str) -> None:
        super().__init__(plan)
        self._responder = address, plan.port
        self._ends = [ResponderEnd(*self._responder, plan.secret_file)]

    def watched(self, protocols: tuple[str, ...]) -> Filter:
        """Those of its port here."""
        return own_sockets(self._responder[1:], protocols)

    def other_ends(self) -> Sequence[ResponderEnd]:
        """The one that it was given."""
        return self._ends

    def as_dict(self) -> dict[str, Any]:
        """For run.json."""
        return {"plan": reported_plan(self._plan, self._responder[0])}

    def _client(self, plan: PingPong, protocol: str, log: int, port: int) -> Client:
        assert not port
        return Client(plan, protocol, log, self._responder, child.start)
