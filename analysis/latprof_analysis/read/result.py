"""What readers give back: samples, the rows that were wrong, and one error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from latprof_analysis.errors import LatprofError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from latprof_analysis.notebook import Picture
    from latprof_analysis.read.buckets import Buckets

# Of each file so many wrong rows are named one by one; all are counted.
NAMED_ROWS = 100
NS_PER_UNIT = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
# What 64-bit nanoseconds hold, and no latency is.
YEARS_NS = 3.2e18
# A cell in a message is cut behind so many characters.
_SHOWN_CHARACTERS = 40

# As `lines.blocks` says it of a row under a header.
_FIELDS = re.compile(r"(\d+) fields? where (\d+) belong")

_DTYPES = {
    "source": "category",
    "kind": "category",
    "size_bytes": "Int64",
    "latency_ns": "float64",
    "statistic": "category",
    "count": "Int64",
    "lost": "bool",
}


class ReadError(LatprofError, ValueError):
    """A file cannot be read; the text names it, says why, and what to do."""

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(f"cannot read {path}: {why}")
        self._from = str(path), why

    @property
    def why(self) -> str:
        """Without the file's name."""
        return self._from[1]

    def __reduce__(self) -> tuple[type[ReadError], tuple[str, str]]:
        """Survive the way from another process."""
        return type(self), self._from


@dataclass(frozen=True)
class BadRow:
    """A row that was left out.

    `line` counts from 1, the file's first line included; in a Parquet file, which
    has no lines, it is the number of the row.
    """

    path: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.why}"


class Skipped:
    """Collects the wrong rows of one file: the first one by one, all by number."""

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)
        self.rows: list[BadRow] = []
        self.count = 0

    @property
    def room(self) -> int:
        """Count the wrong rows that may still be named one by one."""
        return max(0, NAMED_ROWS - len(self.rows))

    def add(self, line: int, why: str) -> None:
        """Leave out one row."""
        self.add_many([line], [why], 1)

    def add_many(self, lines: Sequence[int], whys: Sequence[str], count: int) -> None:
        """Leave out `count` rows; lines and reasons at least of those with room."""
        for line, why in list(zip(lines, whys, strict=False))[: self.room]:
            self.rows.append(BadRow(self.path, int(line), why))
        self.count += count

    def check(self, good: int, none: str = "") -> None:
        """Raise ReadError if most rows are wrong, or there are none; `none` says so."""
        if self.count > good:
            first = min(self.rows, key=lambda row: row.line)
            fields = _FIELDS.fullmatch(first.why)
            if fields and not good and len({row.why for row in self.rows}) == 1:
                why = f"its header has {fields[2]} columns, and each row {fields[1]}"
                raise ReadError(self.path, f"{why}, from line {first.line} on")
            raise ReadError(
                self.path,
                f"most rows are wrong ({self.count} of {self.count + good}), the"
                f" first in line {first.line}: {first.why}; is it what it looks like?",
            )
        if none and not good:
            raise ReadError(self.path, none)

    def in_order(self) -> list[BadRow]:
        """The wrong rows by line."""
        return sorted(self.rows, key=lambda row: row.line)


class Losses(NamedTuple):
    """How many messages of a kind were sent, and how many of these were lost."""

    sent: int
    lost: int


