"""What a scan finds in a piece of a run's table; parts merge to the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.read.batches import Piece, PieceReader
from latprof_analysis.read.result import BadRow, ReadError, Skipped
from latprof_analysis.read.rows import Rows
from latprof_analysis.stages import BLANK, PROBE_STATISTICS
from latprof_analysis.study.drawn import Drawing, Drawn
from latprof_analysis.study.exchange_totals import ExchangeTotals
from latprof_analysis.study.grouped import alike, coarser
from latprof_analysis.study.totals import MESSAGE, MOST_KINDS, MessageTotals, TripTotals

Ints = NDArray[np.int64]
TRIP_COLUMNS = ("size_bytes", "rtt_ns", "sent_ns", "sequence", PROBE_STATISTICS)


@dataclass(frozen=True)
class Task:
    """A piece to scan.

    Attributes
    ----------
    piece : Piece
    run : str
        Name of the run that it is of.
    number : int
        Its place among all pieces.
    stride : int
        Of so many rows one is kept to be drawn.
    stretch : int
        Besides, so many rows from its first on.
    """

    piece: Piece
    run: str
    number: int
    stride: int
    stretch: int = 0


@dataclass
class FileRows:
    """What was read of a file so far."""

    rows: int
    lines: int
    skipped: Skipped

    def merge(self, later: FileRows) -> None:
        """Add what follows in the file."""
        told = [BadRow(r.path, self.lines + r.line, r.why) for r in later.skipped.rows]
        self.skipped.add_many(
            [row.line for row in told], [row.why for row in told], later.skipped.count
        )
        self.rows += later.rows
        self.lines += later.lines


class Losses:
    """Which datagrams were lost, in the order in which they were sent.

    What was lost is written last, so each is kept with its time: 8 bytes for a
    datagram.
    """

    def __init__(self) -> None:
        # by name and run: twice the time sent, and 1 more of what was lost
        self._sent: dict[tuple[str, str], list[Ints]] = {}
        self._seen: Counter[str] = Counter()  # by name, what arrived

    def add(self, messages: MessageTotals, batch: Rows, run: str) -> None:
        """Take in rows, named as `messages` names them."""
        numbers = batch.numbers
        for name, at in messages.datagrams(batch):
            send, queue, arrive, read = (
                numbers[f"{stamp}_ns"][at]
                for stamp in ("send", "queue", "arrive", "read")
            )
            lost = (arrive == BLANK) & (read == BLANK)
            since = np.where(send == BLANK, queue, send)
            self._seen[name] += int((~lost).sum())
            kept = since != BLANK
            self._sent.setdefault((name, run), []).append((2 * since + lost)[kept])

    def merge(self, later: Losses, level: int) -> None:
        """Add what follows, ways told apart as at a level of `coarser`."""
        fine = [*self._sent.items(), *later._sent.items()]
        self._sent = {}
        for (name, run), arrays in fine:
            self._sent.setdefault((_group(name, level), run), []).extend(arrays)
        seen = [*self._seen.items(), *later._seen.items()]
        self._seen = Counter()
        for name, count in seen:
            self._seen[_group(name, level)] += count

    def in_order(self) -> dict[str, NDArray[np.bool_]]:
        """Return by name which were lost, of those with an end that was seen."""
        found: dict[str, list[Ints]] = {}
        for (name, _), arrays in self._sent.items():
            if self._seen[name]:
                found.setdefault(name, []).append(np.sort(np.concatenate(arrays)))
        return {name: np.concatenate(runs) % 2 == 1 for name, runs in found.items()}


def _group(name: str, level: int) -> str:
    """Return the group of a way; the generator's kinds are always told apart."""
    is_way = " -> " in name or name.endswith(f" {MESSAGE}")
    return coarser(name, level) if is_way else name


