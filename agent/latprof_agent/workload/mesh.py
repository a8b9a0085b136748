"""A mesh: hosts that send to every other, and echo what they get.

For each test there is one client on each host that sends, with a connection to every
other. The tests follow each other; each begins on all hosts at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latprof_analysis.records.message_rows import Messages
from latprof_analysis.study.mesh import (
    Cell,
    CellStages,
    Mesh,
    MeshSetup,
    PairTrips,
    Span,
    backlog,
    keeps_up,
)
from latprof_analysis.text import NS_PER_SECOND

from latprof_agent.errors import UsageError, WorkloadError
from latprof_agent.executables import find_executable
from latprof_agent.lab.child import last_output
from latprof_agent.lab.lab import Lab
from latprof_agent.recorder import STEP_SECONDS
from latprof_agent.sinks import round_trip_rows
from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_agent.sinks.run_files import RunFolder
from latprof_agent.sinks.sink import Sink
from latprof_agent.workload.generator import HEADER_BYTES, LARGEST_BYTES
from latprof_agent.workload.generator_log import log_in
from latprof_agent.workload.knee_search import KneeSearch
from latprof_agent.workload.mesh_log import MOST_STREAMS, MeshEnds, MeshLog
from latprof_agent.workload.programs import (
    STARTED,
    Ending,
    check_stopped,
    last_words,
)
from latprof_agent.workload.tmsn_log import tmsn_log
from latprof_agent.workload.workload import Plan, RunContext, Workload

DEFAULT_SIZES = tuple(1024 * n for n in (1, 5, 10, 100, 200))  # of the stress test
DEFAULT_INTERVAL_NS = 50_000_000
HEARTBEAT_BYTES = 150
MOST_MESSAGES = 2_000_000  # of all pairs in a test, which are kept in memory
_MOST_OF_ALL = 10_000_000  # of all tests: some 800 MB
# Until all clients are there and connected: they begin at once.
_START_NS, _START_EACH_NS = 300_000_000, 40_000_000
# On a busy machine, or over a long way, that may not do: they are given more, so many
# times, and those of later tests as well.
_STARTS, _LONGER = 4, 3
_BEGUN_SECONDS = 3.0  # a client that was late has said so by then
_LATE_START = "cannot start at"  # as latprof-load says it
CPU_TIMES = ("user_ns", "system_ns")  # as latprof-load names them
Place = tuple[str, int]  # address and port of a responder
Shares = dict[str, dict[str, float]]  # of time that something was busy

# Of a trial for a knee: long against what TCP needs to find its rate.
_TRIAL_NS = 2_000_000_000
_MOST_TRIALS = 60  # more than a search from 60 s down to 20 us takes
_FEWEST_TRIAL_MESSAGES, _MOST_TRIAL_MESSAGES = 20, 20_000


def default_sizes(protocol: str) -> tuple[int, ...]:
    """Those of the stress test that a message can have: a datagram holds 65507 bytes.

    Examples
    --------
    >>> default_sizes("udp")
    (1024, 5120, 10240)
    """
    return tuple(size for size in DEFAULT_SIZES if size <= LARGEST_BYTES[protocol])


@dataclass(frozen=True)
class MeshPlan(Plan):
    """One run of a mesh. `reply_bytes` None: messages are echoed in full."""

    kind = "mesh"
    round_trip_columns = round_trip_rows.WITH_PAIRS

    protocol: str = "tcp"
    hosts: int = 3
    sizes: tuple[int, ...] = DEFAULT_SIZES
    interval_ns: int = DEFAULT_INTERVAL_NS
    messages: int = 100
    tests: int = 2
    warmup_rounds: int = 5
    heartbeat_interval_ns: int = 1_000_000_000
    reply_bytes: int | None = HEARTBEAT_BYTES
    poisson: bool = False
    spin: bool = False
    congestion: str | None = None
    nagle: bool = False
    timeout_ns: int = 0
    seed: int = 1
    find_knee: bool = False

    @property
    def pairs(self) -> int:
        """How many ways there are from a host that sends to another."""
        return self.hosts * (self.hosts - 1)

    def check(self) -> None:
        """Refuse what cannot be sent, or kept."""
        largest = LARGEST_BYTES[self.protocol]
        reply = HEADER_BYTES if self.reply_bytes is None else self.reply_bytes
        for size in (*self.sizes, reply):
            if not HEADER_BYTES <= size <= largest:
                raise UsageError(
                    f"a {self.protocol} message must be {HEADER_BYTES} to {largest} "
                    f"bytes, got {size}"
                )
        if self.pairs * self.messages > MOST_MESSAGES:
            raise UsageError(
                f"--messages must be at most {MOST_MESSAGES // self.pairs} with "
                f"{self.hosts} hosts, got {self.messages}"
            )
        tests = self.hosts**2 * len(self.sizes)
        most = MOST_STREAMS // tests - (_MOST_TRIALS if self.find_knee else 0)
        kept = self.pairs * self.messages * len(self.sizes)
        most = min(most, max(1, _MOST_OF_ALL // kept))
        if self.tests > most:
            raise UsageError(
                f"--tests must be at most {most} with {self.hosts} hosts, "
                f"{len(self.sizes)} sizes and {self.messages} messages, got "
                f"{self.tests}"
            )

    def open(self, lab: Lab | None) -> Workload:
        """Place it in the lab."""
        from latprof_agent.workload.mesh_in_lab import MeshInLab

        assert lab
        return MeshInLab(self, lab)

    def responder_words(self, address: str, port: int) -> list[str]:
        """Arguments of a responder's process."""
        return ["echo", *self._shared(), "--address", address, "--port", str(port)]

    def client_words(
        self,
        cell: Cell,
        messages: int,
        peers: Sequence[Place],
        begin_ns: int,
        seed: int,
    ) -> list[str]:
        """Arguments of a client's process, but for where it logs."""
        words = ["pingpong", *self._shared(), "--protocol", self.protocol]
        if self.reply_bytes is not None:
            words += ["--reply", str(self.reply_bytes)]
        for address, port in peers:
            name = f"[{address}]" if ":" in address else address
            words += ["--peer", f"{name}:{port}"]
        for option, value in (
            ("sizes", cell.size_bytes),
            ("interval", cell.interval_ns),
            ("rounds", messages),
            ("warmup", self.warmup_rounds),
            ("heartbeat-interval", self.heartbeat_interval_ns),
            ("heartbeat-bytes", HEARTBEAT_BYTES),
            ("start-at", begin_ns),
            ("seed", seed),
            *((("timeout", self.timeout_ns),) if self.timeout_ns else ()),
        ):
            words += [f"--{option}", str(value)]
        words += ["--poisson"] if self.poisson else []
        return words + (["--spin"] if self.spin else [])

    def _shared(self) -> list[str]:
        words = ["--die-with-parent"]
        if self.protocol == "tcp":
            words += ["--congestion", self.congestion] if self.congestion else []
            words += ["--nagle"] if self.nagle else []
        return words


