"""The sides of a comparison: read, split into groups of latencies that are alike.

Run folders give the stages of their messages by protocol, kind and size, their
round trips by protocol and size, and the parts of their exchanges by protocol and
way; any other file its kinds and sizes. What differs in how sides were measured is
told, since it may explain the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.compare.effects import Floats
from latprof_analysis.read import Samples, expand, read_runs, read_samples
from latprof_analysis.read.histograms import Histograms, read_histograms
from latprof_analysis.read.paths import is_run_folder
from latprof_analysis.read.result import joined, shown
from latprof_analysis.read.run_schema import undisturbed
from latprof_analysis.stages import PARTS, PROBE_STATISTICS, STAGES
from latprof_analysis.study.totals import WARMUP
from latprof_analysis.study.ways import by_ends, level_of
from latprof_analysis.text import NS_PER_SECOND

STAGE_COLUMNS = tuple(f"{stage}_ns" for stage in (*STAGES, "wakeup", "end_to_end"))
PART_COLUMNS = tuple(f"{part}_ns" for part in PARTS)
_COLUMNS = {
    *("protocol", "kind", "size_bytes", "send_ns", *STAGE_COLUMNS),
    *("intended_ns", "sent_ns", "rtt_ns", "lost", PROBE_STATISTICS),
    *("way", "request_sent_ns", "request_ready_ns", *PART_COLUMNS),
}
_BACKEND = "backend"


@dataclass(frozen=True)
class Tables:
    """One side as its reader gave it: tables of run folders, or samples.

    `histograms` are of all runs of the side together.
    """

    name: str
    messages: pd.DataFrame | None
    round_trips: pd.DataFrame | None
    exchanges: pd.DataFrame | None
    samples: Samples | None
    documents: dict[str, dict[str, Any]]
    notes: list[str]
    histograms: Histograms = field(default_factory=dict)


def read_tables(
    arguments: Sequence[str], by: str | None = None, **columns: str | None
) -> list[Tables]:
    """Read the sides of a comparison.

    Parameters
    ----------
    arguments : sequence of str
        Each a run folder, a file, a pattern, or a folder of runs, whose runs are
        then repeats of one side.
    by : str, optional
        A column of the files by whose values sides are told apart, instead of by
        the arguments. A single ProxyStore CSV is split by its backends unasked.
    **columns
        ``latency_column``, ``unit`` and ``size_column``, as `read_samples` takes
        them.
    """
    given = [str(argument).rstrip("/") or "/" for argument in arguments]
    tables = [
        _read(argument, name, **columns)
        for argument, name in zip(arguments, _names(given), strict=True)
    ]
    if by is None and len(tables) == 1 and _has(tables[0], _BACKEND):
        by = _BACKEND
    return tables if by is None else _split(tables, by)


def _names(given: list[str]) -> list[str]:
    """Name sides as they were given; of equal ones say the place."""
    return [
        name if given.count(name) == 1 else f"{name} ({place})"
        for place, name in enumerate(given, 1)
    ]


def _read(argument: str, name: str, **columns: str | None) -> Tables:
    paths = expand(argument)
    if not any(columns.values()) and all(map(is_run_folder, paths)):
        runs = read_runs(paths, columns=_COLUMNS)
        notes = _notes(runs.notes, runs.skipped_rows)
        tables = runs.messages, runs.round_trips, runs.exchanges
        found = read_histograms(paths, notes)
        return Tables(name, *tables, None, runs.documents, notes, found)
    samples = read_samples(paths, **columns)
    notes = _notes(samples.meta.get("notes", []), samples.skipped_rows)
    documents = samples.meta.get("runs", {})
    return Tables(name, None, None, None, samples, documents, notes)


def _notes(notes: list[str], skipped_rows: int) -> list[str]:
    if skipped_rows:
        return [*notes, f"rows that were wrong and left out: {skipped_rows}"]
    return list(notes)


def _has(tables: Tables, column: str) -> bool:
    samples = tables.samples
    return (
        samples is not None
        and samples.table is not None
        and (column in samples.table and len(samples.table) == len(samples.frame))
    )


def _column(tables: Tables, name: str) -> pd.Series[str]:
    """Return a column of the file's own table as text."""
    if not _has(tables, name):
        raise ValueError(
            f"cannot compare by {shown(name)}: {shown(tables.name)} has no such"
            " column of every latency"
        )
    assert tables.samples is not None and tables.samples.table is not None
    return tables.samples.table[name].astype(str).reset_index(drop=True)


