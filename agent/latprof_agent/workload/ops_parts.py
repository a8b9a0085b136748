"""Where the time of operations went: operations -> exchanges in their time -> parts.

    client | request's way | server: not yet read, at work | reply's way | client

An operation is what its client timed, and an exchange what the probes saw of it. The
client's part is what the one has more than the other. Data that came and that the
client had not read yet is no time of the network: it is taken from the reply's way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from latprof_analysis.read.operations_csv import PARTS
from latprof_analysis.records.exchange_rows import ExchangeRows
from latprof_analysis.records.message_rows import Ints, Messages
from latprof_analysis.stages import BLANK
from numpy.typing import NDArray

from latprof_agent.sinks.sink import Sink

_OF_EXCHANGES = (
    *("server_port", "request_sent_ns", "reply_sent_ns", "reply_read_ns"),
    *("request_way_ns", "server_queue_ns", "server_work_ns", "reply_way_ns"),
    *("reply_pauses_ns", "response_ns", "retransmits"),
)
_OF_REPLIES = ("source_port", "ready_ns", "read_ns")
_SUMMANDS = ("request_way_ns", "server_queue_ns", "server_work_ns", "reply_way_ns")
COLUMNS = ("exchanges", "retransmits", "response_ns", *PARTS)


@dataclass
class Seen(Sink):
    """What was seen of the servers on some ports."""

    _ports: set[int] = field(default_factory=set)
    _exchanges: list[list[Ints]] = field(default_factory=list)
    _replies: list[list[Ints]] = field(default_factory=list)

    def watch(self, port: int) -> None:
        """Keep what a server on this port says and hears, from now on."""
        self._ports.add(port)

    def add_messages(self, rows: Messages) -> None:
        """Keep when replies could be read, and were."""
        self._keep(self._replies, rows.numbers, _OF_REPLIES)

    def add_exchanges(self, rows: ExchangeRows) -> None:
        """Keep the parts of exchanges."""
        self._keep(self._exchanges, rows.numbers, _OF_EXCHANGES)

    def _keep(
        self, kept: list[list[Ints]], numbers: dict[str, Ints], names: Sequence[str]
    ) -> None:
        mine = np.isin(numbers[names[0]], list(self._ports))
        if mine.any():
            kept.append([numbers[name][mine] for name in names])

    def parts_of(self, port: Ints, start_ns: Ints, end_ns: Ints) -> dict[str, Ints]:
        """Return COLUMNS of operations, whose times must not overlap on a port.

        BLANK where there is none; the five parts sum to the operation's time.
        """
        exchanges = _table(self._exchanges, _OF_EXCHANGES)
        replies = _table(self._replies, _OF_REPLIES)
        of = _operation_of(
            (port, start_ns, end_ns),
            exchanges["server_port"],
            exchanges["request_sent_ns"],
        )
        waits = _unread_ns(exchanges, replies)
        sums = _Sums(of, len(port))
        pauses = np.maximum(exchanges["reply_pauses_ns"], 0)
        ways = exchanges["request_way_ns"] + exchanges["reply_way_ns"]
        network = ways - pauses - waits
        whole = sums.all_have(network >= 0, *(exchanges[n] != BLANK for n in _SUMMANDS))
        timed = sums.all_have(exchanges["response_ns"] != BLANK)
        response = sums.of(exchanges["response_ns"], timed)
        client = np.where(timed, end_ns - start_ns - response, BLANK)
        return {
            "exchanges": sums.count,
            "retransmits": sums.of(np.maximum(exchanges["retransmits"], 0)),
            "response_ns": response,
            "client_ns": client,
            "network_ns": sums.of(network, whole),
            "server_ns": sums.of(exchanges["server_work_ns"] + pauses, whole),
            "server_queue_ns": sums.of(exchanges["server_queue_ns"], whole),
            "client_queue_ns": sums.of(waits, whole),
        }


def _table(parts: list[list[Ints]], names: Sequence[str]) -> dict[str, Ints]:
    if not parts:
        return {name: np.empty(0, "i8") for name in names}
    columns = (np.concatenate(each) for each in zip(*parts, strict=True))
    return dict(zip(names, columns, strict=True))


def _operation_of(
    operations: tuple[Ints, Ints, Ints], port: Ints, sent_ns: Ints
) -> NDArray[np.intp]:
    """Return in which operation's time each exchange began; -1: in none."""
    ports, start_ns, end_ns = operations
    found = np.full(len(port), -1, np.intp)
    for one in np.unique(ports):
        mine = np.flatnonzero(ports == one)
        mine = mine[np.argsort(start_ns[mine])]
        at = np.flatnonzero(port == one)
        place = np.searchsorted(start_ns[mine], sent_ns[at], "right") - 1
        inside = (place >= 0) & (sent_ns[at] <= end_ns[mine[place]])
        found[at[inside]] = mine[place[inside]]
    return found


def _unread_ns(exchanges: dict[str, Ints], replies: dict[str, Ints]) -> Ints:
    """Return for how long of each reply's way something could have been read.

    Of one reply's messages each could be read before the next, and was.
    """
    waits = np.zeros(len(exchanges["server_port"]), "i8")
    of = _operation_of(
        (
            exchanges["server_port"],
            exchanges["reply_sent_ns"],
            exchanges["reply_read_ns"],
        ),
        replies["source_port"],
        replies["read_ns"],
    )
    known = np.flatnonzero((of >= 0) & (replies["ready_ns"] > 0))
    order = known[np.lexsort((replies["read_ns"][known], of[known]))]
    ready, read, which = (
        replies["ready_ns"][order],
        replies["read_ns"][order],
        of[order],
    )
    same = np.r_[False, which[1:] == which[:-1]][: len(which)]
    before = np.where(same, np.r_[0, read[:-1]][: len(read)], 0)
    np.add.at(waits, which, np.maximum(read - np.maximum(ready, before), 0))
    return waits


class _Sums:
    """Sums over the exchanges of each operation."""

    def __init__(self, of: NDArray[np.intp], operations: int) -> None:
        self._at = np.flatnonzero(of >= 0)
        self._of = of[self._at]
        self._n = operations
        self.count = self._sum(np.ones(len(of), "i8"))

    def _sum(self, values: Ints) -> Ints:
        total = np.zeros(self._n, "i8")
        np.add.at(total, self._of, values[self._at])
        return total

    def all_have(self, *which: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which operations have exchanges that are all among these."""
        there = np.all(which, axis=0).astype("i8")
        return np.asarray((self.count > 0) & (self._sum(there) == self.count))

    def of(self, values: Ints, known: NDArray[np.bool_] | None = None) -> Ints:
        """Sum values; BLANK where they are not known, or there is nothing to sum."""
        known = self.count > 0 if known is None else known
        return np.where(known, self._sum(values), BLANK)
