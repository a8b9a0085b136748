"""Runs of several hosts, joined as one host's run is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from latprof_analysis.clocks import HostClocks
from latprof_analysis.records.host_records import HostRecords
from latprof_analysis.records.in_flight import InFlight
from latprof_analysis.records.joiner import Joiner
from latprof_analysis.records.recording import RecordLayout, Step
from numpy.typing import NDArray

from latprof_agent.join.host_recordings import JoinedHost
from latprof_agent.join.joined_flights import (
    JoinedFlights,
    with_own_numbers,
    with_places_of_losses,
)
from latprof_agent.join.merged import MergedStep
from latprof_agent.join.step_rows import Expecting
from latprof_agent.rebuild.recorded_run import RecordedCapture, RecordedSources
from latprof_agent.recorder import Recorder
from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_agent.sinks.sink import Sink
from latprof_agent.story.stories import Stories


class _Periods:
    """When the probes' own cost was measured, at any of the hosts."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.int64]] = [np.empty((0, 2), "i8")]

    def add(self, periods: NDArray[Any]) -> None:
        """Take in some of one host."""
        if len(periods):
            columns = [periods["from_ns"], periods["until_ns"]]
            self._parts.append(np.stack(columns, axis=1))

    def periods(self) -> NDArray[np.int64]:
        """All of them, in the order of their begins."""
        found = np.concatenate(self._parts)
        found = found[np.argsort(found[:, 0], kind="stable")]
        np.maximum.accumulate(found[:, 1], out=found[:, 1])
        return found

    def as_dict(self) -> dict[str, float]:
        """No figures: each host has its own."""
        return {}


class JoinedRun:
    """Takes what hosts recorded, step by step.

    What a load generator knew comes from the reference host alone, whose clock its
    times are of.
    """

    def __init__(
        self,
        hosts: Sequence[JoinedHost],
        moves: Sequence[HostRecords],
        clocks: HostClocks,
        layout: RecordLayout,
        ephemeral: range,
        *,
        slack_ns: int,
    ) -> None:
        """`slack_ns` is by how much stamps of two hosts may be wrong."""
        own = hosts[clocks.reference]
        self._hosts = hosts
        self._reference = clocks.reference
        self._periods = _Periods()
        self._capture = RecordedCapture(layout, ephemeral, self._periods)
        self._totals: Expecting | None = None
        pieces = bool(own.header.get("pieces"))
        self._recorder = Recorder(self._capture, [], pieces, slack_ns=slack_ns)
        self._sources = RecordedSources(self._recorder)
        self._flights: JoinedFlights | None = None
        self.stories: Stories | None = None
        limits = [host.header.get("story_ns") for host in hosts]
        known = [int(limit) for limit in limits if limit is not None]
        self._all_have_stories = len(known) == len(hosts)
        if known:
            self._flights = JoinedFlights(hosts, moves, clocks, layout)
            self._capture.flight = self._flights
            self.stories = Stories(min(known), self._flights, self.joiner)

    @property
    def joiner(self) -> Joiner:
        """Of the halves."""
        return self._recorder.joiner

    @property
    def in_flight(self) -> dict[str, InFlight]:
        """Bytes on their way of connections whose ends talk at once, by cause."""
        return self._recorder.in_flight

    @property
    def path_devices(self) -> list[dict[str, Any]]:
        """What `PathDevices.as_list` gives."""
        return self.joiner.path_devices.as_list()

    def hand_to(self, sink: Sink, totals: Expecting) -> None:
        """Give what is joined to this one; `totals` learns of round trips to come."""
        self._recorder.sinks = [sink]
        self._totals = totals

    def take(self, host: int, step: Step) -> None:
        """Take in what a step of one host has beside its records."""
        if self._flights:
            self._flights.take(host, step)
        if host != self._reference:
            return
        for note in step.notes:
            match note:
                case {"source": described}:
                    self._sources.add(**described)
                case {"of_source": number, "call": call}:
                    self._sources.call(number, *call)
                case {"round_trips": described, "loaded": loaded} if self._totals:
                    totals = RoundTripTotals(**described)
                    self._totals.expect(totals, loaded=loaded)
        self._sources.put(step.logs)

    def join(self, step: MergedStep) -> None:
        """Join what all hosts drained."""
        for periods in step.periods:
            self._periods.add(periods)
        self._capture.batch = step.batch
        self._capture.drained_ns = step.drained_ns
        self._recorder.join()

    def end(self) -> None:
        """Give out what waits."""
        self._recorder.end()
        self._recorder.end_sinks()

    def stories_document(self) -> dict[str, Any] | None:
        """Return stories, with each host's own numbers; None: none was asked for."""
        if not self.stories:
            return None
        document = self.stories.document()
        if self._all_have_stories:
            with_places_of_losses(document)
        found: dict[str, Any] = with_own_numbers(
            document, [host.name for host in self._hosts]
        )
        return found