@dataclass
class Samples:
    """Latencies of one or many files, in one form whatever they came from.

    Attributes
    ----------
    frame : DataFrame, one row for each latency, or for each lost message
        ``source`` (category): the file or run folder.
        ``kind`` (category): what was done, in the format's own word: request, GET,
        heartbeat, ...
        ``size_bytes`` (Int64): missing where the format does not have it.
        ``latency_ns`` (float64): NaN where it was lost. What it counts from and to
        stands in ``meta["latency"]``.
        ``statistic`` (category): "each" if the latency is that of one message;
        else what it is of `count` messages: "mean", "min", "max", "p99", ...
        ``count`` (Int64): messages behind the latency; missing if not known.
        ``lost`` (bool).
    skipped : list of BadRow
        Rows that were left out, at most 100 of each file.
    skipped_rows : int
        How many were left out.
    format : str
        As `detect` names it; "mixed" of several.
    meta : dict
        ``latency``: what the latencies are. ``reply_modes``: of kinds whose format
        says how the responder answered, as `fit_round_trips` takes it; None where
        no payload went either way. ``lost_where``: by kind how many were lost in which
        direction, of formats that say it. The rest by format.
    table : DataFrame or None
        The rows of the file as its format has them, where that is more.
    losses : dict of str to Losses
        By kind. Of a kind that is not among them the file does not say what was lost.
    histograms : dict of str to Buckets
        By kind, of those of which the file has no single latencies.
    """

    frame: pd.DataFrame
    skipped: list[BadRow]
    skipped_rows: int
    format: str
    meta: dict[str, Any] = field(default_factory=dict)
    table: pd.DataFrame | None = None
    losses: dict[str, Losses] = field(default_factory=dict)
    histograms: dict[str, Buckets] = field(default_factory=dict)

    @property
    def lost(self) -> int | None:
        """Count what was lost of all kinds; None where the files do not say."""
        if not self.losses:
            return None
        return sum(losses.lost for losses in self.losses.values())

    def plot(self) -> Picture | None:
        """Draw how long single values of each kind took; None where there are none."""
        from latprof_analysis.notebook import distributions

        return distributions(self._times())

    def _repr_html_(self) -> str:
        from latprof_analysis.notebook import figures, page
        from latprof_analysis.text import counted

        lost = {kind: losses.lost for kind, losses in self.losses.items()}
        title = f"{self.format}: {counted(len(self.frame), 'row')}"
        if self.skipped_rows:
            title += f", {self.skipped_rows:,} left out"
        return page(title, figures(self._times(), lost), self.plot())

    def _times(self) -> dict[str, NDArray[np.float64]]:
        """Return single latencies in ns by kind: no means, no percentiles."""
        from latprof_analysis.notebook import times_by_kind

        each = self.frame[self.frame["statistic"] == "each"]
        return times_by_kind(each, "kind", "latency_ns")

    def as_dict(self) -> dict[str, Any]:
        """Return for JSON what was read, without the rows themselves."""
        return {
            "format": self.format,
            "rows": len(self.frame),
            "lost": self.lost,
            "skipped_rows": self.skipped_rows,
            "skipped": [str(row) for row in self.skipped],
            "meta": self.meta,
        }


def samples_of_file(
    skipped: Skipped,
    form: str,
    meta: dict[str, Any],
    *,
    table: pd.DataFrame | None = None,
    losses: dict[str, Losses] | None = None,
    histograms: dict[str, Buckets] | None = None,
    **columns: Any,
) -> Samples:
    """Return what was read of a file; columns are those of `samples_frame`.

    Losses are those that are given, or, of rows of which some may be lost, these.
    """
    frame = samples_frame(len(columns["latency_ns"]), skipped.path, **columns)
    if (frame["latency_ns"] > YEARS_NS).any():
        raise ReadError(skipped.path, "it has a latency of more than a hundred years")
    if losses is None:
        losses = losses_of(frame) if "lost" in columns else {}
    return Samples(
        frame,
        skipped.in_order(),
        skipped.count,
        form,
        meta,
        table,
        losses,
        histograms or {},
    )


class Statistic(NamedTuple):
    """What a file gives of all latencies of a kind, and of how many."""

    kind: str
    statistic: str
    latency_ns: float
    n: int | None = None
    size_bytes: int | None = None