def _split(tables: Sequence[Tables], by: str) -> list[Tables]:
    """Make a side of each value of a column; files go before what was done."""
    parts: dict[str, list[Samples]] = {}
    for table in tables:
        column, samples = _column(table, by), table.samples
        assert samples is not None
        # of "REDIS GET" the value, here "REDIS", is the side's name
        pairs = zip(samples.frame["kind"].astype(str), column, strict=True)
        kinds = pd.Series([kind.removeprefix(f"{value} ") for kind, value in pairs])
        if len(tables) > 1:
            kinds = Path(table.name).stem + " " + kinds
        named = samples.frame.assign(kind=kinds.astype("category"))
        for value in column.unique():
            frame = named[column == value].reset_index(drop=True)
            part = replace(samples, frame=frame, table=None)
            parts.setdefault(value, []).append(part)
    notes = [note for table in tables for note in table.notes]
    return [
        Tables(value, None, None, None, joined(found), {}, notes)
        for value, found in parts.items()
    ]


STAGE_ORDER = (
    *(name.removesuffix("_ns") for name in (*STAGE_COLUMNS, *PART_COLUMNS)),
    "rtt",
    "latency",
)
_OF_HISTOGRAMS = {"p50": 0.5, "p99": 0.99}
# With more sizes than this they are put into classes by powers of two.
_MOST_SIZES = 32

# A latency that sums up so many messages; NA where that is not told.
Figure = tuple[float, Any]

Rows = Iterable[tuple[Any, NDArray[np.intp]]]


class Group(NamedTuple):
    """What is compared with its like; ``size_bytes`` is -1 where it is not known."""

    kind: str
    stage: str
    size_bytes: int

    def order(self) -> tuple[str, int, int]:
        """Sort by kind, then as a message meets the stages, then by size."""
        return self.kind, STAGE_ORDER.index(self.stage), self.size_bytes

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


@dataclass
class Side:
    """One side of a comparison.

    Attributes
    ----------
    name : str
    runs : tuple of str
        Run folders or files.
    size_classes : bool
        Sizes are powers of two from which a class begins.
    series : dict of Group to list of ndarray
        Latencies in ns, for each run in the order of time.
    trips : dict of str to list of Trips
        By protocol, one for each run.
    known : dict of (kind, stage) to float
        Share of messages, or exchanges, of which the stage is known.
    figures : dict of (Group, statistic) to list of (value, count)
        Latencies that are a mean, a maximum or the like; these cannot be ranked.
    latency : str
        What the latencies are; sides that differ in it cannot be compared.
    documents : dict
        run.json and summary.json of each run folder.
    notes : list of str
        What the reader of the files said.
    """

    name: str
    runs: tuple[str, ...]
    size_classes: bool = False
    series: dict[Group, list[Floats]] = field(default_factory=dict)
    trips: dict[str, list[Trips]] = field(default_factory=dict)
    known: dict[tuple[str, str], float] = field(default_factory=dict)
    figures: dict[tuple[Group, str], list[Figure]] = field(default_factory=dict)
    latency: str = ""
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def groups(self) -> set[Group]:
        """What it has latencies of."""
        return {*self.series, *(group for group, _ in self.figures)}


def sides_of(tables: Sequence[Tables]) -> list[Side]:
    """Split tables into groups, sizes in the same way for all of them."""
    classes = len(set().union(*map(_sizes, tables))) > _MOST_SIZES
    level = level_of(t.messages for t in tables if t.messages is not None)
    return [_side(table, classes, level) for table in tables]


def _side(tables: Tables, classes: bool, level: int) -> Side:
    samples, messages, trips = tables.samples, tables.messages, tables.round_trips
    runs = tuple(tables.documents)
    if samples is not None:
        runs = tuple(dict.fromkeys(samples.frame["source"].astype(str)))
    side = Side(
        tables.name, runs, classes, documents=tables.documents, notes=tables.notes
    )
    if samples is not None:
        _add_samples(side, samples)
    if messages is not None and not messages.empty:
        _add_messages(side, by_ends(messages, level))
    if trips is not None and not trips.empty:
        # exchanges of a load generator are these, at another port in each run
        _add_round_trips(side, trips)
    elif tables.exchanges is not None and not tables.exchanges.empty:
        _add_exchanges(side, tables.exchanges)
    _add_histograms(side, tables.histograms)
    return side


