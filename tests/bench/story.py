"""What the flight recorder costs while nothing is slow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from figure import Figure, figure, in_turn, ratios
from programs import PLAIN_VETH, latprof_run
from progress import Progress

ROUNDS = 7
NAMES = ("recorder", "none")
# of 64 B, as fast as it goes
PING_PONG = (*PLAIN_VETH, "--protocol", "tcp", "--sizes", "64", "--rounds", "20000")


def measure(folder: Path, progress: Progress) -> Iterator[Figure]:
    """The same run with and without it, in turn."""
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for i, name in in_turn(NAMES, ROUNDS):
        progress(f"{name}, round {i + 1} of {ROUNDS}")
        words = ["--story", "1h"] if name == "recorder" else []
        out = folder / f"{name}-{i}"
        latprof_run(out, *PING_PONG, *words)
        trips = pd.read_csv(out / "round_trips.csv")
        found[name].append(float(trips["rtt_ns"].median()))
    yield figure(
        "ping-pong 64 B p50, flight recorder/none",
        "x",
        ratios(found["recorder"], found["none"]),
        bar=1.05,
        goal=1.02,
    )
