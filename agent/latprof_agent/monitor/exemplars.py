"""Slow messages and exchanges that the probes reported: few, with their stages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from latprof_analysis.stages import MODEL, RECEIVER, SENDER
from numpy.typing import NDArray

from latprof_agent.monitor.totals import Exemplar, Group, Quantity

KEPT = 256

Named = Callable[[int], str]  # a process by its pid


class Exemplars:
    """The last ones."""

    def __init__(self, process: Named, server_role: int) -> None:
        self._process = process
        self._server_role = server_role
        self.last: deque[Exemplar] = deque(maxlen=KEPT)

    def add_sent(
        self, records: NDArray[Any], groups: list[int], names: Mapping[int, Group]
    ) -> None:
        """Take in sender's halves; of which groups, and how these are called."""
        for record, number in zip(records, groups, strict=True):
            stages = _stages(record, SENDER)
            size = int(record["size_bytes"])
            whole = "send_ns", "xmit_ns"
            self._add(record, names.get(number), _longest(stages), whole, size, stages)

    def add_received(
        self, records: NDArray[Any], groups: list[int], names: Mapping[int, Group]
    ) -> None:
        """Take in receiver's halves."""
        for record, number in zip(records, groups, strict=True):
            stages = _stages(record, RECEIVER)
            slow = _longest(stages)
            stages["wakeup"] = int(record["wakeup_ns"])
            of_bytes = int(record["end"] - record["start"])
            size = int(record["size_bytes"]) if record["key"] else of_bytes
            whole = "arrive_ns", "read_ns"
            self._add(record, names.get(number), slow, whole, size, stages)

    def add_turns(self, records: NDArray[Any], names: Mapping[int, Group]) -> None:
        """Take in what one end saw of slow exchanges."""
        for record in records:
            group = names.get(int(record["group"]))
            if record["role"] == self._server_role:
                quantity, whole = Quantity.SERVER, ("ready_ns", "send_ns")
                stages = {"server": _between(record, *whole)}
            else:
                quantity, whole = Quantity.RESPONSE, ("send_ns", "read_ns")
                stages = {
                    "send_queue+qdisc": _between(record, "send_ns", "xmit_ns"),
                    "network+server": _between(record, "xmit_ns", "arrive_ns"),
                    "reply": _between(record, "arrive_ns", "read_ns"),
                }
            self._add(record, group, quantity, whole, 0, stages)

    def _add(
        self,
        record: Any,
        group: Group | None,
        quantity: Quantity,
        whole: tuple[str, str],
        size_bytes: int,
        stages: dict[str, int],
    ) -> None:
        """Keep it, unless its group has no name; `whole` is from which stamp to which.

        All records of these kinds name a process.
        """
        if group is None:
            return
        self.last.append(
            Exemplar(
                group,
                quantity,
                _between(record, *whole),
                int(record[whole[1]]),
                size_bytes,
                stages,
                self._process(int(record["pid"])),
                int(record["pid"]),
            )
        )


def _longest(stages: dict[str, int]) -> Quantity:
    return Quantity(max(stages, key=lambda name: stages[name]))


def _stages(record: Any, side: str) -> dict[str, int]:
    """Times of a half, which does not have when its message was made."""
    return {
        stage.name: _between(record, f"{stage.since}_ns", f"{stage.until}_ns")
        for stage in MODEL[1:]
        if stage.side == side
    }


def _between(record: Any, since: str, until: str) -> int:
    begin, end = int(record[since]), int(record[until])
    return end - begin if begin and end else 0
