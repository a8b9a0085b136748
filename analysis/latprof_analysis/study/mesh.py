"""A full mesh: round trips of every pair of hosts -> its figures by size and interval.

The first table is the one that TMSN's stress test prints (`read.tmsn`), by its own
conventions: what the first host received, the mean round trip of all hosts' messages
from when they were due, and of the first host's heartbeats, over those that it
received rather than over their echoes. Beside it stand what was offered and what came
back, what was left waiting, and how much of each link was asked for.

Between hosts one of them is measured: a star, this host's half of the mesh. Of the
links and of the other hosts' half nothing is known there, which is None.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.fit.wire import Packets
from latprof_analysis.stages import BLANK, RECEIVER, SENDER, STAGES, stages_at
from latprof_analysis.stats.histogram import Histogram
from latprof_analysis.study.totals import Rows, percentiles
from latprof_analysis.text import NS_PER_SECOND

Ints = NDArray[np.int64]

# A load is kept up with while of what falls due so much is not left behind.
MOST_LEFT = 0.02
# Behind the bottleneck nothing grows, before it all that waits for it: of the stages
# with so much of the growth the one farthest along the path is where the queue is.
_SHARE_OF_GROWTH = 0.1
_KINDS = ("request", "reply")
# What a host sees of its own messages, and of their echoes.
_OWN_HALF = {"request": stages_at(SENDER), "reply": stages_at(RECEIVER)}
# The rest of a round trip, where one half is seen: network, and the other hosts.
ELSEWHERE = "elsewhere"
ELSEWHERE_NS = f"{ELSEWHERE}_ns"
_US = 1000
_LOOKS = 64  # at the backlog, in a quarter of the time


class Cell(NamedTuple):
    """What a test of a mesh sends: one size, and how often each pair does."""

    size_bytes: int
    interval_ns: int


@dataclass(frozen=True)
class MeshSetup:
    """How a mesh was made.

    Attributes
    ----------
    hosts : tuple of str
    reply_bytes : int or None
        None: messages and heartbeats are echoed in full.
    heartbeat_bytes, heartbeat_interval_ns : int
    packets : Packets or None
        How messages are cut, as the links count bytes; None: not known.
    rate_bps : float or None
        Of each host's link, either way; None: no limit is known.
    star : bool
        Only the first host sends, and only its half is seen.
    """

    hosts: tuple[str, ...]
    reply_bytes: int | None
    heartbeat_bytes: int
    heartbeat_interval_ns: int
    packets: Packets | None
    rate_bps: float | None = None
    star: bool = False

    @property
    def peers(self) -> int:
        """To how many others each host sends."""
        return len(self.hosts) - 1

    @property
    def senders(self) -> tuple[str, ...]:
        """The hosts that send."""
        return self.hosts[:1] if self.star else self.hosts

    @property
    def pairs(self) -> int:
        """How many ways there are from a host that sends to another."""
        return len(self.senders) * self.peers

    def exchanged_bytes(self, size_bytes: int) -> int:
        """Return the bytes of a message and its echo."""
        return size_bytes + (self.reply_bytes or size_bytes)

    def wire_bps(self, cell: Cell) -> float | None:
        """Return the bits/s that fall due on each host's link, the same either way.

        None where links are not known.

        A host sends its messages, and echoes to all that it receives; headers are
        counted, acknowledgements that carry nothing are not.

        Examples
        --------
        >>> setup = MeshSetup(("a", "b", "c"), 150, 150, 10**9, Packets.udp())
        >>> setup.wire_bps(Cell(1000, 10**8)) / (8 * 2)
        12416.0
        """
        if self.packets is None:
            return None
        sizes = [cell.size_bytes, self.reply_bytes or cell.size_bytes]
        beats = [self.heartbeat_bytes, self.reply_bytes or self.heartbeat_bytes]
        each = float(self.packets.wire_bytes(sizes).sum()) / cell.interval_ns
        beat = float(self.packets.wire_bytes(beats).sum()) / self.heartbeat_interval_ns
        return 8 * NS_PER_SECOND * self.peers * (each + beat)

    def utilisation(self, cell: Cell) -> float | None:
        """Return the share of each host's link that falls due; None: no limit."""
        due = self.wire_bps(cell)
        return due / self.rate_bps if due is not None and self.rate_bps else None

    def knee_ns(self, size_bytes: int) -> float | None:
        """Return the interval at which a host's link is full.

        None: no limit is known, or heartbeats alone fill it at any interval.
        """
        alone = self.wire_bps(Cell(size_bytes, int(NS_PER_SECOND)))
        beats = self.wire_bps(Cell(size_bytes, 1 << 62))
        rate_bps = self.rate_bps or 0.0
        if alone is None or beats is None or beats >= rate_bps:
            return None
        return NS_PER_SECOND * (alone - beats) / (rate_bps - beats)


