"""Any CSV with a column of latencies, and perhaps one of sizes, named by the caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.read.cells import decimal
from latprof_analysis.read.loss_cells import LossCells
from latprof_analysis.read.odd_csv import Cells, CsvForm, form_of_csv, read_odd_csv
from latprof_analysis.read.result import (
    NS_PER_UNIT,
    YEARS_NS,
    ReadError,
    Samples,
    Skipped,
    losses_of,
    samples_of_file,
    shown,
)
from latprof_analysis.read.row_choice import RowChoice
from latprof_analysis.read.rows import Columns, Rows, Text
from latprof_analysis.read.schema import Column, Schema, Texts, Wrong
from latprof_analysis.read.table import TableReader
from latprof_analysis.stages import BLANK
from latprof_analysis.stats.resolution import resolution_change
from latprof_analysis.text import duration, plural

# What half of the latencies cannot be: light goes 30 cm in a nanosecond.
_LEAST_NS, _MOST_NS = 1.0, 3600e9


def read_columns(
    path: Path,
    *,
    latency_column: str,
    unit: str,
    size_column: str | None = None,
    delimiter: str | None = None,
    numbers: str | None = None,
    lost_if: str | None = None,
    where: Sequence[str] = (),
) -> Samples:
    """Read two columns of a CSV.

    What a file is like is found out, and stands in ``meta["notes"]`` where it is more
    than cells cut by ``,``, ``;``, tab or ``|``: UTF-16, cells cut by blanks, comments
    that begin with ``#``, thousands in groups, a decimal comma, units in cells.

    Parameters
    ----------
    latency_column : str
        As in the header.
    unit : {'ns', 'us', 'ms', 's'}
        Of the latencies. If their median then is below 1 ns or above an hour, the
        unit is taken to be wrong: ReadError.
    size_column : str, optional
        Sizes in bytes. An empty cell is a size that is not known.
    delimiter : {'comma', 'semicolon', 'tab', 'pipe', 'blank'}, optional
        What cuts cells; else that of which the header has most.
    numbers : {'decimal-comma', 'thousands'}, optional
        What a comma in a number means, where that cannot be seen: of 1,802 alone.
    lost_if : str, optional
        Cells that stand for a message that was lost, with commas between; ``empty``,
        ``none``. Else words as ``timeout``, ``-``, ``NaN``, and -1, but an empty cell
        only where there is no other column. Cells that are no latency and no loss are
        left out; ``meta["not_latencies"]`` counts both.
    where : sequence of str, optional
        Which rows are read, each as ``COLUMN=TEXT``; of one column any of its texts.
        Asked for where a column of names says that values are of several quantities;
        ``COLUMN=*`` takes them together.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("bytes;took\\n64;2.5\\n64;timeout\\n")
    >>> samples = read_columns(path, latency_column="took", unit="us")
    >>> samples.frame["latency_ns"].tolist(), samples.frame["lost"].tolist()
    ([2500.0, nan], [False, True])
    """
    if unit not in NS_PER_UNIT:
        raise ValueError(f"unit must be ns, us, ms or s, got {unit!r}")
    if size_column == latency_column:
        raise ValueError("size_column and latency_column must differ")
    form = form_of_csv(path, latency_column, delimiter, numbers)
    losses = LossCells.of(lost_if, only_column=len(form.names) == 1)
    choice, skipped, scale = RowChoice.of(where), Skipped(path), NS_PER_UNIT[unit]
    if {latency_column, size_column} & choice.wanted.keys():
        raise ValueError("where and latency_column or size_column must differ")
    form.check(path, [latency_column, *choice.wanted])
    read = _plain if form.is_plain else read_odd_csv
    cells = read(
        path, form, latency_column, scale, size_column, losses, choice, skipped
    )
    if not cells.latency_ns.size and choice.wanted:
        raise ReadError(path, f"no row has {choice}")
    notes = choice.check(path, cells.texts, latency_column, cells.latency_ns)
    samples = _samples(skipped, form, losses, cells, latency_column, unit)
    notes += _step_note(cells.latency_ns)
    samples.meta["where"] = choice.wanted
    samples.meta["notes"] = [*notes, *cells.notes, *samples.meta["notes"]]
    return samples


def _step_note(latency_ns: NDArray[np.float64]) -> list[str]:
    """Say that the step of values changes within a column."""
    found = resolution_change(latency_ns[~np.isnan(latency_ns)])
    if found is None:
        return []
    place, before, after = found
    return [
        f"the step of values changes from {duration(before)} to {duration(after)}, from"
        f" about latency {place + 1:,} on: another clock, or another unit?"
    ]


def _samples(
    skipped: Skipped,
    form: CsvForm,
    losses: LossCells,
    cells: Cells,
    latency_column: str,
    unit: str,
) -> Samples:
    """Part losses from cells that are left out, and say which was what."""
    latency_ns, (codes, words), sizes, *_ = cells
    notes, end = [], codes.size
    if len(form.names) == 1 and "" in words:  # lines below the last row
        end = int(np.flatnonzero(codes != words.index(""))[-1:].sum()) + 1
        if rest := codes.size - end:
            notes = [f"left out: {plural(rest, 'empty line')} at the end"]
    codes = codes[:end]
    found = Counter(codes[codes >= 0].tolist())
    counts = {words[code]: count for code, count in found.items()}
    table, said = losses.found(counts, end)
    is_lost = np.array([*map(losses.is_lost, words), False])[codes]
    kept = np.flatnonzero((codes < 0) | is_lost)
    _check_unit(Path(skipped.path), latency_ns[kept], unit)
    samples = samples_of_file(
        skipped,
        "columns",
        {
            "latency": f"column {latency_column}, in {unit}",
            "not_latencies": table,
            "notes": [*said, *notes, *form.notes],
        },
        losses={},
        kind=latency_column,
        size_bytes=sizes if sizes is pd.NA else sizes[kept],
        latency_ns=latency_ns[kept],
        lost=is_lost[kept],
    )
    if losses.said or is_lost.any():
        samples.losses = losses_of(samples.frame)
    return samples


def _plain(
    path: Path,
    form: CsvForm,
    latency_column: str,
    scale: float,
    size_column: str | None,
    losses: LossCells,
    choice: RowChoice,
    skipped: Skipped,
) -> Cells:
    """Read a CSV as machines write it, in blocks.

    As numbers, which is fastest; where there is anything else, as texts.
    """
    others = choice.columns(form.labels)
    columns = latency_column, size_column, others
    if not losses.may_be_latencies:

        def too_long(numbers: Mapping[str, NDArray[Any]]) -> list[Wrong]:
            above = numbers[latency_column] > YEARS_NS / scale
            return [(above, lambda _: f"{latency_column} is more than a hundred years")]

        reader = _reader(path, form, *columns, check=too_long)
        parts = [*_chosen(_until_wrong(reader), choice)]
        if not reader.skipped.count:
            latency_ns = scale * _whole(parts, latency_column)
            codes = np.where(np.isnan(latency_ns), 0, -1).astype(np.int32)
            return _cells(latency_ns, (codes, [""]), parts, size_column, others)

    def wrong(texts: Texts) -> list[Wrong]:
        codes, labels = texts[latency_column]
        whys = [_why_wrong(x, losses, scale, latency_column) for x in labels]
        bad = np.array([*map(bool, whys), False])[codes]
        bad &= choice.rows(texts, bad.size)
        return [(bad, lambda i: whys[codes[i]])]

    reader = _reader(path, form, *columns, check_texts=wrong)
    reader.skipped = skipped
    parts = [*_chosen(reader, choice)]
    skipped.check(reader.rows)
    words: dict[str, int] = {}
    every = [_of_texts(rows.texts[latency_column], losses, words) for rows in parts]
    latency = np.concatenate([np.zeros(0), *(each[0] for each in every)])
    codes = np.concatenate([np.zeros(0, np.int32), *(each[1] for each in every)])
    return _cells(scale * latency, (codes, list(words)), parts, size_column, others)


def _reader(
    path: Path,
    form: CsvForm,
    latency_column: str,
    size_column: str | None,
    others: Sequence[str],
    **checks: Any,
) -> TableReader:
    kind: Literal["number", "text"] = "text" if "check_texts" in checks else "number"
    wanted = [Column(latency_column, kind, blank=True)]
    if size_column is not None:
        wanted.append(Column(size_column, "count", blank=True))
    wanted += [Column(name, "text", blank=True) for name in others]
    single = len(form.names) == 1
    schema = Schema(
        tuple(wanted), delimiter=form.delimiter, empty_rows=single, **checks
    )
    return TableReader(path, schema)


def _until_wrong(reader: TableReader) -> Iterator[Rows]:
    for rows in reader:
        if reader.skipped.count:
            return
        yield rows


def _chosen(parts: Iterable[Rows], choice: RowChoice) -> Iterator[Columns]:
    for part in parts:
        yield part.at(choice.rows(part.texts, len(part))) if choice.wanted else part


def _cells(
    latency_ns: NDArray[np.float64],
    words: Text,
    parts: Sequence[Columns],
    size_column: str | None,
    others: Sequence[str],
) -> Cells:
    texts = {name: _joined([part.texts[name] for part in parts]) for name in others}
    return Cells(latency_ns, words, _sizes(parts, size_column), texts)


def _joined(texts: Sequence[Text]) -> Text:
    """Put columns of text together, whose labels are numbered each by itself."""
    every: dict[str, int] = {}
    found = [np.zeros(0, np.int32)]
    for codes, labels in texts:
        places = [every.setdefault(x.strip(), len(every)) for x in labels]
        found.append(np.array([*places, -1], np.int32)[codes])
    return np.concatenate(found), list(every)


def _whole(parts: Sequence[Columns], name: str) -> NDArray[np.float64]:
    columns = [part.numbers[name] for part in parts]
    return np.concatenate(columns) if columns else np.zeros(0)


def _sizes(parts: Sequence[Columns], name: str | None) -> Any:
    if name is None:
        return pd.NA
    sizes = _whole(parts, name).astype(np.int64)
    return pd.arrays.IntegerArray(np.maximum(sizes, 0), sizes == BLANK)


def _latency(cell: str, losses: LossCells) -> float | None:
    """Return the number in a cell that is a latency; None of any other cell."""
    number = decimal(cell)
    if number is None or not 0 <= number < np.inf:
        return None
    # which is slow to find out, and hardly ever so
    return None if losses.may_be_latencies and losses.is_lost(cell) else number


def _why_wrong(cell: str, losses: LossCells, scale: float, name: str) -> str:
    """Say why a cell is neither a latency nor a word that is known to be none."""
    number = _latency(cell, losses)
    if number is not None:
        too_long = number > YEARS_NS / scale
        return f"{name} is more than a hundred years" if too_long else ""
    if losses.is_word(cell):
        return ""
    number = decimal(cell)
    if number is None:
        return f"{name} must be a number, got {shown(cell)}"
    return f"{name} must be 0 or more, got {number}"


def _of_texts(
    texts: Text, losses: LossCells, words: dict[str, int]
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return numbers, NaN where a word stands, and which of `words` that is."""
    codes, labels = texts
    numbers = [*(_latency(label, losses) for label in labels), None]
    places = np.full(len(numbers), -1, np.int32)
    for i, number in enumerate(numbers):
        if number is None:
            word = labels[i].strip() if i < len(labels) else ""
            places[i] = words.setdefault(word, len(words))
    return np.array(numbers, np.float64)[codes], places[codes]


def _check_unit(path: Path, latency_ns: np.ndarray, unit: str) -> None:
    there = latency_ns[~np.isnan(latency_ns)]
    if not there.size:
        raise ReadError(path, "it has no latency")
    median = float(np.median(there))
    if 0 < median < _LEAST_NS or median > _MOST_NS:
        raise ReadError(
            path,
            f"its median latency would be {median / 1e9:.3g} s; is the unit {unit}?",
        )
