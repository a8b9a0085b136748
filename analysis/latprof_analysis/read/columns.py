"""Any CSV with a column of latencies, and perhaps one of sizes, named by the caller."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.read.odd_csv import form_of_csv, read_odd_csv
from latprof_analysis.read.result import (
    NS_PER_UNIT,
    YEARS_NS,
    ReadError,
    Samples,
    Skipped,
    samples_of_file,
)
from latprof_analysis.read.schema import Column, Schema, Wrong
from latprof_analysis.read.table import TableReader

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
) -> Samples:
    """Read two columns of a CSV.

    What a file is like is found out, and stands in ``meta["notes"]`` where it is more
    than cells cut by ``,``, ``;``, tab or ``|``: UTF-16, cells cut by blanks, comments
    that begin with ``#``, thousands in groups, a decimal comma, units in cells.

    Parameters
    ----------
    latency_column : str
        As in the header. An empty cell is a message that was lost.
    unit : {'ns', 'us', 'ms', 's'}
        Of the latencies. If their median then is below 1 ns or above an hour, the
        unit is taken to be wrong: ReadError.
    size_column : str, optional
        Sizes in bytes. An empty cell is a size that is not known.
    delimiter : {'comma', 'semicolon', 'tab', 'pipe', 'blank'}, optional
        What cuts cells; else that of which the header has most.
    numbers : {'decimal-comma', 'thousands'}, optional
        What a comma in a number means, where that cannot be seen: of 1,802 alone.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("bytes;took\\n64;2.5\\n64;\\n")
    >>> samples = read_columns(path, latency_column="took", unit="us")
    >>> samples.frame["latency_ns"].tolist(), samples.frame["lost"].tolist()
    ([2500.0, nan], [False, True])
    """
    if unit not in NS_PER_UNIT:
        raise ValueError(f"unit must be ns, us, ms or s, got {unit!r}")
    if size_column == latency_column:
        raise ValueError("size_column and latency_column must differ")
    form = form_of_csv(path, latency_column, delimiter, numbers)
    if form.is_plain:
        latency_ns, sizes, skipped = _plain(
            path, form.delimiter, latency_column, unit, size_column
        )
    else:
        skipped = Skipped(path)
        latency_ns, sizes = read_odd_csv(
            path, form, latency_column, NS_PER_UNIT[unit], size_column, skipped
        )
    _check_unit(path, latency_ns, unit)
    return samples_of_file(
        skipped,
        "columns",
        {"latency": f"column {latency_column}, in {unit}", "notes": form.notes},
        kind=latency_column,
        size_bytes=sizes,
        latency_ns=latency_ns,
        lost=np.isnan(latency_ns),
    )


def _plain(
    path: Path, delimiter: str, latency_column: str, unit: str, size_column: str | None
) -> tuple[NDArray[np.float64], Any, Skipped]:
    """Read a CSV as machines write it, in blocks."""
    wanted = [Column(latency_column, "number", blank=True)]
    if size_column is not None:
        wanted.append(Column(size_column, "count", blank=True))

    def too_long(numbers: Mapping[str, NDArray[Any]]) -> list[Wrong]:
        above = numbers[latency_column] > YEARS_NS / NS_PER_UNIT[unit]
        return [(above, lambda _: f"{latency_column} is more than a hundred years")]

    schema = Schema(tuple(wanted), delimiter=delimiter, check=too_long)
    reader = TableReader(path, schema)
    rows = reader.frame()
    latency_ns = NS_PER_UNIT[unit] * rows[latency_column].to_numpy(np.float64)
    sizes = rows[size_column].array if size_column else pd.NA
    return latency_ns, sizes, reader.skipped


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
