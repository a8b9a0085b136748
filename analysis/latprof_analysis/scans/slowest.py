"""The slowest of rows: one of them, the same whatever the order they come in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.stages import BLANK

Ints = NDArray[np.int64]
Texts = Mapping[str, tuple[NDArray[np.int32], Sequence[str]]]


def slowest_row(
    numbers: Mapping[str, Ints], texts: Texts, measured: NDArray[np.bool_]
) -> int | None:
    """Return the measured row with the largest end_to_end; None if none is above 0.

    Of equal ones it is that which `first_row` chooses.
    """
    times = np.where(measured, numbers["end_to_end_ns"], BLANK)
    if times.max() <= 0:
        return None
    return first_row(numbers, texts, np.flatnonzero(times == times.max()))


def first_row(numbers: Mapping[str, Ints], texts: Texts, rows: NDArray[np.intp]) -> int:
    """Return which of rows has the columns that, in the order of names, come first.

    Blank comes before all.
    """
    for name in sorted([*numbers, *texts]):
        if len(rows) == 1:
            break
        values = _ranks(*texts[name])[rows] if name in texts else numbers[name][rows]
        rows = rows[values == values.min()]
    return int(rows[0])


def _ranks(codes: NDArray[np.int32], labels: Sequence[str]) -> NDArray[np.intp]:
    """Return the place of each row's label among all; -1 where it has none."""
    _, places = np.unique(np.array(["", *labels]), return_inverse=True)
    return np.where(codes >= 0, places[1:][codes] if labels else -1, -1)


def beats(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a row stands before another, as `slowest_row` chooses.

    Examples
    --------
    >>> beats({"end_to_end_ns": 5, "send_ns": 1}, {"end_to_end_ns": 4, "send_ns": 0})
    True
    >>> beats({"end_to_end_ns": 5, "send_ns": 1}, {"end_to_end_ns": 5, "send_ns": 0})
    False
    """
    return place(row, row["end_to_end_ns"]) < place(other, other["end_to_end_ns"])


def place(row: Mapping[str, Any], time_ns: int) -> tuple[Any, ...]:
    """Return what orders rows: the slowest first, then as `first_row`.

    Examples
    --------
    >>> place({"server_ns": 4, "client_pid": None}, 4) < place({"server_ns": 3}, 3)
    True
    """
    cells = (row[name] for name in sorted(row))
    return -time_ns, *((c is not None, c or 0) for c in cells)
