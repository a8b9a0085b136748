"""The floor of operations on stores against a ping-pong of the same sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from figure import Figure, figure, in_turn, ratios
from latprof_agent.workload.ops_floor import sizes_of
from programs import PLAIN_VETH, latprof_run
from progress import Progress

ROUNDS = 7
# Operations and payloads, and how often each is done.
CELLS = (("GET", 1000, 3000), ("SET", 1000, 3000), ("GET", 1_000_000, 300))
WARMUP = "100"
NAMES = ("floor", "ping-pong")


def measure(folder: Path, progress: Progress) -> Iterator[Figure]:
    """Both in turn, for each operation and payload."""
    for op, payload, repeat in CELLS:
        found: dict[str, list[float]] = {name: [] for name in NAMES}
        for i, name in in_turn(NAMES, ROUNDS):
            progress(f"{op} {payload} B: {name}, round {i + 1} of {ROUNDS}")
            out = folder / f"{op}-{payload}-{name}-{i}"
            # bbr's pacing makes two modes of large replies, 180 and 560 us
            words = [*PLAIN_VETH, "--warmup", WARMUP, "--congestion", "reno"]
            ask = _floor if name == "floor" else _ping_pong
            found[name].append(ask(out, words, op, payload, repeat))
        yield figure(
            f"ops floor {op} {payload} B p50, floor/ping-pong",
            "x",
            ratios(found["floor"], found["ping-pong"]),
            bar=1.05,
        )


def _floor(out: Path, words: list[str], op: str, payload: int, repeat: int) -> float:
    words = ["ops", *words, "--backend", "floor", "--ops", op]
    words += ["--payload-sizes", str(payload), "--rounds", str(repeat)]
    latprof_run(out, *words)
    rows = pd.read_csv(out / "operations.csv")
    return float(rows.loc[rows["phase"] == "measured", "time_ns"].median())


def _ping_pong(
    out: Path, words: list[str], op: str, payload: int, repeat: int
) -> float:
    request, reply = sizes_of(op, payload)
    words = [*words, "--protocol", "tcp", "--sizes", str(request)]
    words += ["--reply", str(reply), "--rounds", str(repeat)]
    latprof_run(out, *words)
    return float(pd.read_csv(out / "round_trips.csv")["rtt_ns"].median())