@dataclass(frozen=True)
class PairTrips:
    """Measured round trips of one test, one row each.

    Attributes
    ----------
    source, destination : ndarray of int64, shape (n,)
        Numbers of hosts.
    heartbeat : ndarray of bool, shape (n,)
    intended_ns, sent_ns, received_ns : ndarray of int64, shape (n,)
        `received_ns` is BLANK of what was lost.
    """

    source: Ints
    destination: Ints
    heartbeat: NDArray[np.bool_]
    intended_ns: Ints
    sent_ns: Ints
    received_ns: Ints

    def __len__(self) -> int:
        return len(self.source)

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Which came back."""
        return np.asarray(self.received_ns != BLANK)

    def at(self, rows: NDArray[Any]) -> PairTrips:
        """Return some of the rows, by a mask or by places."""
        return PairTrips(*(getattr(self, name)[rows] for name in _TRIP_FIELDS))

    @classmethod
    def joined(cls, parts: Sequence[PairTrips]) -> PairTrips:
        """Put parts together, one after the other."""
        if not parts:
            none = np.empty(0, np.int64)
            return cls(none, none, np.empty(0, bool), none, none, none)
        return cls(
            *(
                np.concatenate([getattr(p, name) for p in parts])
                for name in _TRIP_FIELDS
            )
        )


_TRIP_FIELDS = tuple(PairTrips.__dataclass_fields__)


class HostCounts(NamedTuple):
    """What one host received in one test, and how long its own took, in us."""

    msg: int
    msg_echo: int
    hb: int
    hb_echo: int
    msg_us: int
    hb_us: int

    @property
    def total(self) -> int:
        """All that was received."""
        return self.msg + self.msg_echo + self.hb + self.hb_echo


def host_counts(trips: PairTrips, hosts: int) -> list[HostCounts]:
    """Count by host what was received; a message whose echo was lost is not counted.

    Times are from when a message was due, whole microseconds each, as TMSN counts.
    """
    back = trips.at(trips.answered)
    took_us = (back.received_ns - back.intended_ns) // _US
    columns = []
    for kind in (~back.heartbeat, back.heartbeat):
        received = np.bincount(back.destination[kind], minlength=hosts)
        echoed = np.bincount(back.source[kind], minlength=hosts)
        sums = np.zeros(hosts, np.int64)
        np.add.at(sums, back.source[kind], took_us[kind])
        columns.append((received, echoed, sums))
    (msg, msg_echo, msg_us), (hb, hb_echo, hb_us) = columns
    every = zip(msg, msg_echo, hb, hb_echo, msg_us, hb_us, strict=True)
    return [HostCounts(*map(int, one)) for one in every]


def seed_row(
    size_bytes: int, tests: Sequence[Sequence[HostCounts]], *, star: bool = False
) -> dict[str, Any]:
    """Return a line of TMSN's table: means over tests, and deviations among them.

    Parameters
    ----------
    size_bytes : int
    tests : sequence of sequence of HostCounts
        By test and host, the first host being the one whose counts are shown.
    star : bool
        No other host sends: the first one's heartbeats are averaged over their
        echoes.

    Examples
    --------
    >>> one = HostCounts(2, 2, 1, 1, 600, 50)
    >>> row = seed_row(1024, [[one, one], [one, one._replace(msg_us=640)]])
    >>> row["total"], row["avg_msg"], round(row["std_msg"], 3), row["avg_hb"]
    (6.0, 305.0, 7.071, 50.0)
    """
    local = [hosts[0] for hosts in tests]
    msg, hb = [], []
    for hosts in tests:
        echoes = sum(host.msg_echo for host in hosts)
        msg += [sum(host.msg_us for host in hosts) / echoes] if echoes else []
        beats = hosts[0].hb_echo if star else hosts[0].hb
        hb += [hosts[0].hb_us / beats] if beats else []
    return {
        "load": size_bytes,
        "total": statistics.fmean(host.total for host in local),
        **{
            name: statistics.fmean(getattr(host, name) for host in local)
            for name in ("msg", "msg_echo", "hb", "hb_echo")
        },
        "avg_msg": statistics.fmean(msg) if msg else None,
        "avg_hb": statistics.fmean(hb) if hb else None,
        "std_msg": statistics.stdev(msg) if len(msg) > 1 else None,
        "std_hb": statistics.stdev(hb) if len(hb) > 1 else None,
    }


@dataclass(frozen=True)
class Backlog:
    """Messages that were due and had no reply.

    Attributes
    ----------
    at_end : int
        When the last one fell due.
    most : int
    left : float
        Of what fell due in the second half of the time, the share by which the
        backlog grew, and what was lost: what a load leaves behind however long it
        lasts.
    """

    at_end: int
    most: int
    left: float


def backlog(trips: PairTrips) -> Backlog:
    """Return what waited in one test; lost messages count until the last was due.

    Examples
    --------
    >>> due = np.arange(1000) * 100  # of which a server takes 125 each
    >>> none = np.zeros(1000, int)
    >>> back = due[0] + 125 * np.arange(1, 1001)
    >>> found = backlog(PairTrips(none, none, none > 0, due, due, back))
    >>> found.at_end, round(found.left, 2)
    (201, 0.2)
    """
    due = np.sort(trips.intended_ns)
    back = np.sort(trips.received_ns[trips.answered])
    n, lost = len(due), len(due) - len(back)
    if not n:
        return Backlog(0, 0, 0.0)

    def waiting(times: NDArray[Any]) -> NDArray[np.intp]:
        before = np.searchsorted(due, times, "right")
        return np.asarray(before - np.searchsorted(back, times, "right"))

    at_dues = waiting(due)
    first, last = int(due[0]), int(due[-1])
    quarters = np.linspace(first, last, 4 * _LOOKS + 1)
    second = waiting(quarters[_LOOKS : 2 * _LOOKS]).mean()
    fourth = waiting(quarters[3 * _LOOKS : 4 * _LOOKS]).mean()
    grown = (fourth - second) / (n / 2)
    left = max(float(grown), lost / n, 0.0)
    return Backlog(int(at_dues[-1]), int(at_dues.max()), left)


class Load(NamedTuple):
    """Messages per second that fell due, and that came back."""

    offered: float
    achieved: float


def load_of(trips: PairTrips, interval_ns: int) -> Load:
    """Return the load of one test, or of one host in it.

    Each pair offers a message an interval; what comes back later than it should is
    less in the same time.
    """
    if not len(trips):
        return Load(0.0, 0.0)
    begin = int(trips.intended_ns.min())
    end = int(trips.intended_ns.max()) + interval_ns
    back = trips.received_ns[trips.answered]
    until = max(end, int(back.max(initial=0)))
    hosts = int(trips.destination.max()) + 1
    pairs = np.count_nonzero(np.bincount(trips.source * hosts + trips.destination))
    offered = NS_PER_SECOND * pairs / interval_ns
    in_time = (end - begin) / (until - begin)
    return Load(offered, offered * in_time * len(back) / len(trips))


@dataclass
class CellTotals:
    """All tests of one cell."""

    cell: Cell
    setup: MeshSetup
    tests: list[PairTrips] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return the figures; times in ns but in `table`, which is TMSN's, in us."""
        cell, setup = self.cell, self.setup
        counts = [host_counts(test, len(setup.hosts)) for test in self.tests]
        messages = [test.at(~test.heartbeat) for test in self.tests]
        every = PairTrips.joined(messages)
        waited = [backlog(test) for test in messages]
        return {
            **cell._asdict(),
            "tests": len(self.tests),
            "table": seed_row(cell.size_bytes, counts, star=setup.star),
            "sent": len(every),
            "lost": int((~every.answered).sum()),
            "intended": _percentiles(every.received_ns - every.intended_ns, every),
            "real": _percentiles(every.received_ns - every.sent_ns, every),
            "lateness": _late(every),
            "load": _mean_load(messages, cell, setup),
            "hosts": {
                host: _mean_load(
                    [test.at(test.source == i) for test in messages], cell, setup
                )
                for i, host in enumerate(setup.senders)
            },
            "backlog": {
                "at_end": max(one.at_end for one in waited),
                "most": max(one.most for one in waited),
                "left_share": statistics.fmean(one.left for one in waited),
            },
            "wire_bps": setup.wire_bps(cell),
            "utilisation": setup.utilisation(cell),
            "pairs": _pairs(every, setup.hosts),
        }


