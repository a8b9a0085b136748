"""What CPUs of several hosts did, for stories: each host's own recorder, on one clock.

A host answers what its own run asked, and else by the first of its copies that has the
time. Numbers of processes, threads, CPUs, queues and sockets are made unlike those of
other hosts, as in the records of messages; `with_own_numbers` makes them each host's
own again, with its name behind those of its processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from latprof_analysis.clocks import HostClocks
from latprof_analysis.records.arrays import Records
from latprof_analysis.records.host_records import PID_BITS, HostRecords
from latprof_analysis.records.recording import RecordLayout, Step
from latprof_analysis.story.device_queue import QueueAt
from latprof_analysis.story.sockets import AGAIN, LOST, DroppedSegment
from latprof_analysis.story.stacks import NAMES_NOT_RECORDED
from latprof_analysis.story.story import Flight
from numpy.typing import NDArray

from latprof_agent.capture.reads import Answers, Reads, reads_of
from latprof_agent.capture.recorded_flights import (
    QUEUES,
    Names,
    Owner,
    QueueTable,
    RecordedFlights,
)
from latprof_agent.join.host_recordings import JoinedHost

# A record has 16 bits for its CPU.
CPU_BITS = 10
_MOST_CPU_HOSTS = 1 << (16 - CPU_BITS)
_QUEUE_BITS = 24
_STACKS = ("samples", "wakes")
_PIDS = frozenset({"pid", "sender_pid", "reader_pid"})
_THREADS = frozenset({"thread", "reader_thread"})


@dataclass
class _OfHost:
    """One host's recorder, as its recording has it, with its own times and numbers."""

    host: JoinedHost
    moves: HostRecords
    flights: RecordedFlights
    moved: dict[int, Flight] = field(default_factory=dict)  # by id of what it was


