"""What the recording costs in a flood: CPU with it and without, bytes a record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from figure import Figure, figure
from flood import flooded
from latprof_analysis.records.recording import NAME
from programs import compiled
from progress import Progress

ROUNDS = 6


def measure(folder: Path, progress: Progress) -> Iterator[Figure]:
    """In turns, since a flood on a busy machine is a slower one."""
    program = compiled("flood", folder)
    without, kept, sizes = [], [], []
    for i in range(ROUNDS):
        progress(f"round {i + 1} of {ROUNDS}")
        plain, out = folder / f"plain{i}", folder / f"kept{i}"
        flood = flooded(program, plain, "--no-recording")
        without.append(flood.whole_seconds / flood.sent)
        (plain / "messages.csv").unlink()
        flood = flooded(program, out)
        kept.append(flood.whole_seconds / flood.sent)
        sizes.append((out / NAME).stat().st_size / flood.summary["records"])
        (out / "messages.csv").unlink()
        (out / NAME).unlink()
    ratios = [k / w for k, w in zip(kept, without, strict=True)]
    yield figure("recording: agent's CPU with it / without", "", ratios, bar=1.1)
    yield figure("  bytes a record, packed", "B", sizes, bar=25)
    each = [(k - w) * 1e9 for k, w in zip(kept, without, strict=True)]
    yield figure("  agent's CPU for a datagram's records, more", "ns", each)
