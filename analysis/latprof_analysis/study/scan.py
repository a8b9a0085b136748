"""Run folders of any size -> their figures, in one pass and bounded memory.

The tables are cut into pieces; processes read them, and what is found in them is
merged in their order. Figures are the same however the tables were cut.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.errors import LatprofError
from latprof_analysis.fit.trips import rounds_of
from latprof_analysis.grouping import parted
from latprof_analysis.read.batches import Piece, PieceReader, pieces_of
from latprof_analysis.read.paths import TABLES, expand, is_run_folder
from latprof_analysis.read.result import BadRow, ReadError, Skipped
from latprof_analysis.read.rows import Rows, frame_of, no_rows
from latprof_analysis.read.run_folder import (
    SCHEMAS,
    read_documents,
    run_names,
    table_file,
)
from latprof_analysis.stages import BLANK, LOADED, PROBE_STATISTICS
from latprof_analysis.study.drawn import EVEN_ROWS, RUN, STRETCH_ROWS, Drawing, Drawn
from latprof_analysis.study.exchange_totals import ExchangeTotals
from latprof_analysis.study.grouped import coarser
from latprof_analysis.study.setup import setup_of
from latprof_analysis.study.totals import MESSAGE, MOST_KINDS, MessageTotals, TripTotals
from latprof_analysis.study.train_rows import TrainRows

Ints = NDArray[np.int64]
TRIP_COLUMNS = ("size_bytes", "rtt_ns", "sent_ns", "sequence")


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
        rows = [BadRow(r.path, self.lines + r.line, r.why) for r in later.skipped.rows]
        self.skipped.add_many(
            [row.line for row in rows], [row.why for row in rows], later.skipped.count
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
        """Add what follows, ways kept apart as at a level of `coarser`."""
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
    """Return the group of a way; the generator's kinds are always kept apart."""
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
        By run and protocol: TRIP_COLUMNS of each piece, without those of trains and of
        loads.
    trains : dict of (str, str) to TrainRows
        By run and protocol: all of them, where there are trains.
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
    trains: dict[tuple[str, str], TrainRows] = field(default_factory=dict)
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
        for key, rows in later.trains.items():
            self.trains.setdefault(key, TrainRows()).extend(rows)
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
    drawing = Drawing(piece.table, task.stride, task.number << 40, task.stretch)
    take = _TAKE[piece.table]
    for batch in taken(part, task, PieceReader(piece)):
        with refused(piece.path):
            take(part, batch, task.run)
        drawing.add(batch)
    part.drawn[piece.table] = drawing.finished(task.run)
    return part


