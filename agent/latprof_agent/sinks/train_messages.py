"""Messages of trains, kept for the rate at which they arrived."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from latprof_analysis.records.message_rows import (
    TRAIN,
    TRAIN_REPLY,
    Messages,
    joined_rows,
)
from latprof_analysis.study.setup import packets_of

MOST = 50_000  # as many as `analyze` looks at


class TrainMessages:
    """The first messages of trains of a run."""

    def __init__(self) -> None:
        self._parts: list[Messages] = []
        self._room = MOST

    def add(self, rows: Messages) -> None:
        """Keep those of trains."""
        kind = rows.texts["kind"][0]
        at = np.flatnonzero((kind == TRAIN) | (kind == TRAIN_REPLY))[: self._room]
        if len(at):
            self._parts.append(rows.take(at))
            self._room -= len(at)

    def dispersions(self, lab: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the rate at which they arrived, by protocol and kind."""
        if not self._parts:
            return {}
        # and pyarrow, which runs without trains do not need
        from latprof_analysis.fit.trains import stage_dispersions
        from latprof_analysis.read.rows import Columns

        rows = joined_rows(self._parts)
        columns = Columns(rows.numbers, rows.texts, len(rows))
        packets = {name: packets_of(lab, name) for name in ("tcp", "udp")}
        found = stage_dispersions(columns, packets=packets if lab else None)
        return {" ".join(key): one.as_dict() for key, one in found.items()}
