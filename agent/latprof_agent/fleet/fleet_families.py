"""What is known of a fleet, as families of metrics."""

from __future__ import annotations

from collections.abc import Iterator

from latprof_analysis.clocks import State
from latprof_analysis.stats.kernel_histogram import CoarseHistogram
from latprof_analysis.text import NS_PER_SECOND
from latprof_analysis.version import VERSION
from prometheus_client.process_collector import ProcessCollector

from latprof_agent.fleet.fleet import Fleet
from latprof_agent.fleet.fleet_clocks import state_of
from latprof_agent.fleet.fleet_document import wall_offset
from latprof_agent.fleet.fleet_totals import Way
from latprof_agent.service.metrics.families import (
    DEFAULT_EDGES,
    Family,
    Histograms,
    Labels,
    Row,
    counter,
    gauge,
    label_value,
    seconds,
)

_PPB = 1e9
_process = ProcessCollector(registry=None)


def fleet_families(fleet: Fleet) -> Iterator[Family]:
    """Give all that there is."""
    yield gauge(
        "latprof_build_info", "This version of latprof.", [({"version": VERSION}, 1)]
    )
    yield from _of_messages(fleet)
    yield from _of_resent(fleet)
    yield from _of_exchanges(fleet)
    yield from _of_clocks(fleet)
    yield from _of_agents(fleet)
    yield from _process.collect()


def _of_messages(fleet: Fleet) -> Iterator[Family]:
    found = [
        (_labels(fleet, way, "source", "destination"), messages)
        for way, messages in sorted(fleet.totals.messages.items())
    ]
    yield _histograms(
        "latprof_fleet_transit_seconds",
        "From leaving one host to the arrival at another, of a sample, where the "
        "clocks of both are known.",
        [(labels, messages.transit) for labels, messages in found],
    )
    yield _histograms(
        "latprof_fleet_queueing_seconds",
        "The same above the least of its way in the last minute, which needs no "
        "assumption on the clocks but their rates.",
        [(labels, messages.queueing) for labels, messages in found],
    )
    yield gauge(
        "latprof_fleet_transit_error_seconds",
        "By how much a transit may be wrong: half of the widest interval lately.",
        [(labels, seconds(m.error_ns)) for labels, m in found if m.error_ns],
    )
    yield counter(
        "latprof_fleet_messages",
        "Messages of the sample whose halves met, by what was known of the clocks.",
        [
            (labels | {"clocks": word}, n)
            for labels, messages in found
            for word, n in sorted(messages.clocks.items())
        ],
    )


def _of_resent(fleet: Fleet) -> Iterator[Family]:
    yield counter(
        "latprof_fleet_resent_segments",
        "Segments of sampled messages that TCP sent again: lost on the way from one "
        "host's TCP to the other's, as far as is known, or arrived before.",
        [
            (_labels(fleet, way, "source", "destination") | {"why": why}, n)
            for way, messages in sorted(fleet.totals.messages.items())
            for why, n in sorted(messages.resent.items())
        ],
    )


def _of_exchanges(fleet: Fleet) -> Iterator[Family]:
    rows: list[tuple[Labels, CoarseHistogram]] = []
    for way, exchanges in sorted(fleet.totals.exchanges.items()):
        labels = _labels(fleet, way, "client", "server")
        parts = {"response": exchanges.response, **exchanges.parts}
        rows += [(labels | {"part": part}, of) for part, of in parts.items()]
    yield _histograms(
        "latprof_fleet_exchange_seconds",
        "Requests and their replies between two hosts, of a sample: the response, and "
        "its parts, the request's way, the server, and the reply's way.",
        rows,
    )


def _of_clocks(fleet: Fleet) -> Iterator[Family]:
    values: dict[str, list[tuple[Labels, float]]] = {"": [], "_low": [], "_high": []}
    drifts, states = [], []
    for (one, other), clock in fleet.clocks.pairs.items():
        labels = {
            "host": label_value(fleet.name_of(other)),
            "reference": label_value(fleet.name_of(one)),
        }
        offset = wall_offset(fleet, one, other, clock)
        for suffix, value in zip(values, offset, strict=True):
            if value is not None:
                values[suffix].append((labels, value / NS_PER_SECOND))
        drifts.append((labels, float(clock.drift_ppb[-1]) / _PPB))
        now = state_of(clock)
        states += [
            (labels | {"state": state.word}, int(state == now)) for state in State
        ]
    for suffix, text in (
        ("", "What a host's wall clock is ahead of the reference's, by packets."),
        ("_low", "The least that it may be."),
        ("_high", "The most that it may be."),
    ):
        yield gauge(f"latprof_clock_offset{suffix}_seconds", text, values[suffix])
    yield gauge(
        "latprof_clock_drift_ratio",
        "How much faster a host's CLOCK_MONOTONIC runs than the reference's.",
        drifts,
    )
    yield gauge(
        "latprof_clock_state", "1 for what is known of a pair's clocks.", states
    )


def _of_agents(fleet: Fleet) -> Iterator[Family]:
    now = fleet.now()
    found = [
        ({"agent": str(a), "host": label_value(h.name)}, h)
        for a, h in sorted(fleet.hosts.items())
    ]
    yield gauge(
        "latprof_fleet_sample_age_seconds",
        "Since an agent gave something of its sample last.",
        [
            (labels, age)
            for labels, host in found
            if (age := host.age_seconds(now)) is not None
        ],
    )
    age = fleet.figures_age_seconds()
    yield gauge(
        "latprof_fleet_figures_age_seconds",
        "Since the oldest answer came that all figures go up to, of agents that are "
        "heard of.",
        [({}, age)] if age is not None else [],
    )
    yield counter(
        "latprof_fleet_pulls",
        "Questions to agents, by what became of them.",
        [
            (labels | {"outcome": outcome}, n)
            for labels, host in found
            for outcome, n in sorted(host.pulls.items())
        ],
    )
    yield counter(
        "latprof_fleet_records",
        "Records that agents gave.",
        [(labels, host.records) for labels, host in found],
    )
    yield counter(
        "latprof_fleet_lost_records",
        "Records that had fallen out of an agent's memory before they were given.",
        [(labels, host.lost_records) for labels, host in found],
    )


def _histograms(
    name: str, text: str, rows: list[tuple[Labels, CoarseHistogram]]
) -> Histograms:
    made = [Row(labels, histogram, {}) for labels, histogram in rows]
    return Histograms(name, text, DEFAULT_EDGES.others, made)


def _labels(fleet: Fleet, way: Way, source: str, destination: str) -> Labels:
    return {
        f"{source}_host": label_value(fleet.name_of(way.source)),
        f"{destination}_host": label_value(fleet.name_of(way.destination)),
        "protocol": way.protocol,
        "service": way.service,
    }