@contextmanager
def refused(path: Path) -> Iterator[None]:
    """Name the file of what cannot be taken in: ReadError of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ReadError(path, str(error)) from error


def taken(part: OfPieces, task: Task, reader: PieceReader) -> Iterator[Rows]:
    """Give the rows of a piece, and note then how many it has, and what is wrong."""
    yield from reader
    path, of = task.piece.path, (task.run, task.piece.table)
    part.files[path] = FileRows(reader.rows, reader.lines, reader.skipped)
    part.row_counts[of] = reader.rows
    if reader.ignored:
        part.ignored[of] = reader.ignored


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
    for code, of_protocol in parted(codes, np.arange(len(batch))):
        protocol = protocols[code]
        # of runs with trains the calls of single messages are timed, too
        if (numbers["send_returned_ns"][of_protocol] != BLANK).any():
            trains = part.trains.setdefault((run, protocol), TrainRows())
            trains.add(numbers, of_protocol)
        apart = (numbers["train"] != BLANK) | batch.are("phase", LOADED)
        rows = of_protocol[~apart[of_protocol]]
        arrays = tuple(columns[name][rows] for name in TRIP_COLUMNS)
        part.trips.setdefault((run, protocol), []).append(arrays)
        totals = part.trip_totals.setdefault(protocol, TripTotals())
        size_bytes, rtt_ns, sent_ns, _ = arrays
        intended_ns = numbers["intended_ns"][rows]
        marked = numbers[PROBE_STATISTICS][rows] == 1
        totals.add(size_bytes, rtt_ns, sent_ns, intended_ns, marked)


_TAKE = {
    "messages": _take_messages,
    "round_trips": _take_trips,
    "exchanges": _take_exchanges,
}


def tasks_of(
    paths: Path | str | Iterable[Path | str],
    documents: dict[str, dict[str, Any]],
    notes: list[str],
) -> list[Task]:
    """Cut the tables of run folders into pieces; documents and notes are added to.

    Raises
    ------
    ReadError
        Where a file is no table of a run.
    """
    found: list[tuple[str, Piece]] = []
    folders = expand(paths)
    for path, run in zip(folders, run_names(folders), strict=True):
        if path.is_dir():
            documents[run] = read_documents(path, run, notes)
        for table, file in _table_files(path):
            found += [(run, piece) for piece in pieces_of(file, table)]
    rows = {t: sum(p.rows for _, p in found if p.table == t) for t in TABLES}
    strides = {table: max(1, count // EVEN_ROWS) for table, count in rows.items()}
    runs = len({run for run, piece in found if piece.table == "messages"})
    # rows are estimated: of half as many, some may be left out
    stretch = STRETCH_ROWS // runs if 2 * rows["messages"] > EVEN_ROWS else 0
    return [
        Task(
            piece,
            run,
            number,
            strides[piece.table],
            stretch if piece.table == "messages" and piece.is_first else 0,
        )
        for number, (run, piece) in enumerate(found)
    ]


def _table_files(path: Path) -> list[tuple[str, Path]]:
    """Return the tables of a folder, or the one that a file is."""
    if is_run_folder(path):
        files = {table: table_file(path, table) for table in TABLES}
        return [(table, file) for table, file in files.items() if file]
    from latprof_analysis.read.registry import detect  # and all formats

    form = detect(path)
    table = form.replace("-", "_")
    if table not in TABLES:
        raise ReadError(path, f"it is no run folder, and no table of one, but {form}")
    return [(table, path)]


# Each takes about 400 MB.
MOST_PROCESSES = 4
# To start them takes as long as to read some of the rows.
ROWS_FOR_PROCESSES = 1_000_000

Progress = Callable[[int, int], None]  # rows read and rows in all, about


@dataclass(frozen=True)
class Trips:
    """Round trips of one run and protocol, in the order of the file.

    Attributes
    ----------
    size_bytes, round_index : ndarray of uint32 or int64, shape (n,)
        The round is the generator's where the run has rounds; else how
        many round trips of the same size were sent before.
    rtt_ns, sent_ns : ndarray of int64, shape (n,)
        BLANK where there is none.
    lost : ndarray of bool, shape (n,)
    """

    size_bytes: NDArray[Any]
    rtt_ns: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    round_index: NDArray[Any]
    lost: NDArray[np.bool_]


@dataclass
class Scan:
    """What run folders hold.

    Attributes
    ----------
    messages : MessageTotals
        Of all runs together; ``messages.as_dict()`` is ``kinds`` of a summary.
    exchanges : ExchangeTotals
        Of all runs together; ``exchanges.as_dict()`` is that of a summary.
    trip_totals : dict of str to TripTotals
        By protocol, of all runs together.
    trips : dict of (str, str) to Trips
        By run and protocol; those of trains are in `trains`.
    trains : dict of (str, str) to TrainRows
        The same of runs with trains: all of them.
    lost : dict of str to ndarray of bool
        Of datagrams, by the name of their kind: whether each was lost, in the order
        in which they were sent, runs one after the other.
    message_rows, round_trip_rows, exchange_rows : DataFrame
        With the columns of `schema` and ``run``: about 200,000 evenly, or all
        where there are fewer.
    stretch_rows : DataFrame
        Where `message_rows` are not all: the first messages of each run, together
        some 50,000, without gaps. Else the same as those.
    slow_rows : DataFrame
        Of the slowest 1000 messages of each kind those that `message_rows` has not.
    slow_exchange_rows : DataFrame
        The same of exchanges, by protocol.
    row_counts : dict of (str, str) to int
        By run and table: how many there are.
    documents, notes, skipped, skipped_rows
        As in `Runs`.
    """

    messages: MessageTotals
    exchanges: ExchangeTotals
    trip_totals: dict[str, TripTotals]
    trips: dict[tuple[str, str], Trips]
    trains: dict[tuple[str, str], TrainRows]
    lost: dict[str, NDArray[np.bool_]]
    rows: dict[str, Rows]
    row_counts: dict[tuple[str, str], int]
    documents: dict[str, dict[str, Any]]
    notes: list[str]
    skipped: list[BadRow]
    skipped_rows: int

    message_rows = frame_of("messages")
    stretch_rows = frame_of("stretch")
    slow_rows = frame_of("slow_messages")
    round_trip_rows = frame_of("round_trips")
    exchange_rows = frame_of("exchanges")
    slow_exchange_rows = frame_of("slow_exchanges")


def scan_runs(
    paths: Path | str | Iterable[Path | str],
    *,
    progress: Progress | None = None,
    dask: str | None = None,
) -> Scan:
    """Sum up run folders, folders of them, patterns, and tables by themselves.

    Parameters
    ----------
    progress : callable, optional
        Called with rows read and rows in all (estimated) as it goes on.
    dask : str, optional
        Address of a Dask cluster to do it on, which must see the same files.

    Raises
    ------
    ReadError
        Where a file is no table of a run, or most of its rows are wrong.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> header = "protocol,sequence,size_bytes,reply_bytes,sent_ns,rtt_ns,lost"
    >>> rows = "".join(f"\\ntcp,{i},64,64,{1000 * i},2500,0" for i in range(10))
    >>> _ = (folder / "round_trips.csv").write_text(header + rows + "\\n")
    >>> scan = scan_runs(folder)
    >>> scan.trip_totals["tcp"].as_dict()["sizes"]["64"]["p50_ns"]
    2500
    """
    documents: dict[str, dict[str, Any]] = {}
    notes: list[str] = []
    tasks = tasks_of(paths, documents, notes)
    whole = scanned(tasks, scan_piece, Part, progress=progress, dask=dask)
    return _finished(whole, documents, notes)


class OfPieces(Protocol):
    """What a piece was summed up to, or several that follow each other."""

    files: dict[Path, FileRows]
    row_counts: Counter[tuple[str, str]]
    ignored: dict[tuple[str, str], list[str]]

    def merge(self, later: Self, /) -> None:
        """Add what follows; `later` is used up."""


_T = TypeVar("_T", bound=Task)
_P = TypeVar("_P", bound=OfPieces)


def scanned(
    tasks: Sequence[_T],
    scan: Callable[[_T], _P],
    nothing: Callable[[], _P],
    *,
    progress: Progress | None = None,
    dask: str | None = None,
) -> _P:
    """Scan pieces by processes, or on a cluster, and merge them in their order.

    `scan` and `nothing`, which makes what all are merged into, are functions of a
    module: they are named to other processes.
    """
    if dask is None:
        return _merged(_parts(tasks, scan), nothing(), tasks, progress)
    from latprof_analysis.study.scan_on_cluster import scan_on_cluster

    return scan_on_cluster(tasks, scan, nothing, dask, progress)


def _parts(tasks: Sequence[_T], scan: Callable[[_T], _P]) -> Iterator[_P]:
    """Scan pieces; give the parts in their order.

    Large tables are read by a process for each CPU: half of the work holds Python's
    lock, so that threads wait for each other.
    """
    processes = min(len(os.sched_getaffinity(0)), MOST_PROCESSES, len(tasks))
    if processes < 2 or sum(task.piece.rows for task in tasks) < ROWS_FOR_PROCESSES:
        yield from map(scan, tasks)
        return
    waiting: deque[Future[_P]] = deque()
    with ProcessPoolExecutor(processes, initializer=_leave_interrupts) as pool:
        try:
            for task in tasks:
                waiting.append(pool.submit(scan, task))
                if len(waiting) > processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise LatprofError(
                "a process that read a piece of the tables was ended: was there too "
                "little memory? Try again, or with fewer CPUs (taskset -c 0)"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _leave_interrupts() -> None:
    """Leave Ctrl-C to the process that waits for this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _merged(
    parts: Iterator[_P], whole: _P, tasks: Sequence[Task], progress: Progress | None
) -> _P:
    done, planned = 0, sum(task.piece.rows for task in tasks)
    for task, part in zip(tasks, parts, strict=True):
        whole.merge(part)
        done += task.piece.rows
        if progress:
            progress(done, planned)
    return whole