def samples_of_statistics(
    skipped: Skipped,
    form: str,
    meta: dict[str, Any],
    statistics: Sequence[Statistic],
    *,
    table: pd.DataFrame | None = None,
    losses: dict[str, Losses] | None = None,
    histograms: dict[str, Buckets] | None = None,
) -> Samples:
    """Return what was read of a file without single latencies."""
    rows = [*statistics]
    for kind, buckets in (histograms or {}).items():
        rows += [
            Statistic(kind, name, band.high_ns, buckets.n)
            for name, band in buckets.percentiles().items()
            if math.isfinite(band.high_ns)
        ]
    return samples_of_file(
        skipped,
        form,
        meta,
        table=table,
        losses=losses or {},
        histograms=histograms,
        kind=[row.kind for row in rows],
        size_bytes=[row.size_bytes for row in rows],
        latency_ns=[row.latency_ns for row in rows],
        statistic=[row.statistic for row in rows],
        count=[row.n for row in rows],
    )


class Part(NamedTuple):
    """Single latencies of a kind in ns, in their order, NaN where one was lost."""

    kind: str
    latency_ns: NDArray[np.float64]
    size_bytes: int | None = None


def samples_of_parts(
    skipped: Skipped,
    form: str,
    meta: dict[str, Any],
    parts: Sequence[Part],
    statistics: Sequence[Statistic] = (),
    *,
    losses: dict[str, Losses],
) -> Samples:
    """Return single latencies, part by part, and statistics of others."""
    import numpy as np  # who only parses a command line has no need of it

    given = [*statistics]
    ones = [Part(row.kind, np.array([row.latency_ns]), row.size_bytes) for row in given]
    every = [*parts, *ones]
    if not every:
        return samples_of_statistics(skipped, form, meta, [], losses=losses)
    lengths = [part.latency_ns.size for part in every]
    n = sum(lengths) - len(ones)
    latency_ns = np.concatenate([part.latency_ns for part in every])
    sizes = np.array([part.size_bytes or -1 for part in every], np.int64)
    return samples_of_file(
        skipped,
        form,
        meta,
        losses=losses,
        kind=np.repeat(np.array([part.kind for part in every], object), lengths),
        size_bytes=_sizes(np.repeat(sizes, lengths)),
        latency_ns=latency_ns,
        statistic=["each"] * n + [row.statistic for row in given],
        count=[1] * n + [row.n for row in given],
        lost=np.isnan(latency_ns),
    )


def _sizes(size_bytes: NDArray[np.int64]) -> Any:
    import pandas as pd

    return pd.arrays.IntegerArray(size_bytes, size_bytes < 0)


def add_losses(losses: dict[str, Losses], kind: str, sent: int, lost: int) -> None:
    """Add what was sent and lost of a kind."""
    before = losses.get(kind, Losses(0, 0))
    losses[kind] = Losses(before.sent + sent, before.lost + lost)


def losses_of(frame: pd.DataFrame) -> dict[str, Losses]:
    """Count by kind the rows of what was lost, of a frame that has all of them."""
    lost = frame.groupby("kind", observed=True)["lost"].agg(["size", "sum"])
    return {
        str(kind): Losses(int(sent), int(gone))
        for kind, sent, gone in lost.itertuples()
    }


def samples_frame(length: int, source: Any, **columns: Any) -> pd.DataFrame:
    """Build a frame of `Samples` from columns; a text stands for every row."""
    import pandas as pd  # takes long; who scans run folders has no need of it

    if isinstance(source, str):  # a path may have bytes that are no UTF-8
        source = source.encode("utf-8", "replace").decode()
    given = {"source": source, "statistic": "each", "count": 1, "lost": False}
    given |= columns
    index = pd.RangeIndex(length)
    found = {}
    for name, dtype in _DTYPES.items():
        values = given[name]
        if dtype == "category" and isinstance(values, str):
            values = pd.Categorical.from_codes([0] * length, categories=[values])
        elif dtype == "category" and not length:
            # of no values pandas takes texts for numbers
            values = pd.Categorical([], categories=pd.Index([""])[:0])
        found[name] = pd.Series(values, index=index, dtype=dtype)
    return pd.DataFrame(found, index=index)


class Seen(NamedTuple):
    """What is seen of a file before its format is known.

    `start` has its first bytes, or it is JSON with these keys; `columns` are the names
    in its first line, or of Parquet.
    """

    start: bytes = b""
    keys: Set[str] = frozenset()
    columns: Sequence[str] = ()


