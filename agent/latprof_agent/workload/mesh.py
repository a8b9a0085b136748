"""A full mesh in the lab: every host sends to every other and echoes what it gets.

On each host are one responder and, for each test, one client with a connection to
every other host. The tests follow each other; each begins on all hosts at once.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from latprof_analysis.study.mesh import (
    Cell,
    Mesh,
    MeshSetup,
    PairTrips,
    Span,
    backlog,
    keeps_up,
)
from latprof_analysis.study.setup import packets_of
from latprof_analysis.text import NS_PER_SECOND

from latprof_agent.errors import UsageError, WorkloadError
from latprof_agent.executables import find_executable
from latprof_agent.lab.child import ask_to_end, last_output
from latprof_agent.lab.lab import Lab
from latprof_agent.probes.filter import Filter
from latprof_agent.recorder import STEP_SECONDS
from latprof_agent.sinks import round_trip_rows
from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_agent.sinks.run_files import RunFolder
from latprof_agent.workload.generator import (
    HEADER_BYTES,
    LARGEST_BYTES,
    LATE_SECONDS,
)
from latprof_agent.workload.knee_search import KneeSearch
from latprof_agent.workload.mesh_log import MOST_STREAMS, MeshLog
from latprof_agent.workload.programs import (
    KEPT,
    STARTED,
    Ending,
    Stillness,
    check_stopped,
    last_words,
    ready_words,
)
from latprof_agent.workload.tmsn_log import tmsn_log
from latprof_agent.workload.workload import Plan, Scene, Workload

# No ephemeral port, so that a flow's ports tell which way it leads.
PORT = 7107
DEFAULT_SIZES = tuple(1024 * n for n in (1, 5, 10, 100, 200))  # of the stress test
DEFAULT_INTERVAL_NS = 50_000_000
HEARTBEAT_BYTES = 150
MOST_MESSAGES = 2_000_000  # of all pairs in a test, which are kept in memory
# Until all clients are there and connected: they begin at once.
_START_NS, _START_EACH_NS = 300_000_000, 40_000_000
# On a machine that is busy that may not do: they are given more, so many times.
_STARTS, _LONGER = 4, 3
_LATE_START = "cannot start at"  # as latprof-load says it
# Of a trial for a knee: long against what TCP needs to find its rate.
_TRIAL_NS = 2_000_000_000
_MOST_TRIALS = 60  # more than a search from 60 s down to 20 us takes
_FEWEST_TRIAL_MESSAGES, _MOST_TRIAL_MESSAGES = 20, 20_000


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
        each = self.hosts * (self.hosts - 1)
        if each * self.messages > MOST_MESSAGES:
            raise UsageError(
                f"--messages must be at most {MOST_MESSAGES // each} with "
                f"{self.hosts} hosts, got {self.messages}"
            )
        tests = self.hosts**2 * len(self.sizes)
        most = MOST_STREAMS // tests - (_MOST_TRIALS if self.find_knee else 0)
        if self.tests > most:
            raise UsageError(
                f"--tests must be at most {most} with {self.hosts} hosts and "
                f"{len(self.sizes)} sizes, got {self.tests}"
            )

    def open(self, lab: Lab | None) -> Workload:
        """Place it in the lab."""
        assert lab
        return MeshRun(self, lab)

    def responder_words(self, address: str) -> list[str]:
        """Arguments of a responder's process."""
        return ["echo", *self._shared(), "--address", address, "--port", str(PORT)]

    def client_words(
        self, cell: Cell, messages: int, peers: Sequence[str], begin_ns: int, seed: int
    ) -> list[str]:
        """Arguments of a client's process, but for where it logs."""
        words = ["pingpong", *self._shared(), "--protocol", self.protocol]
        if self.reply_bytes is not None:
            words += ["--reply", str(self.reply_bytes)]
        for peer in peers:
            name = f"[{peer}]" if ":" in peer else peer
            words += ["--peer", f"{name}:{PORT}"]
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


