"""A fleet: what agents gave, on one clock, joined and summed up as it comes.

    samples -> numbers of hosts, window of sightings -> clocks
            -> halves joined by rough clocks -> stamps on the reference's -> sums

A half is joined by its host's rough clock, which is its own and a constant: so no
later estimate moves one half and not the other. Both are put on the reference's clock
once they have met, by one estimate.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from operator import add
from pathlib import Path

import numpy as np
from latprof_analysis.read.result import ReadError
from latprof_analysis.records.arrays import Batch, Records, by_value, stacked
from latprof_analysis.records.conversations import EPHEMERAL
from latprof_analysis.records.host_records import (
    MOST_HOSTS,
    PID_BITS,
    HostRecords,
    host_of,
    own_pid,
    stamps_in,
    with_host,
)
from latprof_analysis.records.message_rows import Messages
from latprof_analysis.records.recording import CLOCKS, WORDS, RecordLayout, Step
from latprof_analysis.records.seen_packets import RINGS, SeenPackets
from latprof_analysis.stages import BLANK
from latprof_analysis.text import printable
from numpy.typing import NDArray

from latprof_agent.errors import LatprofError
from latprof_agent.fleet.fleet_clocks import (
    NO_CLOCKS,
    FleetClocks,
    PastSightings,
    estimate_clocks,
)
from latprof_agent.fleet.fleet_totals import ARRIVED, LOST, FleetTotals, add_totals
from latprof_agent.fleet.pulls import GARBAGE, Answer, Pulled, words_of
from latprof_agent.fleet.sampled_host import Identity, read_sample
from latprof_agent.fleet.shards import WHOLE, Shard
from latprof_agent.join.joined_rows import Crossing
from latprof_agent.monitor.sample_rows import SampleRows
from latprof_agent.monitor.turns import Exchanged
from latprof_agent.probes.layout import Layout, layout_of
from latprof_agent.rebuild.rebuilt import damage_in_one_line
from latprof_agent.service.config import Address

MOST_AGENTS = MOST_HOSTS - 24  # a host has another number after it was started again
ESTIMATE_SECONDS = 4.0
ESTIMATE_SHARE = 2  # the next one comes no sooner than so many times what one took
SILENT_SECONDS = 15.0  # others do not wait any longer for a host
_LONGEST_WAIT_NS = 15_000_000_000
_SEEN_NS = 20_000_000_000  # halves wait so long for those of other hosts
_BANNED_SECONDS = 60.0
_ROUGH_NS = 50_000_000  # a rough clock may be wrong by this
_FLOWS_KEPT = 1 << 17
_NOTHING_YET = -(1 << 62)
_STAMPS = {
    "sender_at": ("send_ns", "queue_ns", "xmit_ns"),
    "reader_at": ("arrive_ns", "ready_ns", "read_ns"),
}
Say = Callable[[str], None]


@dataclass
class FleetHost:
    """An agent, and the host that it is on."""

    address: Address
    index: int
    moves: HostRecords  # of sightings: by its own clock
    identity: Identity | None = None
    pulls: Counter[str] = field(default_factory=Counter)  # by outcome
    records: int = 0
    lost_records: int = 0
    heard: float | None = None  # when it gave a step last, of time.monotonic()
    joined: float | None = None  # when what it gave and is in the figures came
    banned: float = -math.inf
    problem: str = ""
    number: int = -1  # by which its records go: another one for each rough clock
    drained_ns: int = _NOTHING_YET  # by its clock
    wall_ahead_ns: int | None = None  # of CLOCK_MONOTONIC
    name: str = ""
    waiting: list[Step] = field(default_factory=list)

    def age_seconds(self, now: float) -> float | None:
        """How long ago it gave a step; None: never."""
        return None if self.heard is None else now - self.heard

    @property
    def order(self) -> tuple[str, ...]:
        """By which hosts have an order, however they are given."""
        of = self.identity
        return (of.name, of.machine, of.boot) if of else (str(self.address),)


@dataclass(frozen=True)
class _Rough:
    """A number that records have: whose they are, and what was added to their times."""

    index: int
    boot: str
    ahead_ns: int


class Fleet:
    """Takes what was pulled, and sums it up; used by one thread.

    Attributes
    ----------
    hosts : dict of Address to FleetHost
    clocks : FleetClocks
        Of hosts by their index.
    totals, interval : FleetTotals
        Since the start, up to the last `end_interval`; and since then.
    """

    def __init__(
        self,
        say: Say,
        shard: Shard = WHOLE,
        layout: Layout | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`say` is given a line where something is wrong."""
        self._say = say
        self.now = now
        self._shard = shard
        self._layout = layout or layout_of()
        words = {word: getattr(self._layout, word) for word in WORDS}
        rings = self._layout.rings
        self._joined = RecordLayout({r: with_host(r, rings[r]) for r in rings}, **words)
        self.hosts: dict[Address, FleetHost] = {}
        self._indices: list[FleetHost] = []
        self._rough: dict[int, _Rough] = {}
        self._numbered = 0
        self._moves: dict[int, HostRecords] = {}
        self._seen = SeenPackets(self._joined.rings["flows"], MOST_AGENTS)
        self._past = PastSightings()
        self._sample = self._fresh_sample()
        self._drained_ns = _NOTHING_YET
        self._estimated, self._took = -math.inf, 0.0
        self.clocks: FleetClocks = NO_CLOCKS
        self.totals, self.interval = FleetTotals(), FleetTotals()
        self.forget: Callable[[Address], None] = lambda _address: None

    def _fresh_sample(self) -> SampleRows:
        return SampleRows(
            self._joined,
            self._layout.roles["server"],
            EPHEMERAL,
            _ROUGH_NS,
            _FLOWS_KEPT,
            self._restamp_rows,
        )

    def watch(self, agents: Iterable[Address]) -> None:
        """Expect these, and no others any more; what was summed up stays."""
        wanted = dict.fromkeys(agents)
        self.hosts = {a: host for a, host in self.hosts.items() if a in wanted}
        for address in wanted:
            known = [host for host in self._indices if host.address == address]
            if known:
                self.hosts[address] = known[0]
                continue
            if len(self._indices) >= MOST_AGENTS:
                raise LatprofError(
                    f"cannot watch {address}: one process takes {MOST_AGENTS} agents; "
                    "start again, or divide them"
                )
            index = len(self._indices)
            host = FleetHost(address, index, HostRecords(index, lambda times: times))
            self._indices.append(host)
            self.hosts[address] = host

    def take(self, pulled: Iterable[Pulled]) -> None:
        """Take in what agents gave, or did not."""
        for one in pulled:
            host = self.hosts.get(one.agent)
            if not host:
                continue
            if not isinstance(one.answer, Answer):
                self._note(host, one.answer.cause, words_of(one.answer))
                continue
            try:
                self._take(host, one.answer)
            except ReadError as error:
                self._note(host, GARBAGE, printable(str(error)))
                self.forget(host.address)

    def _note(self, host: FleetHost, cause: str, problem: str) -> None:
        """Count an outcome; a problem is said once until there is another one."""
        host.pulls[cause] += 1
        if problem and problem != host.problem:
            self._say(f"{host.name or host.address}: {problem}")
        host.problem = problem

    def _take(self, host: FleetHost, answer: Answer) -> None:
        if self.now() < host.banned + _BANNED_SECONDS:
            return
        found = read_sample(host.address, answer.packed, self._layout)
        self._check_identity(host, found.identity)
        self._note(host, "ok", "")
        host.lost_records += answer.lost_records
        host.records += found.records
        rings = {
            ring: self._joined.rings[ring]
            for ring in RINGS
            if ring in self._joined.rings
        }
        for step in found.steps:
            self._learn_clocks(host, step)
            if step.drained_ns is None:
                step.rings.update(_no_halves(step.rings))
            elif step.drained_ns <= host.drained_ns:
                continue  # it was given before
            else:
                host.drained_ns, host.heard = step.drained_ns, self.now()
            host.waiting.append(step)
            self._seen.add(host.index, host.moves.moved(step.rings, rings))

    def _learn_clocks(self, host: FleetHost, step: Step) -> None:
        clocks = step.beside[CLOCKS]
        if len(clocks):
            last = clocks[-1]
            host.wall_ahead_ns = int(last["realtime_ns"]) - int(last["monotonic_ns"])

    def _check_identity(self, host: FleetHost, identity: Identity) -> None:
        """Learn who it is; raises ReadError where another agent is that."""
        if identity == host.identity:
            return
        for other in self.hosts.values():
            if other is not host and other.identity and _same(other.identity, identity):
                raise ReadError(
                    Path(str(host.address)),
                    f"it is the same host as {other.address} ({identity.name}, since "
                    "the same boot): name each host once",
                )
        if host.identity:  # it was started again: its clock is another one
            self._seen.forget(host.index, 1 << 62)
            self._past.forget(host.index)
            host.drained_ns, host.number = _NOTHING_YET, -1
            host.waiting.clear()
        host.identity = identity
        self._name(host, identity.name)

    def _name(self, host: FleetHost, name: str) -> None:
        others = [h for h in self.hosts.values() if h is not host and h.identity]
        same = [h for h in others if h.identity and h.identity.name == name]
        for one in (host, *same) if same else (host,):
            one.name = f"{name} ({one.address})" if same else name
        if same:
            addresses = ", ".join(str(one.address) for one in (*same, host))
            self._say(f"{name}: several agents have this name: {addresses}")

    def is_due(self) -> bool:
        """Whether it is time to join again: not before all agents were asked once.

        What one host saw is not kept for another that is not known yet.
        """
        if not all(host.pulls for host in self.hosts.values()):
            return False
        pause = max(ESTIMATE_SECONDS, ESTIMATE_SHARE * self._took)
        return self.now() >= self._estimated + pause

    def join(self) -> None:
        """Estimate the clocks, and join what has come since the last time."""
        begun = self.now()
        drained_ns = {
            host.index: host.drained_ns
            for host in self.hosts.values()
            if host.drained_ns != _NOTHING_YET
        }
        for index, until_ns in drained_ns.items():
            self._seen.forget(index, until_ns - _SEEN_NS)
        self._seen.release(_FLOWS_KEPT)
        order = {host.index: host.order for host in self._indices}
        seen = self._past.between(self._seen.between(self._is_mine), drained_ns)
        self.clocks = estimate_clocks(seen, order)
        self._number_hosts()
        batches = {
            host.index: self._moved(host)
            for host in self.hosts.values()
            if host.waiting and host.number >= 0
        }
        self._join(batches)
        for host in self.hosts.values():
            if host.number >= 0:
                host.joined = host.heard
        self._estimated = self.now()
        self._took = self._estimated - begun

    def _number_hosts(self) -> None:
        """Give hosts numbers: others, where a rough clock is too far off by now."""
        for host in self.hosts.values():
            if host.wall_ahead_ns is None or not host.identity:
                continue
            ahead_ns = self._rough_ahead(host)
            known = self._rough.get(host.number)
            if known and abs(known.ahead_ns - ahead_ns) <= _ROUGH_NS:
                continue
            host.number = self._numbered % MOST_HOSTS
            self._numbered += 1
            made = _Rough(host.index, host.identity.boot, ahead_ns)
            self._rough[host.number] = made
            self._moves[host.number] = HostRecords(host.number, partial(add, ahead_ns))

    def _rough_ahead(self, host: FleetHost) -> int:
        """Return what to add to a host's times: all wall clocks are about as one."""
        reference = self._indices[self.clocks.reference_of(host.index)]
        known = self._rough.get(reference.number)
        base_ns = reference.wall_ahead_ns
        if known and reference is not host:
            base_ns = known.ahead_ns
        assert host.wall_ahead_ns is not None
        if base_ns is None:
            return host.wall_ahead_ns
        return base_ns - self.clocks.offset_ns(host.index)

    def _moved(self, host: FleetHost) -> Batch:
        moves, rings = self._moves[host.number], self._joined.rings
        parts = [moves.moved(step.rings, rings) for step in host.waiting]
        host.waiting.clear()
        return {ring: stacked(*(part[ring] for part in parts)) for ring in rings}

    def _join(self, batches: dict[int, Batch]) -> None:
        """Join; where what was given makes no sense, only who gave it goes without."""
        none = {ring: np.empty(0, dtype) for ring, dtype in self._joined.rings.items()}
        parts = [none, *batches.values()]
        batch = {ring: stacked(*(part[ring] for part in parts)) for ring in none}
        names = [host.name or str(host.address) for host in self._indices]
        crossing = Crossing(names, self.clocks, self.clocks.least_ns)
        try:
            with damage_in_one_line(_Joint()):
                self._sum_up(batch, crossing)
        except ReadError:
            self._ban(batches)

    def _sum_up(self, batch: Batch, crossing: Crossing) -> None:
        sample = self._sample
        sample.name(batch, {})
        drained_ns = self._all_drained()
        if found := sample.messages(batch, drained_ns):
            rows = crossing.messages(found.rows)
            place = sample.joiner.flows.index(rows.retransmit_range[0])
            to_server = np.r_[sample.joiner.conversations.to_server, False][place]
            ports = rows.numbers["destination_port"], rows.numbers["source_port"]
            self._leave_others(rows.numbers)
            service, resent = np.where(to_server, *ports), self._resent(rows)
            self.interval.add_messages(rows, service, resent)
        if exchanged := sample.exchanges(batch):
            moved = [self._restamped(of) for of in (exchanged.client, exchanged.server)]
            known = (moved[0]["pid"] > 0) & (moved[1]["pid"] > 0)
            exchanged = Exchanged(moved[0][known], moved[1][known])
            made = crossing.exchanges(exchanged.rows(sample.joiner))
            ends = [host_of(made.numbers[f"{end}_pid"]) for end in ("client", "server")]
            self.interval.add_exchanges(made, *self._mine(*ends))

    def _all_drained(self) -> int:
        """Return until when all hosts that are heard of have given their records."""
        now, times = self.now(), []
        for host in self.hosts.values():
            age = host.age_seconds(now)
            if age is not None and age < SILENT_SECONDS and host.number >= 0:
                times.append(host.drained_ns + self._rough[host.number].ahead_ns)
        if times:  # none with a clock of its own keeps others waiting for long
            middle = sorted(times)[(len(times) - 1) // 2]
            known = max(min(times), middle - _LONGEST_WAIT_NS)
            self._drained_ns = max(self._drained_ns, known)
        return self._drained_ns

    def _resent(self, rows: Messages) -> dict[str, NDArray[np.int64]]:
        """Count segments of each message that were sent again, by why.

        Each is counted at the message that it ends in. It had arrived before where that
        was readable earlier, by more than both clocks may be wrong.
        """
        numbers, ending = rows.numbers, self._sample.joiner.needless_of
        found = {why: np.zeros(len(rows), "i8") for why in (LOST, ARRIVED)}
        again = np.flatnonzero(numbers["retransmits"] > 0)
        ends = numbers["sender_at"][again], numbers["reader_at"][again]
        for (sender, reader), of in by_value(*ends):
            at = again[of]
            flow, start, end = (column[at] for column in rows.retransmit_range)
            every = ending(flow, start, end, np.ones(len(at), "i8"))
            ready = numbers["ready_ns"][at]
            known = (ready > 0) & (min(sender, reader) >= 0)
            by_then = np.zeros(len(at), "i8")
            if known.any():
                by_then[known] = self._rough_after(sender, reader, ready[known])
            found[ARRIVED][at] = ending(flow, start, end, by_then)
            found[LOST][at] = every - found[ARRIVED][at]
        return found

    def _rough_after(
        self, sender: int, reader: int, ready_ns: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return when, by the sender's rough clock, it was readable for sure; or 0."""
        _, plus = self.clocks.bounds(sender, reader, ready_ns)
        known = np.isfinite(plus)
        latest = ready_ns + np.where(known, plus, 0).astype("i8")
        own = self.clocks.from_reference(sender, latest)
        ahead_ns = self._rough[self._indices[sender].number].ahead_ns
        return np.where(known, own + ahead_ns, 0)

    def _restamp_rows(self, rows: Messages) -> None:
        """Put stamps on the clock of the reference, and hosts' indices for numbers."""
        numbers = rows.numbers
        for end, stamps in _STAMPS.items():
            given = numbers[end]
            found = np.full(len(given), BLANK)
            seen = np.flatnonzero(given >= 0)
            for (number,), of in by_value(given[seen]):
                at = seen[of]
                rough = self._current(number)
                for name in stamps:
                    numbers[name][at] = self._on_reference(rough, numbers[name][at])
                if rough:
                    found[at] = rough.index
            numbers[end] = found

    def _restamped(self, records: Records) -> Records:
        """Return turns on the clock of the reference; of a host of before without."""
        found, numbers = records.copy(), host_of(records["pid"].astype("i8"))
        for (number,), at in by_value(numbers):
            rough = self._current(number)
            for name in stamps_in(records.dtype):
                found[name][at] = self._on_reference(rough, records[name][at])
            pid = own_pid(records["pid"][at].astype("i8"))
            found["pid"][at] = pid | rough.index << PID_BITS if rough else 0
        return found

    def _current(self, number: int) -> _Rough | None:
        """Return whose number it is, if its clock is still the same."""
        rough = self._rough.get(number)
        if not rough:
            return None
        identity = self._indices[rough.index].identity
        return rough if identity and identity.boot == rough.boot else None

    def _on_reference(
        self, rough: _Rough | None, times: NDArray[np.generic]
    ) -> NDArray[np.int64]:
        stamps = times.astype("i8")
        if not rough:
            return np.zeros(len(stamps), "i8")
        own = np.where(stamps > 0, stamps - rough.ahead_ns, 0)
        return np.where(stamps > 0, self.clocks.to_reference(rough.index, own), 0)

    def _is_mine(self, one: int, other: int) -> bool:
        """Whether a pair of hosts is of this shard."""
        return self._shard.has(self._indices[one].address, self._indices[other].address)

    def _mine(self, *ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Return ends without those of pairs of other shards."""
        if self._shard.of == 1:
            return ends
        mine = np.zeros(len(ends[0]), bool)
        for (one, other), at in by_value(*ends):
            mine[at] = min(one, other) >= 0 and self._is_mine(one, other)
        return tuple(np.where(mine, end, BLANK) for end in ends)

    def _leave_others(self, numbers: dict[str, NDArray[np.int64]]) -> None:
        ends = self._mine(numbers["sender_at"], numbers["reader_at"])
        numbers["sender_at"], numbers["reader_at"] = ends

    def _ban(self, batches: dict[int, Batch]) -> None:
        """Begin anew without those whose records make no sense by themselves."""
        for index, batch in batches.items():
            alone = self._fresh_sample()
            host = self._indices[index]
            try:
                with damage_in_one_line(_Joint()):
                    alone.messages(batch, 1 << 62)
                    alone.exchanges(batch)
                    alone.finish()
            except ReadError as error:
                host.banned = self.now()
                self._note(host, GARBAGE, printable(str(error)))
        self._sample = self._fresh_sample()
        for host in self.hosts.values():  # their flows are not known any more
            self.forget(host.address)

    def figures_age_seconds(self) -> float | None:
        """Return how long ago the oldest answer came that the figures go up to.

        Of hosts that are silent there are none any more. None where there are no
        figures. An agent's answer goes up to a second before it at most.
        """
        now = self.now()
        joined = [
            host.joined
            for host in self.hosts.values()
            if host.joined is not None
            and (age := host.age_seconds(now)) is not None
            and age < SILENT_SECONDS
        ]
        return now - min(joined) if joined else None

    def end_interval(self) -> FleetTotals:
        """Begin another interval; return what came in this one."""
        over, self.interval = self.interval, FleetTotals()
        add_totals(self.totals, over)
        return over

    def name_of(self, index: int) -> str:
        """Name a host."""
        host = self._indices[index]
        return host.name or str(host.address)

    def wall_ahead_ns(self, index: int) -> int | None:
        """Return what a host's wall clock was last ahead of its CLOCK_MONOTONIC."""
        return self._indices[index].wall_ahead_ns


@dataclass(frozen=True)
class _Joint:
    path: Path = Path("samples")


def _same(one: Identity, other: Identity) -> bool:
    """Whether two are one host, running since the same boot."""
    return (one.machine, one.boot) == (other.machine, other.boot)


def _no_halves(rings: Batch) -> Batch:
    """Return all rings but that of flows without records."""
    return {ring: of[:0] for ring, of in rings.items() if ring != "flows"}
