"""Measured round trips as the rows of round_trips.csv."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from latprof_analysis.read.schema import ROUND_TRIPS
from latprof_analysis.records.message_rows import Ints, Text
from latprof_analysis.stages import BLANK, PROBE_STATISTICS
from numpy.typing import NDArray

# Those of every run, of those with trains, of a mesh (between which hosts), and of
# those with a load.
_NAMES = ROUND_TRIPS.names
COLUMNS = _NAMES[: _NAMES.index(PROBE_STATISTICS) + 1]
TRAIN_COLUMNS = _NAMES[len(COLUMNS) : _NAMES.index("source")]
PAIR_COLUMNS = _NAMES[_NAMES.index("source") : -1]
PHASE = _NAMES[-1]
WITH_TRAINS = (*COLUMNS, *TRAIN_COLUMNS)
WITH_PAIRS = (*COLUMNS, *PAIR_COLUMNS)
WITH_PHASE = (*COLUMNS, PHASE)


@dataclass(frozen=True)
class RoundTrips:
    """Rows of one protocol by column, BLANK where there is no value.

    Those of a mesh have more columns: `PAIR_COLUMNS`.
    """

    protocol: str
    numbers: dict[str, Ints]
    corrupt: int  # of them, replies that were not as sent
    texts: dict[str, Text] = field(default_factory=dict)
    phase: str = ""  # idle or loaded, in a run with a load

    def __len__(self) -> int:
        return len(self.numbers["sequence"])

    def take(self, at: NDArray[np.intp]) -> RoundTrips:
        """Take some of the rows; corrupt ones are counted of all rows only."""
        numbers = {name: values[at] for name, values in self.numbers.items()}
        texts = {name: (of[at], words) for name, (of, words) in self.texts.items()}
        return RoundTrips(self.protocol, numbers, 0, texts, self.phase)

    def mark_statistics(self, met: NDArray[np.bool_]) -> None:
        """Put in which of them met the statistics of our own cost."""
        self.numbers[PROBE_STATISTICS] = np.where(met, 1, BLANK)

    def columns(self) -> list[Any]:
        """All columns in the file's order, for `_rows.write`."""
        texts = {"protocol": self.protocol, PHASE: self.phase}
        zeros = np.zeros(len(self), np.int32)
        same = {name: (zeros, [text]) for name, text in texts.items() if text}
        found = {**self.numbers, **self.texts, **same}
        return [found[name] for name in _NAMES if name in found]
