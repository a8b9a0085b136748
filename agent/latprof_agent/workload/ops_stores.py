"""Stores that operations are done on: their servers in the lab, and their client."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from latprof_analysis.calling_user import calling_user
from latprof_analysis.extras import how_to_add

from latprof_agent.errors import WorkloadError
from latprof_agent.lab import child
from latprof_agent.lab.lab import Lab
from latprof_agent.process_table import how_it_ended
from latprof_agent.workload import ops_client
from latprof_agent.workload.user_command import listening

READY_SECONDS = 20.0  # for a server to listen, on a busy machine
# Free in a namespace that is new.
PORTS = {"redis": 6379, "proxystore": 8765}
# Packages of Python that clients need, and servers.
_CLIENTS = {
    "redis": ("redis", "hiredis"),
    "proxystore": ("proxystore", "requests"),
    "floor": (),
}
_SERVERS = {"redis": (), "proxystore": ("quart", "uvicorn", "uvloop"), "floor": ()}
KEPT = "what was measured until then is kept"
CLEAN_SECONDS = 5.0  # for a store to let keys of a client be removed
_LOOK_SECONDS = 0.01  # between looks at what one does
_LAST_BYTES = 4096  # of what a server said
_ENDPOINT = """\
import sys
from proxystore.endpoint.config import EndpointConfig
from proxystore.endpoint.serve import serve
name, host, port, uuid = sys.argv[1:]
config = EndpointConfig(name=name, uuid=uuid, host=host, port=int(port))
serve(config, log_level="WARNING")
"""


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        """As it is written."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def check_backend(name: str, *, started: bool) -> None:
    """Raise WorkloadError where a backend's programs are missing.

    `started`: the run starts the server itself.
    """
    if name == "redis" and started and not shutil.which("redis-server"):
        raise WorkloadError(
            "cannot run redis-server: not found; install the package redis-server, "
            "name a server by --redis HOST, or leave redis out of --backend"
        )
    for module in [*_CLIENTS[name], *(_SERVERS[name] if started else ())]:
        if find_spec(module) is None:
            raise WorkloadError(
                f"cannot run the client of {name}: no Python package {module}; "
                f"{how_to_add(name)}, or leave {name} out of --backend"
            )


def find_endpoint(wanted: str) -> Address:
    """Return where an endpoint of the calling user listens, by its configuration.

    Raises WorkloadError where there is none of this UUID, or it was never started.
    """
    import tomllib

    folder = Path(calling_user().home) / ".local/share/proxystore"
    folder = Path(os.environ.get("PROXYSTORE_HOME", folder))
    for path in sorted(folder.glob("*/config.toml")):
        try:
            settings = tomllib.loads(path.read_text())
        except (OSError, ValueError):
            continue  # not one that could have been started
        if str(settings.get("uuid")) == wanted and settings.get("host"):
            return Address(str(settings["host"]), int(settings["port"]))
    raise WorkloadError(
        f"no endpoint {wanted} in {folder}: not configured there, or never started; "
        "see `proxystore-endpoint list`"
    )


