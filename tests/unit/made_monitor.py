"""A monitor whose totals are made: what each group measured is known."""

from __future__ import annotations

import time
from collections import Counter

from latprof_agent.monitor.totals import (
    Counted,
    Drop,
    Exemplar,
    Group,
    GroupTotals,
    Own,
    Quantity,
    Totals,
)
from latprof_analysis.stats.kernel_histogram import CoarseHistogram
from made_totals import SERVER as REDIS
from made_totals import measured

DNS = Group("udp", "client", "53")
PER_STEP = {
    REDIS: {
        Quantity.SERVER: [40_000] * 990 + [4_000_000] * 10,
        Quantity.RANGE_RECEIVE_QUEUE: [20_000] * 999 + [1_000_000],
        Quantity.SEND_QUEUE: [3_000] * 1000,
        Quantity.QDISC: [900] * 1000,
        Quantity.RTT_FLOOR: [90_000] * 20,
    },
    DNS: {Quantity.RESPONSE: [1_000_000] * 3, Quantity.RTT_HANDSHAKE: []},
}


def group_totals(quantities: dict[Quantity, list[int]]) -> GroupTotals:
    """What one step adds to a group: each value once."""
    n = max(map(len, quantities.values()))
    totals = measured(**quantities)
    totals.counted.update({Counted.SENT_MESSAGES: n, Counted.SENT_BYTES: 100 * n})
    return totals


def times(totals: GroupTotals, n: int) -> GroupTotals:
    return GroupTotals(
        {
            q: CoarseHistogram(h.counts * n, h.sum_ns * n)
            for q, h in totals.histograms.items()
        },
        Counter({key: count * n for key, count in totals.counted.items()}),
        Counter({drop: count * n for drop, count in totals.drops.items()}),
        Counter({cause: count * n for cause, count in totals.retransmits.items()}),
    )


class MadeMonitor:
    """Each call of `totals` finds one step more."""

    def __init__(
        self,
        _watched: object,
        _grouping: object,
        _most: object = None,
        groups: int = 0,
        story_ns: int | None = None,
    ) -> None:
        self.calls: list[str] = []
        self.takes_sample = None
        self.left_out: set[int] = set()  # steps in which nothing was measured
        self.silent = False  # measured, and nothing came
        self.steps = -1
        self._made = {group: group_totals(what) for group, what in PER_STEP.items()}
        self._made[DNS].drops[Drop("socket", "UDP_RCVBUFERRORS", "udp_queue")] = 2
        self._made |= {
            Group("tcp", "server", str(port)): group_totals(PER_STEP[REDIS])
            for port in range(10_000, 10_000 + groups)
        }
        self._exemplars: list[Exemplar] = []
        self._told = story_ns is not None  # why the second newest was slow

    def start(self) -> None:
        self.calls.append("start")

    def step(self) -> None:
        pass

    def totals(self) -> Totals:
        self.steps += 1
        covered = self.steps - sum(1 for step in self.left_out if step <= self.steps)
        n, now = covered, time.monotonic_ns()
        stages = {"receive_queue": 3_000_000, "transit": 50_000}
        slow = Exemplar(REDIS, Quantity.SERVER, 4_000_000, now, 64, stages, NAME, 77)
        self._exemplars = [*self._exemplars, slow][-10:]
        own = Own(
            1.0 * self.steps,
            1.0 * n,
            agent_cpu_seconds=0.01 * n,
            agent_rss_bytes=60 << 20,
        )
        own.program_seconds = {"on_send": 0.02 * n}
        made = {} if self.silent else self._made
        groups = {group: times(what, n) for group, what in made.items()}
        totals = Totals(now, time.time(), groups, own, exemplars=self._exemplars)
        if self._told:
            totals.stories = {(e.pid, e.t_ns): STORY for e in self._exemplars[:-1]}
            totals.story_counts = {"told": len(totals.stories)}
        return totals

    def watch(self, watched: object) -> None:
        self.calls.append(f"watch {watched}")

    def group_by(self, grouping: object) -> None:
        self.calls.append(f"group_by {grouping}")
        self.steps = -1

    def stop(self) -> None:
        self.calls.append("stop")

    def close(self) -> None:
        self.calls.append("close")


NAME = "redis\x1b[2J\nserver (pid 77)"
PART = {
    **{"kind": "asleep", "time_ns": 3_900_000, "what": "for another thread (futex)"},
    **{"who": [], "functions": [], "cpu": None},
}
STORY = {
    "message": {
        **{"protocol": "tcp", "kind": "exchange", "sequence": 64, "size_bytes": None},
        **{"sender_pid": None, "reader_pid": 77, "sender_comm": None},
        **{"reader_thread": None},
        **{"reader_comm": "redis\x1b[2J", "end_to_end_ns": None, "retransmits": None},
        **{"source_address": "::1", "source_port": 5},
    },
    "stages": {"server": {"time_ns": 4_000_000, "parts": [PART]}},
}
