"""Record real traffic in a test: what the probes and the agent make of it."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from latprof_agent import netns
from latprof_agent.capture.capture import Capture
from latprof_agent.lab.lab import Lab
from latprof_agent.probes.catalogue import BOTH, PROBES, STORIES, capabilities
from latprof_agent.probes.filter import Filter
from latprof_agent.probes.flight_probes import FLIGHT_PROBES
from latprof_agent.recorder import Recorder
from latprof_agent.sinks.run_files import RunFolder
from latprof_agent.sinks.run_tables import RunTables
from latprof_agent.sinks.run_totals import RunTotals
from latprof_agent.story.stories import Stories

DEADLINE_SECONDS = 60.0  # of a machine that others keep busy, too


def wait_until(
    holds: Callable[[], Any], what: str, pause_seconds: float = 0.002
) -> Any:
    """Wait for a condition and return what it gave; fails after a deadline."""
    pause = threading.Event()
    until = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < until:
        found = holds()
        if found:
            return found
        pause.wait(pause_seconds)
    raise AssertionError(f"not within {DEADLINE_SECONDS} s: {what}")


class Recording:
    """What was recorded; complete after the `with` block of `recording`."""

    def __init__(
        self, recorder: Recorder, folder: RunFolder, totals: RunTotals
    ) -> None:
        self.recorder = recorder
        self.folder = folder
        self.totals = totals
        self.counters: dict[str, int] = {}  # the probes', when recording ended
        self.stories: list[dict[str, Any]] = []  # of slow messages, if asked for

    def messages(self) -> pd.DataFrame:
        """messages.csv as written."""
        return pd.read_csv(self.folder.path / "messages.csv")

    def lost(self) -> dict[str, int]:
        """Records that found no room, by ring; must be empty in every test."""
        return {k: v for k, v in self.counters.items() if k.startswith("lost_") and v}


@contextmanager
def recording(
    watched: Lab | Filter,
    folder: Path,
    protocols: tuple[str, ...] = BOTH,
    *,
    story_ns: int | None = None,
) -> Iterator[Recording]:
    """Record the sockets of a lab (or of a filter) while the block runs.

    With the flight recorder for messages that take `story_ns` or longer. A thread
    drains meanwhile, so the block may last as long as it likes.
    """
    if isinstance(watched, Lab):
        watched = Filter(netns=watched.inodes, protocols=protocols)
    numbers = itertools.count(1)
    while (folder / f"run{(n := next(numbers))}").exists():
        continue
    run, totals = RunFolder(folder / f"run{n}"), RunTotals()
    needs = watched.needs | (set() if story_ns is None else {STORIES})
    table = (*PROBES, *FLIGHT_PROBES)
    found = capabilities(watched.protocols, table, needs)
    with Capture(watched, found, story_ns=story_ns) as capture:
        recorder = Recorder(capture, [RunTables(run), totals])
        stories = None
        if story_ns is not None and capture.flight:
            stories = Stories(story_ns, capture.flight, recorder.joiner)
            recorder.sinks.append(stories)
        capture.start()
        capture.expect_udp()
        done = threading.Event()

        def drain() -> None:
            while not done.wait(0.01):
                recorder.step()

        thread = threading.Thread(target=drain)
        thread.start()
        recorded = Recording(recorder, run, totals)
        try:
            yield recorded
        finally:
            done.set()
            thread.join()
            capture.stop()
            recorder.finish()
            recorded.counters = totals.tally.counters
            if stories:
                recorded.stories = stories.document()["stories"]
            run.close()


def socket_in(name: str, *arguments: Any) -> socket.socket:
    """Make a socket in a namespace; it stays there, whoever uses it."""
    return netns.run_in(name, lambda: socket.socket(*arguments))


def tcp_pair(
    lab: Lab, prepare: Callable[[socket.socket, socket.socket], None] | None = None
) -> tuple[socket.socket, socket.socket]:
    """Connect a TCP socket at a to one at b; Nagle off.

    `prepare` may set options of the client and the listener before.
    """
    family = socket.AF_INET6 if lab.spec.ipv6 else socket.AF_INET
    listener = socket_in(lab.b_netns, family, socket.SOCK_STREAM)
    client = socket_in(lab.a_netns, family, socket.SOCK_STREAM)
    with listener:
        if prepare:
            prepare(client, listener)
        listener.bind((lab.b_address, 0))
        listener.listen()
        client.connect((lab.b_address, listener.getsockname()[1]))
        server, _ = listener.accept()
    for end in (client, server):
        end.settimeout(DEADLINE_SECONDS)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, server


def udp_pair(lab: Lab) -> tuple[socket.socket, socket.socket]:
    """Connect a UDP socket at a to one at b, and back."""
    family = socket.AF_INET6 if lab.spec.ipv6 else socket.AF_INET
    client = socket_in(lab.a_netns, family, socket.SOCK_DGRAM)
    server = socket_in(lab.b_netns, family, socket.SOCK_DGRAM)
    client.bind((lab.a_address, 0))
    server.bind((lab.b_address, 0))
    client.connect(server.getsockname()[:2])
    server.connect(client.getsockname()[:2])
    for end in (client, server):
        end.settimeout(DEADLINE_SECONDS)
    return client, server
