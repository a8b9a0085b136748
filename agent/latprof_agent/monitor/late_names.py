"""Names of processes that no probe has named, looked up while they still run."""

from __future__ import annotations

from collections.abc import Iterable

from latprof_analysis.records.arrays import Batch
from latprof_analysis.records.process_names import ProcessNames

from latprof_agent.process_table import comm_of


class LateNames:
    """Asks /proc as soon as records are drained: many are gone when they are joined."""

    def __init__(self, known: ProcessNames, rings: Iterable[str]) -> None:
        """`known` need not be asked for; `rings` have records that name processes."""
        self._known = known
        self._rings = tuple(rings)
        self._announced: set[int] = set()
        self._found: dict[int, str] = {}

    def look(self, batch: Batch) -> None:
        """Look up who sent and read."""
        self._announced.update(batch["tasks"]["pid"].tolist())
        for ring in self._rings:
            for pid in set(batch[ring]["pid"].tolist()):
                named = pid in self._announced or pid in self._found
                if not named and pid not in self._known and (name := comm_of(pid)):
                    self._found[pid] = name

    def take(self) -> dict[int, str]:
        """Return those that were found since the last time."""
        found, self._found = self._found, {}
        self._announced.clear()
        return found
