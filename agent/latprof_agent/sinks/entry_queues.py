"""Messages that waited in a queue at the entry of their receiver's host.

An ifb device shapes what comes in: behind a packet's arrival and before IP, so that the
wait is in `receive_stack`. That is said where it is, lest it be taken for TCP's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from latprof_analysis.records.message_rows import WARMUP, Messages
from latprof_analysis.stats.histogram import Histogram


class EntryQueues:
    """Takes finished messages; sums up those that such a queue held."""

    def __init__(self) -> None:
        self._stack = Histogram()
        self._messages = 0

    def add(self, rows: Messages) -> None:
        """Look at more messages."""
        numbers = rows.numbers
        received = (numbers["ready_ns"] > 0) & (rows.texts["kind"][0] != WARMUP)
        self._messages += int(received.sum())
        queued = np.flatnonzero(received & (numbers["entry_queued"] > 0))
        stack_ns = numbers["receive_stack_ns"][queued]
        self._stack.record(stack_ns[stack_ns >= 0])

    def as_dict(self) -> dict[str, Any]:
        """Counts, and `receive_stack` of those that were queued: ns, None without any.

        Keys: queued, received, p50_ns, max_ns.
        """
        return {
            "queued": self._stack.count,
            "received": self._messages,
            "p50_ns": self._stack.quantile(0.5),
            "max_ns": self._stack.max_ns,
        }