def _sizes(tables: Tables) -> set[int]:
    frames = [tables.messages, tables.round_trips]
    if tables.samples is not None:
        frames.append(tables.samples.frame)
    return {
        int(size)
        for frame in frames
        if frame is not None and not frame.empty
        for size in frame["size_bytes"].dropna().unique()
    }


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


def _rows(frame: pd.DataFrame, by: list[str]) -> Rows:
    """Return the rows of each group, in their order."""
    groups: dict[Any, NDArray[np.intp]]
    groups = frame.groupby(by, observed=True, sort=False).indices
    return groups.items()


def _add_messages(side: Side, messages: pd.DataFrame) -> None:
    rows = undisturbed(messages[messages["kind"] != WARMUP])
    rows = _sized(side, rows.sort_values("send_ns", kind="stable"))
    groups = list(_rows(rows, ["protocol", "kind", "size_bytes", "run"]))
    for column in STAGE_COLUMNS:
        if column not in rows:
            continue
        values = rows[column].to_numpy("float64", na_value=np.nan)
        stage = column.removesuffix("_ns")
        for (protocol, kind, size, _), at in groups:
            _add(side, Group(f"{protocol} {kind}", stage, int(size)), values[at])
        for (protocol, kind), at in _rows(rows, ["protocol", "kind"]):
            share = float(np.mean(~np.isnan(values[at])))
            side.known[f"{protocol} {kind}", stage] = share


def _add_exchanges(side: Side, exchanges: pd.DataFrame) -> None:
    """Add the parts by way; a request may be of any size, so that sizes tell little."""
    rows = undisturbed(exchanges[exchanges["kind"] != WARMUP])
    since = rows["request_sent_ns"].fillna(rows["request_ready_ns"])
    rows = rows.loc[since.sort_values(kind="stable").index]
    for column in PART_COLUMNS:
        values = rows[column].to_numpy("float64", na_value=np.nan)
        part = column.removesuffix("_ns")
        for (protocol, way, _), at in _rows(rows, ["protocol", "way", "run"]):
            _add(side, Group(f"{protocol} {way}", part, -1), values[at])
        for (protocol, way), at in _rows(rows, ["protocol", "way"]):
            share = float(np.mean(~np.isnan(values[at])))
            side.known[f"{protocol} {way}", part] = share


def _add(side: Side, group: Group, values: Floats) -> None:
    known = values[~np.isnan(values)]
    if known.size:
        side.series.setdefault(group, []).append(known)


def _add_round_trips(side: Side, table: pd.DataFrame) -> None:
    rows = _sized(side, table.sort_values("sent_ns", kind="stable"))
    rtt = rows["rtt_ns"].to_numpy("float64", na_value=np.nan)
    rtt[~rows.index.isin(undisturbed(rows).index)] = np.nan
    lost = rows["lost"].to_numpy("int64", na_value=0) > 0
    sent = rows["sent_ns"].to_numpy("int64", na_value=0)
    sizes = rows["size_bytes"].to_numpy()
    intended = rows["intended_ns"].to_numpy("float64", na_value=np.nan)
    for (protocol, size, _), at in _rows(rows, ["protocol", "size_bytes", "run"]):
        _add(side, Group(f"{protocol} round trip", "rtt", int(size)), rtt[at])
    for (protocol, _), at in _rows(rows, ["protocol", "run"]):
        # in a closed loop each is to be sent when it is sent
        is_open = (intended[at] != sent[at]).any()
        offered = _per_second(intended[at]) if is_open else None
        trips = Trips(sent[at], lost[at], frozenset(sizes[at].tolist()), offered)
        side.trips.setdefault(str(protocol), []).append(trips)


def _per_second(times_ns: Floats) -> float | None:
    """Return how many a second these times are; None where they are not known."""
    times = times_ns[~np.isnan(times_ns)]
    took_ns = float(np.ptp(times)) if times.size else 0.0
    return (times.size - 1) * NS_PER_SECOND / took_ns if took_ns else None