class JoinedFlights:
    """What stories ask for, of all hosts together; see `Flights` and `Watched`."""

    def __init__(
        self,
        hosts: Sequence[JoinedHost],
        moves: Sequence[HostRecords],
        clocks: HostClocks,
        layout: RecordLayout,
    ) -> None:
        self._clocks = clocks
        self._of = {
            host.number: _of_host(host, move)
            for host, move in zip(hosts, moves, strict=True)
            if host.header.get("story_ns") is not None and host.number < _MOST_CPU_HOSTS
        }
        first = next(iter(self._of.values())).flights
        self.limit_ns = 0
        self.reads: Reads | None = None
        self.answers = Answers()
        self.layout = layout
        self.calls, self.jiffy_ns = first.calls, first.jiffy_ns
        self.symbols: Names = self
        self.queues: QueueTable = self
        self.dropped = self
        self._never_read = (
            layout.flags["RECORD_DROPPED"] | layout.flags["RECORD_UNREAD"]
        )
        # of what was handed out: what its host's recorder knows it by
        self._spots: dict[tuple[int, int], tuple[int, Any]] = {}
        self._inodes: dict[int, tuple[int, int]] = {}
        self._losses: dict[int, DroppedSegment] = {}

    def take(self, number: int, step: Step) -> None:
        """Take in what a step of a host has for its stories."""
        if number not in self._of:
            return
        flights = self._of[number].flights
        for note in step.notes:
            match note:
                case {"copy": _}:
                    flights.take_copy(note, step.rings)
                case {"asked": asked}:
                    flights.take_answer(*asked)
                case {"names": names}:
                    flights.take_names(names, step.rings[QUEUES])
                    self._learn_losses(number, names["losses"])

    def _learn_losses(self, number: int, losses: Iterable[Any]) -> None:
        name = self._of[number].host.name
        for one in chain.from_iterable(found for _, found in losses):
            lost = DroppedSegment(*one)
            t_ns = self._on_reference(number, lost.t_ns)
            where = f"{lost.where}, on {name}"
            self._losses[t_ns] = lost._replace(t_ns=t_ns, where=where)

    @property
    def copies(self) -> int:
        """That were made, at all hosts."""
        return sum(of.flights.copies for of in self._of.values())

    @property
    def skipped(self) -> int:
        """Copies for which there was no room."""
        return sum(of.flights.skipped for of in self._of.values())

    @property
    def source(self) -> str:
        """Where names of functions come from."""
        sources = dict.fromkeys(of.flights.source for of in self._of.values())
        return ", ".join(sources) or NAMES_NOT_RECORDED

    def set_limits(self, limit_ns: int, _turn_limit_ns: int) -> None:
        """A message that takes as long is slow from now on."""
        self.limit_ns = limit_ns

    def lost(self, ring: str) -> int:
        """How many records of one of the rings were lost, at all hosts."""
        return sum(of.host.counted.get(f"lost_{ring}", 0) for of in self._of.values())

    def keep(self, *_spans: Any) -> None:
        """There is nothing but what was asked for."""

    def look_at(self, *_spans: NDArray[Any]) -> None:
        """There is nothing to be copied."""

    def finish(self) -> None:
        """All that was copied is there."""

    def note_reads(self, ranges: NDArray[Any]) -> None:
        """Keep what was read, where somebody wants it."""
        if self.reads is not None:
            self.reads.add(reads_of(ranges, self._never_read))

    def note_answers(self, turns: NDArray[Any]) -> None:
        """Keep which threads answered after long."""
        self.answers.add(turns)

    def flight(self, begin_ns: int, end_ns: int) -> Flight | None:
        """Return what hosts kept of a span, of those together that have all of it."""
        found = []
        for number, of in self._of.items():
            span = np.array([begin_ns, end_ns], "i8")
            begin, end = self._clocks.from_reference(number, span).tolist()
            if kept := of.flights.flight(begin, end):
                found.append(self._moved(of, kept))
        return _together(found) if found else None

    def _moved(self, of: _OfHost, flight: Flight) -> Flight:
        """Put what a host kept on the common clock, with numbers of its own."""
        if id(flight) in of.moved:
            return of.moved[id(flight)]
        number = of.host.number
        rings = of.moves.moved(
            flight.rings, {ring: kept.dtype for ring, kept in flight.rings.items()}
        )
        for ring, kept in rings.items():
            names = kept.dtype.names or ()
            if "cpu" in names:
                kept["cpu"] |= number << CPU_BITS
            if "queue" in names:
                kept["queue"] |= number << _QUEUE_BITS
            if "inode" in names:
                self._note_inodes(number, kept, flight.rings[ring])
            if ring in _STACKS:
                self._note_spots(number, kept, flight.rings[ring])
        begin_ns = self._on_reference(number, flight.begin_ns)
        end_ns = self._on_reference(number, flight.end_ns)
        since_ns = {
            ring: {
                cpu | number << CPU_BITS: self._on_reference(number, t) if t else 0
                for cpu, t in by_cpu.items()
            }
            for ring, by_cpu in flight.since_ns.items()
        }
        found = of.moved[id(flight)] = Flight(begin_ns, end_ns, rings, since_ns)
        return found

    def _note_spots(self, number: int, moved: Records, own: Records) -> None:
        keys = zip(moved["t_ns"].tolist(), moved["thread"].tolist(), strict=True)
        for key, record in zip(keys, own, strict=True):
            self._spots[key] = number, record

    def _note_inodes(self, number: int, moved: Records, own: Records) -> None:
        known = own["inode"] != 0
        moved["inode"][known] ^= np.uint32(number * 0x9E3779B1 & 0xFFFFFFFF)
        pairs = zip(moved["inode"].tolist(), own["inode"].tolist(), strict=True)
        self._inodes |= {key: (number, inode) for key, inode in pairs if inode}

    def stack(self, sample: Any) -> tuple[str, ...]:
        """The functions that a task was in, the outermost first."""
        key = int(sample["t_ns"]), int(sample["thread"])
        number, own = self._spots.get(key, (-1, None))
        return self._of[number].flights.stack(own) if own is not None else ("?",)

    def at(self) -> QueueAt:
        """Give queues by number and time."""
        of_hosts = {number: of.flights.at() for number, of in self._of.items()}

        def queue_at(number: int, t_ns: int) -> Any:
            host = number >> _QUEUE_BITS
            if host not in of_hosts:
                return None
            times = self._clocks.from_reference(host, np.array([t_ns], "i8"))
            own = number & ((1 << _QUEUE_BITS) - 1)
            return of_hosts[host](own, int(times[0]))

        return queue_at

    def owner(self, inode: int) -> Owner | None:
        """Give the process of a socket; None unknown."""
        number, own = self._inodes.get(inode, (-1, 0))
        owner = self._of[number].flights.owner(own) if number >= 0 else None
        if not owner:
            return None
        pid, comm, processes = owner
        return pid | number << PID_BITS if pid else 0, comm, processes

    def of(self, freed: NDArray[Any]) -> list[DroppedSegment]:
        """Losses among records of `freed_segments`."""
        times = freed["t_ns"].tolist()
        return [self._losses[t_ns] for t_ns in times if t_ns in self._losses]

    def _on_reference(self, number: int, t_ns: int) -> int:
        return int(self._clocks.to_reference(number, np.array([t_ns], "i8"))[0])


