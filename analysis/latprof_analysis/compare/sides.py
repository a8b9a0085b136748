"""The sides of a comparison: read, split into groups of latencies that are alike.

Run folders give the stages of their messages by protocol, kind and size, their
round trips by protocol and size, and the parts of their exchanges by protocol and
way; those of operations on stores each operation and its parts by store and payload;
those of bulk transfers throughput and loss of each part; any other file its kinds and
sizes. What differs in how sides were measured is noted, since it may explain the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.compare.effects import Floats
from latprof_analysis.compare.ranked import Ranked
from latprof_analysis.compare.run_series import (
    MESSAGE_STAGES,
    Intended,
    Key,
    RunSeries,
    SeriesRows,
    SeriesTask,
    known_latencies,
    read_series,
    series_tasks,
)
from latprof_analysis.errors import UsageError
from latprof_analysis.grouping import parted
from latprof_analysis.read import Samples, expand, read_samples
from latprof_analysis.read.operations_csv import Operations, read_operations
from latprof_analysis.read.paths import is_run_folder, swept_folders
from latprof_analysis.read.result import joined, shown
from latprof_analysis.read.run_folder import Histograms, read_histograms
from latprof_analysis.stages import BLANK, PARTS
from latprof_analysis.study.bulk import (
    bulk_document,
    named_directions,
    search_name,
    sent_received,
)
from latprof_analysis.study.grouped import distinct
from latprof_analysis.study.operations import SHARES, cells_of, shares_of
from latprof_analysis.study.scan import rows_of
from latprof_analysis.text import NS_PER_SECOND, percentile_name

TRANSFER = "transfer"  # a part of bulk transfers
_STAGE_ORDER = (
    *MESSAGE_STAGES,
    *PARTS,
    *SHARES,
    "operation",
    TRANSFER,
    "rtt",
    "latency",
)
_OF_HISTOGRAMS = (0.5, 0.99)
# With more sizes than this they are put into classes by powers of two.
_MOST_SIZES = 32

# A latency that sums up so many messages; NA where that is not known.
Figure = tuple[float, Any]


class Group(NamedTuple):
    """What is compared with its like; ``size_bytes`` is -1 where it is not known."""

    kind: str
    stage: str
    size_bytes: int

    def order(self) -> tuple[str, int, int]:
        """Sort by kind, then as a message meets the stages, then by size."""
        return self.kind, _STAGE_ORDER.index(self.stage), self.size_bytes

    @property
    def words(self) -> set[str]:
        """What --only may name it by."""
        return {self.stage, self.kind, *self.kind.split()}


@dataclass(frozen=True)
class Trips:
    """The round trips of one run over one protocol, in the order of sending.

    `offered_per_second` is at what rate an open loop was to send; None: a closed one.
    """

    sent_ns: NDArray[np.int64]
    lost: NDArray[np.bool_]
    sizes: frozenset[int]
    offered_per_second: float | None = None


class Rate(NamedTuple):
    """What got through in one run, and what was offered; None: as much as goes."""

    per_second: float
    offered_per_second: float | None = None


class Lost(NamedTuple):
    """The datagrams of one run, and in how many episodes some of them were lost."""

    sent: int
    lost: int
    episodes: int


@dataclass
class Side:
    """One side of a comparison.

    Latencies are in ns, in the order of time; of millions they are ranked. `figures`
    are those that are a mean, a maximum or the like; these cannot be.
    """

    name: str
    runs: tuple[str, ...]  # folders or files
    size_classes: bool = False  # sizes are powers of two from which a class begins
    # of each run
    series: dict[Group, list[Floats] | list[Ranked]] = field(default_factory=dict)
    # of each run: round trips, those of a mesh by size, and those that are begun one
    # after the other, so that they have a pace
    trips: dict[Group, list[Trips]] = field(default_factory=dict)
    paced: dict[Group, list[Trips]] = field(default_factory=dict)
    # of each run, what it has as a number: of bulk transfers, of a mesh's load
    rates: dict[Group, list[Rate]] = field(default_factory=dict)
    lost: dict[Group, list[Lost]] = field(default_factory=dict)
    # by kind and stage: of what share of messages, or exchanges, the stage is known
    known: dict[tuple[str, str], float] = field(default_factory=dict)
    # by group and statistic
    figures: dict[tuple[Group, str], list[Figure]] = field(default_factory=dict)
    latency: str = ""  # what it is; sides that differ in it cannot be compared
    # run.json and summary.json of each run folder
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what the reader of the files said

    @property
    def groups(self) -> set[Group]:
        """What it has latencies, throughput or loss of."""
        of_figures = (group for group, _ in self.figures)
        return {*self.series, *of_figures, *self.rates, *self.lost}


@dataclass
class Input:
    """A side as its readers gave it; `histograms` are of all its runs together.

    Of run folders `tasks` say what is to be read, into `series`; those of operations
    have `operations` of each run instead.
    """

    name: str
    samples: Samples | None = None
    notes: list[str] = field(default_factory=list)
    documents: dict[str, Any] = field(default_factory=dict)
    histograms: Histograms = field(default_factory=dict)
    operations: Sequence[Operations] = ()
    tasks: list[SeriesTask] = field(default_factory=list)
    series: RunSeries = field(default_factory=RunSeries)


def read_sides(
    arguments: Sequence[str],
    by: str | None = None,
    *,
    dask: str | None = None,
    **columns: Any,
) -> list[Side]:
    """Read the sides of a comparison.

    Parameters
    ----------
    arguments : sequence of str
        Each a run folder, a file, a pattern, or a folder of runs, whose runs are
        then repeats of one side. The folder of a sweep has a side for each of its
        combinations.
    by : str, optional
        A column of the files by whose values sides are distinguished, instead of by
        the arguments. A single ProxyStore CSV is split by its backends unasked.
    dask : str, optional
        Address of a Dask cluster to read run folders on, which must see the same files.
    **columns
        ``latency_column``, ``unit``, ``size_column``, ``delimiter``, ``numbers``,
        ``lost_if`` and ``where``, as `read_samples` takes them.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("ms\\n" + "2\\n" * 50)
    >>> _ = (folder / "b.csv").write_text("ms\\n" + "1\\n" * 50)
    >>> files = [str(folder / "a.csv"), str(folder / "b.csv")]
    >>> sides = read_sides(files, latency_column="ms", unit="ms")
    >>> [side.runs == (file,) for side, file in zip(sides, files)]
    [True, True]
    """
    named = [str(argument).rstrip("/") or "/" for argument in arguments]
    given = [side for name in named for side in _sides_in(name)]
    inputs = [
        # of equal names say the place
        _read(one, one if given.count(one) == 1 else f"{one} ({place})", **columns)
        for place, one in enumerate(given, 1)
    ]
    if dask and any(one.samples is not None for one in inputs):
        raise UsageError("a Dask cluster reads run folders only")
    if by is None and len(inputs) == 1 and _column(inputs[0], "backend") is not None:
        by = "backend"
    if by is not None:
        return sides_of(_split(inputs, by))
    found = read_series(
        [one.tasks for one in inputs], [one.notes for one in inputs], dask
    )
    for one, series in zip(inputs, found, strict=True):
        one.series = series
    return sides_of(inputs)


def _sides_in(name: str) -> list[str]:
    """Return the folders of a sweep's combinations; what is no sweep as it is."""
    return [str(folder) for folder in swept_folders(Path(name))] or [name]


