"""What the flight recorder costs while nothing is slow; how soon a story is told."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from figure import Figure, figure, in_turn, ratios
from latprof_agent.probes.layout import layout_of
from latprof_agent.symbols.symbols import Symbols
from programs import LATPROF, PLAIN_VETH, latprof_run
from progress import Progress
from redis import redis_is_here, requests_per_second

ROUNDS = 7
NAMES = {"recorder": ("--story", "1h"), "none": ()}
# of 64 B, as fast as it goes
PING_PONG = (*PLAIN_VETH, "--protocol", "tcp", "--sizes", "64", "--rounds", "20000")
FUNCTIONS = 400_000  # of 245 bytes, with names of 40: 120 MB


def measure(folder: Path, progress: Progress) -> Iterator[Figure]:
    """What it costs, and how soon it tells."""
    yield _cost(folder, progress)
    if redis_is_here():
        yield from _redis(folder, progress)
    yield _names(folder, progress)
    yield _told(folder, progress)


def _with_and_without(
    what: str, progress: Progress, measure: Callable[..., float]
) -> list[float]:
    """Ratios of what a run tells with the recorder's options, and without."""
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for i, name in in_turn([*NAMES], ROUNDS):
        progress(f"{what}, {name}, round {i + 1} of {ROUNDS}")
        found[name].append(measure(*NAMES[name]))
    return ratios(found["recorder"], found["none"])


def _cost(folder: Path, progress: Progress) -> Figure:
    """The same run with and without it, in turn."""
    outs = (folder / f"ping-pong-{i}" for i in itertools.count())

    def p50_ns(*words: str) -> float:
        latprof_run(out := next(outs), *PING_PONG, *words)
        return float(pd.read_csv(out / "round_trips.csv")["rtt_ns"].median())

    return figure(
        "ping-pong 64 B p50, flight recorder/none",
        "x",
        _with_and_without("ping-pong", progress, p50_ns),
        bar=1.05,
        goal=1.02,
    )


def _redis(folder: Path, progress: Progress) -> Iterator[Figure]:
    """50 clients of a busy server, with probes, with and without the recorder."""
    yield figure(
        "redis GET requests, flight recorder/none",
        "x",
        _with_and_without(
            "redis", progress, lambda *words: requests_per_second(folder, *words)[0]
        ),
        bar=0.95,
        goal=0.98,
        more_is_better=True,
    )


def _names(folder: Path, progress: Progress) -> Figure:
    """Name stacks all over a program of more than 100 MB."""
    progress("compiling a large program")
    program = _large_program(folder)
    took = []
    with subprocess.Popen([program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        first = int(process.stdout.readline())
        stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2]
        samples = np.zeros(500, layout_of().flights["samples"])
        samples["pid"] = process.pid
        samples["image"] = int(stat.split()[25]) >> 4 & 0xFFFFFFFF
        samples["user_frames"] = 1
        samples["user"][:, 0] = first + np.arange(len(samples)) * 245 * 700
        for i in range(ROUNDS):
            progress(f"naming, round {i + 1} of {ROUNDS}")
            began = time.monotonic()
            symbols = Symbols()
            symbols.note(samples, {process.pid})
            symbols.finish()
            took.append(time.monotonic() - began)
            assert symbols.stack(samples[1])[-1] == "library::function_700(int, int)"
        process.kill()
    size_mb = program.stat().st_size // 1_000_000
    return figure(f"names of 500 stacks, {size_mb} MB program", "s", took, bar=3.0)


def _large_program(folder: Path) -> Path:
    main, many, program = folder / "large.c", folder / "many.s", folder / "large"
    main.write_text(
        "#include <stdio.h>\n#include <unistd.h>\n"
        'void first(void) __asm__("_ZN7library10function_0Eii");\n'
        'int main(void) { printf("%lu\\n", (unsigned long)first);'
        " fflush(stdout); pause(); }\n"
    )
    with many.open("w") as file:
        for i in range(FUNCTIONS):
            word = f"function_{i}"
            name = f"_ZN7library{len(word)}{word}Eii"
            file.write(f".globl {name}\n.type {name},@function\n{name}:\n")
            file.write(f".skip 244,0x90\nret\n.size {name},.-{name}\n")
        file.write('.section .note.GNU-stack,"",@progbits\n')
    subprocess.run(["gcc", "-no-pie", main, many, "-o", program], check=True)
    return program


def _told(folder: Path, progress: Progress) -> Figure:
    """`latprof story` of a run with as many stories as are kept."""
    out = folder / "told"
    latprof_run(
        out, *PLAIN_VETH, "--rounds", "5000", "--busy", "1ms", "--story", "10us"
    )
    took = []
    for i in range(ROUNDS):
        progress(f"telling, round {i + 1} of {ROUNDS}")
        began = time.monotonic()
        subprocess.run([*LATPROF, "story", out], check=True, stdout=subprocess.DEVNULL)
        took.append(time.monotonic() - began)
    return figure("latprof story, 100 stories", "s", took, bar=1.0)
