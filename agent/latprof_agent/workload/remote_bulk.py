"""Bulk transfers with a responder elsewhere: places of this host, and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latprof_analysis.study.bulk import balance_between

from latprof_agent.errors import UsageError
from latprof_agent.lab import child
from latprof_agent.lab.lab import Lab
from latprof_agent.probes.filter import Filter
from latprof_agent.workload.bulk import (
    BulkPlan,
    BulkRuns,
    Directions,
    longest_datagram,
)
from latprof_agent.workload.bulk_client import BulkClient
from latprof_agent.workload.host_places import (
    Counted,
    Device,
    count_here,
    device_to,
    dropped_here,
)
from latprof_agent.workload.programs import check_secret, secret_words
from latprof_agent.workload.remote import (
    address_of,
    own_sockets,
    reported_plan,
)
from latprof_agent.workload.responder_half import ResponderEnd
from latprof_agent.workload.workload import Workload


@dataclass(frozen=True)
class RemoteBulkPlan(BulkPlan):
    """Transfers with the `latprof echo` of a host; congestion control is this end's."""

    to: str = ""
    port: int = 0
    secret_file: Path | None = None
    congestion: str | None = None

    in_lab = False

    def check_host(self) -> None:
        """Refuse a secret that cannot be used."""
        check_secret(self.secret_file)

    def open(self, lab: Lab | None) -> Workload:
        """Find the host, and the device that leads there.

        Raises WorkloadError where there is none, and UsageError where its packets are
        too short for a datagram.
        """
        assert not lab
        address = address_of(self.to, self.port)
        device = device_to(address)
        self._check_datagram(address, device)
        return RemoteBulkRuns(self, address, device)

    def _check_datagram(self, address: str, device: Device) -> None:
        most = longest_datagram(device.mtu_bytes, ipv6=":" in address)
        if "udp" in self.protocols and self.datagram_bytes > most:
            raise UsageError(
                f"--datagram must be at most {most} bytes, what a packet of "
                f"{device.name} holds (MTU {device.mtu_bytes}), got "
                f"{self.datagram_bytes}"
            )

    def client_words(self, protocol: str, channels: int) -> list[str]:
        """Arguments of the client's process, but for whom it asks."""
        words = super().client_words(protocol, channels)
        words += secret_words(self.secret_file)
        if protocol == "tcp" and self.congestion:
            words += ["--congestion", self.congestion]
        return words


class RemoteBulkRuns(BulkRuns):
    """Between this host and another one."""

    _plan: RemoteBulkPlan

    def __init__(self, plan: RemoteBulkPlan, address: str, device: Device) -> None:
        super().__init__(plan)
        self._address = address
        self._device = device
        self._ends = [ResponderEnd(address, plan.port, plan.secret_file)]

    def watched(self, protocols: tuple[str, ...]) -> Filter:
        """Those of the responder's port here."""
        return own_sockets((self._plan.port,), protocols)

    def other_ends(self) -> Sequence[ResponderEnd]:
        """The one that it was given."""
        return self._ends

    def as_dict(self) -> dict[str, Any]:
        """For run.json."""
        plan = reported_plan(self._plan, self._address)
        return {"bulk": {**plan, "device": self._device.name}}

    def _client(self, words: list[str]) -> BulkClient:
        to = ["--address", self._address, "--port", str(self._plan.port)]
        return BulkClient(child.start, [*to, *words], self._plan.client_cpu)

    def _count(self) -> Counted:
        return count_here(self._device)

    def _balance(self, directions: Directions, before: Counted) -> dict[str, Any]:
        way = self._plan.direction
        here = dropped_here(self._device, before, self._count(), way)
        return {
            "balance": balance_between(directions, here),
            "dropped_at_sockets": None,  # the kernel's count there is not ours
        }