def _read(argument: str, name: str, **columns: Any) -> Input:
    paths = expand(argument)
    if any(columns.values()) or not all(map(is_run_folder, paths)):
        samples = read_samples(paths, **columns)
        notes = list(samples.meta.get("notes", []))
        if samples.skipped_rows:
            notes.append(f"rows that were wrong and left out: {samples.skipped_rows}")
        documents = samples.meta.get("runs", {})
        return Input(name, samples, notes, documents)
    one = Input(name)
    tasks = series_tasks(paths, one.documents, one.notes)
    found = [read_operations([folder], one.notes) for folder in paths]
    one.operations = [operations for operations in found if operations]
    # their messages are in these parts, and between other ports in each run
    one.tasks = [] if one.operations else tasks
    one.histograms = read_histograms(paths, one.notes)
    return one


def _column(one: Input, name: str) -> pd.Series[str] | None:
    """Return a column of the file's own table as text; None without one of all."""
    found = one.samples
    if found is None or found.table is None:
        return None
    if name not in found.table or len(found.table) != len(found.frame):
        return None
    return found.table[name].astype(str).reset_index(drop=True)


def _split(inputs: Sequence[Input], by: str) -> list[Input]:
    """Make a side of each value of a column; files go before what was done."""
    parts: dict[str, list[Samples]] = {}
    for one in inputs:
        column, samples = _column(one, by), one.samples
        if column is None or samples is None:
            raise ValueError(
                f"cannot compare by {shown(by)}: {shown(one.name)} has no such"
                " column of every latency"
            )
        # of "REDIS GET" the value, here "REDIS", is the side's name
        pairs = zip(samples.frame["kind"].astype(str), column, strict=True)
        kinds = pd.Series([kind.removeprefix(f"{value} ") for kind, value in pairs])
        if len(inputs) > 1:
            kinds = Path(one.name).stem + " " + kinds
        named = samples.frame.assign(kind=kinds.astype("category"))
        for value in column.unique():
            frame = named[column == value].reset_index(drop=True)
            part = replace(samples, frame=frame, table=None)
            parts.setdefault(value, []).append(part)
    notes = [note for one in inputs for note in one.notes]
    return [Input(value, joined(found), notes) for value, found in parts.items()]


