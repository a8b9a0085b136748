"""Operations on stores: GET, SET, EXISTS and EVICT, and where their time went.

One backend after the other, each on one connection: its first operation, a warm-up,
then rounds that do each operation of each size once, in random order.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from latprof_analysis.read.operations_csv import FILE, MEASURED, SCHEMA, Operations
from latprof_analysis.records.message_rows import Ints
from latprof_analysis.stages import BLANK
from latprof_analysis.study.operations import (
    OPS_COLUMNS,
    REMOTE_OPS_COLUMNS,
    operation_figures,
    ops_rows,
    remote_ops_rows,
)

from latprof_agent.errors import LatprofError, WorkloadError
from latprof_agent.lab import child
from latprof_agent.lab.lab import Lab
from latprof_agent.probes.filter import Filter
from latprof_agent.recorder import STEP_SECONDS
from latprof_agent.sinks.run_files import RunFolder
from latprof_agent.workload.generator import Client as PingPongClient
from latprof_agent.workload.generator import Generator, PingPong
from latprof_agent.workload.generator_log import (
    LogTail,
    log_in,
)
from latprof_agent.workload.measured_time import MeasuredTime
from latprof_agent.workload.ops_client import WITHOUT_PAYLOAD
from latprof_agent.workload.ops_floor import NAME, FloorCell, sizes_of
from latprof_agent.workload.ops_parts import COLUMNS, Seen
from latprof_agent.workload.ops_stores import (
    KEPT,
    Address,
    Client,
    Server,
    check_backend,
    find_endpoint,
)
from latprof_agent.workload.programs import (
    STILL_SECONDS,
    ProgressWatchdog,
    check_secret,
    check_stopped,
    traffic_of,
    turns_of,
)
from latprof_agent.workload.remote import RemotePingPong, address_of, reported_plan
from latprof_agent.workload.responder_half import ResponderEnd
from latprof_agent.workload.workload import Plan, RunContext, Workload

# As ProxyStore's benchmark calls them in its file, and we the third.
BACKENDS = {"redis": "REDIS", "proxystore": "ENDPOINT", "floor": NAME}
OPS = ("GET", "SET", "EXISTS", "EVICT")
DEFAULT_SIZES = (1000, 10_000, 100_000, 1_000_000, 10_000_000)
DEFAULT_ROUNDS, DEFAULT_WARMUP = 10, 1
# Of a plan: what says nothing where the floor is in the lab, or not asked for.
_ELSEWHERE = ("to", "port", "secret_file", "congestion")


@dataclass(frozen=True)
class OpsPlan(Plan):
    """Operations that were asked for; a given server is used instead of our own."""

    kind = "ops"

    backends: tuple[str, ...] = ("redis", "floor")
    ops: tuple[str, ...] = OPS
    sizes: tuple[int, ...] = DEFAULT_SIZES
    rounds: int = DEFAULT_ROUNDS
    warmup_rounds: int = DEFAULT_WARMUP
    redis: tuple[str, int] | None = None
    endpoint: str = ""
    parser: str = "hiredis"
    client_cpu: int | None = None
    server_cpu: int | None = None
    seed: int = 1
    # of given servers, that of the floor too
    in_lab: bool = True
    to: str = ""
    port: int = 0
    secret_file: Path | None = None
    congestion: str | None = None  # of the floor's client

    @property
    def cells(self) -> list[tuple[str, int | None]]:
        """What is done: each operation with each payload, if it has one."""
        return [
            (op, size)
            for op in self.ops
            for size in ((None,) if op in WITHOUT_PAYLOAD else self.sizes)
        ]

    def check_host(self) -> None:
        """Refuse a backend whose programs are missing."""
        for name in self.backends:
            check_backend(name, started=self.in_lab)
        check_secret(self.secret_file)

    def open(self, lab: Lab | None) -> Workload:
        """Start the clients of given servers, so that they can be watched."""
        return OpsRuns(self, lab)

    def given(self, backend: str) -> Address:
        """Return where a server listens that somebody else started."""
        if backend == "floor":
            return Address(address_of(self.to, self.port), self.port)
        if backend == "redis":
            assert self.redis
            return Address(*self.redis)
        return find_endpoint(self.endpoint)

    def for_client(self, backend: str, address: Address) -> dict[str, Any]:
        """What a client has to do."""
        return {
            "backend": backend,
            "host": address.host,
            "port": address.port,
            "parser": self.parser,
            "ops": self.ops,
            "sizes": self.sizes,
            "warmup": self.warmup_rounds,
            "rounds": self.rounds,
            "seed": self.seed,
            "prefix": f"latprof:{secrets.token_hex(4)}",
        }


class OpsRuns(Workload):
    """The operations, on one backend after the other."""

    def __init__(self, plan: OpsPlan, lab: Lab | None) -> None:
        super().__init__()
        self._plan = plan
        self._lab = lab
        self._seen = Seen()
        self._rows: list[dict[str, Any]] = []
        self._before = 0  # of these, when the backend's turn began
        self._clients: dict[str, Client] = {}
        self._addresses: dict[str, Address] = {}
        self._measured: dict[int, MeasuredTime] = {}  # by port
        self._ends: list[ResponderEnd] = []
        if lab:
            same = plan.client_cpu == plan.server_cpu
            lab.place_emulator(plan.client_cpu if same else None)
            return
        try:
            for backend in plan.backends:
                address = self._addresses[backend] = plan.given(backend)
                if backend == "floor":
                    self._ends.append(ResponderEnd(*address, plan.secret_file))
                else:
                    self._clients[backend] = self._client(backend, address)
        except WorkloadError:
            self.close()
            raise

    @property
    def may_see_nothing(self) -> bool:  # type: ignore[override]
        """Operations are measured without probes, too."""
        return bool(self._rows)

    def _client(self, backend: str, address: Address) -> Client:
        plan = self._plan.for_client(backend, address)
        return Client(self._lab, plan, self._plan.client_cpu)

    def watched(self, protocols: tuple[str, ...]) -> Filter:
        """All of the lab; or of given servers what our clients say to them."""
        if self._lab:
            netns = self._lab.a_inode, self._lab.b_inode
            return Filter(netns=netns, protocols=protocols)
        return Filter(
            ports=tuple(address.port for address in self._addresses.values()),
            pids=(os.getpid(),),  # whose children all clients are
            peers=True,
            protocols=protocols,
        )

    def follow(self, scene: RunContext) -> None:
        """Do all of them; raises WorkloadError where one cannot be done."""
        scene.recorder.sinks.append(self._seen)
        for backend in self._plan.backends:
            if scene.interrupt.seen:
                return
            self._before = len(self._rows)
            if backend == "floor":
                self._follow_floor(scene)
            elif self._lab:
                self._follow_store(self._lab, backend, scene)
            else:
                self._follow_given(backend, scene)

    def _follow_store(self, lab: Lab, backend: str, scene: RunContext) -> None:
        server = Server(lab, backend, self._plan.server_cpu)
        address = self._addresses[backend] = server.address
        try:
            while not server.ready():
                if scene.interrupt.seen:
                    return
                scene.recorder.step_for(STEP_SECONDS)
            client = self._clients[backend] = self._client(backend, address)
            self._follow_client(backend, client, server, scene)
        finally:
            server.close()

    def _follow_given(self, backend: str, scene: RunContext) -> None:
        """Leave nothing in a store of somebody else, however its client ends."""
        client = self._clients[backend]
        try:
            self._follow_client(backend, client, None, scene)
        except LatprofError as error:
            if left := self._clean_after(backend, client):
                raise WorkloadError(f"{error}; {left}") from error
            raise
        if left := self._clean_after(backend, client):
            raise WorkloadError(left)

    def _clean_after(self, backend: str, client: Client) -> str:
        """Remove the keys of a client that could not; say so where that fails."""
        client.end()
        measured = self._measured[self._addresses[backend].port]
        self._take(backend, client, measured)
        keys = client.left()
        if not keys:
            return ""
        measured.end(time.monotonic_ns())
        why = client.clean()
        return why and (
            f"cannot remove the keys {keys} from {backend} {self._addresses[backend]}: "
            f"{why}; remove them there"
        )

    def _follow_client(
        self, backend: str, client: Client, server: Server | None, scene: RunContext
    ) -> None:
        port = self._addresses[backend].port
        measured = self._watch(port, scene)
        self.runs.append({"backend": BACKENDS[backend], "port": port})
        # on this host's own network others' packets come and go, too
        signs_of = traffic_of if self._lab else turns_of
        watchdog = ProgressWatchdog(signs_of(client.process.pid))
        client.go()
        while client.running():
            if scene.interrupt.seen:
                client.stop()
            if self._lab:
                self._lab.check()
            self._check_answers(backend, client, watchdog.seconds())
            scene.recorder.step_for(STEP_SECONDS)
            self._take(backend, client, measured)
            self._show_progress(backend, scene)
        self._take(backend, client, measured)
        if server:
            server.check()
        client.check()

    def _check_answers(
        self, backend: str, client: Client, still_seconds: float
    ) -> None:
        """Raise WorkloadError where nothing has come or gone for long."""
        slow_seconds = 2 * self._lab.spec.delay_ns / 1e9 if self._lab else 0.0
        if still_seconds <= STILL_SECONDS + slow_seconds:
            return
        check_stopped({f"the client of {backend}": client.process})
        who = "it" if self._lab else self._addresses[backend]
        why = f"{who} did not answer for {still_seconds:.0f} s"
        raise WorkloadError(f"{backend} failed: {why}; {KEPT}")

    def _watch(self, port: int, scene: RunContext) -> MeasuredTime:
        self._seen.watch(port)
        if port not in self._measured:
            self._measured[port] = MeasuredTime(port)
            scene.recorder.add_source(self._measured[port])
        return self._measured[port]

    def _take(self, backend: str, client: Client, measured: MeasuredTime) -> None:
        """Take in what a client has logged."""
        run = self.runs[-1]
        for event in client.events():
            match event.pop("event"):
                case "operation":
                    self._rows.append(
                        event | {"backend": BACKENDS[backend], "port": run["port"]}
                    )
                case "measuring":
                    measured.begin(event["ns"])
                case "measured":
                    measured.end(event["ns"])
                case "connected":
                    run["server"] = event["to"]
                case "counted":
                    run["counted"] = event["commands"]

    def _show_progress(self, backend: str, scene: RunContext) -> None:
        plan = self._plan
        done = len(self._rows) - self._before
        rounds = plan.rounds + plan.warmup_rounds
        scene.progress(backend, done, done, rounds * len(plan.cells))

    def _follow_floor(self, scene: RunContext) -> None:
        cells = self._plan.cells
        order = np.random.default_rng(self._plan.seed).permutation(len(cells))
        self.runs.append({"backend": NAME, "server": self._plan.to or "latprof-load"})
        for place in order.tolist():
            if not scene.interrupt.seen:
                self._follow_cell(cells[place], scene)

    def _follow_cell(self, wanted: tuple[str, int | None], scene: RunContext) -> None:
        """Send requests of one size to a responder with replies of another."""
        log = scene.folder.new_log()
        generator = self._floor_client(*sizes_of(*wanted), log)
        cell = FloorCell(*wanted, generator.port, self._watch(generator.port, scene))
        tail = LogTail(log_in(log))
        generator.start()
        try:
            while generator.running():
                if scene.interrupt.seen:
                    generator.stop()
                generator.check()
                scene.recorder.step_for(STEP_SECONDS)
                self._rows += cell.operations(tail.read())
                self._show_progress("floor", scene)
        finally:
            generator.stop()
            try:
                generator.finish()
            finally:
                self._rows += cell.operations(tail.read())
                cell.end()

    def _floor_client(self, request: int, reply: int, log: int) -> PingPongClient:
        """The client of one cell, with a responder of its own in the lab."""
        plan = self._plan
        sent: dict[str, Any] = {
            "sizes": (request,),
            "reply_bytes": reply,
            "rounds": plan.rounds,
            "warmup_rounds": max(1, plan.warmup_rounds),  # its first is kept apart
            "client_cpu": plan.client_cpu,
            "server_cpu": plan.server_cpu,
            "congestion": plan.congestion,
            "seed": plan.seed,
        }
        if self._lab:
            return Generator(self._lab, PingPong(**sent), "tcp", log)
        address = self._addresses["floor"]
        ping_pong = RemotePingPong(**sent, secret_file=plan.secret_file)
        return PingPongClient(ping_pong, "tcp", log, address, child.start)

    def as_dict(self) -> dict[str, Any]:
        """For run.json; of a responder elsewhere where there is one."""
        if self._plan.to:
            return {"ops": reported_plan(self._plan, self._addresses["floor"].host)}
        plan = asdict(self._plan)
        return {"ops": {k: v for k, v in plan.items() if k not in _ELSEWHERE}}

    def figures(self) -> dict[str, Any]:
        """The table."""
        remarks = {"remarks": list(self._remarks())}
        return {"ops": operation_figures(self._operations) | remarks}

    def _remarks(self) -> Iterator[str]:
        """Compare what a server counted with what its client did, and say its time."""
        for run in self.runs:
            if run.get("counted"):
                done = Counter(
                    row["op"]
                    for row in self._rows
                    if row["backend"] == run["backend"] and row["phase"] == MEASURED
                )
                yield _counted(run, done)

    def other_ends(self) -> Sequence[ResponderEnd]:
        """The floor's, of a host."""
        return self._ends

    def write(self, folder: RunFolder) -> None:
        """Write each operation, each cell, and the file of ProxyStore's benchmark."""
        operations = self._operations
        both = {**operations.texts, **operations.numbers}
        columns = (both[name] for name in SCHEMA.names)
        every = [
            [None if value == BLANK else value for value in row]
            for row in zip(*columns, strict=True)
        ]
        folder.write_rows(FILE, SCHEMA.names, every)
        figures = operation_figures(operations)
        folder.write_rows("ops.csv", OPS_COLUMNS, ops_rows(figures))
        remote = remote_ops_rows(operations)
        folder.write_rows("remote_ops.csv", REMOTE_OPS_COLUMNS, remote)

    @cached_property
    def _operations(self) -> Operations:
        """All that was done, with the parts of its time; once nothing more will be."""

        def column(name: str, of: Callable[[Any], Any] = int) -> Ints:
            found = (row[name] for row in self._rows)
            return np.array([BLANK if v is None else of(v) for v in found], "i8")

        start_ns, end_ns = column("start_ns"), column("end_ns")
        parts = self._seen.parts_of(column("port"), start_ns, end_ns)
        numbers = {
            "payload_size_bytes": column("size"),
            "round": column("round"),
            "start_ns": start_ns,
            "time_ns": end_ns - start_ns,
            "wrong": column("right", lambda right: not right),
            "client_cpu_ns": column("cpu_ns"),
            **{name: parts[name] for name in COLUMNS},
        }
        texts = {
            name: [row[name] for row in self._rows]
            for name in ("backend", "op", "phase")
        }
        return Operations(texts, numbers)

    def close(self) -> None:
        """End the clients."""
        while self._clients:
            self._clients.popitem()[1].close()


def _counted(run: dict[str, Any], done: Counter[str]) -> str:
    counted = run["counted"]
    begin = f"{run['backend']} ({run['server']}) itself"
    for op, count in done.items():
        if counted[op]["calls"] != count:
            return (
                f"{begin} counted {counted[op]['calls']} {op}, its client did {count}: "
                "somebody else used it, or a command was repeated"
            )
    each = (f"{op} {counted[op]['usec'] / n:.1f} us" for op, n in done.items() if n)
    return f"{begin} counted as many, and worked at one on average: {', '.join(each)}"
