"""The native load generator: its options, and its two processes in a lab."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from latprof_agent.errors import UsageError, WorkloadError
from latprof_agent.executables import find_executable
from latprof_agent.lab.lab import Lab

READY_SECONDS = 10.0
END_SECONDS = 5.0  # between asking the client to end and ending it
HEADER_BYTES = 18
LARGEST_BYTES = {"tcp": 10_000_000, "udp": 65_507}
CLEAR_LARGEST_BYTES = 65_535
DEFAULT_SIZES = (18, 256, 1024, 4096, 16384, 32768, 65507)


@dataclass(frozen=True)
class PingPong:
    """One run of the generator's ping-pong. None and 0: not asked for."""

    sizes: tuple[int, ...] = DEFAULT_SIZES
    rounds: int = 0
    duration_seconds: float = 0.0
    warmup_rounds: int = 5
    interval_ns: int = 0
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
        reply = HEADER_BYTES if self.reply_bytes is None else self.reply_bytes
        for size in (*self.sizes, reply):
            if not HEADER_BYTES <= size <= largest:
                raise UsageError(
                    f"a {protocol} message must be {HEADER_BYTES} to {largest} bytes"
                    f", got {size}"
                )
        if self.interval_ns < 0:
            raise UsageError("--interval must be greater than 0")

    def _shared(self, protocol: str, cpu: int | None) -> list[str]:
        words = ["--protocol", protocol, "--wire", self.wire, "--die-with-parent"]
        if self.reply_bytes is not None:
            words += ["--reply", str(self.reply_bytes)]
        if cpu is not None:
            words += ["--cpu", str(cpu)]
        if protocol == "tcp":
            words += ["--congestion", self.congestion] if self.congestion else []
            words += ["--nagle"] if self.nagle else []
        return words

    def responder_words(self, protocol: str, address: str) -> list[str]:
        """Arguments of the responder's process."""
        words = self._shared(protocol, self.server_cpu)
        return ["echo", *words, "--address", address, "--port", "0"]

    def client_words(self, protocol: str, address: str, port: int) -> list[str]:
        """Arguments of the client's process, but for where it logs."""
        words = self._shared(protocol, self.client_cpu)
        words += ["--address", address, "--port", str(port)]
        words += ["--sizes", ",".join(map(str, self.sizes))]
        words += ["--warmup", str(self.warmup_rounds), "--seed", str(self.seed)]
        if self.rounds:
            words += ["--rounds", str(self.rounds)]
        else:
            words += ["--duration", str(self.duration_seconds)]
        if self.interval_ns:
            words += ["--interval", str(self.interval_ns)]
        if self.timeout_ns:
            words += ["--timeout", str(self.timeout_ns)]
        for wanted, word in (
            (self.poisson, "--poisson"),
            (self.spin, "--spin"),
            (not self.verify, "--no-verify"),
        ):
            words += [word] if wanted else []
        return ["pingpong", *words]


def _first_line(process: subprocess.Popen[str], seconds: float) -> str:
    assert process.stdout
    readable, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline() if readable else ""


class Generator:
    """A responder at end b and a client at end a, over one protocol."""

    def __init__(self, lab: Lab, plan: PingPong, protocol: str, log: int) -> None:
        self.protocol = protocol
        self.plan = plan
        self.result: dict[str, Any] = {}
        self._lab = lab
        self._log = log
        self._load = str(find_executable("latprof-load"))
        words = plan.responder_words(protocol, lab.b_address)
        self._responder = self._start("b", words)
        line = _first_line(self._responder, READY_SECONDS)
        if not line.startswith("ready "):
            raise WorkloadError(_last_words(self._responder, "the responder"))
        self.port = int(line.split()[1])
        self._client: subprocess.Popen[str] | None = None
        self._asked_to_end: float | None = None

    def _start(
        self, end: str, words: list[str], descriptors: tuple[int, ...] = ()
    ) -> subprocess.Popen[str]:
        return self._lab.start(
            end,
            [self._load, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=descriptors,
            start_new_session=True,  # Ctrl-C reaches us, and we end it
        )

    def start(self) -> None:
        """Begin to send."""
        words = self.plan.client_words(self.protocol, self._lab.b_address, self.port)
        self._client = self._start(
            "a", [*words, "--output", f"/proc/self/fd/{self._log}"], (self._log,)
        )

    def running(self) -> bool:
        """Whether the client still sends."""
        return self._client is not None and self._client.poll() is None

    def check_responder(self) -> None:
        """Raise WorkloadError where the responder has ended before the client."""
        if self._responder.poll() is not None and self.running():
            raise WorkloadError(_last_words(self._responder, "the responder"))

    def stop(self) -> None:
        """Ask the client to end: it then writes what it has. After a while end it."""
        if not self._client or self._client.poll() is not None:
            return
        now = time.monotonic()
        if self._asked_to_end is None:
            self._asked_to_end = now
            self._client.send_signal(signal.SIGINT)
        elif now > self._asked_to_end + END_SECONDS:
            self._client.kill()

    def finish(self) -> None:
        """Collect the client's result and end the responder.

        Raises WorkloadError with the client's own words where it failed.
        """
        assert self._client
        try:
            text, complaint = self._client.communicate(timeout=READY_SECONDS)
        except subprocess.TimeoutExpired:
            self._client.kill()
            text, complaint = self._client.communicate()
        self._end_responder()
        if self._client.returncode:
            raise WorkloadError(_words(complaint, "the generator", self._client))
        self.result = json.loads(text)

    def _end_responder(self) -> None:
        self._responder.terminate()
        try:
            self._responder.communicate(timeout=READY_SECONDS)
        except subprocess.TimeoutExpired:
            self._responder.kill()
            self._responder.communicate()

    def progress(self, started: float) -> tuple[float, float]:
        """Seconds gone and seconds planned (0 where rounds are planned)."""
        return time.monotonic() - started, self.plan.duration_seconds


def _words(complaint: str, who: str, process: subprocess.Popen[str]) -> str:
    line = complaint.strip().splitlines()[-1] if complaint.strip() else ""
    if line:
        return line.removeprefix("latprof-load: ")
    status = process.returncode
    how = f"by signal {-status}" if status < 0 else f"with status {status}"
    return f"{who} failed: it ended {how}; what was recorded until then is kept"


def _last_words(process: subprocess.Popen[str], who: str) -> str:
    process.terminate()
    try:
        _, complaint = process.communicate(timeout=READY_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        _, complaint = process.communicate()
    return _words(complaint, who, process)