def sides_of(inputs: Sequence[Input]) -> list[Side]:
    """Split what was read into groups, sizes in the same way for all of it."""
    sizes: set[int] = set()
    ways = RunSeries()
    for one in inputs:
        sizes |= one.series.sizes()
        ways.add_ways(one.series.ways)
        if one.samples is not None:
            sizes.update(one.samples.frame["size_bytes"].dropna().unique())
    level = max(ways.level, *(one.series.level for one in inputs))
    return [_side(one, len(sizes) > _MOST_SIZES, level) for one in inputs]


def _side(one: Input, classes: bool, level: int) -> Side:
    side = Side(one.name, (), classes, notes=one.notes, documents=one.documents)
    if one.samples is not None:
        side.runs = tuple(dict.fromkeys(one.samples.frame["source"].astype(str)))
        _add_samples(side, one.samples)
        return side
    side.runs = tuple(one.documents)
    for operations in one.operations:
        _add_operations(side, operations)
    if one.operations:
        return side
    for documents in side.documents.values():
        _add_transfers(side, documents)
        _add_mesh_load(side, documents)
    _add_series(side, one.series, level)
    # percentiles of all traffic: exact, but how they scatter is not known
    for (name, quantity), histogram in one.histograms.items():
        group = Group(f"{name} {quantity}", "latency", -1)
        for p in _OF_HISTOGRAMS:
            if (value := histogram.quantile(p)) is not None:
                values = [(value, histogram.count)]
                side.figures[group, percentile_name(p)] = values
    return side