def _add_histograms(side: Side, histograms: Histograms) -> None:
    """Add percentiles of all traffic: exact, but nothing tells how they scatter."""
    for (name, quantity), histogram in histograms.items():
        group = Group(f"{name} {quantity}", "latency", -1)
        for statistic, p in _OF_HISTOGRAMS.items():
            value = histogram.quantile(p)
            if value is not None:
                side.figures[group, statistic] = [(value, histogram.count)]


def _add_samples(side: Side, samples: Samples) -> None:
    frame = _sized(side, samples.frame)
    side.latency = str(samples.meta.get("latency", ""))
    latency = frame["latency_ns"].to_numpy("float64")
    for (statistic, kind, size, _), at in _rows(
        frame, ["statistic", "kind", "size_bytes", "source"]
    ):
        group = Group(str(kind), "latency", int(size))
        if statistic == "each":
            _add(side, group, latency[at])
            continue
        counts = frame["count"].iloc[at].tolist()
        figures = side.figures.setdefault((group, str(statistic)), [])
        figures += zip(latency[at].tolist(), counts, strict=True)


# What run.json says of the setup; the rest are results.
_OF_RUN = ("host", "kernel", "machine", "clock", "state")
_OF_WORKLOAD = ("plan", "command", "server_command", "attached")
_OF_LAB = ("known", "settings")
_OF_PROTOCOL = ("loop", "congestion", "mss_bytes", "path_mtu_bytes", "cpu")
_MOST_SHOWN = 200


@dataclass(frozen=True)
class SetupDifference:
    """A setting that differs; several values where it does within a side."""

    key: str
    baseline: str
    other: str

    def as_dict(self) -> dict[str, str]:
        """Return the fields for JSON."""
        return dict(vars(self))


def setup_differences(baseline: Side, other: Side) -> list[SetupDifference]:
    """Return what run.json says differently of two sides.

    Examples
    --------
    >>> a, b = (Side(name, (name,), documents={name: {"run": {"kernel": name}}})
    ...         for name in ("6.1", "6.18"))
    >>> setup_differences(a, b)
    [SetupDifference(key='kernel', baseline='6.1', other='6.18')]
    """
    if not baseline.documents or not other.documents:
        return []
    settings_a, settings_b = _settings(baseline), _settings(other)
    return [
        SetupDifference(key, _shown(settings_a, key), _shown(settings_b, key))
        for key in dict.fromkeys((*settings_a, *settings_b))
        if settings_a.get(key) != settings_b.get(key)
    ]


def is_mixed_loop(differences: list[SetupDifference]) -> bool:
    """Whether one side sent in a closed loop, the other at fixed times."""
    return any(
        found.key == "plan.interval_ns" and "0" in (found.baseline, found.other)
        for found in differences
    )


def _shown(settings: dict[str, set[str]], key: str) -> str:
    text = ", ".join(sorted(settings.get(key, {"not told"})))
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."


def _settings(side: Side) -> dict[str, set[str]]:
    """Return each setting with the values that it has in the runs of a side."""
    found: dict[str, set[str]] = {}
    for documents in side.documents.values():
        for key, value in _of_document(documents.get("run", {})):
            found.setdefault(key, set()).add(value)
    return found


def _of_document(run: Any) -> Iterator[tuple[str, str]]:
    yield from _picked(run, _OF_RUN, "")
    yield from _picked(_part(run, "workload"), _OF_WORKLOAD, "")
    for protocol in _listed(_part(run, "workload"), "runs"):
        prefix = f"{protocol.get('protocol', 'run')}."
        yield from _picked(protocol, _OF_PROTOCOL, prefix)
    yield from _picked(_part(run, "lab"), _OF_LAB, "lab.")
    for capability in _listed(run, "capabilities"):
        state = f"{capability.get('state')} from {capability.get('source')}"
        yield f"capability {capability.get('quantity')}", state


def _part(document: Any, key: str) -> Any:
    return document.get(key) if isinstance(document, dict) else None


def _listed(document: Any, key: str) -> list[dict[str, Any]]:
    found = _part(document, key)
    entries = found if isinstance(found, list) else []
    return [entry for entry in entries if isinstance(entry, dict)]


def _picked(
    document: Any, keys: tuple[str, ...], prefix: str
) -> Iterator[tuple[str, str]]:
    for key in keys:
        if isinstance(document, dict) and key in document:
            yield from _flat(prefix + key, document[key])


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}", inner)
    else:
        text = value if isinstance(value, str) else json.dumps(value)
        yield key, text or "none"