def _of_host(host: JoinedHost, moves: HostRecords) -> _OfHost:
    header = host.header
    flights = RecordedFlights(
        host.layout, header["architecture"], int(header["jiffy_ns"]), host.counted
    )
    return _OfHost(host, moves, flights)


def _together(flights: Sequence[Flight]) -> Flight:
    """Make one of what several hosts kept of one span."""
    if len(flights) == 1:
        return flights[0]
    rings, since_ns = {}, {}
    for ring in dict.fromkeys(chain.from_iterable(one.rings for one in flights)):
        parts = [one.rings[ring] for one in flights if ring in one.rings]
        whole = np.concatenate([part.astype(parts[0].dtype) for part in parts])
        first = (whole.dtype.names or ("",))[0]  # by which they are in order
        rings[ring] = whole[np.argsort(whole[first], kind="stable")]
        since_ns[ring] = {
            cpu: t for one in flights for cpu, t in one.since_ns.get(ring, {}).items()
        }
    begin_ns = max(one.begin_ns for one in flights)
    return Flight(begin_ns, min(one.end_ns for one in flights), rings, since_ns)


def with_places_of_losses(document: Any) -> None:
    """Say of losses that no host's kernel reports that they were between both hosts.

    In place, of messages whose both hosts looked for losses.
    """
    for story in chain(document["stories"], document["sample"]):
        ends = [story["message"].get(f"{end}_host") for end in ("sender", "reader")]
        if None in ends or ends[0] == ends[1]:
            continue
        place = f"between {ends[0]}'s driver and {ends[1]}'s stack, "
        parts = (of["parts"] or () for of in story["stages"].values())
        for part in chain.from_iterable(parts):
            if part["kind"] == LOST and part["what"].startswith(AGAIN):
                part["what"] = place + part["what"]


def with_own_numbers(document: Any, names: Sequence[str]) -> Any:
    """Return stories with each host's own numbers, and its name behind its processes'.

    Parameters
    ----------
    document : dict or list
        As `Stories.document` makes it of `JoinedFlights`.
    names : sequence of str
        Of the hosts, by number.
    """
    if isinstance(document, list | tuple):
        return [with_own_numbers(one, names) for one in document]
    if not isinstance(document, dict):
        return document
    found = {}
    for key, value in document.items():
        if isinstance(value, dict | list | tuple):
            found[key] = with_own_numbers(value, names)
        elif key in _PIDS | _THREADS and value:
            found[key] = value & ((1 << PID_BITS) - 1)
        elif key == "cpu" and value is not None:
            found[key] = value & ((1 << CPU_BITS) - 1)
        else:
            found[key] = value
    for prefix in ("", "sender_", "reader_"):
        pid, comm = document.get(f"{prefix}pid"), found.get(f"{prefix}comm")
        if pid and comm:
            found[f"{prefix}comm"] = f"{comm} on {names[pid >> PID_BITS]}"
    return found
