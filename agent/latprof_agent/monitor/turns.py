"""Both ends' views of sampled exchanges -> the network's RTT, without think time.

    client's last of the request left ... first of the reply arrived
  - server's last of the request arrived ... first of the reply left

Each difference is of one host's clock, so the ends may be on two hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from latprof_analysis.records.arrays import stacked
from latprof_analysis.records.exchange_rows import ExchangeRows, exchange_rows
from latprof_analysis.records.exchanges import Found
from latprof_analysis.records.joiner import Joiner
from latprof_analysis.records.turn import FOREVER, Turn, no_turns
from latprof_analysis.stages import BLANK, EXCHANGE
from numpy.typing import NDArray

# A server reports a turn when its reply leaves, a client when it asks again or closes.
KEPT = 1 << 13

Ints = NDArray[np.int64]


@dataclass
class Exchanged:
    """Exchanges that both ends have reported, one row each."""

    client: NDArray[Any]
    server: NDArray[Any]

    def network_rtt_ns(self) -> Ints:
        """Of each; -1 where a stamp is missing or they contradict each other."""
        client = _since(self.client["xmit_ns"], self.client["arrive_ns"])
        server = _since(self.server["arrive_ns"], self.server["xmit_ns"])
        rtt = client - server
        return np.where((client < 0) | (server < 0) | (rtt < 0), -1, rtt)

    def rows(self, joiner: Joiner) -> ExchangeRows:
        """Make rows of exchanges.csv in order of time, of flows that `joiner` knows.

        What a turn was made of, and when the server read it, nobody has counted.
        """
        known = np.flatnonzero(joiner.flows.index(self.client["flow"]) >= 0)
        known = known[np.argsort(self.client["send_ns"][known], kind="stable")]
        client, server = self.client[known], self.server[known]
        request, reply = (_turns(len(known)) for _ in range(2))
        request[Turn.FLOW] = client["flow"].view("i8")
        request[Turn.LAST_SEQUENCE] = client["end"]
        request[Turn.RETRANSMITS] = BLANK
        request[Turn.SENDER_PID], request[Turn.READER_PID] = (
            client["pid"],
            server["pid"],
        )
        request[Turn.FIRST_SEND_NS] = _first(client["send_ns"])
        request[Turn.READY_NS] = server["ready_ns"]
        reply[Turn.FIRST_SEND_NS] = _first(server["send_ns"])
        reply[Turn.LAST_READ_NS] = client["read_ns"]
        return exchange_rows(joiner, Found(EXCHANGE, request, reply))


def _turns(count: int) -> Ints:
    """Make turns of which nothing is known yet."""
    made = no_turns(count)
    not_counted = (Turn.MESSAGES, Turn.BYTES, Turn.PAUSES_NS, Turn.WAKEUP_NS)
    made[[*not_counted, Turn.FIRST_SEQUENCE, Turn.LAST_SEQUENCE]] = BLANK
    return made


def _first(stamps: NDArray[Any]) -> Ints:
    """Return stamps as a turn has its first: FOREVER where there is none."""
    return np.where(stamps > 0, stamps.astype("i8"), FOREVER)


class Turns:
    """Takes records of turns, gives exchanges; bounded."""

    def __init__(self, dtype: np.dtype[Any], server_role: int) -> None:
        self._server_role = server_role
        self._waiting = np.empty(0, dtype)

    def add(self, records: NDArray[Any]) -> Exchanged:
        """Take records in; return what both ends have reported now."""
        waiting = stacked(self._waiting, records)
        is_server = waiting["role"] == self._server_role
        clients, servers = waiting[~is_server], waiting[is_server]
        # the newest of each: an offset comes once in a flow
        keys, mine = np.unique(_keys(clients), return_index=True)
        other_keys, others = np.unique(_keys(servers), return_index=True)
        _, at, other_at = np.intersect1d(
            keys, other_keys, assume_unique=True, return_indices=True
        )
        mine, others = mine[at], others[other_at]
        same = clients["end"][mine] == servers["end"][others]
        mine, others = mine[same], others[same]
        left = np.ones(len(waiting), bool)
        left[np.flatnonzero(~is_server)[mine]] = False
        left[np.flatnonzero(is_server)[others]] = False
        self._waiting = waiting[left][-KEPT:]
        return Exchanged(clients[mine], servers[others])


def _keys(records: NDArray[Any]) -> NDArray[np.uint64]:
    """One number for flow and offset."""
    return np.asarray(
        records["flow"] ^ (records["end"] * np.uint64(0x9E3779B97F4A7C15))
    )


def _since(begin: NDArray[Any], end: NDArray[Any]) -> Ints:
    there = (begin > 0) & (end > 0)
    return np.where(there, end.astype("i8") - begin.astype("i8"), -1)
