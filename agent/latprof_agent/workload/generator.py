"""The native load generator: its options, and its two processes in a lab."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from latprof_analysis.study.setup import messages_per_round
from latprof_analysis.text import NS_PER_SECOND

from latprof_agent import netns
from latprof_agent.errors import UsageError, WorkloadError
from latprof_agent.executables import find_executable
from latprof_agent.lab.child import ask_to_end, last_output
from latprof_agent.lab.interface import check_congestion
from latprof_agent.lab.lab import Lab
from latprof_agent.sinks.round_trip_rows import COLUMNS, WITH_PHASE, WITH_TRAINS
from latprof_agent.workload.load_plan import Load
from latprof_agent.workload.programs import (
    KEPT,
    STARTED,
    STILL_SECONDS,
    Ending,
    ProgressWatchdog,
    check_stopped,
    ending_words,
    last_words,
    ready_words,
    traffic_of,
)
from latprof_agent.workload.workload import Plan, Workload

# After --duration the run waits for what is late until nothing came for so long.
LATE_SECONDS = 3.0
LONGEST_GAP = 20  # of exponential gaps, in means: once in 500 million
HEADER_BYTES = 18
LARGEST_BYTES = {"tcp": 10_000_000, "udp": 65_507}
CLEAR_LARGEST_BYTES = 65_535
DEFAULT_WARMUP = 5
DEFAULT_SIZES = (18, 256, 1024, 4096, 16384, 32768, 65507)


@dataclass(frozen=True)
class PingPong(Plan):
    """One run of the generator's ping-pong. None and 0: not asked for."""

    kind = "pingpong"

    sizes: tuple[int, ...] = DEFAULT_SIZES
    rounds: int = 0
    duration_seconds: float = 0.0
    warmup_rounds: int = DEFAULT_WARMUP
    interval_ns: int = 0
    train_messages: int = 0
    train_gap_ns: int = 0
    poisson: bool = False
    spin: bool = False
    reply_bytes: int | None = None
    wire: str = "latprof"
    client_cpu: int | None = None
    server_cpu: int | None = None
    congestion: str | None = None
    nagle: bool = False
    timeout_ns: int = 0
    seed: int = 1
    verify: bool = True
    think_ns: int = 0  # work of the responder for each message, before its reply
    busy_ns: int = 0  # and after it, before it reads the next
    priority: int = 0  # of the responder: its nice level
    max_acks: int = 0  # messages without a reply, of an open loop
    load: tuple[Load, ...] = ()

    @property
    def round_trip_columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those of trains are there where it sends some; the phase beside a load."""
        if self.load:
            return WITH_PHASE
        return WITH_TRAINS if self.train_messages else COLUMNS

    @property
    def messages_per_round(self) -> int:
        """With those of trains."""
        return messages_per_round(asdict(self))

    def check_host(self) -> None:
        """Refuse a congestion control that is not there."""
        if self.congestion:
            netns.run_in_new(partial(check_congestion, self.congestion))

    def open(self, lab: Lab | None) -> Workload:
        """Place it in the lab."""
        assert lab
        if self.load:
            from latprof_agent.workload.loaded import LoadedRuns

            return LoadedRuns(self, lab)
        from latprof_agent.workload.pingpong import PingPongInLab

        return PingPongInLab(self, lab)

    @property
    def cpu_of_both(self) -> int | None:
        """The CPU that both ends share, if they are to."""
        return self.client_cpu if self.client_cpu == self.server_cpu else None

    def check(self, protocol: str) -> None:
        """Refuse what cannot be sent over `protocol`."""
        largest = LARGEST_BYTES[protocol]
        if self.wire == "clear":
            largest = min(largest, CLEAR_LARGEST_BYTES)
            if self.reply_bytes is not None:
                raise UsageError("--wire clear echoes in full: it excludes --reply")
            if self.think_ns:
                raise UsageError("--wire clear echoes at once: it excludes --think")
            if self.busy_ns:
                raise UsageError("--wire clear reads at once: it excludes --busy")
        reply = HEADER_BYTES if self.reply_bytes is None else self.reply_bytes
        for size in (*self.sizes, reply):
            if not HEADER_BYTES <= size <= largest:
                raise UsageError(
                    f"a {protocol} message must be {HEADER_BYTES} to {largest} bytes"
                    f", got {size}"
                )
        if self.interval_ns < 0:
            raise UsageError("--interval must be greater than 0")
        if self.max_acks and not self.interval_ns:
            raise UsageError("--max-acks needs --interval: a closed loop waits anyway")

    def _shared(self, protocol: str, cpu: int | None) -> list[str]:
        words = ["--wire", self.wire, "--die-with-parent"]
        if cpu is not None:
            words += ["--cpu", str(cpu)]
        if protocol == "tcp":
            words += ["--congestion", self.congestion] if self.congestion else []
            words += ["--nagle"] if self.nagle else []
        return words

    def responder_words(self, protocol: str, address: str, port: int) -> list[str]:
        """Arguments of the responder's process; port 0 takes any."""
        words = self._shared(protocol, self.server_cpu)
        return ["echo", *words, "--address", address, "--port", str(port)]

    def client_words(self, protocol: str, address: str, port: int) -> list[str]:
        """Arguments of the client's process, but for where it logs."""
        words = self._shared(protocol, self.client_cpu)
        words += ["--protocol", protocol]
        if self.reply_bytes is not None:
            words += ["--reply", str(self.reply_bytes)]
        words += ["--address", address, "--port", str(port)]
        words += ["--sizes", ",".join(map(str, self.sizes))]
        words += ["--warmup", str(self.warmup_rounds), "--seed", str(self.seed)]
        if self.rounds:
            words += ["--rounds", str(self.rounds)]
        else:
            words += ["--duration", str(self.duration_seconds)]
        if self.interval_ns:
            words += ["--interval", str(self.interval_ns)]
        for number, word in (
            (self.timeout_ns, "--timeout"),
            (self.train_messages, "--train"),
            (self.train_gap_ns, "--train-gap"),
            (self.think_ns, "--think"),
            (self.busy_ns, "--busy"),
            (self.max_acks, "--max-acks"),
        ):
            words += [word, str(number)] if number else []
        for wanted, word in (
            (self.poisson, "--poisson"),
            (self.spin, "--spin"),
            (not self.verify, "--no-verify"),
        ):
            words += [word] if wanted else []
        return ["pingpong", *words]


