"""The parts of exchanges that sum to the response, row by row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from latprof_analysis.exchange_parts import (
    STAMPS,
    part_label,
    part_order,
    parts_present,
)
from latprof_analysis.fits.rounds import Floats


def summed_parts(exchanges: pd.DataFrame) -> dict[str, Floats]:
    """Return the time of each exchange in parts of which none holds another, in ns.

    What the server waited and worked stands apart where that is known, the waits for
    a CPU apart from the others, and its pauses apart from the reply's way. Parts that
    are one for want of a stamp have the names of both.

    Parameters
    ----------
    exchanges : DataFrame, n rows
        Columns of `readers.run_schema`, of exchanges whose response has its parts.

    Returns
    -------
    dict of str to ndarray, shape (n,)
        By the words for people, in the order of the path; NaN where there is none.
    """
    code = np.zeros(len(exchanges), np.int64)
    for bit, stamp in enumerate(STAMPS):
        code |= exchanges[f"{stamp}_ns"].isna().to_numpy().astype(np.int64) << bit
    found: dict[str, Floats] = {}
    for part, times in _apart(exchanges):
        for missing in np.unique(code):
            rows = (code == missing) & ~np.isnan(times)
            if rows.any():
                names = {column: name for name, column in parts_present(int(missing))}
                whole = found.setdefault(
                    names[f"{part}_ns"], np.full(len(times), np.nan)
                )
                whole[rows] = times[rows]
    return {part_label(name, ""): found[name] for name in sorted(found, key=part_order)}


def _apart(exchanges: pd.DataFrame) -> Iterator[tuple[str, Floats]]:
    """Give the parts with what is within them taken off."""
    wakeup, pauses = (
        _of(exchanges, name) for name in ("server_wakeup", "reply_pauses")
    )
    queue, work = (_of(exchanges, name) for name in ("server_queue", "server_work"))
    split = ~np.isnan(queue) & ~np.isnan(work)
    yield "request_way", _of(exchanges, "request_way")
    yield "server_queue", np.where(split, queue - np.nan_to_num(wakeup), np.nan)
    yield "server_wakeup", np.where(split, wakeup, np.nan)
    yield "server_work", np.where(split, work, np.nan)
    yield "server", np.where(split, np.nan, _of(exchanges, "server"))
    yield "reply_way", _of(exchanges, "reply_way") - np.nan_to_num(pauses)
    yield "reply_pauses", pauses


def _of(exchanges: pd.DataFrame, part: str) -> Floats:
    times: Floats = exchanges[f"{part}_ns"].to_numpy("float64", na_value=np.nan)
    return times
