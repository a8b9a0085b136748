"""Periods in which the kernel let nothing of a CPU be traced.

Some kernels hide certain tasks from tracing, and with them every interrupt on
top: packets that came or left then have no stamps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT = 1 << 16


@dataclass
class UntracedTime:
    """How many periods of single CPUs there were, and the last of them."""

    count: int = 0
    total_ns: int = 0
    from_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, "i8"))
    until_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, "i8"))

    def add(self, records: NDArray[Any]) -> None:
        """Take in records of the ring."""
        if not len(records):
            return
        begin, end = records["from_ns"].astype("i8"), records["until_ns"].astype("i8")
        self.count += len(records)
        self.total_ns += int((end - begin).sum())
        self.from_ns = np.concatenate([self.from_ns, begin])[-KEPT:]
        self.until_ns = np.concatenate([self.until_ns, end])[-KEPT:]

    def as_dict(self) -> dict[str, float]:
        """For summary.json."""
        return {"periods": self.count, "seconds": self.total_ns / 1e9}
