"""What it takes to join a fleet: CPU, memory and the age of figures, by its size.

Agents are simulated, truthfully: hosts in a ring, each of which has requests answered
by the two behind it, clocks that are off and drift, ways of 100 us and queues. What
they give is packed as agents pack it, and goes the way of an answer that has come;
HTTP is left out. A second of all hosts is handed over and joined as fast as it can be,
so that the CPU time of a second is its share of a CPU. Figures are as old as the time
between two questions, between two joinings, and what one takes, together. Of a fleet in
shards one is shown, with all the agents that it asks.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from figure import Figure, figure
from latprof_agent.capture.recording_writer import STREAM_END, RecordingWriter
from latprof_agent.fleet.fleet import ESTIMATE_SECONDS, ESTIMATE_SHARE, Fleet
from latprof_agent.fleet.pulls import Answer, Pulled
from latprof_agent.fleet.shards import WHOLE, Shard
from latprof_agent.live.sample_recording import KIND
from latprof_agent.probes.layout import layout_of
from latprof_agent.service.config import Address
from latprof_analysis.records.flows import SIDE_RECEIVER, SIDE_SENDER
from latprof_analysis.records.recording import CLOCKS, SIDE_COLUMNS, WORDS
from progress import Progress

LAYOUT = layout_of()
SECOND_NS = 1_000_000_000
HALVES = 200  # of each host in a second
BEHIND = (1, 2)  # which hosts a host asks
SECONDS = 90  # the window is full after 60
PULL_SECONDS = 2
FROM_NS = 1_000 * SECOND_NS
WAY_NS, QUEUE_NS = 100_000, 50_000.0
SIZES = (50, 200)
SHARDED = 2000
SHARD = Shard(3, 28)


class _Writer(RecordingWriter):
    """Writes the clocks of a simulated host."""

    now: np.ndarray | None = None

    def _clocks(self) -> np.ndarray | None:
        return self.now


class SimulatedHost:
    """A host of a ring, and what its agent would give."""

    def __init__(self, number: int, rng: np.random.Generator) -> None:
        self.address = Address(f"10.{number >> 8}.{number & 255}.1", 9989)
        self.number = number
        self._ahead_ns = int(rng.integers(0, 10 * SECOND_NS))
        self._skew = float(rng.uniform(-20e-6, 20e-6))
        self._parts: list[bytes] = []
        name = f"host{number}"
        header = {
            "version": "0",
            "host": {"name": name, "machine": name, "boot": name},
            "kernel": "6",
            "begun_unix_ns": 0,
            "capabilities": [],
            "kind": KIND,
            "layout": {word: getattr(LAYOUT, word) for word in WORDS},
            "ephemeral_ports": [32768, 60999],
            "server_role": LAYOUT.roles["server"],
        }
        write = self._parts.append
        self._writer = _Writer(write, LAYOUT.rings, header, apart=True)
        self._head = b"".join(self._parts)

    def by_clock(self, times: np.ndarray) -> np.ndarray:
        """What its clock says at true times."""
        since = times - FROM_NS
        return times + self._ahead_ns + (since * self._skew).astype("i8")

    def answer(self, drained_ns: int, rings: dict[str, np.ndarray]) -> Answer:
        """Pack a step."""
        self._parts.clear()
        now = np.array([drained_ns], "i8")
        clocks = np.zeros(1, SIDE_COLUMNS[CLOCKS])
        clocks["monotonic_ns"] = self.by_clock(now)
        clocks["realtime_ns"] = 1_790_000_000 * SECOND_NS + now
        self._writer.now = clocks
        self._writer.step(int(self.by_clock(now)[0]), rings)
        packed = b"".join([self._head, *self._parts, STREAM_END])
        return Answer(packed, "1", 0)


class Ring:
    """Hosts, and what they send each other: as far as agents of a shard saw it."""

    def __init__(self, count: int, shard: Shard) -> None:
        self._rng = np.random.default_rng(1)
        self._hosts = [SimulatedHost(n, self._rng) for n in range(count)]
        self.asked = [host for host in self._hosts if shard.asks(host.address)]
        self._pairs = [
            (one, other)
            for one in self._hosts
            for other in (self._hosts[(one.number + b) % count] for b in BEHIND)
            if one in self.asked or other in self.asked
        ]
        self.mine = sum(shard.has(a.address, b.address) for a, b in self._pairs)
        self._ends: dict[int, int] = {}
        self._announced = False

    def answers(self, begin_ns: int, seconds: int) -> list[Pulled]:
        """What all agents give of some seconds."""
        given: list[dict[str, list[np.ndarray]]] = [
            {"flows": [], "sent_messages": [], "received_ranges": []}
            for _ in self._hosts
        ]
        count = HALVES * seconds // (4 * len(BEHIND))
        for one, other in self._pairs:
            for way in ((one, other), (other, one)):
                self._send(given, way, one, begin_ns, seconds, count)
        self._announced = True
        end_ns = begin_ns + seconds * SECOND_NS
        found = []
        for host in self.asked:
            batch = {
                ring: np.concatenate(parts)
                for ring, parts in given[host.number].items()
                if parts
            }
            found.append(Pulled(host.address, host.answer(end_ns, batch), 0.0))
        return found

    def _send(self, given, way, client, begin_ns, seconds, count) -> None:
        """Send messages one way, and note what both ends saw."""
        source, reader = way
        flow = 1 + source.number * 10_000 + reader.number
        stamps = np.sort(self._rng.integers(0, (seconds - 0.1) * 1e9, count)) + begin_ns
        queued = self._rng.exponential(QUEUE_NS, count).astype("i8")
        ends = self._ends.get(flow, 1) + 64 * np.arange(1, count + 1)
        self._ends[flow] = int(ends[-1])
        sent = np.zeros(count, LAYOUT.rings["sent_messages"])
        got = np.zeros(count, LAYOUT.rings["received_ranges"])
        for name, ns in (("send_ns", 0), ("queue_ns", 2000), ("xmit_ns", 4000)):
            sent[name] = source.by_clock(stamps + ns)
        arrived = stamps + 4000 + WAY_NS + queued
        for name, ns in (("arrive_ns", 0), ("ready_ns", 3000), ("read_ns", 9000)):
            got[name] = reader.by_clock(arrived + ns)
        got["start"] = ends - 64
        for half in (sent, got):
            half["flow"], half["end"], half["size_bytes"] = flow, ends, 64
            half["pid"], half["flags"] = 77, LAYOUT.flags["RECORD_SAMPLED"]
        given[source.number]["sent_messages"].append(sent)
        given[reader.number]["received_ranges"].append(got)
        if not self._announced:
            for host, side in zip(way, (SIDE_SENDER, SIDE_RECEIVER), strict=True):
                made = self._flow(flow, way, client, side)
                given[host.number]["flows"].append(made)

    def _flow(self, flow, way, client, side) -> np.ndarray:
        made = np.zeros(1, LAYOUT.rings["flows"])
        made["flow"], made["side"], made["protocol"] = flow, side, 6
        for field, host in zip(("source", "destination"), way, strict=True):
            made[field][0, 10:] = (255, 255, 10, *divmod(host.number, 256), 1)
            port = 40_000 + way[1].number % 1000
            made[f"{field}_port"] = port if host is client else 80
        made["first_sequence"], made["first_answer"] = flow, flow + 1
        return made


def measure(_folder: Path, progress: Progress) -> Iterator[Figure]:
    """Join fleets of several sizes."""
    for count in SIZES:
        yield from _of_size(count, WHOLE, progress)
    yield from _of_size(SHARDED, SHARD, progress)


def _of_size(count: int, shard: Shard, progress: Progress) -> Iterator[Figure]:
    ring, said = Ring(count, shard), list[str]()
    fleet = Fleet(said.append, shard)
    fleet.watch(host.address for host in ring.asked)
    taking, joining = [], []
    for step in range(SECONDS // PULL_SECONDS):
        answers = ring.answers(FROM_NS + step * PULL_SECONDS * SECOND_NS, PULL_SECONDS)
        last = time.process_time()
        fleet.take(answers)
        taking.append((time.process_time() - last) / PULL_SECONDS)
        if step % 2:
            last = time.process_time()
            fleet.join()
            joining.append(time.process_time() - last)
            fleet.end_interval()
        progress(f"{count} agents, second {step * PULL_SECONDS}")
    assert not said, said
    met = sum(sum(m.clocks.values()) for m in fleet.totals.messages.values())
    assert met > 0.9 * HALVES / 4 * ring.mine * (SECONDS - 6), met
    taking, joining = taking[-10:], joining[-5:]
    name = f"fleet of {count} agents x {HALVES} halves/s"
    if shard.of > 1:
        name += f", of which a shard of {shard.of} asks {len(ring.asked)}"
    yield figure(f"{name}, taking in", "CPU s a second", taking)
    yield figure(f"{name}, a joining", "CPU s", joining)
    pauses = [max(ESTIMATE_SECONDS, ESTIMATE_SHARE * took) for took in joining]
    between = [pause + took for pause, took in zip(pauses, joining, strict=True)]
    taken = float(np.median(taking))
    shares = [taken + t / b for t, b in zip(joining, between, strict=True)]
    yield figure(f"{name}, share of a CPU", "CPU", shares)
    ages = [PULL_SECONDS + b + t for t, b in zip(joining, between, strict=True)]
    yield figure(f"{name}, age of figures at most", "s", ages)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield figure(f"{name}, memory, simulation included", "MB", [kilobytes / 1024])
