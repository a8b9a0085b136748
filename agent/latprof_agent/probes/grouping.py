"""What live traffic is grouped by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from latprof_agent.probes.layout import Layout

NONE = "none"
# What the agent names by the control groups that the probes group by.
BY_CONTAINER = ("pod", "container", "workload")
MOST_AT_ONCE = 2
_EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def ephemeral_ports() -> range:
    """Return the ports that this kernel hands out, by its setting."""
    low, high = map(int, _EPHEMERAL_PORTS.read_text().split())
    return range(low, high + 1)


@dataclass(frozen=True)
class Grouping:
    """By what, and how wide the subnets of `remote` are."""

    by: tuple[str, ...] = ("service",)
    prefix_ipv4: int = 24
    prefix_ipv6: int = 64

    @property
    def asks_runtime(self) -> bool:
        """Whether a runtime of containers has the names."""
        return not set(self.by).isdisjoint(BY_CONTAINER)

    def put(self, options: NDArray[Any], layout: Layout) -> None:
        """Write it into the probes' struct options."""
        kept = {"cgroup" if n in BY_CONTAINER else n for n in self.by} - {NONE}
        options["by"] = sum(layout.groupings[n] for n in kept)
        options["prefix_ipv4"] = self.prefix_ipv4
        options["prefix_ipv6"] = self.prefix_ipv6
        ports = ephemeral_ports()
        options["ephemeral"] = [ports.start, ports[-1]]
