"""Measured round trips as the rows of round_trips.csv."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from latprof_analysis.read.schema import ROUND_TRIPS
from latprof_analysis.stages import BLANK, PROBE_STATISTICS
from numpy.typing import NDArray

from latprof_agent.join.message_rows import Ints, Text

# Of a mesh alone: whose round trip it is, and in which test.
PAIR_COLUMNS = ("source", "destination", "heartbeat", "test")
MESH_COLUMNS = ROUND_TRIPS.names
COLUMNS = tuple(name for name in MESH_COLUMNS if name not in PAIR_COLUMNS)


@dataclass(frozen=True)
class RoundTrips:
    """Rows of one protocol by column, BLANK where there is no value.

    Those of a mesh have more columns: `PAIR_COLUMNS`.
    """

    protocol: str
    numbers: dict[str, Ints]
    corrupt: int  # of them, replies that were not as sent
    texts: dict[str, Text] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.numbers["sequence"])

    def set_met(self, met: NDArray[np.bool_]) -> None:
        """Put in which of them met the statistics of our own cost."""
        self.numbers[PROBE_STATISTICS] = np.where(met, 1, BLANK)

    def columns(self) -> list[Any]:
        """All columns in the file's order, for `_rows.write`."""
        protocol = np.zeros(len(self), np.int32), [self.protocol]
        found = {**self.numbers, **self.texts, "protocol": protocol}
        names = MESH_COLUMNS if self.texts else COLUMNS
        return [found[name] for name in names]
