"""A mesh between hosts: this host's half, with a `latprof echo` on each of the others.

It is a star: one client here, with a connection to every other host. What the others
send to each other is theirs to measure, by the same command.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from latprof_analysis.study.mesh import Cell, MeshSetup

from latprof_agent.errors import UsageError
from latprof_agent.lab import child
from latprof_agent.lab.lab import Lab
from latprof_agent.probes.filter import Filter
from latprof_agent.workload.mesh import (
    HEARTBEAT_BYTES,
    Clients,
    MeshPlan,
    MeshRuns,
    Place,
)
from latprof_agent.workload.mesh_log import MeshEnds
from latprof_agent.workload.programs import check_secret, secret_words
from latprof_agent.workload.remote import (
    address_of,
    own_sockets,
    patience_words,
    reported_plan,
)
from latprof_agent.workload.responder_half import ResponderEnd, place_text
from latprof_agent.workload.workload import Workload

HERE = "here"
MOST_OTHERS = 31  # as in the lab, with this one


@dataclass(frozen=True)
class RemoteMeshPlan(MeshPlan):
    """A mesh with the `latprof echo` of each of the hosts `to`; `hosts` are all."""

    to: tuple[Place, ...] = ()
    secret_file: Path | None = None

    in_lab = False

    @property
    def pairs(self) -> int:
        """How many others this host sends to."""
        return len(self.to)

    def check_host(self) -> None:
        """Refuse a secret that cannot be used."""
        check_secret(self.secret_file)

    def check(self) -> None:
        """Refuse what cannot be sent, or kept, and hosts that are too many."""
        if len(self.to) > MOST_OTHERS:
            raise UsageError(
                f"--to must be at most {MOST_OTHERS} hosts, got {len(self.to)}"
            )
        super().check()

    def open(self, lab: Lab | None) -> Workload:
        """Find the hosts; raises WorkloadError where one has no address."""
        assert not lab
        return RemoteMesh(self, [(address_of(*one), one[1]) for one in self.to])

    def client_words(
        self,
        cell: Cell,
        messages: int,
        peers: Sequence[Place],
        begin_ns: int,
        seed: int,
    ) -> list[str]:
        """Arguments of the client's process, but for where it logs."""
        words = super().client_words(cell, messages, peers, begin_ns, seed)
        words += secret_words(self.secret_file)
        return words + patience_words(self.protocol, self.timeout_ns)


def _as_in_flows(place: Place) -> Place:
    """Write a place as those of flows are: without a zone, IPv4 in its own way."""
    address = ip_address(place[0].partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address), place[1]


class RemoteMesh(MeshRuns):
    """This host sends to every other."""

    def __init__(self, plan: RemoteMeshPlan, places: Sequence[Place]) -> None:
        names = [HERE, *map(place_text, plan.to)]
        responders: dict[Place, int] = {}
        for number, place in enumerate(places, 1):
            other = responders.setdefault(_as_in_flows(place), number)
            if other != number:
                raise UsageError(
                    f"--to: {names[other]} and {names[number]} are the same responder, "
                    f"{place_text(place)}; name each once"
                )
        setup = MeshSetup(
            tuple(names),
            plan.reply_bytes,
            HEARTBEAT_BYTES,
            plan.heartbeat_interval_ns,
            packets=None,
            star=True,
        )
        ends = MeshEnds(setup.hosts, responders, senders={}, otherwise=0)
        own = "", 0  # nobody sends to this host
        super().__init__(plan, setup, [own, *places], ends, one_clock=False)
        self._remote = plan
        self._ends = [ResponderEnd(*place, plan.secret_file) for place in places]

    def watched(self, protocols: tuple[str, ...]) -> Filter:
        """Those of the responders' ports here."""
        ports = {port for _, port in self._remote.to}
        return own_sockets(tuple(sorted(ports)), protocols)

    def other_ends(self) -> Sequence[ResponderEnd]:
        """All that it was given, in their order."""
        return self._ends

    def as_dict(self) -> dict[str, Any]:
        """For run.json."""
        plan = self._remote
        reported = reported_plan(plan, [address for address, _ in self._places[1:]])
        return {"mesh": reported | {"to": [place_text(place) for place in plan.to]}}

    def _spawn(
        self, host: str, command: Sequence[str], **options: Any
    ) -> subprocess.Popen[str]:
        assert host == HERE
        return child.start(command, **options)

    def _check_silence(self, clients: Clients) -> None:
        # the client itself gives up hosts that are silent
        clients.check_stopped()

    def _names_in_log(self) -> Sequence[str]:
        return self._setup.hosts
