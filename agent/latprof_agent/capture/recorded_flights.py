"""What a recording keeps for stories: what CPUs did, and names that only its host knew.

A run asks its flight recorder for few of the copies that it made, and for few names:
each question and its answer go into the recording. Making the stories again asks the
same questions.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from latprof_analysis.records.arrays import Batch
from latprof_analysis.records.recording import RecordLayout
from latprof_analysis.story.device_queue import QueueAt, queues_of
from latprof_analysis.story.sockets import DroppedSegment
from latprof_analysis.story.stacks import NAMES_NOT_RECORDED
from latprof_analysis.story.story import Flight
from latprof_analysis.story.system_calls import CALLS
from numpy.typing import NDArray

from latprof_agent.capture.reads import Answers, Reads, reads_of

if TYPE_CHECKING:
    from latprof_agent.capture.flight import FlightRecorder
    from latprof_agent.capture.recording_writer import RecordingWriter

QUEUES = "device_queues"
NUMBER = "number"  # of a queue, beside what the probes know of it
NONE = -1  # the number of no copy
Spot = tuple[int, int]  # when a stack was taken, and of which thread
Owner = tuple[int, str, int]  # a socket's process, its name, how many have it


class Names(Protocol):
    """Names functions."""

    @property
    def source(self) -> str:
        """Where they come from."""

    def stack(self, sample: Any) -> tuple[str, ...]:
        """The functions that a task was in, the outermost first."""


class QueueTable(Protocol):
    """Knows devices' queues, and sockets in them."""

    def at(self) -> QueueAt:
        """Give queues by number and time."""

    def owner(self, inode: int) -> Owner | None:
        """Give the process of a socket; None unknown."""


class DropTable(Protocol):
    """Knows what it means that a segment was freed."""

    def of(self, freed: NDArray[Any]) -> list[DroppedSegment]:
        """Losses among records of `freed_segments`."""


class Watched(Protocol):
    """What a recorder says of messages to whoever keeps what CPUs did meanwhile."""

    @property
    def limit_ns(self) -> int:
        """What takes as long is slow."""

    def note_reads(self, ranges: NDArray[Any]) -> None:
        """Keep what was read."""

    def note_answers(self, turns: NDArray[Any]) -> None:
        """Keep which threads answered after long."""

    def look_at(
        self, begin: NDArray[np.int64], end: NDArray[np.int64], pids: NDArray[Any]
    ) -> None:
        """Keep what CPUs did in those of these spans that are long."""

    def finish(self) -> None:
        """Keep what was asked for until now; nothing is written any more."""


class Flights(Protocol):
    """What stories ask for; see `FlightRecorder`, which is one."""

    reads: Reads | None
    answers: Answers
    calls: dict[int, str]
    jiffy_ns: int

    @property
    def copies(self) -> int:
        """That were made."""

    @property
    def skipped(self) -> int:
        """Copies for which there was no room."""

    @property
    def layout(self) -> RecordLayout:
        """Of records."""

    @property
    def symbols(self) -> Names:
        """Names of functions."""

    @property
    def queues(self) -> QueueTable:
        """Queues of devices."""

    @property
    def dropped(self) -> DropTable:
        """Losses of segments."""

    def set_limits(self, limit_ns: int, turn_limit_ns: int) -> None:
        """A message that takes as long is slow from now on, and an exchange."""

    def flight(self, begin_ns: int, end_ns: int) -> Flight | None:
        """Return the copy that has most of a span, if there is one."""

    def keep(self, spans: Iterable[tuple[int, int]], until_ns: int) -> None:
        """Forget copies that end earlier and have none of these spans."""

    def lost(self, ring: str) -> int:
        """How many records of one of the probes' rings were lost until now."""


