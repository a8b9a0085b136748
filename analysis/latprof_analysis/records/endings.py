"""When each connection was closed or lost, and how: what is asked then has no answer.

Each watched end says so itself, and that it has all of the other's bytes.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from latprof_analysis.records.conversations import Conversations
from latprof_analysis.records.flows import Flows

KEPT = 1 << 17


@dataclass(frozen=True)
class Ending:
    """What ended one conversation first, after a time."""

    t_ns: int
    by_client: bool
    was_reset: bool
    by_itself: bool  # that end reads no more; not so if the other says that it sent all
    timed_out: bool  # TCP gave up sending it again


class Endings:
    """Takes records of ends; of `KEPT` connections the newest."""

    def __init__(
        self, flows: Flows, conversations: Conversations, kinds: dict[str, int]
    ) -> None:
        self._flows, self._conversations = flows, conversations
        self._kinds = kinds
        self._of: dict[int, list[Ending]] = {}  # by conversation
        # Two CPUs' rings: an end may be read before its flow is announced.
        self._waiting: NDArray[Any] = flows.table[:0]

    def add(self, records: NDArray[Any]) -> None:
        """Take in records of connections that were closed, or lost."""
        self._take(self._waiting)  # they are announced now, or never
        self._waiting = self._take(records)
        while len(self._of) > KEPT:
            del self._of[next(iter(self._of))]

    def _take(self, records: NDArray[Any]) -> NDArray[Any]:
        """Keep the ends of known flows, return those of others."""
        places = self._flows.index(records["flow"])
        for place, record in zip(places.tolist(), records, strict=True):
            if place >= 0:
                self._put(place, record)
        return records.compress(places < 0)

    def _put(self, place: int, record: Any) -> None:
        identity = int(self._conversations.identity[place])
        kind = int(record["accepted"])
        # the flow is that which this end sends, or, where it sent nothing, which it got
        here_is_client = bool(self._conversations.to_server[place])
        here_is_client ^= bool(record["first_sequence"])
        other = kind == self._kinds["by_peer"]
        ending = Ending(
            int(record["t_ns"]),
            by_client=here_is_client ^ other,
            was_reset=kind == self._kinds["reset"],
            by_itself=not other,
            timed_out=int(record["group"]) == errno.ETIMEDOUT,
        )
        self._of.setdefault(identity, []).append(ending)

    def after(self, identity: int, t_ns: int, *, client_here: bool) -> Ending | None:
        """Return the first end of a conversation after a time; None: it goes on.

        A client that closes one half waits for its answer. Where it is here it says
        itself when it closed; else its server cannot know which it was.
        """
        later = [
            e
            for e in self._of.get(identity, ())
            if e.t_ns >= t_ns and (e.by_itself or not e.by_client or not client_here)
        ]
        return min(later, key=lambda e: e.t_ns, default=None)

    def server_was_done(self, identity: int, t_ns: int) -> bool:
        """Say whether the client knew by then that its server will say no more."""
        return any(
            not e.by_itself and not e.by_client and e.t_ns < t_ns
            for e in self._of.get(identity, ())
        )

    def reader_closed(self, place: int) -> bool:
        """Say whether the receiving end of a flow closed its end, or lost it."""
        identity = int(self._conversations.identity[place])
        client_reads = not self._conversations.to_server[place]
        return any(
            one.by_itself and one.by_client == client_reads
            for one in self._of.get(identity, ())
        )
