"""Watch real traffic in a test: what probes and agent make of it in histograms."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from latprof_agent.lab.lab import Lab
from latprof_agent.monitor.monitor import Monitor
from latprof_agent.monitor.totals import Group, GroupTotals, Quantity, Totals
from latprof_agent.probes.catalogue import BOTH, ON_DEMAND, PROBES, proven_capabilities
from latprof_agent.probes.filter import Filter
from latprof_agent.probes.grouping import Grouping
from latprof_agent.probes.loss_probes import LOSS_PROBES
from latprof_analysis.stats.kernel_histogram import CoarseHistogram, edges_ns

# Some kernels refuse to go through the entries of a map: then they are unavailable.
LAST_DATAGRAMS = "exchanges that are over (udp)"
LISTENERS = "connections that listeners refuse"
STEP_SECONDS = 0.02
SERVICE = Grouping()


@cache
def _unavailable() -> dict[str, str]:
    """Why, by quantity."""
    found = proven_capabilities(table=PROBES + LOSS_PROBES, needs=ON_DEMAND)
    return {c.quantity: c.reason for c in found if c.state == "unavailable"}


def need_quantity(name: str) -> None:
    """Skip where the kernel does not let it be measured."""
    if reason := _unavailable().get(name):
        pytest.skip(f"needs {name}: {reason}")


@dataclass
class Monitored:
    """What was counted; complete after the `with` block of `monitored`."""

    monitor: Monitor
    totals: Totals = field(default_factory=Totals)

    def group(self, **parts: Any) -> GroupTotals:
        """The one group that has these parts; fails where there is another number."""
        found = [
            totals
            for group, totals in self.totals.groups.items()
            if all(getattr(group, name) == value for name, value in parts.items())
        ]
        assert len(found) == 1, (parts, list(self.totals.groups))
        return found[0]

    def names(self) -> set[Group]:
        """All groups."""
        return set(self.totals.groups)


@contextmanager
def monitored(
    watched: Lab | Filter,
    grouping: Grouping = SERVICE,
    protocols: tuple[str, ...] = BOTH,
    **options: Any,
) -> Iterator[Monitored]:
    """Count what the sockets of a lab (or of a filter) do while the block runs."""
    if isinstance(watched, Lab):
        watched = Filter(netns=(watched.a_inode, watched.b_inode), protocols=protocols)
    with Monitor(watched, grouping, **options) as monitor:
        monitor.start()
        done = threading.Event()

        def step() -> None:
            while not done.wait(STEP_SECONDS):
                monitor.step()

        thread = threading.Thread(target=step)
        thread.start()
        found = Monitored(monitor)
        try:
            yield found
        finally:
            done.set()
            thread.join()
            monitor.stop()
            found.totals = monitor.totals()


def histogram(totals: GroupTotals, quantity: Quantity) -> CoarseHistogram:
    """One that must hold something; its sum is held against its own buckets."""
    found = totals.histograms[quantity]
    edges = edges_ns()
    assert found.count
    assert (found.counts * edges[:-1]).sum() <= found.sum_ns
    if not found.counts[-1]:
        assert found.sum_ns <= (found.counts[:-1] * edges[1:-1]).sum()
    return found