class _Clients:
    """The clients of one test, one on each host."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._load = str(find_executable("latprof-load"))
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._ending = Ending()

    def start(self, host: str, words: Sequence[str], log: int) -> None:
        """Start the one of a host."""
        command = [self._load, *words, "--output", f"/proc/self/fd/{log}"]
        self._processes[host] = self._lab.start(
            host, command, pass_fds=(log,), **STARTED
        )

    def running(self) -> bool:
        """Whether any of them still sends or waits."""
        return any(process.poll() is None for process in self._processes.values())

    def check(self) -> None:
        """Raise WorkloadError in the words of one that has failed."""
        for host, process in self._processes.items():
            if process.poll():
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
        """Wait for them; what those that did not fail have told, by host."""
        found = {}
        for host, process in self._processes.items():
            text, _ = last_output(process)
            if not process.returncode:
                found[host] = json.loads(text)
        return found


class _Responders:
    """The responders, one on each host, for the whole run."""

    def __init__(self, lab: Lab, plan: MeshPlan) -> None:
        load = str(find_executable("latprof-load"))
        self._processes: dict[str, subprocess.Popen[str]] = {}
        for host in lab.hosts:
            words = plan.responder_words(lab.address_of(host))
            self._processes[host] = lab.start(host, [load, *words], **STARTED)
        for host, process in self._processes.items():
            ready_words(process, f"the responder of {host}")

    def check(self) -> None:
        """Raise WorkloadError where one of them has ended."""
        for host, process in self._processes.items():
            if process.poll() is not None:
                raise WorkloadError(last_words(process, f"the responder of {host}"))

    def stillness(self) -> list[Stillness]:
        """For how long nothing comes to or leaves each host, from now on."""
        return [Stillness(process.pid) for process in self._processes.values()]

    def check_stopped(self) -> None:
        """Raise WorkloadError where somebody has stopped one of them."""
        ends = self._processes.items()
        check_stopped({f"the responder of {host}": process for host, process in ends})

    def close(self) -> dict[str, dict[str, Any]]:
        """End them; what each has counted, by host."""
        found = {}
        for process in self._processes.values():
            ask_to_end(process)
        for host, process in self._processes.items():
            text, _ = last_output(process)
            if not process.returncode and text:
                found[host] = json.loads(text.strip().splitlines()[-1])
        self._processes = {}
        return found


class _Meters:
    """Busy shares while a test lasts: of the processors, and of each host's link."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._rate_bps = lab.spec.rate_bps
        self._before = self._read()
        self._ticks: tuple[int, int] | None = None

    def tick(self, now_ns: int, begin_ns: int) -> None:
        """The test goes on, or has not begun yet."""
        if self._ticks is None and now_ns >= begin_ns:
            self._ticks = _processor_ticks()

    def _read(self) -> dict[str, dict[str, int]]:
        link = self._lab.counters()
        ports = link.get("ports", {})
        found: dict[str, dict[str, int]] = {}
        for host in self._lab.hosts:
            sides = link[host]["interface"], ports.get(host, {}).get("interface", {})
            found[host] = {
                "up": sides[0]["tx_bytes"],
                "down": sides[1].get("tx_bytes", sides[0]["rx_bytes"]),
            }
        return found

    def shares(self, seconds: float) -> dict[str, dict[str, float]]:
        """What was busy; of links only where they have a rate.

        All that passed did so in these seconds.
        """
        now = _processor_ticks()
        busy, every = (b - a for a, b in zip(self._ticks or now, now, strict=True))
        found = {"processors": {"busy": busy / max(1, every)}}
        capacity = self._rate_bps * seconds / 8
        for host, sides in self._read().items() if capacity else ():
            found[host] = {
                side: (bytes_ - self._before[host][side]) / capacity
                for side, bytes_ in sides.items()
            }
        return found


