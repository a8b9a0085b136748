"""Measured round trips as the rows of round_trips.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from latprof_analysis.read.schema import ROUND_TRIPS
from latprof_analysis.stages import BLANK, PROBE_STATISTICS
from numpy.typing import NDArray

from latprof_agent.join.message_rows import Ints

# Those behind are of runs with trains, the last of runs with a load.
WITH_TRAINS, PHASE = ROUND_TRIPS.names[:-1], ROUND_TRIPS.names[-1]
COLUMNS = WITH_TRAINS[: WITH_TRAINS.index(PROBE_STATISTICS) + 1]
WITH_PHASE = (*COLUMNS, PHASE)
TRAIN_COLUMNS = WITH_TRAINS[len(COLUMNS) :]


@dataclass(frozen=True)
class RoundTrips:
    """Rows of one protocol by column, BLANK where there is no value."""

    protocol: str
    numbers: dict[str, Ints]
    corrupt: int  # of them, replies that were not as sent
    phase: str = ""  # idle or loaded, in a run with a load

    def __len__(self) -> int:
        return len(self.numbers["sequence"])

    def take(self, at: NDArray[np.intp]) -> RoundTrips:
        """Some of the rows; how many are corrupt is told of all only."""
        numbers = {name: values[at] for name, values in self.numbers.items()}
        return RoundTrips(self.protocol, numbers, 0, self.phase)

    def set_met(self, met: NDArray[np.bool_]) -> None:
        """Put in which of them met the statistics of our own cost."""
        self.numbers[PROBE_STATISTICS] = np.where(met, 1, BLANK)

    def columns(self) -> list[Any]:
        """All columns in the file's order, for `_rows.write`."""
        protocol = np.zeros(len(self), np.int32), [self.protocol]
        names = (name for name in WITH_TRAINS[1:] if name in self.numbers)
        return [protocol, *(self.numbers[name] for name in names), *self._told_phase()]

    def _told_phase(self) -> list[Any]:
        if not self.phase:
            return []
        return [(np.zeros(len(self), np.int32), [self.phase])]
