"""The generator against a bare loop of send and recv, and against sockperf."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from figure import Figure, figure, ratios
from latprof_agent.lab.lab import Lab
from latprof_agent.workload.generator_log import LogTail, log_in
from programs import compiled, output_of, placements, plain_lab, responder
from programs import generator as generator_path
from progress import Progress

ROUNDS = 10
COUNT = 20_000
SIZE = "64"  # as roundtrip.c has it
PORT = "5001"
# the 64 B of its messages hold a header, as ours do
SOCKPERF_SECONDS = "1"


@dataclass(frozen=True)
class _Peers:
    """One measurement's surroundings."""

    lab: Lab
    folder: Path
    bare: str
    protocol: str
    client: int
    server: int

    def bare_us(self) -> float:
        """The naive loop."""
        at = [self.protocol, self.lab.b_address, PORT]
        with responder(self.lab, self.bare, "server", *at, str(self.server)):
            client = [self.bare, "client", *at, str(self.client), str(COUNT)]
            text = output_of(self.lab, *client)
        return float(json.loads(text.splitlines()[-1])["p50_ns"]) / 1e3

    def latprof_us(self) -> float:
        """The generator, whose own log is read."""
        ours, log = generator_path(), self.folder / "generator.log"
        log.unlink(missing_ok=True)
        words = ["--address", self.lab.b_address]
        echo = [ours, "echo", *words, "--port", "0", "--cpu", str(self.server)]
        with responder(self.lab, *echo) as line:
            words += ["--port", line.split()[1], "--cpu", str(self.client)]
            words += ["--protocol", self.protocol]
            words += ["--sizes", SIZE, "--rounds", str(COUNT), "--output", str(log)]
            output_of(self.lab, ours, "pingpong", *words)
        with log.open("rb") as file:
            records = LogTail(log_in(file.fileno())).read()
        return float(np.median(records["received_ns"] - records["sent_ns"])) / 1e3

    def sockperf_us(self) -> float:
        """The tool that everybody has; a round trip is what it is asked for."""
        at = ["-i", self.lab.b_address, "-p", PORT]
        at += ["--tcp"] if self.protocol == "tcp" else []
        server = ["stdbuf", "-oL", "sockperf", "server", *at]
        with responder(self.lab, *_on(self.server), *server):
            words = ["ping-pong", *at, "-m", SIZE, "-t", SOCKPERF_SECONDS, "--full-rtt"]
            text = output_of(self.lab, *_on(self.client), "sockperf", *words)
        found = re.search(r"percentile 50\.000 =\s*([\d.]+)", text)
        if not found:
            raise ValueError(f"sockperf must print its median, printed {text}")
        return float(found[1])


def _on(cpu: int) -> list[str]:
    return ["taskset", "-c", str(cpu)]


def measure(folder: Path, progress: Progress) -> Iterator[Figure]:
    """All three in turn, for each protocol and placement."""
    bare = compiled("roundtrip", folder)
    for name, (client, server) in placements().items():
        for protocol in ("tcp", "udp"):
            with plain_lab() as lab:
                peers = _Peers(lab, folder, bare, protocol, client, server)
                yield from _compare(peers, f"{protocol} 64 B p50, {name}", progress)


def _compare(peers: _Peers, name: str, progress: Progress) -> Iterator[Figure]:
    ways = {"bare loop": peers.bare_us, "latprof-load": peers.latprof_us}
    if shutil.which("sockperf"):
        ways["sockperf"] = peers.sockperf_us
    found: dict[str, list[float]] = {way: [] for way in ways}
    for i in range(ROUNDS):
        for way, measure_us in ways.items():
            progress(f"{name}: {way}, round {i + 1} of {ROUNDS}")
            found[way].append(measure_us())
    ours = found["latprof-load"]
    yield figure(
        f"{name}, latprof-load/bare loop",
        "x",
        ratios(ours, found["bare loop"]),
        bar=1.03,
        goal=1.0,
        note=", ".join(f"{k} {statistics.median(v):.2f} us" for k, v in found.items()),
    )
    if "sockperf" in found:
        yield figure(
            f"{name}, latprof-load/sockperf",
            "x",
            ratios(ours, found["sockperf"]),
            bar=1.0,
        )