class Server:
    """A store's server at the lab's end b."""

    def __init__(self, lab: Lab, backend: str, cpu: int | None) -> None:
        """Start it; raises WorkloadError where it cannot be run."""
        self.address = Address(lab.b_address, PORTS[backend])
        self._until = time.monotonic() + READY_SECONDS
        self._said = os.memfd_create(backend)
        words = _words(backend, self.address)
        self._name = "redis-server" if backend == "redis" else "the endpoint"
        self._process = lab.start(
            "b",
            words,
            *pinned(cpu),
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            start_new_session=True,
        )

    def ready(self) -> bool:
        """Whether it listens; raises WorkloadError where it will not."""
        net = Path(f"/proc/{self._process.pid}/net")
        if any(_port_of(line) == self.address.port for line in listening(net)):
            return True
        why = ""
        if (status := self._process.poll()) is not None:
            why = f"it ended with {how_it_ended(status)} before it listened"
        elif time.monotonic() > self._until:
            why = f"it did not listen within {READY_SECONDS:.0f} s"
        if why:
            raise WorkloadError(f"{self._name} failed: {why}{self._last_words()}")
        return False

    def check(self) -> None:
        """Raise WorkloadError where it has ended."""
        if (status := self._process.poll()) is not None:
            how = how_it_ended(status)
            raise WorkloadError(f"{self._name} failed: it ended with {how}; {KEPT}")

    def _last_words(self) -> str:
        size = os.fstat(self._said).st_size
        text = os.pread(self._said, _LAST_BYTES, max(0, size - _LAST_BYTES))
        lines = text.decode(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f" ({last.strip()})" if last else ""

    def close(self) -> None:
        """End it."""
        if self._process.poll() is None:
            # it may write what it knows to a disk when it is asked to end
            self._process.kill()
        self._process.wait()
        os.close(self._said)


def _port_of(line: str) -> int:
    return int(line.split()[1].rpartition(":")[2], 16)


def _words(backend: str, address: Address) -> list[str]:
    host, port = address.host, str(address.port)
    if backend == "redis":
        words = ["redis-server", "--port", port, "--bind", host]
        # nothing of it is kept, and nothing is forked meanwhile
        return [*words, "--save", "", "--appendonly", "no", "--protected-mode", "no"]
    words = [sys.executable, "-I", "-c", _ENDPOINT]
    return [*words, "latprof", host, port, str(uuid.uuid4())]


def pinned(cpu: int | None) -> Iterator[child.Step]:
    """Yield what keeps a new process on a CPU, if it is to be."""
    if cpu is not None:
        yield partial(os.sched_setaffinity, 0, {cpu})


class Client:
    """The client of a store: a process of its own, and its log."""

    def __init__(self, lab: Lab | None, plan: dict[str, Any], cpu: int | None) -> None:
        """Start it; it does nothing before `go`."""
        self._plan = plan
        self._backend = str(plan["backend"])
        self._log = os.memfd_create("operations")
        self._read = 0
        self._asked_to_end: float | None = None
        self.failure = ""
        self._has_keys = False  # in the store
        words = [sys.executable, "-I", str(ops_client.__file__)]
        start = partial(lab.start, "a") if lab else child.start
        self.process: subprocess.Popen[str] = start(
            words,
            *pinned(cpu),
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches us, and we end it
        )
        self._say(json.dumps(plan))

    def _say(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def go(self, what: str = ops_client.GO) -> None:
        """Let it begin."""
        with suppress(BrokenPipeError):  # it has ended; the reason is in its log
            self._say(what)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield what it has logged since the last time."""
        size = os.fstat(self._log).st_size
        data = os.pread(self._log, size - self._read, self._read)
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            event = json.loads(line)
            match event["event"]:
                case "connected":
                    self._has_keys = True
                case "cleaned":
                    self._has_keys = False
                case "failed":
                    self.failure = _why(self._backend, event)
            yield event

    def running(self) -> bool:
        """Whether it has still something to do."""
        return self.process.poll() is None

    def stop(self) -> None:
        """Ask it to end after its operation; after a while end it."""
        now = time.monotonic()
        if self._asked_to_end is None:
            self._asked_to_end = now
            child.ask_to_end(self.process, signal.SIGINT)
        elif now > self._asked_to_end + child.END_SECONDS:
            self.end()

    def end(self) -> None:
        """End it in the middle of its operation, if it is in one."""
        self.process.kill()
        self.process.wait()

    def wait_for(self, wanted: str, seconds: float) -> dict[str, dict[str, Any]]:
        """Wait for an event, its end or so long; what it has logged, by its name."""
        logged: dict[str, dict[str, Any]] = {}
        until = time.monotonic() + seconds
        while True:
            over = not self.running() or time.monotonic() > until
            logged |= {event["event"]: event for event in self.events()}
            if over or wanted in logged:
                return logged
            time.sleep(_LOOK_SECONDS)

    def left(self) -> str:
        """Name the keys that are still in the store; all of its log was read."""
        return f"{self._plan['prefix']}:*" if self._has_keys else ""

    def clean(self) -> str:
        """Have another remove the keys that it left; why they cannot be removed."""
        try:
            cleaner = Client(None, self._plan, None)
        except WorkloadError as error:
            return str(error)
        try:
            logged = cleaner.wait_for("ready", READY_SECONDS)
            cleaner.go(ops_client.CLEAN)
            logged |= cleaner.wait_for("cleaned", CLEAN_SECONDS)
        finally:
            cleaner.close()
        if "cleaned" in logged:
            return ""
        if "failed" in logged:
            return _first_line(logged["failed"])
        return f"it did not answer for {CLEAN_SECONDS:.0f} s"

    def check(self) -> None:
        """Raise WorkloadError where it has ended otherwise than it should."""
        _, said = self.process.communicate()
        status = self.process.returncode
        if self.failure:
            raise WorkloadError(f"{self.failure}; {KEPT}")
        if status and self._asked_to_end is None:
            how = f"it ended with {how_it_ended(status)}"
            last = said.strip().splitlines()[-1:] or [how]
            raise WorkloadError(
                f"the client of {self._backend} failed: {last[0]}; {KEPT}"
            )

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()
        os.close(self._log)


def _why(backend: str, event: dict[str, Any]) -> str:
    """Say why a client failed, in its server's words, and what to do."""
    why = _first_line(event)
    if event.get("missing"):
        return f"cannot run the client of {backend}: {why}"
    remedy = ""
    if "uthentication required" in why or "NOAUTH" in why:
        remedy = "; latprof has no password for it: name a server that wants none"
    elif "maxmemory" in why:
        remedy = "; give it more memory, or use smaller --payload-sizes"
    return f"{backend} failed: {why}{remedy}"


def _first_line(event: dict[str, Any]) -> str:
    return str(event["why"]).strip().splitlines()[0].rstrip(".")