def _processor_ticks() -> tuple[int, int]:
    """How long this machine's processors were busy, and how long there were any."""
    line = Path("/proc/stat").read_text().partition("\n")[0]
    ticks = [int(word) for word in line.split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


class MeshRun(Workload):
    """The tests of a mesh, one after the other."""

    def __init__(self, plan: MeshPlan, lab: Lab) -> None:
        super().__init__()
        self._plan, self._lab = plan, lab
        self._setup = MeshSetup(
            tuple(lab.hosts),
            plan.reply_bytes,
            HEARTBEAT_BYTES,
            plan.heartbeat_interval_ns,
            packets_of(
                {"addresses": addresses_of(lab), "known": lab.known}, plan.protocol
            ),
            lab.spec.rate_bps or None,
        )
        self._mesh = Mesh(self._setup, plan.protocol)
        self._log = MeshLog(plan.protocol, addresses_of(lab), PORT)
        self._responders: _Responders | None = None
        self._counted: dict[str, Any] = {}  # by responders, by host
        self._logs: list[int] = []
        self._counts: list[tuple[_Test, PairTrips]] = []

    def watched(self, protocols: tuple[str, ...]) -> Filter:
        """All hosts of the lab."""
        return Filter(netns=self._lab.inodes, protocols=protocols)

    def as_dict(self) -> dict[str, Any]:
        """For run.json."""
        return {"mesh": asdict(self._plan), "responders": self._counted}

    def follow(self, scene: Scene) -> None:
        """Run all tests, then the searches that were asked for."""
        plan = self._plan
        self._logs = [scene.sink.folder.new_log() for _ in self._lab.hosts]
        sizes = len(plan.sizes) + 1  # that of heartbeats too
        totals = RoundTripTotals(plan.protocol, sizes, sizes, open_loop=True)
        scene.sink.round_trips[plan.protocol] = totals
        scene.sink.followers.append(self._mesh.stages)
        scene.recorder.add_source(self._log)
        if plan.protocol == "udp":
            scene.recorder.capture.expect_udp()
        self._responders = _Responders(self._lab, plan)
        try:
            for test in self._tests():
                if not scene.interrupt.seen:
                    self._follow(test, scene)
            for size in plan.sizes if plan.find_knee else ():
                self._find_knee(size, scene)
        finally:
            self._end_responders()

    def _tests(self) -> Iterator[_Test]:
        plan = self._plan
        for number in range(1, plan.tests + 1):
            for size in plan.sizes:
                yield _Test(Cell(size, plan.interval_ns), plan.messages, number)

    def _find_knee(self, size: int, scene: Scene) -> None:
        full_ns = self._setup.knee_ns(size)
        search = KneeSearch(round(1.5 * full_ns) if full_ns else self._plan.interval_ns)
        while not scene.interrupt.seen and (interval_ns := search.next_ns()):
            cell = Cell(size, interval_ns)
            test = _Test(cell, self._trial_messages(interval_ns), 0, trial=True)
            trips = self._follow(test, scene)
            if not scene.interrupt.seen:
                left = backlog(trips.at(~trips.heartbeat)).left
                search.tell(keeps_up({"backlog": {"left_share": left}}))

    def _trial_messages(self, interval_ns: int) -> int:
        pairs = len(self._lab.hosts) * self._setup.peers
        most = min(_MOST_TRIAL_MESSAGES, MOST_MESSAGES // pairs)
        return max(_FEWEST_TRIAL_MESSAGES, min(most, _TRIAL_NS // interval_ns))

    def _follow(self, test: _Test, scene: Scene) -> PairTrips:
        """Run one test to its end and take in what it says."""
        lead_ns = _START_NS + _START_EACH_NS * len(self._lab.hosts)
        for _ in range(_STARTS - 1):
            try:
                return self._attempt(test, scene, lead_ns)
            except _LateStartError:  # a busy machine: nobody had been measured yet
                lead_ns *= _LONGER
        return self._attempt(test, scene, lead_ns)

    def _attempt(self, test: _Test, scene: Scene, lead_ns: int) -> PairTrips:
        meters = _Meters(self._lab)
        now_ns = time.monotonic_ns()
        begin_ns = now_ns + lead_ns
        self._log.begin(now_ns, self._logs)
        self._mesh.stages.begin(Span(now_ns, test.cell))
        clients = _Clients(self._lab)
        late = False
        try:
            for i, host in enumerate(self._lab.hosts):
                clients.start(host, self._words(test, i, begin_ns), self._logs[i])
            self._wait(clients, test, scene, meters, begin_ns)
        except _LateStartError:
            late = True
            raise
        finally:
            clients.stop()
            results = clients.results()
            scene.recorder.read_sources()
            trips = PairTrips.joined(self._log.trips)
            if not late:
                self._take(test, begin_ns, trips, meters, results)
        return trips

    def _words(self, test: _Test, number: int, begin_ns: int) -> list[str]:
        plan, hosts = self._plan, self._lab.hosts
        peers = [self._lab.address_of(h) for i, h in enumerate(hosts) if i != number]
        seed = plan.seed + len(self.runs) * len(hosts) + number
        return plan.client_words(test.cell, test.messages, peers, begin_ns, seed)

    def _wait(
        self,
        clients: _Clients,
        test: _Test,
        scene: Scene,
        meters: _Meters,
        begin_ns: int,
    ) -> None:
        assert self._responders
        still = self._responders.stillness()
        while clients.running():
            if scene.interrupt.seen:
                clients.stop()
            self._lab.check()
            self._responders.check()
            clients.check()
            scene.recorder.step_for(STEP_SECONDS)
            now_ns = time.monotonic_ns()
            meters.tick(now_ns, begin_ns)
            gone = (now_ns - begin_ns) / NS_PER_SECOND
            scene.progress(str(test), self._log.sent, gone, test.seconds)
            if gone > test.seconds:
                self._check_silence(clients, min(host.seconds() for host in still))
        clients.check()

    def _check_silence(self, clients: _Clients, silent_seconds: float) -> None:
        """Raise WorkloadError where what is late will not come any more."""
        if silent_seconds > self._patience_seconds():
            assert self._responders
            clients.check_stopped()
            self._responders.check_stopped()
            why = f"no host had an answer for {silent_seconds:.0f} s"
            raise WorkloadError(f"the mesh failed: {why}; {KEPT}")

    def _patience_seconds(self) -> float:
        """How long nothing may come from any host: links, and the plan, may be slow."""
        link, plan = self._lab.spec, self._plan
        packet_bits = 8 * link.packet_bytes("veth")
        packet = packet_bits / link.rate_bps if link.rate_bps else 0.0
        slow_ns = 2 * link.delay_ns + plan.interval_ns + plan.timeout_ns
        return LATE_SECONDS + 2 * packet + slow_ns / NS_PER_SECOND

    def _take(
        self,
        test: _Test,
        begin_ns: int,
        trips: PairTrips,
        meters: _Meters,
        results: Mapping[str, Mapping[str, Any]],
    ) -> None:
        if not len(trips):
            return
        end_ns = max(trips.intended_ns.max(), trips.received_ns.max())
        busy = meters.shares((int(end_ns) - begin_ns) / NS_PER_SECOND)
        self._mesh.add(test.cell, trips, busy, trial=test.trial)
        if not test.trial:
            self._counts.append((test, trips))
        self.runs.append(
            {
                "protocol": self._plan.protocol,
                **test.cell._asdict(),
                "test": test.number,
                "trial": test.trial,
                "begin_ns": begin_ns,
                "late": sum(told["late"] for told in results.values()),
                "clients": {host: _told(told) for host, told in results.items()},
            }
        )

    def _end_responders(self) -> None:
        responders, self._responders = self._responders, None
        if responders:
            found = responders.close()
            kept = ("connections", "messages", "bytes", "unsent", *_CPU)
            self._counted = {
                host: {name: told[name] for name in kept if name in told}
                for host, told in found.items()
            }

    def figures(self) -> dict[str, Any]:
        """The section `mesh` of summary.json."""
        return {"mesh": self._mesh.figures()}

    def write(self, folder: RunFolder) -> None:
        """Leave the log that TMSN's own analysis reads."""
        tests = [(t.number, t.cell, trips) for t, trips in self._counts]
        folder.write_text("tmsn.log", tmsn_log(tests, addresses_of(self._lab)))

    def close(self) -> None:
        """End what is left of it."""
        self._end_responders()


_CPU = ("user_ns", "system_ns")
_KEPT = ("sent", "received", "lost", "unanswered", "late", "unsent", "warmup")


def _told(result: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of what a client says."""
    found = {name: result[name] for name in (*_KEPT, *_CPU, "elapsed_ns")}
    return found | {"heartbeats": dict(result["heartbeats"])}


def addresses_of(lab: Lab) -> dict[str, str]:
    """All hosts' addresses, by name."""
    return {host: lab.address_of(host) for host in lab.hosts}