def _size_of(file: int) -> int:
    return os.fstat(file).st_size


class Client:
    """A client, over one protocol, of a responder that listens already.

    `start` starts a program where the client is to be.
    """

    def __init__(
        self,
        plan: PingPong,
        protocol: str,
        log: int,
        responder: tuple[str, int],
        start: Callable[..., subprocess.Popen[str]],
    ) -> None:
        self.protocol = protocol
        self.plan = plan
        self.result: dict[str, Any] = {}
        self.start_at_ns = 0  # CLOCK_MONOTONIC, until when it is connected; 0: at once
        self.address, self.port = responder
        self._log = log
        self._spawn = start
        self._client: subprocess.Popen[str] | None = None
        self._ending = Ending()

    def start(self) -> None:
        """Begin to send."""
        words = self.plan.client_words(self.protocol, self.address, self.port)
        words += self._more_words()
        words += ["--start-at", str(self.start_at_ns)] if self.start_at_ns else []
        load = str(find_executable("latprof-load"))
        words = [load, *words, "--output", f"/proc/self/fd/{self._log}"]
        self._client = self._spawn(words, pass_fds=(self._log,), **STARTED)

    def _more_words(self) -> list[str]:
        """Options that only this one knows the need of."""
        return []

    def running(self) -> bool:
        """Whether the client still sends."""
        return self._client is not None and self._client.poll() is None

    def connected(self) -> bool:
        """Return whether both ends have agreed, as far as is known."""
        return self.running()

    def check(self) -> None:
        """Raise WorkloadError where what the client needs has gone."""

    def stop(self) -> None:
        """Ask the client to end: it then writes what it has. After a while end it."""
        self._ending.ask([self._client] if self._client else [])

    def finish(self) -> None:
        """Collect the client's result.

        Raises WorkloadError with the client's own words where it failed.
        """
        assert self._client
        text, complaint = last_output(self._client)
        if self._ending.ended_unbegun(self._client):
            return
        if self._client.returncode:
            raise WorkloadError(ending_words(complaint, "the generator", self._client))
        self.result = json.loads(text)