class WitnessedFlights:
    """Asks a flight recorder, and has a recording keep what it answers."""

    def __init__(self, flights: FlightRecorder, recording: RecordingWriter) -> None:
        self._flights = flights
        self._recording = recording
        self._asked: dict[tuple[int, int], int] = {}
        # of copies in the recording, as long as the recorder has them: by id()
        self._kept: dict[int, tuple[int, weakref.ref[Flight]]] = {}
        self._numbers = itertools.count()
        self._stacks: dict[Spot, tuple[str, ...]] = {}
        self._owners: dict[int, Owner | None] = {}
        self._losses: dict[tuple[int, ...], list[DroppedSegment]] = {}
        self.calls, self.jiffy_ns = flights.calls, flights.jiffy_ns
        self.answers = flights.answers
        self.layout: RecordLayout = flights.layout
        self.symbols: Names = self
        self.queues: QueueTable = self
        self.dropped: DropTable = self

    def set_limits(self, limit_ns: int, turn_limit_ns: int) -> None:
        """A message that takes as long is slow from now on, and an exchange."""
        self._flights.set_limits(limit_ns, turn_limit_ns)

    @property
    def reads(self) -> Reads | None:
        """Gets all that was read."""
        return self._flights.reads

    @reads.setter
    def reads(self, reads: Reads | None) -> None:
        self._flights.reads = reads

    @property
    def copies(self) -> int:
        """That were made."""
        return self._flights.copies

    @property
    def skipped(self) -> int:
        """Copies for which there was no room."""
        return self._flights.skipped

    @property
    def source(self) -> str:
        """Where names of functions come from."""
        return self._flights.symbols.source

    def keep(self, spans: Iterable[tuple[int, int]], until_ns: int) -> None:
        """Forget copies that end earlier and have none of these spans."""
        self._flights.keep(spans, until_ns)

    def lost(self, ring: str) -> int:
        """How many records of one of the probes' rings were lost until now."""
        return self._flights.lost(ring)

    def flight(self, begin_ns: int, end_ns: int) -> Flight | None:
        """Return the copy that has most of a span, if there is one."""
        found = self._flights.flight(begin_ns, end_ns)
        number = self._number_of(found) if found else NONE
        if self._asked.get((begin_ns, end_ns)) != number:
            self._asked[begin_ns, end_ns] = number
            self._recording.note(asked=[begin_ns, end_ns, number])
        return found

    def _number_of(self, flight: Flight) -> int:
        """Number it as in the recording, which gets it if it is new."""
        number, held = self._kept.get(id(flight), (NONE, None))
        if held and held() is flight:
            return number
        number = next(self._numbers)
        self._kept[id(flight)] = number, weakref.ref(flight)
        self._recording.note(
            copy=number,
            begin_ns=flight.begin_ns,
            end_ns=flight.end_ns,
            since_ns={ring: list(of.items()) for ring, of in flight.since_ns.items()},
        )
        self._recording.step(None, flight.rings)
        return number

    def stack(self, sample: Any) -> tuple[str, ...]:
        """The functions that a task was in, the outermost first."""
        found = self._flights.symbols.stack(sample)
        self._stacks[_spot(sample)] = found
        return found

    def at(self) -> QueueAt:
        """Give queues by number and time."""
        return self._flights.queues.at()

    def owner(self, inode: int) -> Owner | None:
        """Give the process of a socket; None unknown."""
        self._owners[inode] = self._flights.queues.owner(inode)
        return self._owners[inode]

    def of(self, freed: NDArray[Any]) -> list[DroppedSegment]:
        """Losses among records of `freed_segments`."""
        found = self._flights.dropped.of(freed)
        self._losses[_times(freed)] = found
        return found

    def finish(self) -> None:
        """Have the recording hold the names: nothing more will be asked."""
        self._recording.note(
            names={
                "stacks": [[*spot, names] for spot, names in self._stacks.items()],
                "owners": list(self._owners.items()),
                "losses": list(self._losses.items()),
                "source": self.source,
                "copies": self.copies,
                "skipped": self.skipped,
            }
        )
        entries = self._flights.queues.entries(self._flights.layout.device_queue)
        self._recording.step(None, {QUEUES: entries})