@dataclass
class Part:
    """Totals and kept rows of one piece, or of several that follow each other.

    Attributes
    ----------
    messages : MessageTotals
    losses : Losses
        Of datagrams.
    exchanges : ExchangeTotals
    trip_totals : dict of str to TripTotals
        By protocol.
    trips : dict of (str, str) to list of tuple of ndarray
        By run and protocol: TRIP_COLUMNS of each piece.
    drawn : dict of str to Drawn
        By table.
    files : dict of Path to FileRows
    row_counts : Counter of (str, str)
        By run and table.
    ignored : dict of (str, str) to list of str
        Columns that are not known, by run and table.
    """

    messages: MessageTotals = field(default_factory=MessageTotals)
    losses: Losses = field(default_factory=Losses)
    exchanges: ExchangeTotals = field(default_factory=ExchangeTotals)
    trip_totals: dict[str, TripTotals] = field(default_factory=dict)
    trips: dict[tuple[str, str], list[tuple[Ints, ...]]] = field(default_factory=dict)
    drawn: dict[str, Drawn] = field(default_factory=dict)
    files: dict[Path, FileRows] = field(default_factory=dict)
    row_counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    ignored: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def merge(self, later: Part) -> None:
        """Add a part that follows this one; `later` is used up."""
        self.messages.merge(later.messages)
        self.losses.merge(later.losses, self.messages.level)
        self.exchanges.merge(later.exchanges)
        for protocol, totals in later.trip_totals.items():
            self.trip_totals.setdefault(protocol, TripTotals()).merge(totals)
        for key, arrays in later.trips.items():
            self.trips.setdefault(key, []).extend(arrays)
        for table, drawn in later.drawn.items():
            if table in self.drawn:
                self.drawn[table].merge(drawn)
            else:
                self.drawn[table] = drawn
        for path, file in later.files.items():
            if path in self.files:
                self.files[path].merge(file)
            else:
                self.files[path] = file
        self.row_counts.update(later.row_counts)
        self.ignored |= later.ignored


def rows_of(row_counts: Mapping[tuple[str, str], int], table: str) -> int:
    """Return how many rows all runs have of a table."""
    return sum(count for (_, name), count in row_counts.items() if name == table)


def scan_piece(task: Task) -> Part:
    """Read a piece and sum it up."""
    part = Part()
    piece = task.piece
    reader = PieceReader(piece)
    drawing = Drawing(piece.table, task.stride, task.number << 40, task.stretch)
    take = _TAKE[piece.table]
    for batch in reader:
        try:
            take(part, batch, task.run)
        except ValueError as error:
            raise ReadError(piece.path, str(error)) from error
        drawing.add(batch)
    part.drawn[piece.table] = drawing.finished(task.run)
    part.files[piece.path] = FileRows(reader.rows, reader.lines, reader.skipped)
    part.row_counts[task.run, piece.table] = reader.rows
    if reader.ignored:
        part.ignored[task.run, piece.table] = reader.ignored
    return part


def _take_messages(part: Part, batch: Rows, run: str) -> None:
    part.messages.add(batch)
    part.losses.add(part.messages, batch, run)


def _take_exchanges(part: Part, batch: Rows, run: str) -> None:
    part.exchanges.add(batch)


def _take_trips(part: Part, batch: Rows, run: str) -> None:
    codes, protocols = batch.texts["protocol"]
    if len(protocols) > MOST_KINDS:
        raise ValueError(
            f"protocols must be at most {MOST_KINDS}, got {len(protocols)}"
        )
    numbers = batch.numbers
    lost = numbers["lost"] > 0
    columns = {name: numbers[name] for name in TRIP_COLUMNS}
    columns["rtt_ns"] = np.where(lost, BLANK, numbers["rtt_ns"])
    for code, rows in alike(codes, np.arange(len(batch))):
        protocol = protocols[code]
        arrays = tuple(columns[name][rows] for name in TRIP_COLUMNS)
        part.trips.setdefault((run, protocol), []).append(arrays)
        totals = part.trip_totals.setdefault(protocol, TripTotals())
        size_bytes, rtt_ns, sent_ns, _, met = arrays
        intended_ns = numbers["intended_ns"][rows]
        totals.add(size_bytes, rtt_ns, sent_ns, intended_ns, met == 1)


_TAKE = {
    "messages": _take_messages,
    "round_trips": _take_trips,
    "exchanges": _take_exchanges,
}
