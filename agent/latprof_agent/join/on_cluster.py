"""A run joined on a Dask cluster: by workers in partitions, which meet here.

    each worker:  recordings -> merged on one clock -> flows of a partition -> joined
    here:         rows of one step of all partitions -> in one order -> tables

A partition is a pure function of files, so what a lost worker had is done again by
another. Each reads all recordings, which is a small part of joining them; rows come
back step by step, packed, about as large as the recordings.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import zstandard
from latprof_analysis.records.arrays import Records, stacked
from latprof_analysis.records.host_records import HostRecords
from latprof_analysis.records.in_flight import InFlight
from latprof_analysis.records.joiner import FLOW_LIMIT, FOREVER
from latprof_analysis.records.recording import Recording
from latprof_analysis.study.cluster import (
    ClusterError,
    connected,
    failures_in_one_line,
    follow,
)
from latprof_analysis.version import VERSION

from latprof_agent.errors import LatprofError, UsageError
from latprof_agent.join.host_recordings import JoinedHost
from latprof_agent.join.partitions import Partitions, ends_announced, partitions_of
from latprof_agent.join.plan import Plan
from latprof_agent.join.step_rows import StepRows, StepSink
from latprof_agent.sinks.sink import Tally
from latprof_agent.workload.workload import Progress

_FAST = 1  # level of packing


@dataclass
class Joined:
    """What joining gave beside its rows, of a partition or of all."""

    tally: Tally
    in_flight: dict[str, InFlight]
    path_devices: list[dict[str, Any]]


@dataclass
class _Part:
    """A partition: the time that each step ends with, and its rows, packed."""

    ends_ns: list[int] = field(default_factory=list)
    steps: list[bytes] = field(default_factory=list)
    joined: Joined = field(init=False)

    def keep(self, end_ns: int, rows: StepRows) -> None:
        """Add a step."""
        packed = zstandard.compress(pickle.dumps(rows, protocol=5), _FAST)
        self.ends_ns.append(end_ns)
        self.steps.append(packed)

    def rows(self, step: int) -> StepRows:
        """Return those of a step, which is not needed any more."""
        packed, self.steps[step] = self.steps[step], b""
        found: StepRows = pickle.loads(zstandard.decompress(packed))
        return found


def check_parts(hosts: Sequence[JoinedHost]) -> None:
    """Raise UsageError where a recording cannot be joined in partitions of flows."""
    for host in hosts:
        if host.is_live:
            what = "a sample of what was watched, which is joined in no time"
        elif host.header.get("story_ns") is not None:
            what = "stories, which go from one flow to another"
        else:
            continue
        raise UsageError(f"--dask: {host.path} has {what}; leave out --dask")


def workers(address: str) -> AbstractContextManager[Any]:
    """Connect to a cluster that can join; see `connected`."""
    return connected(address, _version)


def _version() -> str:
    """Say which version a worker has of this module."""
    return VERSION


def join_on_cluster(
    client: Any, address: str, plan: Plan, progress: Progress
) -> list[_Part]:
    """Have a partition joined for each thread of the cluster, and give them.

    Raises ClusterError where the cluster does not do it.
    """
    count = sum(client.nthreads().values())
    partitions = partitions_of(_announced(plan), count)
    there = replace(plan, hosts=[_absolute(host) for host in plan.hosts])

    def done(parts: int, planned: int) -> None:
        progress(f"joining on {address}", 0, parts, planned)

    with failures_in_one_line(address):
        futures = [
            client.submit(join_partition, there, partitions, number, pure=False)
            for number in range(count)
        ]
        shares = {future.key: 1 for future in futures}
        follow(client, futures, shares, address, done)
        found: list[_Part] = client.gather(futures)
    return found


def _absolute(host: JoinedHost) -> JoinedHost:
    """Return a host whose path holds in any directory, without what is known of it."""
    return replace(host, path=host.path.absolute(), clocks=[], counted={})


def _announced(plan: Plan) -> Records:
    """Read the announcements of all flows."""
    dtype = plan.layout.rings["flows"]
    found = [np.empty(0, dtype)]
    for host in plan.hosts:
        moves = HostRecords(host.number, lambda times: times)
        for step, _ in host.steps(("flows",)):
            records = ends_announced(moves.moved(step.rings, {"flows": dtype})["flows"])
            found.append(records)
    announced = stacked(*found)
    flows = len(np.unique(announced["flow"]))
    if flows > FLOW_LIMIT:
        raise LatprofError(
            f"--dask: these recordings have {flows:,} flows, and which of more than "
            f"{FLOW_LIMIT:,} are released first depends on all; leave out --dask"
        )
    return announced


def join_partition(plan: Plan, partitions: Partitions, number: int) -> _Part:
    """Join the flows of one partition.

    Raises ClusterError where this host has other recordings, or none.
    """
    for host in plan.hosts:
        _check_same(host)
    merged, run = plan.begun()
    part, sink, records = _Part(), StepSink(), 0
    run.hand_to(sink, sink)
    for step in merged.steps():
        for host_number, recorded in step.steps:
            run.take(host_number, recorded)
        records += sum(map(len, step.batch.values()))
        step.batch = partitions.records_of(number, step.batch)
        run.join(step)
        part.keep(step.drained_ns, _of(number, sink.take()))
    run.end()
    part.keep(FOREVER, _of(number, sink.take()))
    tally = replace(sink.tally, records=records)
    part.joined = Joined(tally, dict(run.in_flight), run.path_devices)
    return part


def _check_same(host: JoinedHost) -> None:
    try:
        header = Recording(host.path).header
    except (LatprofError, OSError) as error:
        raise ClusterError(
            f"a worker of the Dask cluster cannot read {host.path} ({error}); workers "
            "must see the same files by the same paths"
        ) from error
    if header != host.header:
        raise ClusterError(
            f"a worker of the Dask cluster has another recording at {host.path}; "
            "workers must see the same files by the same paths"
        )


def _of(number: int, rows: StepRows) -> StepRows:
    """Leave out what all partitions have, but of the first."""
    if number:
        rows.round_trips, rows.expected = [], []
    return rows


def rows_of_steps(parts: Sequence[_Part]) -> Iterator[tuple[StepRows, float]]:
    """Give each step's rows of all partitions, with the share of steps until then.

    Raises ClusterError where they are not of the same recordings.
    """
    ends_ns = parts[0].ends_ns
    if any(part.ends_ns != ends_ns for part in parts):
        raise ClusterError(
            "workers of the Dask cluster had different recordings at the same paths; "
            "are they still written to?"
        )
    for step in range(len(ends_ns)):
        rows = StepRows()
        for part in parts:
            rows.add(part.rows(step))
        yield rows, (step + 1) / len(ends_ns)


def together(parts: Sequence[Joined]) -> Joined:
    """Add up what partitions counted."""
    tallies = [part.tally for part in parts]
    causes = {cause for part in parts for cause in part.in_flight}
    in_flight = {
        cause: InFlight.of_all(
            part.in_flight[cause] for part in parts if cause in part.in_flight
        )
        for cause in causes
    }
    tally = replace(
        tallies[0],
        unmatched=dict(_sum(Counter(tally.unmatched) for tally in tallies)),
        no_exchange=_sum(tally.no_exchange for tally in tallies),
        no_exchange_bytes=_sum(tally.no_exchange_bytes for tally in tallies),
        least_responses_ns=_least([tally.least_responses_ns for tally in tallies]),
        in_flight_bytes={cause: of.mean_bytes for cause, of in in_flight.items()},
        taken_back=[one for tally in tallies for one in tally.taken_back],
    )
    return Joined(tally, in_flight, parts[0].path_devices)


def _sum(counts: Any) -> Counter[Any]:
    return reduce(add, counts, Counter())


def _least(found: Sequence[dict[Any, int]]) -> dict[Any, int]:
    return {
        key: min(one[key] for one in found if key in one)
        for key in {key for one in found for key in one}
    }