class RecordedFlights:
    """Answers as a flight recorder did, from its recording.

    One that breaks off has no names, and `copies` are those that were asked for.
    """

    def __init__(
        self,
        layout: RecordLayout,
        architecture: str,
        jiffy_ns: int,
        counted: Mapping[str, int],
    ) -> None:
        self.limit_ns = 0
        self.reads: Reads | None = None
        self.answers = Answers()
        self.layout = layout
        self.calls = CALLS.get(architecture, {})
        self.jiffy_ns = jiffy_ns
        self.copies = self.skipped = 0
        self.source = NAMES_NOT_RECORDED
        self.symbols: Names = self
        self.queues: QueueTable = self
        self.dropped: DropTable = self
        self._never_read = (
            layout.flags["RECORD_DROPPED"] | layout.flags["RECORD_UNREAD"]
        )
        self._counted = counted
        self._asked: dict[tuple[int, int], int] = {}
        self._flights: dict[int, Flight] = {}
        self._stacks: dict[Spot, tuple[str, ...]] = {}
        self._owners: dict[int, Owner | None] = {}
        self._losses: dict[tuple[int, ...], list[DroppedSegment]] = {}
        self._queues: list[tuple[int, Any]] = []

    def take_copy(self, note: Mapping[str, Any], rings: Batch) -> None:
        """Take a copy in."""
        since_ns = {ring: dict(of) for ring, of in note["since_ns"].items()}
        flight = Flight(note["begin_ns"], note["end_ns"], rings, since_ns)
        self._flights[note["copy"]] = flight
        self.copies = len(self._flights)

    def take_answer(self, begin_ns: int, end_ns: int, number: int) -> None:
        """Take in which copy, if any, was the answer of `flight`."""
        self._asked[begin_ns, end_ns] = number

    def take_names(self, names: Mapping[str, Any], queues: NDArray[Any]) -> None:
        """Take in what stood at the end."""
        self._stacks = {(t, of): tuple(stack) for t, of, stack in names["stacks"]}
        self._owners = {n: tuple(o) if o else None for n, o in names["owners"]}
        self._losses = {
            tuple(times): [DroppedSegment(*one) for one in found]
            for times, found in names["losses"]
        }
        self.source = str(names["source"])
        self.copies, self.skipped = int(names["copies"]), int(names["skipped"])
        self._queues = [(int(entry[NUMBER]), entry) for entry in queues]

    def flight(self, begin_ns: int, end_ns: int) -> Flight | None:
        """Return the same as then; of what was not asked, the first copy with it."""
        number = self._asked.get((begin_ns, end_ns))
        if number is not None:
            return self._flights.get(number)
        covering = (f for f in self._flights.values() if f.covers(begin_ns, end_ns))
        return next(covering, None)

    def lost(self, ring: str) -> int:
        """How many records of one of the probes' rings were lost until then."""
        return self._counted[f"lost_{ring}"]

    def stack(self, sample: Any) -> tuple[str, ...]:
        """The functions that a task was in, the outermost first."""
        return self._stacks.get(_spot(sample), ("?",))

    def at(self) -> QueueAt:
        """Give queues by number and time."""
        return queues_of(self._queues)

    def owner(self, inode: int) -> Owner | None:
        """Give the process of a socket; None unknown."""
        return self._owners.get(inode)

    def of(self, freed: NDArray[Any]) -> list[DroppedSegment]:
        """Losses among records of `freed_segments`."""
        return self._losses.get(_times(freed), [])

    def note_reads(self, ranges: NDArray[Any]) -> None:
        """Keep what was read, where somebody wants it."""
        if self.reads is not None:
            self.reads.add(reads_of(ranges, self._never_read))

    def note_answers(self, turns: NDArray[Any]) -> None:
        """Keep which threads answered after long."""
        self.answers.add(turns)

    def set_limits(self, limit_ns: int, _turn_limit_ns: int) -> None:
        """A message that takes as long is slow from now on."""
        self.limit_ns = limit_ns

    def look_at(self, *_spans: NDArray[Any]) -> None:
        """There is nothing to be copied."""

    def finish(self) -> None:
        """All that was copied is there."""

    def keep(self, *_spans: Any) -> None:
        """There is nothing but what was asked for."""


def numbered(queue: np.dtype[Any]) -> np.dtype[Any]:
    """Lay out what is known of a queue, with its number."""
    return np.dtype([(NUMBER, "<u4"), *((n, queue[n]) for n in queue.names or ())])


def _spot(sample: Any) -> Spot:
    return int(sample["t_ns"]), int(sample["thread"])


def _times(freed: NDArray[Any]) -> tuple[int, ...]:
    return tuple(freed["t_ns"].tolist())