class Generator(Client):
    """A responder at end b and a client at end a, over one protocol."""

    def __init__(
        self, lab: Lab, plan: PingPong, protocol: str, log: int, port: int = 0
    ) -> None:
        self._lab = lab
        words = plan.responder_words(protocol, lab.b_address, port)
        load = str(find_executable("latprof-load"))
        self._responder = lab.start("b", [load, *words], **STARTED)
        if plan.priority:
            os.setpriority(os.PRIO_PROCESS, self._responder.pid, plan.priority)
        responder = lab.b_address, int(ready_words(self._responder)[0])
        super().__init__(plan, protocol, log, responder, partial(lab.start, "a"))
        self._due = math.inf  # when --duration is over
        self._watchdog = ProgressWatchdog(traffic_of(self._responder.pid))
        self._silence = ProgressWatchdog(partial(_size_of, log))  # of what it logs

    def _more_words(self) -> list[str]:
        """Let trains take their time: the client gives a datagram up after a second."""
        plan, rate = self.plan, self._lab.spec.rate_bps
        if not plan.train_messages or plan.timeout_ns or not rate:
            return []
        # replies come while messages leave; half as much for headers, and the last one
        seconds = 1.5 * 8 * plan.train_messages * max(plan.sizes) / rate
        return ["--timeout", str(round(1e9 * (1 + seconds)))] if seconds > 0.5 else []

    def start(self) -> None:
        """Begin to send."""
        super().start()
        if self.plan.duration_seconds:
            begin = max(time.monotonic(), self.start_at_ns / NS_PER_SECOND)
            self._due = begin + self.plan.duration_seconds

    def connected(self) -> bool:
        """Whether its session is there: the responder has a thread for each."""
        with suppress(OSError):  # it has ended, which others notice
            tasks = Path(f"/proc/{self._responder.pid}/task")
            return len(list(tasks.iterdir())) > 1
        return False

    def check(self) -> None:
        """Raise WorkloadError where the client waits for what will not come.

        The responder has ended; or the time is over and nothing comes any more; or one
        of the two is stopped, and for as long no round trip has ended, whatever else
        is on the link. Raises LabError where the link has ended.
        """
        self._lab.check()
        if not self.running():
            return
        if self._responder.poll() is not None:
            raise WorkloadError(last_words(self._responder, "the responder"))
        patience, longest = self._patience_seconds(), self.plan.duration_seconds
        # shorter stops are there to be measured
        if self._silence.seconds() > (longest or STILL_SECONDS) + patience:
            self._check_stopped()
        if time.monotonic() > self._due:
            still = self._watchdog.seconds()
            if still > patience:
                self._check_stopped()
                why = f"it did not answer for {still:.0f} s"
                raise WorkloadError(f"the responder failed: {why}; {KEPT}")

    def _patience_seconds(self) -> float:
        """How long nothing may come: the link, and the plan, may be slow."""
        link, plan = self._lab.spec, self.plan
        packet_bits = 8 * link.packet_bytes("veth")
        packet = packet_bits / link.rate_bps if link.rate_bps else 0.0
        gap_ns = plan.interval_ns * (LONGEST_GAP if plan.poisson else 1)
        work_ns = plan.think_ns + plan.busy_ns
        slow_ns = 2 * link.delay_ns + gap_ns + plan.timeout_ns + work_ns
        return LATE_SECONDS + 2 * packet + slow_ns / 1e9

    def _check_stopped(self) -> None:
        """Raise WorkloadError where somebody has stopped one of the two."""
        ends = {"the generator": self._client, "the responder": self._responder}
        check_stopped({who: process for who, process in ends.items() if process})

    def finish(self) -> None:
        """Collect the client's result and end the responder.

        Raises WorkloadError with the client's own words where it failed.
        """
        try:
            try:
                super().finish()
            finally:
                self._check_stopped()  # which is why the client failed, if it did
        finally:
            ask_to_end(self._responder)
            last_output(self._responder)