@dataclass(frozen=True)
class _Test:
    """One test: which cell, how many messages each pair has, and why."""

    cell: Cell
    messages: int
    number: int  # of its repetition; of a trial of a search 0
    trial: bool = False

    @property
    def seconds(self) -> float:
        """For how long it is to send."""
        return self.cell.interval_ns * self.messages / NS_PER_SECOND

    def __str__(self) -> str:
        size = f"{self.cell.size_bytes} B"
        if self.trial:
            return f"{size}: knee, every {self.cell.interval_ns / 1e6:.3g} ms"
        return f"{size}, test {self.number}"


class _LateStartError(WorkloadError):
    """A client was there only after the test had begun: not all begin at once."""


class Clients:
    """The clients of one test, one on each host that sends.

    `spawn` starts a program on a host; options go to Popen.
    """

    def __init__(self, spawn: Callable[..., subprocess.Popen[str]]) -> None:
        self._spawn = spawn
        self._load = str(find_executable("latprof-load"))
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._ending = Ending()

    def start(self, host: str, words: Sequence[str], log: int) -> None:
        """Start the one of a host."""
        command = [self._load, *words, "--output", f"/proc/self/fd/{log}"]
        self._processes[host] = self._spawn(host, command, pass_fds=(log,), **STARTED)

    def running(self) -> bool:
        """Whether any of them still sends or waits."""
        return any(process.poll() is None for process in self._processes.values())

    def check(self) -> None:
        """Raise WorkloadError in the words of one that has failed."""
        for host, process in self._processes.items():
            if process.poll() and not self._ending.ended_unbegun(process):
                words = last_words(process, f"the client of {host}")
                late = words.startswith(_LATE_START)
                raise (_LateStartError if late else WorkloadError)(words)

    def check_stopped(self) -> None:
        """Raise WorkloadError where somebody has stopped one of them."""
        ends = self._processes.items()
        check_stopped({f"the client of {host}": process for host, process in ends})

    def stop(self) -> None:
        """Ask them to end: they then write what they have. After a while end them."""
        self._ending.ask(self._processes.values())

    def results(self) -> dict[str, dict[str, Any]]:
        """Wait for them; return the results of those that did not fail, by host."""
        found = {}
        for host, process in self._processes.items():
            text, _ = last_output(process)
            if not process.returncode:
                found[host] = json.loads(text)
        return found


