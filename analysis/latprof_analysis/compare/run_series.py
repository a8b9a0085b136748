"""Run folders of any size -> their latencies in the order of time, as small as it goes.

The tables are read in pieces as `study.scan` does it, by processes or on a cluster. Of
each row the columns stay that a comparison needs: as they are where there are few rows,
else as two bytes each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.compare.ranked import NO_VALUE, Ranked, packed
from latprof_analysis.read.batches import PieceReader
from latprof_analysis.read.rows import Rows
from latprof_analysis.stages import APART, BLANK, LOADED, PARTS, STAGES
from latprof_analysis.stats import Floats, Ints
from latprof_analysis.study.grouped import MOST_WAYS, coarser
from latprof_analysis.study.scan import (
    FileRows,
    Task,
    refused,
    scanned,
    taken,
    tasks_of,
)
from latprof_analysis.study.totals import MESSAGE
from latprof_analysis.study.ways import coarse_way, with_ends

MESSAGE_STAGES = (*STAGES, "wakeup", "end_to_end")
# With more rows in all inputs latencies are those of buckets, as of `packed`.
MOST_EXACT_ROWS = 1_000_000
_LAST = np.iinfo(np.int64).max
_COLUMNS = {
    "messages": (
        *("protocol", "kind", "way", "size_bytes", "send_ns", "read_ns"),
        *(f"{stage}_ns" for stage in MESSAGE_STAGES),
    ),
    "exchanges": (
        *("protocol", "kind", "way", "request_sent_ns", "request_ready_ns"),
        *(f"{part}_ns" for part in PARTS),
    ),
    "round_trips": (
        *("protocol", "size_bytes", "intended_ns", "sent_ns", "rtt_ns", "lost"),
        *("train", "phase", "heartbeat"),
    ),
}


class Key(NamedTuple):
    """What rows of a run are of: the ways of its messages may yet become coarser."""

    run: str
    table: str
    protocol: str
    kind: str  # of messages kind or way, of exchanges the way, of round trips nothing

    def at(self, level: int) -> Key:
        """Return it with its way as coarse as a level of `coarser`."""
        if self.table != "messages" or " -> " not in self.kind:
            return self
        return self._replace(kind=coarse_way(self.kind, level))


class Intended(NamedTuple):
    """When requests should have been sent: how many have it, first, last.

    `is_open`: some of them, or all, were not sent just then.
    """

    is_open: bool = False
    n: int = 0
    first_ns: int = _LAST
    last_ns: int = 0

    def with_later(self, other: Intended) -> Intended:
        """Return that of both."""
        return Intended(
            self.is_open or other.is_open,
            self.n + other.n,
            min(self.first_ns, other.first_ns),
            max(self.last_ns, other.last_ns),
        )


@dataclass
class SeriesRows:
    """Rows of a key: arrays of shape (n,).

    Attributes
    ----------
    since_ns : ndarray of int64
        When each began; BLANK where it is not known. Empty where the rows are in
        order already, and nothing else needs it.
    size_bytes : ndarray of int
        -1 where it is not known.
    latencies : dict of str to ndarray
        By stage: codes of `packed`, or ns as doubles, NaN where there is none.
    lost : ndarray of bool
        Of round trips.
    intended : Intended
        Of round trips.
    """

    since_ns: Ints
    size_bytes: NDArray[Any]
    latencies: dict[str, NDArray[Any]]
    lost: NDArray[np.bool_] | None = None
    intended: Intended = field(default_factory=Intended)

    @property
    def size(self) -> int:
        """Return how many rows there are."""
        return self.size_bytes.size

    def at(self, places: NDArray[np.intp]) -> SeriesRows:
        """Return some of the rows."""
        return replace(
            self,
            since_ns=self.since_ns[places],
            size_bytes=self.size_bytes[places],
            latencies={name: each[places] for name, each in self.latencies.items()},
            lost=None if self.lost is None else self.lost[places],
        )


@dataclass(frozen=True)
class SeriesTask(Task):
    """A piece to read of one of the inputs.

    Attributes
    ----------
    trials : tuple of (int, bool)
        When tests of its run began, in their order, and whether they are a search's.
    is_packed : bool
        Whether latencies are to be packed.
    """

    trials: tuple[tuple[int, bool], ...] = ()
    is_packed: bool = False


@dataclass
class RunSeries:
    """What pieces of one input hold.

    Attributes
    ----------
    rows : dict of Key to list of SeriesRows
        In the order of the files.
    level : int
        How coarse ways must be for these rows, as of `coarser`.
    ways : set of str
        Those of other programs' messages, so coarse.
    files, row_counts, ignored
        As of `study.scan.Part`.
    """

    rows: dict[Key, list[SeriesRows]] = field(default_factory=dict)
    level: int = 0
    ways: set[str] = field(default_factory=set)
    files: dict[Path, FileRows] = field(default_factory=dict)
    row_counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    ignored: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def merge(self, later: RunSeries) -> None:
        """Add what follows; `later` is used up."""
        for key, parts in later.rows.items():
            self.rows.setdefault(key, []).extend(parts)
        self.level = max(self.level, later.level)
        self.add_ways(later.ways)
        for path, file in later.files.items():
            if path in self.files:
                self.files[path].merge(file)
            else:
                self.files[path] = file
        self.row_counts.update(later.row_counts)
        self.ignored |= later.ignored

    def add_ways(self, names: set[str]) -> None:
        """Take in ways of other programs, as coarse as it takes."""
        self.ways = {coarser(name, self.level) for name in self.ways | names}
        while len(self.ways) > MOST_WAYS and self.level < 2:
            self.level += 1
            self.ways = {coarser(name, self.level) for name in self.ways}

    def sizes(self) -> set[int]:
        """Return the sizes that are known."""
        found: set[int] = set()
        for key, parts in self.rows.items():
            if key.table != "exchanges":
                found.update(*(np.unique(part.size_bytes).tolist() for part in parts))
        return found - {-1}

    def settle(self) -> None:
        """Put rows in the order of time, which is then needed of few."""
        settled = {}
        for key, rows in self.in_order(self.level):
            # of several inputs ways may yet become one, and round trips have a pace
            if key.table != "round_trips" and key.at(2) == key:
                rows.since_ns = np.empty(0, np.int64)
            settled[key] = [rows]
        self.rows = settled

    def in_order(self, level: int) -> Iterator[tuple[Key, SeriesRows]]:
        """Give the rows of each key in the order of time; they are used up."""
        groups: dict[Key, list[Key]] = {}
        for key in self.rows:
            groups.setdefault(key.at(level), []).append(key)
        for key, fine in groups.items():
            yield key, _in_order([part for one in fine for part in self.rows.pop(one)])


def _in_order(parts: list[SeriesRows]) -> SeriesRows:
    """Put rows together by when they began; what is not known of that comes last.

    The parts are used up.
    """
    if len(parts) == 1 and not parts[0].since_ns.size:
        return parts[0]
    since = np.concatenate([part.since_ns for part in parts])
    order = None
    known = np.where(since == BLANK, _LAST, since)
    if (known[1:] < known[:-1]).any():
        order = np.argsort(known, kind="stable")
    del known

    def joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
        whole = np.concatenate(arrays)
        return whole if order is None else whole[order]

    intended = parts[0].intended
    for part in parts[1:]:
        intended = intended.with_later(part.intended)
    lost = [part.lost for part in parts if part.lost is not None]
    return SeriesRows(
        since_ns=since if order is None else since[order],
        size_bytes=joined([part.size_bytes for part in parts]),
        latencies={
            # each goes as soon as it is joined
            name: joined([part.latencies.pop(name) for part in parts])
            for name in list(parts[0].latencies)
        },
        lost=joined(lost) if lost else None,
        intended=intended,
    )


def known_latencies(values: NDArray[Any]) -> Floats | Ranked | None:
    """Return latencies without those that are missing; None if all are.

    Those that are packed are ranked by it.
    """
    if values.dtype == np.uint16:
        codes = values[values != NO_VALUE]
        return Ranked.of_packed(codes) if codes.size else None
    found: Floats = values[~np.isnan(values)]
    return found if found.size else None


def trials_of(documents: dict[str, Any]) -> tuple[tuple[int, bool], ...]:
    """Return when tests of a run began, and whether they are those of a search.

    Empty where no search is among them.
    """
    tests = (documents.get("run", {}).get("workload") or {}).get("runs", ())
    known = [test for test in tests if {"begin_ns", "trial"} <= test.keys()]
    trials = {test["begin_ns"]: bool(test["trial"]) for test in known}
    return tuple(sorted(trials.items())) if any(trials.values()) else ()


def series_tasks(
    paths: Sequence[Path], documents: dict[str, Any], notes: list[str]
) -> list[SeriesTask]:
    """Cut the tables of run folders into pieces; documents and notes are added to.

    Raises
    ------
    ReadError
        Where a file is no table of a run.
    """
    tasks = tasks_of(paths, documents, notes)
    trials = {run: trials_of(of_run) for run, of_run in documents.items()}
    return [SeriesTask(**vars(task), trials=trials[task.run]) for task in tasks]


def read_series(
    tasks: Sequence[Sequence[SeriesTask]],
    notes: Sequence[list[str]],
    dask: str | None = None,
) -> list[RunSeries]:
    """Read the pieces of each input; packed where there are many rows in all.

    Raises
    ------
    ReadError
        Where most rows of a file are wrong.
    """
    rows = sum(task.piece.rows for of_input in tasks for task in of_input)
    is_packed = rows > MOST_EXACT_ROWS
    return [
        _read([replace(task, is_packed=is_packed) for task in of_input], said, dask)
        for of_input, said in zip(tasks, notes, strict=True)
    ]


def _read(tasks: list[SeriesTask], notes: list[str], dask: str | None) -> RunSeries:
    found = scanned(tasks, scan_series, RunSeries, dask=dask)
    for file in found.files.values():
        file.skipped.check(file.rows)
    for (run, table), names in found.ignored.items():
        ignored = ", ".join(names[:8])
        notes.append(f"{run}: columns of {table} that are not known: {ignored}")
    if skipped := sum(file.skipped.count for file in found.files.values()):
        notes.append(f"rows that were wrong and left out: {skipped}")
    found.settle()
    return found


def scan_series(task: SeriesTask) -> RunSeries:
    """Read a piece."""
    piece = task.piece
    found = RunSeries()
    reader = PieceReader(piece, _COLUMNS[piece.table])
    for batch in taken(found, task, reader):
        with refused(piece.path):
            _TAKE[piece.table](found, batch, task)
    return found


def _take_messages(found: RunSeries, batch: Rows, task: SeriesTask) -> None:
    foreign = batch.at(batch.are("kind", MESSAGE))
    ways = [way for way, _ in foreign.split("protocol", "way") if None not in way]
    found.add_ways({f"{protocol} {way}" for protocol, way in ways})
    rows = with_ends(batch, found.level)
    sent = batch.numbers["send_ns"]
    # of an echo from another host it is not known when it was sent
    seen = np.where((sent == BLANK) | (sent == 0), batch.numbers["read_ns"], sent)
    wanted = _no_trial(seen, task) & ~_apart(batch)
    latencies = _latencies(batch, MESSAGE_STAGES, task)
    every = SeriesRows(sent, _sizes(batch), latencies)
    for (protocol, kind), at in rows.split("protocol", "kind"):
        if protocol is not None and kind is not None:
            key = Key(task.run, "messages", protocol, kind)
            _add(found, key, every.at(at[wanted[at]]))


def _take_exchanges(found: RunSeries, batch: Rows, task: SeriesTask) -> None:
    sent, ready = (batch.numbers[f"request_{of}_ns"] for of in ("sent", "ready"))
    wanted = ~_apart(batch)
    every = SeriesRows(
        np.where(sent == BLANK, ready, sent),
        np.full(len(batch), -1, np.int32),
        _latencies(batch, PARTS, task),
    )
    for (protocol, way), at in batch.split("protocol", "way"):
        if protocol is not None and way is not None:
            key = Key(task.run, "exchanges", protocol, way)
            _add(found, key, every.at(at[wanted[at]]))


def _take_round_trips(found: RunSeries, batch: Rows, task: SeriesTask) -> None:
    numbers = batch.numbers
    sent, intended = numbers["sent_ns"], numbers["intended_ns"]
    # those of a train are not alone, nor are those beside a load
    wanted = (numbers["train"] == BLANK) & ~batch.are("phase", LOADED)
    wanted &= _no_trial(np.where(sent == BLANK, 0, sent), task)
    latencies = _latencies(batch, ("rtt",), task)
    every = SeriesRows(sent, _sizes(batch), latencies, numbers["lost"] > 0)
    beats = numbers["heartbeat"] > 0
    for (protocol,), at in batch.split("protocol"):
        for suffix, chosen in (("", wanted & ~beats), (" heartbeat", wanted & beats)):
            places = at[chosen[at]]
            if protocol is not None and places.size:
                key = Key(task.run, "round_trips", protocol + suffix, "")
                rows = every.at(places)
                rows.intended = _intended(intended[places], sent[places])
                _add(found, key, rows)


_TAKE: dict[str, Callable[[RunSeries, Rows, SeriesTask], None]] = {
    "messages": _take_messages,
    "exchanges": _take_exchanges,
    "round_trips": _take_round_trips,
}


def _intended(intended_ns: Ints, sent_ns: Ints) -> Intended:
    known = intended_ns[intended_ns != BLANK]
    # in a closed loop each is to be sent when it is sent
    is_open = known.size < intended_ns.size or bool((intended_ns != sent_ns).any())
    if not known.size:
        return Intended(is_open)
    return Intended(is_open, known.size, int(known.min()), int(known.max()))


def _add(found: RunSeries, key: Key, rows: SeriesRows) -> None:
    if rows.size:
        found.rows.setdefault(key, []).append(rows)


def _apart(batch: Rows) -> NDArray[np.bool_]:
    """Say which rows are in no figure."""
    return np.asarray(np.any([batch.are("kind", kind) for kind in APART], axis=0))


def _sizes(batch: Rows) -> NDArray[Any]:
    sizes = batch.numbers["size_bytes"]
    known = np.where(sizes == BLANK, -1, sizes)
    return known.astype(np.int32) if known.max(initial=0) < 2**31 else known


def _latencies(
    batch: Rows, stages: Sequence[str], task: SeriesTask
) -> dict[str, NDArray[Any]]:
    if task.is_packed:
        return {stage: packed(batch.numbers[f"{stage}_ns"]) for stage in stages}
    return {stage: batch.floats(f"{stage}_ns") for stage in stages}


def _no_trial(sent_ns: Ints, task: SeriesTask) -> NDArray[np.bool_]:
    """Say which rows are not those of a search, which are of other intervals."""
    if not task.trials:
        return np.ones(sent_ns.size, bool)
    begins, are_trials = zip(*task.trials, strict=True)
    is_trial = np.array([False, *are_trials])
    return np.asarray(~is_trial[np.searchsorted(begins, sent_ns, "right")])
