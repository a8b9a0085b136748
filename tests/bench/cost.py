"""What the probes and their recording add to a round trip of 64 bytes.

The program that is recorded is none of latprof's, as a user's is: its own generator
keeps times and numbers of its own, and so would tell only of itself. It is one
process for both states, which attach and detach around it: two processes of the
same program differ by 20% on a machine that others share, for no reason of ours.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from figure import Figure, figure, ratios
from latprof_agent.capture.attachment import TRIAL_SECONDS
from latprof_agent.capture.capture import Capture
from latprof_agent.lab.lab import Lab
from latprof_agent.probes.catalogue import capabilities
from latprof_agent.probes.filter import Filter
from programs import (
    ASKED,
    PingPong,
    compiled,
    cpus,
    ping_pong,
    placements,
    plain_lab,
    responder,
)
from progress import Progress

PORT = "5001"
LOOPBACK = "127.0.0.1"
BOTH = ("tcp", "udp")
# As many pairs of windows as cost the time of one pair of programs.
WINDOWS_A_PAIR = 3
READ_SECONDS = 0.1


@dataclass(frozen=True)
class _Case:
    """One kind of traffic at one place, and the bar and goal of what is watched."""

    protocol: str
    place: str
    at: tuple[int, int]
    bars: dict[str, tuple[float, float]]

    @contextmanager
    def program(self, roundtrip: str) -> Iterator[tuple[PingPong, Filter]]:
        """Start it; give what it asks with, and what it is watched by."""
        in_lab = "lab" in self.place
        with plain_lab() if in_lab else nullcontext() as lab:
            if not isinstance(lab, Lab):
                with ping_pong(roundtrip, self.protocol, LOOPBACK, *self.at) as asking:
                    yield asking, Filter(protocols=BOTH)
                return
            client, server = map(str, self.at)
            to = (lab.b_address, PORT)
            with responder(lab, roundtrip, "server", self.protocol, *to, server):
                words = [roundtrip, "client", self.protocol, *to, client, "windows"]
                process = lab.start("a", words, **ASKED)
                watched = Filter(netns=(lab.a_inode, lab.b_inode), protocols=BOTH)
                yield PingPong(process), watched

    def p50s(
        self, asking: PingPong, watched: Filter, pairs: int
    ) -> tuple[list[float], list[float]]:
        """Medians without probes, before and after each of those with them, in us."""
        off, on = [asking.p50_us()], []
        with Capture(watched, capabilities(watched.protocols)) as capture:
            for _ in range(pairs):
                with _recording(capture) as records:
                    settled = time.monotonic() + TRIAL_SECONDS + 0.1
                    while time.monotonic() < settled:
                        asking.p50_us()
                    on.append(asking.p50_us())
                off.append(asking.p50_us())
                if not records:
                    raise RuntimeError("nothing was recorded while it was watched")
        return off, on


@contextmanager
def _recording(capture: Capture) -> Iterator[list[int]]:
    """Record, and read what was drained, as an agent does; how much there was."""
    records: list[int] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(READ_SECONDS):
            if count := sum(map(len, capture.read().values())):
                records.append(count)

    reader = threading.Thread(target=read)
    capture.start()
    reader.start()
    try:
        yield records
    finally:
        ended.set()
        reader.join()
        capture.stop()
        capture.read()
        capture.check()


def _cases() -> Iterator[_Case]:
    """Loopback and the lab, then the lab with an end on each CPU."""
    tcp = {"tcp": (1.16, 1.12), "both": (1.17, 1.12)}
    udp = {"both": (1.25, 1.17)}
    one = (cpus()[-1], cpus()[-1])
    for protocol, bars in ("tcp", tcp), ("udp", udp):
        for place in "loopback", "lab":
            yield _Case(protocol, place, one, bars)
    for apart in list(placements().values())[1:]:
        yield _Case("tcp", "lab, an end on each CPU", apart, {"tcp": (1.15, 1.05)})


def measure(folder: Path, progress: Progress, pairs: int) -> Iterator[Figure]:
    """Each case without probes and with those of one protocol or of both, in turn."""
    roundtrip = compiled("roundtrip", folder)
    for case in _cases():
        for state, (bar, goal) in case.bars.items():
            progress(f"{case.protocol}, {case.place}, watching {state}")
            with case.program(roundtrip) as (asking, place):
                protocols = BOTH if state == "both" else (state,)
                watched = replace(place, protocols=protocols)
                off, on = case.p50s(asking, watched, WINDOWS_A_PAIR * pairs)
            name = f"{case.protocol} 64 B p50, {case.place}, watching {state}/off"
            around = [(a + b) / 2 for a, b in pairwise(off)]
            yield figure(name, "x", ratios(on, around), bar=bar, goal=goal)
            yield figure("  p50, off", "us", off)
            yield figure(f"  p50, {state}", "us", on)