def size_class(size_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the power of two from which the class of each size begins.

    Examples
    --------
    >>> size_class(np.array([-1, 0, 1, 1023, 1024, 2**63 - 1])).tolist()
    [-1, 0, 1, 512, 1024, 4611686018427387904]
    """
    exponent = np.frexp(np.maximum(size_bytes, 1).astype(np.float64))[1] - 1
    exponent = np.minimum(exponent, 62)  # a double rounds the largest up to 2^63
    return np.where(
        size_bytes < 1, size_bytes, np.int64(1) << exponent.astype(np.int64)
    )


def _sized(side: Side, frame: pd.DataFrame) -> pd.DataFrame:
    sizes = frame["size_bytes"].to_numpy("int64", na_value=-1)
    return frame.assign(size_bytes=size_class(sizes) if side.size_classes else sizes)


def _rows(frame: pd.DataFrame, *by: str) -> list[tuple[Any, NDArray[np.intp]]]:
    """Return the rows of each group, in their order."""
    return list(frame.groupby([*by], observed=True, sort=False).indices.items())


def _add_series(side: Side, series: RunSeries, level: int) -> None:
    """Add what run folders have; of those with round trips no exchanges.

    Exchanges of a load generator are these, at another port in each run.
    """
    has_trips = rows_of(series.row_counts, "round_trips") > 0
    counts: dict[tuple[str, str], list[int]] = {}
    for key, rows in series.in_order(level):
        if key.table == "round_trips":
            _add_round_trips(side, key, rows)
        elif key.table == "messages" or not has_trips:
            _add_stages(side, key, rows, counts)
    side.known = {of: known / count for of, (known, count) in counts.items()}


def _by_size(
    side: Side, size_bytes: NDArray[Any]
) -> list[tuple[int, NDArray[np.intp]]]:
    """Return the rows of each size, or of each class of them."""
    found, index = distinct(size_bytes.astype(np.int64, copy=False))
    sizes = size_class(found) if side.size_classes else found
    groups, which = np.unique(sizes, return_inverse=True)
    places = parted(which[index], np.arange(size_bytes.size))
    return [(int(groups[i]), at) for i, at in places]


def _add_stages(
    side: Side, key: Key, rows: SeriesRows, counts: dict[tuple[str, str], list[int]]
) -> None:
    """Add the stages of messages, or the parts of exchanges.

    A request may be of any size, so that of exchanges sizes explain little.
    """
    kind = f"{key.protocol} {key.kind}"
    by_size = _by_size(side, rows.size_bytes)
    for stage in list(rows.latencies):
        values = rows.latencies.pop(stage)
        count = counts.setdefault((kind, stage), [0, 0])
        count[1] += rows.size
        for size, at in by_size:
            count[0] += _add(side, Group(kind, stage, size), values[at])


def _add(side: Side, group: Group, values: NDArray[Any]) -> int:
    """Add a run's latencies; return how many are known."""
    known = known_latencies(values)
    if known is None:
        return 0
    side.series.setdefault(group, []).append(known)  # type: ignore[arg-type]
    return known.size


def _add_round_trips(side: Side, key: Key, rows: SeriesRows) -> None:
    kind = f"{key.protocol} round trip"
    by_size = _by_size(side, rows.size_bytes)
    for size, at in by_size:
        _add(side, Group(kind, "rtt", size), rows.latencies["rtt"][at])
    assert rows.lost is not None
    sent_ns = np.where(rows.since_ns == BLANK, 0, rows.since_ns)
    if _mesh_of(side.documents[key.run]):
        for size, at in by_size:
            trips = Trips(sent_ns[at], rows.lost[at], frozenset({size}))
            group = Group(key.protocol, "rtt", size)
            side.trips.setdefault(group, []).append(trips)
        return
    offered = _per_second(rows.intended) if rows.intended.is_open else None
    sizes = frozenset(size for size, _ in by_size)
    trips = Trips(sent_ns, rows.lost, sizes, offered)
    group = Group(key.protocol, "rtt", -1)
    side.trips.setdefault(group, []).append(trips)
    side.paced.setdefault(group, []).append(trips)


def _mesh_of(documents: dict[str, Any]) -> dict[str, Any]:
    return documents.get("summary", {}).get("mesh") or {}


def _add_mesh_load(side: Side, documents: dict[str, Any]) -> None:
    """Add the messages a second that came back, by size."""
    mesh = _mesh_of(documents)
    for cell in mesh.get("cells", ()):
        group = Group(mesh["protocol"], "rtt", cell["size_bytes"])
        achieved, offered = (
            cell["load"][f"{of}_messages_per_second"] for of in ("achieved", "offered")
        )
        side.rates.setdefault(group, []).append(Rate(achieved, offered))


def _add_transfers(side: Side, documents: dict[str, Any]) -> None:
    """Add what arrived in each part of a bulk run, and what was lost."""
    workload = documents.get("run", {}).get("workload") or {}
    found = bulk_document(workload.get("runs", ()))
    for name, part, way, figures in named_directions(found["parts"]):
        group = Group(name, TRANSFER, -1)
        _, received_bps = sent_received(figures, way)
        if received_bps:
            rate = Rate(received_bps, part.get("offered_bps") or None)
            side.rates.setdefault(group, []).append(rate)
        counts: list[Any] = [figures.get(of) for of in ("sent", "lost", "loss_runs")]
        if part["protocol"] == "udp" and counts[0] and None not in counts:
            side.lost.setdefault(group, []).append(Lost(*counts))
    # a rate of 0 is none that came through
    for search in (one for one in found["searches"] if one["rate_bps"]):
        group = Group(search_name(search), TRANSFER, -1)
        side.rates.setdefault(group, []).append(Rate(search["rate_bps"]))


def _add_operations(side: Side, operations: Operations) -> None:
    """Add the measured operations of a run, and their parts, in order of time."""
    numbers = operations.numbers
    for cell in cells_of(operations):
        at = cell.rows[np.argsort(numbers["start_ns"][cell.rows], kind="stable")]
        size = -1 if cell.payload_bytes is None else cell.payload_bytes
        kind = f"{cell.backend} {cell.op}"
        _add(
            side,
            Group(kind, "operation", size),
            numbers["time_ns"][at].astype(np.float64),
        )
        for name, part in shares_of(operations, at).items():
            _add(side, Group(kind, name, size), part)
            known = 1 - float(np.isnan(part).mean())
            side.known[f"{kind} {size} B" if size >= 0 else kind, name] = known


def _per_second(intended: Intended) -> float | None:
    """Return how many a second were to be sent; None where it is not known."""
    took_ns = float(intended.last_ns - intended.first_ns)
    if not intended.n or not took_ns:
        return None
    return (intended.n - 1) * NS_PER_SECOND / took_ns


def _add_samples(side: Side, samples: Samples) -> None:
    frame = _sized(side, samples.frame)
    side.latency = str(samples.meta.get("latency", ""))
    latency = frame["latency_ns"].to_numpy("float64")
    groups = _rows(frame, "statistic", "kind", "size_bytes", "source")
    for (statistic, kind, size, _), at in groups:
        group = Group(str(kind), "latency", int(size))
        if statistic == "each":
            _add(side, group, latency[at])
            continue
        counts = frame["count"].iloc[at].tolist()
        figures = side.figures.setdefault((group, str(statistic)), [])
        figures += zip(latency[at].tolist(), counts, strict=True)


# What run.json says of the setup; the rest are results.
_OF_RUN = ("host", "kernel", "machine", "clock", "state")
_OF_WORKLOAD = (
    *("plan", "ops", "mesh", "bulk"),
    *("command", "server_command", "attached"),
)
_OF_LAB = ("known", "settings")
_OF_PROTOCOL = ("loop", "congestion", "mss_bytes", "path_mtu_bytes", "cpu")
_MOST_SHOWN = 200


class SetupDifference(NamedTuple):
    """A setting that differs; several values where it does within a side."""

    key: str
    baseline: str
    other: str


def setup_differences(baseline: Side, other: Side) -> list[SetupDifference]:
    """Return what run.json says differently of two sides."""
    if not baseline.documents or not other.documents:
        return []
    a, b = _settings(baseline), _settings(other)
    return [
        SetupDifference(key, _shown(a, key), _shown(b, key))
        for key in dict.fromkeys((*a, *b))
        if a.get(key) != b.get(key)
    ]


def _shown(settings: dict[str, set[str]], key: str) -> str:
    text = ", ".join(sorted(settings.get(key, {"not told"})))
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."


def _settings(side: Side) -> dict[str, set[str]]:
    """Return each setting with the values that it has in the runs of a side."""
    found: dict[str, set[str]] = {}
    for documents in side.documents.values():
        for key, value in _settings_of(documents.get("run", {})):
            found.setdefault(key, set()).add(value)
    return found


def _settings_of(run: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Return the settings of a run.json, whose shape its reader checked."""
    workload = run.get("workload") or {}
    parts = [(run, _OF_RUN, ""), (workload, _OF_WORKLOAD, "")]
    for protocol in workload.get("runs", []):
        parts.append((protocol, _OF_PROTOCOL, f"{protocol.get('protocol', 'run')}."))
    parts.append((run.get("lab") or {}, _OF_LAB, "lab."))
    for part, keys, prefix in parts:
        for key in keys:
            if key in part:
                yield from _flat(prefix + key, part[key])
    capabilities = run.get("capabilities")  # of these it was not
    for one in capabilities if isinstance(capabilities, list) else ():
        if isinstance(one, dict):
            state = f"{one.get('state')} from {one.get('source')}"
            yield f"capability {one.get('quantity')}", state


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}", inner)
    else:
        text = value if isinstance(value, str) else json.dumps(value)
        yield key, text or "none"
