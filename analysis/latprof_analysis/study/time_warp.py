"""The latencies A, B, C and D of the Time Warp experiment (Bellenot, 1988).

It took four stamps of each message: when the application had made it, just before
the transport got it, when the receiving host's interrupt routine had it, and when
the application did. These are latprof's stamps created, send, arrive and read, so
that A = B + C + D for each message that has all four, to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.stages import STAMPS
from latprof_analysis.stats.histogram import Histogram, record_parts

Ints = NDArray[np.int64]

MEANING = {
    "A": "end to end: made (sent, where it is not known when it was made) to read",
    "B": "in the sending application: made to its send call",
    "C": "send call to arrival at the receiving host",
    "D": "arrival to read: waiting on the receiving host",
}
# From which stamp to which; A and B are stages of their own.
_ENDS = {"C": ("send", "arrive"), "D": ("arrive", "read")}


class Legs:
    """Histograms of C and D, which are several stages together."""

    def __init__(self) -> None:
        self.histograms = {name: Histogram() for name in _ENDS}

    def add(
        self,
        numbers: Mapping[str, Ints],
        missing: NDArray[np.uint8],
        rows: NDArray[np.intp],
    ) -> None:
        """Take in messages.

        Parameters
        ----------
        numbers : mapping of str to ndarray of int64, shape (n,)
            Stamps in ns, by column.
        missing : ndarray of uint8, shape (n,)
            Which stamps each lacks, as of `missing_code`.
        rows : ndarray of int, shape (k,)
            Which to take.
        """
        lacks = missing.take(rows)
        columns: dict[str, Ints] = {}
        for name, (since, until) in _ENDS.items():
            there = lacks & (_bit(since) | _bit(until)) == 0
            for stamp in (since, until):
                if stamp not in columns:
                    columns[stamp] = numbers[f"{stamp}_ns"].take(rows)
            times = columns[until] - columns[since]
            # what is negative is counted with the stages
            times = times[there & (times >= 0)]
            if times.size:
                record_parts([self.histograms[name]], times, np.array([times.size]))

    def merge(self, other: Legs) -> None:
        """Add all that `other` has counted."""
        for name, histogram in other.histograms.items():
            self.histograms[name].merge(histogram)


def _bit(stamp: str) -> int:
    return 1 << STAMPS.index(stamp)


def latencies_of(rows: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Return A, B, C and D of each message, in ns; NaN where a stamp is missing.

    Parameters
    ----------
    rows : DataFrame
        Stamps by column, as in messages.csv, missing values NA.

    Examples
    --------
    >>> import pandas as pd
    >>> stamps = {"created_ns": [1], "send_ns": [3], "arrive_ns": [7], "read_ns": [15]}
    >>> {k: v.tolist() for k, v in latencies_of(pd.DataFrame(stamps)).items()}
    {'A': [14.0], 'B': [2.0], 'C': [4.0], 'D': [8.0]}
    """
    created, send, arrive, read = (
        rows[f"{stamp}_ns"] for stamp in ("created", "send", "arrive", "read")
    )
    # as whole numbers, since a double cannot hold a stamp to the nanosecond
    found = {
        "A": read - created.fillna(send),
        "B": send - created,
        "C": arrive - send,
        "D": read - arrive,
    }
    return {name: ns.to_numpy("float64", na_value=np.nan) for name, ns in found.items()}
