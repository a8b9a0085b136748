"""What the probes and their recording add to a round trip of 64 bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from figure import Figure, figure, ratios
from programs import PLAIN_VETH, latprof_run, placements
from progress import Progress

PAIRS = 10
ROUNDS = 20_000


def measure(folder: Path, progress: Progress) -> Iterator[Figure]:
    """Runs with and without probes, in turn, so that both see the same machine."""
    for name, (client, server) in placements().items():
        words = [*PLAIN_VETH, "--protocol", "tcp", "--sizes", "64"]
        words += ["--rounds", str(ROUNDS), "--warmup", "500"]
        words += ["--client-cpu", str(client), "--server-cpu", str(server)]
        found: dict[str, list[float]] = {"off": [], "on": []}
        for i in range(PAIRS):
            for state, more in ("off", ["--no-probes"]), ("on", []):
                progress(f"{name}, probes {state}, pair {i + 1} of {PAIRS}")
                run = latprof_run(folder / f"{client}{server}{state}{i}", *words, *more)
                found[state].append(run.median_rtt_ns() / 1e3)
        yield figure(
            f"tcp 64 B p50, probes on/off, {name}",
            "x",
            ratios(found["on"], found["off"]),
            bar=1.15,
            goal=1.05,
        )
        for state, values in found.items():
            yield figure(f"  p50 with probes {state}", "us", values)
