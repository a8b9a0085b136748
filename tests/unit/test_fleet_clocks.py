"""Clocks of a fleet while time goes on, against clocks that are known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from latprof_agent.fleet.fleet_clocks import (
    WINDOW_NS,
    FleetClocks,
    PastSightings,
    estimate_clocks,
)
from latprof_analysis.clocks import Sightings, State
from simulated_clocks import S_NS, START_NS, Host, Way, pair

HOSTS = (
    Host(),
    Host(3 * S_NS, lambda t: 30e-6 * t + 20_000 * np.sin(2 * np.pi * t / 30e9)),
    Host(10**12, lambda t: -50e-6 * t),
)
EDGES = ((0, 1), (1, 2))
SPAN_S, STEP_S, LATELY_S = 120, 4, 20
WAY = Way(40, service_ns=100_000)
ORDER = {host: (str(host),) for host in range(len(HOSTS))}


def lately(sightings: Sightings, until_s: float, ahead_ns: int) -> Sightings:
    """What came up to a time, of what was sent since LATELY_S before it."""
    until_ns = START_NS + until_s * S_NS
    sent = sightings.sent_ns - ahead_ns
    at = (sent >= until_ns - LATELY_S * S_NS) & (sent < until_ns)
    return Sightings(sightings.sent_ns[at], sightings.arrived_ns[at])


def estimates(edges=EDGES, way=WAY, past=None) -> Iterator[tuple[float, FleetClocks]]:
    """What is known at each time: the time, and the clocks."""
    made = {
        (a, b): pair(HOSTS[b], way, way, SPAN_S, 7 + a, a=HOSTS[a]).sightings()
        for a, b in edges
    }
    past = past or PastSightings()
    for until_s in range(STEP_S, SPAN_S + 1, STEP_S):
        seen = [
            (
                a,
                b,
                *(
                    lately(s, until_s, HOSTS[h].constant_ns)
                    for s, h in zip(both, (a, b), strict=True)
                ),
            )
            for (a, b), both in made.items()
        ]
        drained = {
            n: START_NS + h.constant_ns + until_s * S_NS for n, h in enumerate(HOSTS)
        }
        yield until_s, estimate_clocks(past.between(seen, drained), ORDER)


def test_intervals_hold_the_truth_and_know_what_is_long_ago():
    widths = []
    for until_s, clocks in estimates():
        after = np.linspace(max(0, until_s - 10), until_s + 5, 50) * S_NS
        common = [
            clocks.to_reference(n, host.says(after)) for n, host in enumerate(HOSTS)
        ]
        for a, b in EDGES:
            difference = common[b] - common[a]
            minus, plus = clocks.bounds(a, b, common[a])
            assert (difference <= minus).all()
            assert (-difference <= plus).all()
        widths.append(sum(clocks.bounds(0, 1, common[0][:1]))[0])
        assert clocks.state(0, 1, common[0][:1]) == [State.GOOD]
    # 200 us there and back; of one window alone less is known of the rate
    assert max(widths[10:]) < 230_000


def test_what_is_kept_of_a_pair_is_bounded():
    past = PastSightings()
    for until_s, clocks in estimates(way=Way(1000), past=past):
        most = 1000 * LATELY_S + 4 * WINDOW_NS // S_NS
        # Poisson: never 6 standard deviations more
        assert max(map(max, clocks.packets.values())) < most + 6 * most**0.5, until_s


def test_a_pair_that_is_silent_is_known_for_a_minute():
    past = PastSightings()
    *_, (_, last) = estimates(past=past)
    assert len(last.pairs) == 2
    counts = []
    for later_s in (SPAN_S + 30, SPAN_S + 61):
        drained = {
            n: START_NS + h.constant_ns + later_s * S_NS for n, h in enumerate(HOSTS)
        }
        counts.append(len(estimate_clocks(past.between([], drained), ORDER).pairs))
    assert counts == [2, 0]


@pytest.mark.parametrize("host", [0, 1])
def test_of_a_host_that_was_started_again_nothing_is_kept(host):
    past = PastSightings()
    for _ in estimates(past=past):
        pass
    past.forget(host)
    left = [found[:2] for found in past.between([], {})]
    assert left == [edge for edge in EDGES if host not in edge]