def _finished(
    whole: Part, documents: dict[str, dict[str, Any]], notes: list[str]
) -> Scan:
    for file in whole.files.values():
        file.skipped.check(file.rows)
    for (run, table), names in whole.ignored.items():
        ignored = ", ".join(names[:8])
        notes.append(f"{run}: columns of {table} that are not known: {ignored}")
    messages, slow_messages, stretch = _rows(whole, "messages")
    exchanges, slow_exchanges, _ = _rows(whole, "exchanges")
    if len(messages) == rows_of(whole.row_counts, "messages"):
        stretch = messages
    skipped = [file.skipped for file in whole.files.values()]
    return Scan(
        messages=whole.messages,
        exchanges=whole.exchanges,
        trip_totals=dict(sorted(whole.trip_totals.items())),
        trips={
            key: _trips(parts, documents.get(key[0], {}), whole.trains.get(key))
            for key, parts in whole.trips.items()
        },
        trains=whole.trains,
        lost=whole.losses.in_order(),
        rows={
            "messages": messages,
            "stretch": stretch,
            "slow_messages": slow_messages,
            "round_trips": _rows(whole, "round_trips")[0],
            "exchanges": exchanges,
            "slow_exchanges": slow_exchanges,
        },
        row_counts=dict(whole.row_counts),
        documents=documents,
        notes=notes,
        skipped=[row for one in skipped for row in one.in_order()],
        skipped_rows=sum(one.count for one in skipped),
    )