def _percentiles(took_ns: Ints, trips: PairTrips) -> dict[str, Any]:
    histogram = Histogram()
    histogram.record(took_ns[trips.answered])
    return percentiles(histogram) | {"mean_ns": histogram.mean_ns}


def _late(trips: PairTrips) -> dict[str, Any]:
    histogram = Histogram()
    histogram.record(np.maximum(trips.sent_ns - trips.intended_ns, 0))
    return percentiles(histogram)


def _mean_load(
    tests: Sequence[PairTrips], cell: Cell, setup: MeshSetup
) -> dict[str, float]:
    loads = [load_of(test, cell.interval_ns) for test in tests]
    size = setup.exchanged_bytes(cell.size_bytes)
    found = {}
    for name in Load._fields:
        mean = statistics.fmean(getattr(load, name) for load in loads)
        found[f"{name}_messages_per_second"] = mean
        found[f"{name}_bytes_per_second"] = mean * size
    return found


def _pairs(trips: PairTrips, hosts: Sequence[str]) -> list[dict[str, Any]]:
    """Return loss and round trip of each pair, from when messages were due."""
    pair = trips.source * len(hosts) + trips.destination
    order = np.argsort(pair, kind="stable")
    found, begins = np.unique(pair[order], return_index=True)
    rows = []
    for number, of in zip(
        found.tolist(), np.split(order, begins[1:]) if len(found) else (), strict=True
    ):
        one = trips.at(of)
        took = np.sort((one.received_ns - one.intended_ns)[one.answered])
        middle = int(took[(len(took) - 1) // 2]) if len(took) else None
        rows.append(
            {
                "source": hosts[number // len(hosts)],
                "destination": hosts[number % len(hosts)],
                "sent": len(one),
                "lost": len(one) - len(took),
                "p50_ns": middle,
                "mean_ns": float(took.mean()) if len(took) else None,
                "max_ns": int(took[-1]) if len(took) else None,
            }
        )
    return rows


class Span(NamedTuple):
    """When a test's messages began, and of which cell they were."""

    begin_ns: int
    cell: Cell


class CellStages:
    """Time in each stage by cell and kind of message; tests follow each other.

    Of whole messages; with `own_half` of what the host sees that sends and gets echoes.
    """

    def __init__(self, *, own_half: bool = False) -> None:
        self._own_half = own_half
        self._spans: list[Span] = []
        # by cell and kind: sums of each stage and of all, and how many had it
        self._sums: dict[tuple[Cell, str], Ints] = {}

    def begin(self, span: Span) -> None:
        """What is sent from now on is of this test."""
        self._spans.append(span)

    def add_messages(self, rows: Rows) -> None:
        """Take in rows of messages.csv."""
        if not self._spans or not len(rows):
            return
        begins = np.array([span.begin_ns for span in self._spans])
        sent_ns, read_ns = rows.numbers["send_ns"], rows.numbers["read_ns"]
        # of an echo from another host it is not known when it was sent
        at_ns = np.where(sent_ns == BLANK, read_ns, sent_ns)
        test = np.searchsorted(begins, at_ns, "right") - 1
        codes, labels = rows.texts["kind"]
        for kind in (name for name in _KINDS if name in labels):
            of_kind = (codes == labels.index(kind)) & (test >= 0)
            for number in np.unique(test[of_kind]).tolist():
                at = np.flatnonzero(of_kind & (test == number))
                self._add(self._spans[number].cell, kind, rows, at)

    def _add(self, cell: Cell, kind: str, rows: Rows, at: NDArray[np.intp]) -> None:
        sums = self._sums.setdefault((cell, kind), np.zeros((2, len(_TIMES)), np.int64))
        if not self._own_half:
            at = at[rows.numbers["end_to_end_ns"].take(at) != BLANK]
        for i, name in enumerate(_TIMES):
            values = rows.numbers[name].take(at)
            there = values != BLANK
            sums[0, i] += int(values[there].sum())
            sums[1, i] += int(there.sum())

    def of(self, cell: Cell) -> dict[str, Any]:
        """Return the mean time in each stage by kind, in ns; None: not seen.

        Where a stamp is missing its stage's time stands in the next.
        """
        found = {}
        for kind in _KINDS:
            sums = self._sums.get((cell, kind))
            means = None if sums is None else self._means(kind, sums)
            if means:
                found[kind] = means
        return found

    def _means(self, kind: str, sums: Ints) -> dict[str, Any] | None:
        totals = dict(zip(_TIMES, sums.T.tolist(), strict=True))
        seen = [f"{stage}_ns" for stage in _OWN_HALF[kind]]
        if not self._own_half:
            seen = [*_TIMES]
        n = max(totals[name][1] for name in seen)
        if not n:
            return None
        means = {name: totals[name][0] / n for name in seen}
        return {"n": n, **dict.fromkeys(_TIMES), **means}


_TIMES = (*(f"{stage}_ns" for stage in STAGES), "end_to_end_ns")


def growing_stage(
    before: Mapping[str, Any], beyond: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Name the stage of requests or replies at which a queue grows.

    What cannot leave it fills the stages before it, so that of the stages which
    grew it is the one farthest along the path.

    Parameters
    ----------
    before, beyond : mapping
        ``stages`` of two cells, the second with more load.

    Examples
    --------
    >>> idle = dict.fromkeys(_TIMES, 10)
    >>> full = idle | {"application_ns": 900, "qdisc_ns": 200, "transit_ns": 15}
    >>> growing_stage({"request": idle}, {"request": full})["stage"]
    'qdisc'
    """
    found = []
    for path in _paths(before, beyond):
        grown = [max(0.0, step.to_ns - step.from_ns) for step in path]
        if most := sum(grown):
            steps = zip(path, grown, strict=True)
            far = [step for step, ns in steps if ns >= _SHARE_OF_GROWTH * most]
            found.append((most, far[-1]))
    if not found:
        return None
    _, step = max(found, key=lambda one: one[0])
    return step._asdict()


class _Step(NamedTuple):
    """A stage along a path, and its time with less load and with more."""

    kind: str
    stage: str
    from_ns: float
    to_ns: float


def _paths(
    before: Mapping[str, Any], beyond: Mapping[str, Any]
) -> Iterator[list[_Step]]:
    """Give the stages known of both, along the way of messages, and of echoes.

    Where one half is seen both ways are one, with what passes elsewhere between.
    """
    ways = []
    for kind in _KINDS:
        of = before.get(kind) or {}, beyond.get(kind) or {}
        steps = []
        for stage in STAGES:
            from_ns, to_ns = (one.get(f"{stage}_ns") for one in of)
            if from_ns is not None and to_ns is not None:
                steps.append(_Step(kind, stage, from_ns, to_ns))
        ways.append(steps)
    if ELSEWHERE_NS not in before or ELSEWHERE_NS not in beyond:
        yield from ways
        return
    request, reply = ways
    there = before[ELSEWHERE_NS], beyond[ELSEWHERE_NS]
    middle = _Step("round trip", ELSEWHERE, *there)
    yield [*request, middle, *reply]


class Mesh:
    """All figures of a mesh: cells of its tests, and what a search for knees tried."""

    def __init__(self, setup: MeshSetup, protocol: str) -> None:
        self.setup = setup
        self.protocol = protocol
        self.stages = CellStages(own_half=setup.star)
        self._cells: dict[Cell, CellTotals] = {}
        self._trials: dict[Cell, CellTotals] = {}
        # of each cell: shares of time that a queue or a processor was busy
        self._busy: dict[Cell, list[Mapping[str, Any]]] = {}

    def add(
        self, cell: Cell, trips: PairTrips, busy: Mapping[str, Any], *, trial: bool
    ) -> None:
        """Take in a test; `busy` as in `busiest_link`."""
        cells = self._trials if trial else self._cells
        totals = cells.setdefault(cell, CellTotals(cell, self.setup))
        totals.tests.append(trips)
        self._busy.setdefault(cell, []).append(busy)

    def _figures(self, totals: CellTotals) -> dict[str, Any]:
        busy, figures = self._busy[totals.cell], totals.figures()
        stages = self.stages.of(totals.cell)
        if self.setup.star:
            stages |= _elsewhere(stages, figures["intended"]["mean_ns"])
        return figures | {
            "stages": stages,
            "busy": {
                name: {
                    key: statistics.fmean(one[name][key] for one in busy)
                    for key in busy[0][name]
                }
                for name in busy[0]
            },
        }

    def figures(self) -> dict[str, Any]:
        """Return the section `mesh` of summary.json."""
        cells = _with_growth([self._figures(of) for of in self._cells.values()])
        trials = [self._figures(totals) for totals in self._trials.values()]
        sizes = dict.fromkeys(one["size_bytes"] for one in trials)
        knees = [
            _knee([one for one in trials if one["size_bytes"] == size], self.setup)
            for size in sizes
        ]
        return {
            "protocol": self.protocol,
            "hosts": list(self.setup.hosts),
            "star": self.setup.star,
            "reply_bytes": self.setup.reply_bytes,
            "heartbeat_interval_ns": self.setup.heartbeat_interval_ns,
            "rate_bps": self.setup.rate_bps,
            "cells": cells,
            "knees": knees,
        }


def _elsewhere(
    stages: Mapping[str, Mapping[str, Any]], mean_ns: float | None
) -> dict[str, float]:
    """Return what of a mean round trip passed outside of the stages that were seen."""
    if len(stages) < len(_KINDS) or mean_ns is None:
        return {}
    seen = [stages[k][f"{s}_ns"] for k, half in _OWN_HALF.items() for s in half]
    return {ELSEWHERE_NS: max(0.0, mean_ns - sum(seen))}


def _with_growth(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Say of each cell what grew in it against the one that asks least of the links."""
    if not cells:
        return []
    least = min(cells, key=lambda cell: cell["load"]["offered_bytes_per_second"])
    return [
        cell | {"grows": growing_stage(least["stages"], cell["stages"])}
        for cell in cells
    ]


def keeps_up(figures: Mapping[str, Any]) -> bool:
    """Whether of what fell due in a cell nothing was left behind, but for noise."""
    return bool(figures["backlog"]["left_share"] <= MOST_LEFT)


def _knee(trials: Sequence[Mapping[str, Any]], setup: MeshSetup) -> dict[str, Any]:
    """Say where a size's knee is, and what grows beyond it."""
    size = trials[0]["size_bytes"]
    kept = [one for one in trials if keeps_up(one)]
    left = [one for one in trials if not keeps_up(one)]
    at = min(kept, key=lambda one: one["interval_ns"], default=None)
    beyond = max(left, key=lambda one: one["interval_ns"], default=None)
    far = min(left, key=lambda one: one["interval_ns"], default=None)
    grows = growing_stage(at["stages"], far["stages"]) if at and far else None
    return {
        "size_bytes": size,
        "interval_ns": at and at["interval_ns"],
        "beyond_ns": beyond and beyond["interval_ns"],
        "utilisation": at and at["utilisation"],
        "expected_ns": setup.knee_ns(size),
        "grows": grows,
        "busy": far and far["busy"],
        "trials": [
            {
                "interval_ns": one["interval_ns"],
                "left_share": one["backlog"]["left_share"],
                "utilisation": one["utilisation"],
                "p50_ns": one["intended"]["p50_ns"],
                "kept_up": keeps_up(one),
            }
            for one in trials
        ],
    }
