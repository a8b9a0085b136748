"""How long `latprof --help` takes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from figure import Figure, figure
from programs import LATPROF
from progress import Progress

ROUNDS = 11


def measure(_folder: Path, progress: Progress) -> Iterator[Figure]:
    """From start to exit, with warm file caches."""
    seconds = []
    for i in range(ROUNDS):
        progress(f"round {i + 1} of {ROUNDS}")
        began = time.monotonic()
        subprocess.run([*LATPROF, "--help"], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.monotonic() - began)
    yield figure("latprof --help", "s", seconds, bar=0.2)
