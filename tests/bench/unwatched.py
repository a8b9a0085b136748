"""What a recording, or an agent, takes from programs that it does not watch."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from figure import Figure, beside, figure, in_turn, ratios
from latprof_agent.capture.attachment import TRIAL_SECONDS
from programs import Agent, Recording, compiled, cpus, placements
from progress import Progress

CALLS_SECONDS = 1
COUNT = 30_000
LOOPBACK = "127.0.0.1"
# a round trip a millisecond, for longer than all that is measured beside it
WATCHED_COUNT, WATCHED_PAUSE_US = 250_000, 1000
BAR = 0.98
LEAST_MESSAGES = 1000
NO_BUDGET = "agent without a budget"
# In which an agent with a budget finds what it costs others.
WARM_UP_SECONDS = 3.0
# what is attached to see whether it is needed is detached by then
SETTLED_SECONDS = TRIAL_SECONDS + 0.5
AGENTS = {"agent": (), NO_BUDGET: ("--max-overhead", "none")}
STATES = ("off", "run", *AGENTS)
# What a program did in a second, and the same where other programs do not count.
Speeds = tuple[float, float]


def measure(folder: Path, progress: Progress, pairs: int) -> Iterator[Figure]:
    """Their speed beside a slow program that is recorded, counted, or neither."""
    roundtrip = compiled("roundtrip", folder)
    ways = _ways(compiled("calls", folder), roundtrip)
    cpu = str(cpus()[-1])
    watched = shutil.copy(roundtrip, folder / "watched")
    slow = [str(watched), "pair", "tcp", LOOPBACK, cpu, cpu]
    slow += [str(WATCHED_COUNT), str(WATCHED_PAUSE_US)]
    found: dict[str, dict[str, list[Speeds]]]
    found = {way: {state: [] for state in STATES} for way in ways}
    disturbed = []
    for i, state in in_turn(STATES, pairs):
        words = ["--no-lab"] if state == "run" else ["--no-lab", "--no-probes"]
        agent = Agent("--comm", "watched", *AGENTS.get(state, ()))
        with agent if state in AGENTS else nullcontext():
            run = Recording(folder / "run", words, slow)
            run.wait_for("begin")
            time.sleep(SETTLED_SECONDS)
            others = run.require_probes(attached=state == "run")
            disturbed.append(others and state not in AGENTS)
            for way, speeds in ways.items():
                progress(f"{way}, beside {state}, {i + 1} of {pairs}")
                until = time.monotonic() + WARM_UP_SECONDS
                while time.monotonic() < until:
                    speeds()
                found[way][state].append(speeds())
            run.interrupt()
            if state == NO_BUDGET and agent.messages_sent() < LEAST_MESSAGES:
                raise RuntimeError("the agent counted nothing of what it watched")
    for way, of_state in found.items():
        yield from _figures(way, of_state, beside(disturbed))


def _figures(way: str, found: dict[str, list[Speeds]], note: str) -> Iterator[Figure]:
    off_whole, off_own = zip(*found["off"], strict=True)
    own = "by CPU time" if "getppid" in way else "by its p50"
    for state in STATES[1:]:
        whole, by_itself = zip(*found[state], strict=True)
        name, speed = f"unwatched {way}, {state}/off", ratios(whole, off_whole)
        yield figure(name, "x", speed, bar=BAR, more_is_better=True, note=note)
        yield figure(f"  {own}", "x", ratios(by_itself, off_own))
        yield figure(f"  speed, {state}", "/s", whole)
    yield figure("  speed, off", "/s", off_whole)


def _ways(calls: str, roundtrip: str) -> dict[str, Callable[[], Speeds]]:
    """Speeds to measure, away from the recorded program's CPU as far as can be."""
    first = cpus()[0]
    return {
        "getppid()": partial(_calls, calls, first),
        **{
            f"tcp 64 B, {name}": partial(_rounds, roundtrip, *at)
            for name, at in placements().items()
        },
    }


def _calls(program: str, cpu: int) -> Speeds:
    said = _said(program, str(cpu), str(CALLS_SECONDS))
    return said["calls"] / said["seconds"], said["calls"] / said["cpu_seconds"]


def _rounds(program: str, client: int, server: int) -> Speeds:
    words = ("pair", "tcp", LOOPBACK, str(server), str(client), str(COUNT))
    said = _said(program, *words)
    return said["n"] / said["seconds"], 1e9 / said["p50_ns"]


def _said(*words: str) -> dict[str, float]:
    """The JSON at the end of what a program printed."""
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))
