"""One run folder from the recordings of several hosts.

    recordings -> clocks -> merged on one clock -> joined as one host's -> tables

They are read twice: once for what their packets say of the clocks, and once to join
them. What is joined, and how, is what a run of one host does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from latprof_analysis.calling_user import calling_user
from latprof_analysis.read.schema import EXCHANGES, MESSAGES
from latprof_analysis.records.host_records import with_host
from latprof_analysis.records.recording import WORDS, RecordLayout
from latprof_analysis.report.clock_words import clock_warnings
from latprof_analysis.version import VERSION

from latprof_agent.join.clock_tables import COLUMNS, clock_rows, clocks_document
from latprof_agent.join.estimate import NOTHING_ASSUMED, Assumed, Estimate, estimate
from latprof_agent.join.host_recordings import JoinedHost, open_hosts
from latprof_agent.join.joined_rows import Crossing, JoinedSink
from latprof_agent.join.on_cluster import (
    check_parts,
    join_on_cluster,
    rows_of_steps,
    together,
    workers,
)
from latprof_agent.join.plan import Plan
from latprof_agent.join.step_rows import StepRows, StepSink, hand_on, in_order
from latprof_agent.probes.layout import layout_of
from latprof_agent.rebuild.rebuilt import Rebuilt, damage_in_one_line
from latprof_agent.sinks.round_trip_rows import COLUMNS as ROUND_TRIP_COLUMNS
from latprof_agent.sinks.run_description import with_counts
from latprof_agent.sinks.run_files import NAMES_MODE, OTHER_TURNS, TABLES, RunFolder
from latprof_agent.sinks.run_place import check_free
from latprof_agent.sinks.run_tables import RunTables
from latprof_agent.sinks.run_totals import RunTotals
from latprof_agent.sinks.summary import summarize
from latprof_agent.workload.workload import Progress

CLOCKS_TABLE = "clocks.csv"
# Where packets went one way only the fastest is taken to have needed no time.
_LEAST_SLACK_NS, _MOST_SLACK_NS = 100_000, 50_000_000


@dataclass(frozen=True)
class JoinOptions:
    """How hosts are joined."""

    reference: str | None = None  # the host on whose clock stamps are
    assumed: Assumed = NOTHING_ASSUMED
    parquet: bool = False
    one_boot: bool = False  # hosts may be namespaces of one
    dask: str | None = None  # the address of a cluster that does it


class _Joining:
    """Joins what hosts recorded into a folder, and sums it up."""

    def __init__(self, plan: Plan, found: Estimate, folder: RunFolder) -> None:
        names = [host.name for host in plan.hosts]
        self.crossing = Crossing(names, found.clocks, found.least_ns)
        self.totals = RunTotals()
        self.path_devices: list[dict[str, Any]] = []
        self.stories: dict[str, Any] | None = None
        self._plan = plan
        self._folder = folder
        self._tables = [RunTables(folder), self.totals]

    def join(self, progress: Progress) -> None:
        """Take all there is."""
        merged, run = self._plan.begun()
        rows = StepSink()
        run.hand_to(rows, rows)
        sink = JoinedSink(self.crossing, self._tables, run.stories)
        for step in merged.steps():
            for host, recorded in step.steps:
                run.take(host, recorded)
            run.join(step)
            self._hand_on(rows.take(), sink, step.share, progress)
        run.end()
        self._hand_on(rows.take(), sink, 1, progress)
        sink.end(in_order(rows.tally))
        self.path_devices, self.stories = run.path_devices, run.stories_document()

    def join_on(self, client: Any, address: str, progress: Progress) -> None:
        """Take all there is, joined by the workers of a cluster."""
        parts = join_on_cluster(client, address, self._plan, progress)
        sink = JoinedSink(self.crossing, self._tables, None)
        for rows, share in rows_of_steps(parts):
            self._hand_on(rows, sink, share, progress)
        joined = together([part.joined for part in parts])
        sink.end(in_order(joined.tally))
        self.path_devices = joined.path_devices

    def _hand_on(
        self, rows: StepRows, sink: JoinedSink, share: float, progress: Progress
    ) -> None:
        hand_on(rows, sink, self.totals)
        progress("joining", self.totals.written, share, 1)
        if self._folder.failure:
            raise self._folder.failure


def _slack(found: Estimate) -> int:
    """Return by how much stamps of two hosts may be wrong, within reason."""
    widths = [(pair.minus_ns + pair.plus_ns) for pair in found.pairs.values()]
    width = np.concatenate([width[np.isfinite(width)] for width in widths])
    return int(np.clip(width.max(initial=_LEAST_SLACK_NS), None, _MOST_SLACK_NS))


def joined_layout(hosts: Sequence[JoinedHost]) -> RecordLayout:
    """Lay out the records of all hosts together."""
    own = layout_of().rings
    words = {
        word: {k: v for host in hosts for k, v in getattr(host.layout, word).items()}
        for word in WORDS
    }
    return RecordLayout({r: with_host(r, own[r]) for r in own}, **words)


def _ephemeral(hosts: Sequence[JoinedHost]) -> range:
    """Ports that any of the hosts hands out to clients."""
    ports = [tuple(map(int, host.header["ephemeral_ports"])) for host in hosts]
    return range(min(low for low, _ in ports), max(high for _, high in ports) + 1)


def join(
    folders: Sequence[Path], out: Path, progress: Progress, options: JoinOptions
) -> Rebuilt:
    """Make the run folder `out` of the recordings in several run folders.

    Raises LatprofError where they cannot be read or joined, or nothing can be written.
    """
    check_free(out, calling_user())
    hosts = open_hosts(folders, one_boot=options.one_boot)
    if not options.dask:
        return _joined(hosts, out, progress, options, None)
    check_parts(hosts)
    with workers(options.dask) as client:
        return _joined(hosts, out, progress, options, client)


def _joined(
    hosts: Sequence[JoinedHost],
    out: Path,
    progress: Progress,
    options: JoinOptions,
    client: Any,
) -> Rebuilt:
    """Join opened hosts here, or by the workers of a `client` of a cluster."""
    layout = joined_layout(hosts)
    found = estimate(hosts, layout, options.reference, options.assumed, progress)
    plan = Plan(hosts, found.clocks, layout, _ephemeral(hosts), _slack(found))
    tables = TABLES | {
        "messages": MESSAGES.names,
        "exchanges": EXCHANGES.names,
        OTHER_TURNS: EXCHANGES.names,
        "round_trips": _round_trip_columns(hosts[found.clocks.reference]),
    }
    folder = RunFolder(out, tables=tables)
    try:
        with damage_in_one_line(hosts[found.clocks.reference]):
            joining = _Joining(plan, found, folder)
            if client:
                joining.join_on(client, str(options.dask), progress)
            else:
                joining.join(progress)
        summary = _write(hosts, found, joining, folder)
        folder.finish_tables()
        if options.parquet:
            folder.write_parquet()
    except BaseException:
        folder.discard()
        raise
    finally:
        folder.close()
    return Rebuilt(folder.path, summary)


def _round_trip_columns(host: JoinedHost) -> tuple[str, ...]:
    return tuple(map(str, host.header.get("round_trip_columns", ROUND_TRIP_COLUMNS)))


def _write(
    hosts: Sequence[JoinedHost],
    found: Estimate,
    joining: _Joining,
    folder: RunFolder,
) -> dict[str, Any]:
    """Write the documents; return summary.json."""
    own = hosts[found.clocks.reference]
    joined = {
        "hosts": [host.as_dict() for host in hosts],
        "clocks": clocks_document(hosts, found, joining.crossing),
    }
    description = _description(hosts, own, joining) | joined
    description |= {"folder": str(folder.path)}
    summary: dict[str, Any] = summarize(joining.totals, description, {}) | joined
    summary |= (own.end or {}).get("figures", {})
    del summary["cost"]  # each host has its own
    summary["warnings"] += [*_warnings(hosts), *clock_warnings(summary)]
    folder.write_json("run.json", description)
    folder.write_json("summary.json", summary)
    if joining.stories:
        folder.write_json("stories.json", joining.stories, NAMES_MODE)
    folder.write_rows(CLOCKS_TABLE, COLUMNS, clock_rows(hosts, found))
    return summary


def _description(
    hosts: Sequence[JoinedHost], own: JoinedHost, joining: _Joining
) -> dict[str, Any]:
    """Describe the run: as the reference host's did, with the counts of all."""
    counted: Counter[str] = Counter()
    for host in hosts:
        counted.update(host.counted)
    tally = replace(joining.totals.tally, counters=dict(counted))
    joining.totals.tally = tally
    unknown = {"link_counters": None, "failure": None}
    link = (own.end or {}).get("link", "")
    passed = joining.path_devices
    return with_counts(unknown | own.said, tally, passed, link) | {
        "state": _state(hosts),
        "joined": {"by": VERSION},
        "clock": f"CLOCK_MONOTONIC of {own.name}",
    }


def _state(hosts: Sequence[JoinedHost]) -> str:
    states = {host.as_dict()["state"] for host in hosts}
    return states.pop() if len(states) == 1 else "interrupted"


def _warnings(hosts: Sequence[JoinedHost]) -> list[str]:
    found = []
    for host in hosts:
        if host.cut_off or not host.end:
            found.append(
                f"the recording of {host.name} breaks off before its run's end: its "
                "figures cover the time until then"
            )
    return found