def _rows(whole: Part, table: str) -> tuple[Rows, ...]:
    """Return the rows of a table drawn evenly, the slowest apart, and a stretch."""
    found = whole.drawn[table].rows() if table in whole.drawn else None
    none = no_rows([*SCHEMAS[table].columns, RUN])
    return found or (none, none, none)


def _trips(
    parts: list[tuple[Any, ...]], documents: dict[str, Any], trains: TrainRows | None
) -> Trips:
    columns = zip(*parts, strict=True)
    size_bytes, rtt_ns, sent_ns, sequence = map(np.concatenate, columns)
    # of a run with trains its first message may be of one
    first = trains.first_sequence if trains else sequence.min(initial=sys.maxsize)
    nth = sequence - first
    return Trips(
        size_bytes=_narrow(size_bytes),
        rtt_ns=rtt_ns,
        sent_ns=sent_ns,
        round_index=_narrow(_rounds(size_bytes, sent_ns, nth, documents)),
        lost=rtt_ns == BLANK,
    )


def _rounds(
    size_bytes: Ints, sent_ns: Ints, nth: Ints, documents: dict[str, Any]
) -> Ints:
    try:
        per_round = setup_of(documents["run"]).messages_per_round
    except (KeyError, ValueError):
        per_round = 0
    if per_round:
        return np.asarray(nth // per_round)
    return rounds_of(size_bytes, sent_ns)


def _narrow(values: Ints) -> NDArray[Any]:
    fits = not len(values) or (values.min() >= 0 and values.max() < 2**32)
    return values.astype(np.uint32) if fits else values
