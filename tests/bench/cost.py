"""What the probes and their recording add to a round trip of 64 bytes.

The program that is recorded is none of latprof's, as a user's is: its own generator
keeps times and numbers of its own, and so would tell only of itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from figure import Figure, beside, figure, in_turn, ratios
from programs import PLAIN_VETH, Recording, compiled, cpus, placements
from progress import Progress

COUNT = 20_000
PORT = "5001"
LOOPBACK = "127.0.0.1"
OFF = "off"


@dataclass(frozen=True)
class _Case:
    """One kind of traffic at one place, and the bar and goal of what is watched."""

    protocol: str
    place: str
    words: tuple[str, ...]
    command: tuple[str, ...]
    bars: dict[str, tuple[float, float]]

    def p50_us(self, folder: Path, watched: str) -> tuple[float, bool]:
        """The median round trip while a protocol is watched, or both, or none.

        And whether others' probes were attached meanwhile.
        """
        state = ["--no-probes"] if watched == OFF else ["--protocol", watched]
        run = Recording(folder, [*self.words, *state], self.command)
        run.wait_for("begin")
        disturbed = run.require_probes(attached=watched != OFF)
        found = json.loads(run.wait_for("{"))
        summary = run.summary()
        if watched != OFF:
            summary.require_messages(2 * COUNT)
        return float(found["p50_ns"]) / 1e3, disturbed


def _cases(program: str) -> Iterator[_Case]:
    """Loopback and the lab, then the lab with an end on each CPU."""
    tcp = {"tcp": (1.16, 1.12), "both": (1.17, 1.12)}
    udp = {"both": (1.25, 1.17)}
    for protocol, bars in ("tcp", tcp), ("udp", udp):
        cpu = str(cpus()[-1])
        pair = (program, "pair", protocol, LOOPBACK, cpu, cpu, str(COUNT))
        yield _Case(protocol, "loopback", ("--no-lab",), pair, bars)
        yield _in_lab(program, protocol, "lab", (cpus()[-1], cpus()[-1]), bars)
    apart = list(placements().values())[1:]
    for both in apart:
        bars = {"tcp": (1.15, 1.05)}
        yield _in_lab(program, "tcp", "lab, an end on each CPU", both, bars)


def _in_lab(
    program: str,
    protocol: str,
    place: str,
    at: tuple[int, int],
    bars: dict[str, tuple[float, float]],
) -> _Case:
    client, server = map(str, at)
    responder = f"{program} server {protocol} {{server}} {PORT} {server}"
    asking = (program, "client", protocol, "{server}", PORT, client, str(COUNT))
    return _Case(protocol, place, (*PLAIN_VETH, "--server", responder), asking, bars)


def measure(folder: Path, progress: Progress, pairs: int) -> Iterator[Figure]:
    """Each case without probes and with those of one protocol or of both, in turn."""
    for case in _cases(compiled("roundtrip", folder)):
        found: dict[str, list[float]] = {OFF: [], **{name: [] for name in case.bars}}
        disturbed = []
        for i, state in in_turn([*found], pairs):
            progress(f"{case.protocol}, {case.place}, {state}, {i + 1} of {pairs}")
            p50_us, others = case.p50_us(folder / "run", state)
            found[state].append(p50_us)
            disturbed.append(others)
        for watched, (bar, goal) in case.bars.items():
            name = f"{case.protocol} 64 B p50, {case.place}, watching {watched}/off"
            times = ratios(found[watched], found[OFF])
            note = beside(disturbed)
            yield figure(name, "x", times, bar=bar, goal=goal, note=note)
        for state, values in found.items():
            yield figure(f"  p50, {state}", "us", values)
