"""The latencies A, B, C and D of the Time Warp experiment (Bellenot, 1988).

It took four stamps of each message: when the application had made it, just before
the transport got it, when the receiving host's interrupt routine had it, and when
the application did. These are latprof's stamps created, send, arrive and read, so
that A = B + C + D for each message that has all four, to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.stages import STAMPS
from latprof_analysis.stats.histogram import Histogram, record_parts

Ints = NDArray[np.int64]

# The stamps of 1988, 1 to 4, by their names here.
TAKEN = {"1": "created", "2": "send", "3": "arrive", "4": "read"}
MEANING = {
    "A": "end to end: made (sent, where it is not known when it was made) to read",
    "B": "in the sending application: made to its send call",
    "C": "send call to arrival at the receiving host",
    "D": "arrival to read: waiting on the receiving host",
}
# From which stamp to which.
_ENDS = {
    "B": ("created", "send"),
    "C": ("send", "arrive"),
    "D": ("arrive", "read"),
}
# A and B are stages of their own: who counts these has them.
NO_STAGES = ("C", "D")
ALL = ("A", "B", "C", "D")
# Why no message has a stamp.
_LACKS = {
    "created": "only latprof's ping-pong and mesh tell when a message was made, and "
    "of replies neither in CLEAR's wire format nor with --to",
    "send": "the sender is elsewhere, or was not watched",
    "arrive": "the reader is elsewhere, or this kernel does not tell (latprof probes)",
    "read": "the reader is elsewhere, was not watched, or read none",
}
# Instead of kinds, where there is none.
EVERY = "every message"
NONE_RECORDED = (
    "no message was recorded; of bulk transfers they are with --probes, and of no run "
    "with --no-probes"
)


class Legs:
    """Histograms of the latencies of some messages, and who of these has a stamp.

    Parameters
    ----------
    names : sequence of str
        Of the latencies to count.
    """

    def __init__(self, names: Sequence[str] = NO_STAGES) -> None:
        self.histograms = {name: Histogram() for name in names}
        self.messages = 0
        self.stamped = dict.fromkeys(TAKEN.values(), 0)

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
            Stamps in ns, and end_to_end, by column.
        missing : ndarray of uint8, shape (n,)
            Which stamps each lacks, as of `missing_code`.
        rows : ndarray of int, shape (k,)
            Which to take.
        """
        lacks = missing.take(rows)
        self._count_stamps(lacks)
        if "A" in self.histograms:
            whole = numbers["end_to_end_ns"].take(rows)
            self.histograms["A"].record(whole[whole >= 0])  # BLANK is below
        columns: dict[str, Ints] = {}
        for name, (since, until) in _ENDS.items():
            if name not in self.histograms:
                continue
            there = lacks & (_bit(since) | _bit(until)) == 0
            for stamp in (since, until):
                if stamp not in columns:
                    columns[stamp] = numbers[f"{stamp}_ns"].take(rows)
            times = columns[until] - columns[since]
            # what is negative is counted with the stages
            times = times[there & (times >= 0)]
            if times.size:
                record_parts([self.histograms[name]], times, np.array([times.size]))

    def _count_stamps(self, lacks: NDArray[np.uint8]) -> None:
        codes = np.bincount(lacks)
        for stamp in self.stamped:
            without = (np.arange(codes.size) & _bit(stamp)) > 0
            self.stamped[stamp] += int(codes[~without].sum())
        self.messages += lacks.size

    def merge(self, other: Legs) -> None:
        """Add all that `other` has counted."""
        self.messages += other.messages
        for stamp, count in other.stamped.items():
            self.stamped[stamp] += count
        for name, histogram in other.histograms.items():
            self.histograms[name].merge(histogram)


def unknown_latencies(
    messages: int, stamped: Mapping[str, int], known: Collection[str]
) -> dict[str, str]:
    """Say of each latency that no message has why that is so.

    Parameters
    ----------
    messages : int
        In percentiles.
    stamped : mapping of str to int
        How many of them have each stamp.
    known : collection of str
        Latencies that some message has.

    Examples
    --------
    >>> stamped = {"created": 0, "send": 9, "arrive": 9, "read": 8}
    >>> list(unknown_latencies(9, stamped, "ACD"))
    ['B']
    """
    if not messages:
        return dict.fromkeys(ALL, "no message is in percentiles")
    found = {}
    for name in ALL:
        if name in known:
            continue
        ends = _ENDS.get(name, ("send", "read"))
        lacking = [stamp for stamp in ends if not stamped[stamp]]
        reasons = [f"no stamp {stamp}: {_LACKS[stamp]}" for stamp in lacking]
        found[name] = "; ".join(reasons) or f"no message has both {' and '.join(ends)}"
    return found


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