class _Processors:
    """How busy this machine's processors are while a test lasts."""

    def __init__(self) -> None:
        self._ticks: tuple[int, int] | None = None

    def tick(self, now_ns: int, begin_ns: int) -> None:
        """The test goes on, or has not begun yet."""
        if self._ticks is None and now_ns >= begin_ns:
            self._ticks = _processor_ticks()

    def busy_share(self) -> float:
        """Of the time since the test began."""
        now = _processor_ticks()
        busy, every = (b - a for a, b in zip(self._ticks or now, now, strict=True))
        return busy / max(1, every)


def _processor_ticks() -> tuple[int, int]:
    """How long this machine's processors were busy, and how long there were any."""
    line = Path("/proc/stat").read_text().partition("\n")[0]
    ticks = [int(word) for word in line.split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


class _StagesSink(Sink):
    """Has stages of cells summed up, which are no sink: files have them, too."""

    def __init__(self, stages: CellStages) -> None:
        self._stages = stages

    def add_messages(self, rows: Messages) -> None:
        """Sum up."""
        self._stages.add_messages(rows)


class MeshRuns(Workload):
    """The tests of a mesh, one after the other.

    `places` are where the hosts' responders listen, in the order of `setup.hosts`.
    """

    def __init__(
        self,
        plan: MeshPlan,
        setup: MeshSetup,
        places: Sequence[Place],
        ends: MeshEnds,
        *,
        one_clock: bool,
    ) -> None:
        super().__init__()
        self._plan, self._setup, self._places = plan, setup, places
        self._mesh = Mesh(setup, plan.protocol)
        self._log = MeshLog(plan.protocol, ends, one_clock=one_clock)
        self._lead_ns = _START_NS + _START_EACH_NS * len(setup.hosts)
        self._longest_lead_ns = self._lead_ns * _LONGER ** (_STARTS - 1)
        self._logs: list[int] = []
        self._counts: list[tuple[_Test, PairTrips]] = []

    def _spawn(
        self, host: str, command: Sequence[str], **options: Any
    ) -> subprocess.Popen[str]:
        """Start a program on a host."""
        raise NotImplementedError

    def _meter_links(self) -> Callable[[float], Shares]:
        """Meter links from now on; return what gives their shares after a time."""
        return lambda _seconds: {}

    def _test_begins(self) -> None:
        """Clients are about to be started."""

    def _check(self) -> None:
        """Raise a LatprofError where what the clients need has gone."""

    def _check_silence(self, clients: Clients) -> None:
        """Raise WorkloadError where what is late will not come any more."""

    def follow(self, scene: RunContext) -> None:
        """Run all tests, then the searches that were asked for."""
        plan = self._plan
        self._logs = [scene.folder.new_log() for _ in self._setup.senders]
        sizes = len(plan.sizes) + 1  # that of heartbeats too
        totals = RoundTripTotals(plan.protocol, sizes, sizes, open_loop=True)
        scene.expect(totals)
        scene.recorder.sinks.append(_StagesSink(self._mesh.stages))
        scene.recorder.add_source(self._log)
        if plan.protocol == "udp":
            scene.capture.expect_udp()
        self._follow_all(scene)

    def _follow_all(self, scene: RunContext) -> None:
        for test in self._tests():
            if not scene.interrupt.seen:
                self._follow(test, scene)
        for size in self._plan.sizes if self._plan.find_knee else ():
            self._find_knee(size, scene)

    def _tests(self) -> Iterator[_Test]:
        plan = self._plan
        for number in range(1, plan.tests + 1):
            for size in plan.sizes:
                yield _Test(Cell(size, plan.interval_ns), plan.messages, number)

    def _find_knee(self, size: int, scene: RunContext) -> None:
        full_ns = self._setup.knee_ns(size)
        search = KneeSearch(round(1.5 * full_ns) if full_ns else self._plan.interval_ns)
        while not scene.interrupt.seen and (interval_ns := search.next_ns()):
            cell = Cell(size, interval_ns)
            test = _Test(cell, self._trial_messages(interval_ns), 0, trial=True)
            trips = self._follow(test, scene)
            if not scene.interrupt.seen:
                left = backlog(trips.at(~trips.heartbeat)).left
                search.add(keeps_up({"backlog": {"left_share": left}}))

    def _trial_messages(self, interval_ns: int) -> int:
        most = min(_MOST_TRIAL_MESSAGES, MOST_MESSAGES // self._setup.pairs)
        return max(_FEWEST_TRIAL_MESSAGES, min(most, _TRIAL_NS // interval_ns))

    def _follow(self, test: _Test, scene: RunContext) -> PairTrips:
        """Run one test to its end and take in what it says."""
        for _ in range(_STARTS - 1):
            try:
                return self._attempt(test, scene)
            except _LateStartError:  # nobody had been measured yet
                longer_ns = self._lead_ns * _LONGER
                self._lead_ns = min(longer_ns, self._longest_lead_ns)
        return self._attempt(test, scene)

    def _attempt(self, test: _Test, scene: RunContext) -> PairTrips:
        link_shares = self._meter_links()
        now_ns = time.monotonic_ns()
        begin_ns = now_ns + self._lead_ns
        for log in self._logs:
            os.ftruncate(log, 0)
        self._log.begin(now_ns, [log_in(log) for log in self._logs], begin_ns)
        self._mesh.stages.begin(Span(now_ns, test.cell))
        self._test_begins()
        clients, processors = Clients(self._spawn), _Processors()
        late = whole = False
        try:
            for i, host in enumerate(self._setup.senders):
                clients.start(host, self._words(test, i, begin_ns), self._logs[i])
            self._wait(clients, test, scene, processors, begin_ns)
            whole = not scene.interrupt.seen
        except _LateStartError:
            late = True
            raise
        finally:
            clients.stop()
            results = clients.results()
            if late:
                self._log.is_void()
            else:
                self._log.counts()
            scene.recorder.read_sources()
            trips = PairTrips.joined(self._log.trips)
            if len(trips) and not late:
                over_ns = max(trips.intended_ns.max(), trips.received_ns.max())
                links = link_shares((int(over_ns) - begin_ns) / NS_PER_SECOND)
                busy = {"processors": {"busy": processors.busy_share()}} | links
                # of a trial that was cut short nobody knows if it was kept up with
                if whole or not test.trial:
                    self._mesh.add(test.cell, trips, busy, trial=test.trial)
                self._take(test, begin_ns, trips, results)
        return trips

    def _words(self, test: _Test, number: int, begin_ns: int) -> list[str]:
        plan, places = self._plan, self._places
        peers = [place for i, place in enumerate(places) if i != number]
        seed = plan.seed + len(self.runs) * len(places) + number
        return plan.client_words(test.cell, test.messages, peers, begin_ns, seed)

    def _wait(
        self,
        clients: Clients,
        test: _Test,
        scene: RunContext,
        processors: _Processors,
        begin_ns: int,
    ) -> None:
        while clients.running():
            if scene.interrupt.seen:
                clients.stop()
            self._check()
            clients.check()
            scene.recorder.step_for(STEP_SECONDS)
            now_ns = time.monotonic_ns()
            processors.tick(now_ns, begin_ns)
            gone = (now_ns - begin_ns) / NS_PER_SECOND
            if gone > _BEGUN_SECONDS:
                self._log.counts()
            scene.progress(str(test), self._log.sent, gone, test.seconds)
            if gone > test.seconds:
                self._check_silence(clients)
        clients.check()

    def _take(
        self,
        test: _Test,
        begin_ns: int,
        trips: PairTrips,
        results: Mapping[str, Mapping[str, Any]],
    ) -> None:
        if not test.trial:
            self._counts.append((test, trips))
        before = sum(run["begun_again"] for run in self.runs)
        self.runs.append(
            {
                "protocol": self._plan.protocol,
                **test.cell._asdict(),
                "test": test.number,
                "trial": test.trial,
                "begin_ns": begin_ns,
                "begun_again": self._log.begun_again - before,
                "late": sum(result["late"] for result in results.values()),
                "clients": {host: _said(result) for host, result in results.items()},
            }
        )

    def _names_in_log(self) -> Sequence[str]:
        """What the hosts are called in TMSN's log; the first is not named."""
        return [address for address, _ in self._places]

    def figures(self) -> dict[str, Any]:
        """The section `mesh` of summary.json."""
        return {"mesh": self._mesh.figures()}

    def write(self, folder: RunFolder) -> None:
        """Leave the log that TMSN's own analysis reads."""
        tests = [(t.number, t.cell, trips) for t, trips in self._counts]
        log = tmsn_log(tests, self._names_in_log(), star=self._setup.star)
        folder.write_text("tmsn.log", log)


_KEPT = ("sent", "received", "lost", "unanswered", "late", "unsent", "warmup")


def _said(result: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of what a client says."""
    found = {
        name: result[name]
        for name in (*_KEPT, *CPU_TIMES, "elapsed_ns", "max_rate_bytes")
    }
    return found | {"heartbeats": dict(result["heartbeats"])}