class Format(NamedTuple):
    """How a format is known, and read.

    `wants_unit`: its files do not say the unit of their values; `read` takes it, and
    None where nobody has said it.
    """

    matches: Callable[[Seen], bool]
    read: Callable[..., Samples]
    wants_unit: bool = False


def shown(cell: object, most: int = _SHOWN_CHARACTERS) -> str:
    """Quote a cell for a message: short, and without control characters."""
    text = str(cell)
    if len(text) > most:
        text = text[:most] + "..."
    return repr(text)


def joined(parts: Iterable[Samples]) -> Samples:
    """Put samples of several files together.

    Texts of ``meta`` that differ are kept by file in ``meta["files"]``; of a kind that
    was answered in several ways the reply mode is not known.
    """
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    formats = {part.format for part in parts}
    latencies = list(dict.fromkeys(part.meta.get("latency", "") for part in parts))
    modes = [part.meta.get("reply_modes", {}) for part in parts]
    tables = [part.table for part in parts if part.table is not None]
    notes = [note for part in parts for note in part.meta.get("notes", ())]
    return Samples(
        frame=concatenated([part.frame for part in parts]),
        skipped=[row for part in parts for row in part.skipped],
        skipped_rows=sum(part.skipped_rows for part in parts),
        format=formats.pop() if len(formats) == 1 else "mixed",
        meta={
            "latency": "; ".join(latencies),
            "reply_modes": _agreed(modes),
            "files": [part.meta for part in parts],
            "notes": list(dict.fromkeys(notes)),
            "lost_where": _summed(part.meta.get("lost_where", {}) for part in parts),
        },
        table=concatenated(tables) if len(tables) == len(parts) else None,
        losses=_added(parts),
        histograms=_merged(parts),
    )


def _summed(counts: Iterable[dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    """Add up by kind what was lost where."""
    found: dict[str, dict[str, int]] = {}
    for kinds in counts:
        for kind, of_kind in kinds.items():
            before = found.setdefault(kind, {})
            for name, n in of_kind.items():
                before[name] = before.get(name, 0) + n
    return found


def _merged(parts: Sequence[Samples]) -> dict[str, Buckets]:
    found: dict[str, Buckets] = {}
    for part in parts:
        for kind, one in part.histograms.items():
            found[kind] = found[kind] + one if kind in found else one
    return found


def _added(parts: Sequence[Samples]) -> dict[str, Losses]:
    """Add up the losses of kinds of which each file that has them says some."""
    import numpy as np

    found: dict[str, Losses] = {}
    silent: set[str] = set()
    for part in parts:
        for kind, one in part.losses.items():
            before = found.get(kind, Losses(0, 0))
            found[kind] = Losses(before.sent + one.sent, before.lost + one.lost)
        kinds = part.frame["kind"].cat
        used = kinds.categories[np.unique(kinds.codes[kinds.codes >= 0])]
        silent |= set(map(str, used)) - part.losses.keys()
    return {kind: one for kind, one in found.items() if kind not in silent}


def _agreed(modes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return by kind the mode that all files with one have."""
    found = {kind: mode for known in modes for kind, mode in known.items()}
    return {
        kind: mode
        for kind, mode in found.items()
        if all(known.get(kind, mode) == mode for known in modes)
    }


def concatenated(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate frames; categories stay categories.

    The list is emptied on the way, so that memory holds the frames once.
    """
    import pandas as pd

    if len(frames) == 1:
        return frames.pop()
    lengths = [len(frame) for frame in frames]
    parts = [dict(frame.items()) for frame in frames]
    frames.clear()
    columns = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        values = [
            part.pop(name) if name in part else pd.Series([pd.NA] * length)
            for part, length in zip(parts, lengths, strict=True)
        ]
        if all(isinstance(each.dtype, pd.CategoricalDtype) for each in values):
            columns[name] = pd.Series(pd.api.types.union_categoricals(values))
        else:
            columns[name] = pd.concat(values, ignore_index=True)
    return pd.DataFrame(columns, copy=False)
