"""One side of a comparison, split into groups of latencies that are alike.

Run folders give the stages of their messages by protocol, kind and size, their
round trips by protocol and size, and the parts of their exchanges by protocol and
way; any other file its kinds and sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.comparison.tables import PART_COLUMNS, STAGE_COLUMNS, Tables
from latprof_analysis.comparison.worth import Floats
from latprof_analysis.readers import Samples
from latprof_analysis.readers.histograms import Histograms
from latprof_analysis.readers.run_schema import undisturbed
from latprof_analysis.scans.totals import WARMUP
from latprof_analysis.study.ends import by_ends, level_of

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
    """The round trips of one run over one protocol, in the order of sending."""

    sent_ns: NDArray[np.int64]
    lost: NDArray[np.bool_]
    sizes: frozenset[int]


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
    for (protocol, size, _), at in _rows(rows, ["protocol", "size_bytes", "run"]):
        _add(side, Group(f"{protocol} round trip", "rtt", int(size)), rtt[at])
    for (protocol, _), at in _rows(rows, ["protocol", "run"]):
        trips = Trips(sent[at], lost[at], frozenset(sizes[at].tolist()))
        side.trips.setdefault(str(protocol), []).append(trips)


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
