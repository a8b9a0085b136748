"""What a test's own sends and reads logged, and rows held against it.

Physics bounds each row exactly: a message's `send` lies inside the call that sent
it and its `read` inside the call that read its last byte, on the same clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

STAMPS = ("send", "queue", "xmit", "arrive", "ready", "read")
STAGES = ("send_queue", "qdisc", "transit", "receive_stack", "receive_queue")
# What lies between the program's clock readings and the stamps inside its calls
# is a few us of system call each; a median of 200 us needs half of all preempted.
END_TO_END_NS = 200_000


@dataclass
class Calls:
    """Begin and end of calls, and what each gave."""

    begins_ns: list[int] = field(default_factory=list)
    ends_ns: list[int] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)

    def do(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make a call and log it."""
        self.begins_ns.append(time.monotonic_ns())
        result = call(*arguments)
        self.ends_ns.append(time.monotonic_ns())
        self.results.append(result)
        return result


def ping(sends, reads, send, data, server):
    """Send one message and read it whole."""
    assert sends.do(send, data) in (len(data), None)
    left = len(data)
    while left:
        left -= len(reads.do(server.recv, left))


def rows_between(rows: pd.DataFrame, source: int, destination: int) -> pd.DataFrame:
    """The rows from one port to another, in order of their bytes."""
    mine = (rows["source_port"] == source) & (rows["destination_port"] == destination)
    return rows[mine].sort_values("sequence").reset_index(drop=True)


def assert_stamps_in_order(rows: pd.DataFrame) -> None:
    """No stamp before the one before it; stages sum to end_to_end."""
    stamps = rows[[f"{stamp}_ns" for stamp in STAMPS]].to_numpy(float)
    latest = np.fmax.accumulate(stamps, axis=1)
    there = ~np.isnan(stamps)
    assert (stamps[there] == latest[there]).all(), "a stamp runs backwards"
    whole = rows["end_to_end_ns"].notna()
    sums = rows[whole][[f"{stage}_ns" for stage in STAGES]].sum(axis=1)
    assert (sums == rows[whole]["end_to_end_ns"]).all(), "stages do not sum up"


def assert_inside(stamps: Any, calls: Calls, of: Sequence[int] | None = None) -> None:
    """Each stamp lies inside its call; `of` names the call of each stamp."""
    index = np.arange(len(stamps)) if of is None else np.asarray(of)
    begins, ends = np.array(calls.begins_ns)[index], np.array(calls.ends_ns)[index]
    stamps = np.asarray(stamps)
    outside = ~((stamps >= begins) & (stamps <= ends))  # what is not there, too
    assert not outside.any(), (
        f"{outside.sum()} of {len(stamps)} outside their calls, first by "
        f"{(stamps - begins)[outside][0]} after {(stamps - ends)[outside][0]} ns"
    )


def assert_rows_are(
    rows: pd.DataFrame,
    sizes: Sequence[int],
    sends: Calls,
    reads: Calls,
    *,
    read_of: Sequence[int] | None = None,
    send_of: Sequence[int] | None = None,
    spread_ns: int = 0,
) -> None:
    """One row per message with its size, each stamp where the program was.

    `send_of` and `read_of` name for each message the call that sent it, or that
    read its last byte; one call each unless told. `spread_ns` is how long a call
    takes for many messages that it sends or reads one after the other.
    """
    assert rows["size_bytes"].tolist() == list(sizes)
    stream = (rows["protocol"] == "tcp").all()
    numbers = np.cumsum(sizes) if stream else np.arange(1, len(sizes) + 1)
    assert rows["sequence"].tolist() == numbers.tolist()
    assert_stamps_in_order(rows)
    assert_inside(rows["send_ns"], sends, send_of)
    assert_inside(rows["read_ns"], reads, read_of)
    sent = np.array(sends.begins_ns)[send_of if send_of is not None else slice(None)]
    read = np.array(reads.ends_ns)[read_of if read_of is not None else slice(None)]
    assert np.median(read - sent - rows["end_to_end_ns"]) < END_TO_END_NS + spread_ns


def read_calls_of(sizes: Sequence[int], reads: Calls) -> list[int]:
    """The call that read each message's last byte, by the lengths it returned."""
    read_ends = np.cumsum([len(data) for data in reads.results])
    return [int(i) for i in np.searchsorted(read_ends, np.cumsum(sizes))]
