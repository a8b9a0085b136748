"""What the agent takes from a busy server and from a round trip, and what it needs.

Beside peers that measure live, too, where they are on PATH: bcc's tcppktlat, which
tells an event for each read, and ePPing (pping), for each packet or summed up.
"""

from __future__ import annotations

import csv
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from figure import Figure, figure, in_turn, ratios
from programs import Agent, compiled, cpus, ping_pong
from progress import Progress

REQUESTS = 300_000
# In which the agent notices what is not needed, and what it costs.
WARM_UP_REQUESTS = 150_000
WARM_UP_WINDOWS = 20
CLIENTS = 50
LOOPBACK = "127.0.0.1"
REDIS = ("redis-server", "redis-benchmark", "redis-cli")
PEERS = {
    "tcppktlat": ("tcppktlat",),
    "ePPing": ("pping", "-i", "lo", "-F", "jsonl"),
    "ePPing summed up": ("pping", "-i", "lo", "-F", "jsonl", "-a", "1"),
}
LOADED_SECONDS = 2.0
# Parts of one load, for each round of the others, and how long one is.
SLICES, SLICE_SECONDS = 10, 0.6
ENDLESS = 10**9
LOOKS = 200

State = Callable[[], AbstractContextManager[Agent | None]]


def measure(folder: Path, progress: Progress, pairs: int) -> Iterator[Figure]:
    """A server under load, then round trips of 64 bytes, each state in turn."""
    states: dict[str, State] = {
        "off": nullcontext,
        "all": partial(Agent, "--max-overhead", "none"),
        # of which there is none: nothing takes an hour
        "stories": partial(Agent, *_with_stories(folder)),
    }
    for name, words in PEERS.items():
        if shutil.which(words[0]):
            states[name] = partial(_peer, words)
        else:
            print(f"live: not beside {name}: no {words[0]} here", file=sys.stderr)
    if missing := [program for program in REDIS if not shutil.which(program)]:
        print(f"live: no redis: no {', '.join(missing)} here", file=sys.stderr)
    else:
        yield from _redis(folder, progress, pairs, states)
        yield from _budget(folder, progress, pairs * SLICES)
    yield from _round_trips(folder, progress, pairs, {**states, "budget": Agent})


def _with_stories(folder: Path) -> tuple[str, ...]:
    kept = str(folder / "stories")
    return "--max-overhead", "none", "--story-dir", kept, "--story", "1h"


@contextmanager
def _peer(words: Sequence[str]) -> Iterator[None]:
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(LOADED_SECONDS)
        if process.poll() is not None:
            raise RuntimeError(f"{' '.join(words)} must go on, ended at once")
        yield None
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def _redis(
    folder: Path, progress: Progress, pairs: int, states: Mapping[str, State]
) -> Iterator[Figure]:
    """GET by 50 clients, both ends watched; what the agent itself needs meanwhile."""
    rates: dict[str, list[float]] = {state: [] for state in states}
    own: dict[str, list[float]] = defaultdict(list)
    with _redis_server(folder) as port:
        for i, state in in_turn([*states], pairs):
            progress(f"redis, {state}, {i + 1} of {pairs}")
            with states[state]() as agent:
                _requests_per_second(port, WARM_UP_REQUESTS)
                # scrapes before and after: they are measured by themselves
                seen = agent.messages_sent() if agent else 0
                begun, before = time.monotonic(), agent and agent.usage()
                rates[state].append(_requests_per_second(port, REQUESTS))
                if state == "all":
                    assert agent and before
                    seconds, after = time.monotonic() - begun, agent.usage()
                    messages = agent.messages_sent() - seen
                    if messages < 2 * REQUESTS:
                        raise RuntimeError(f"{messages} messages of {2 * REQUESTS}")
                    own["ready"].append(agent.ready_seconds)
                    own["resident"].append(after.resident_bytes / 1e6)
                    own["messages"].append(messages / seconds)
                    cpu_seconds = after.cpu_seconds - before.cpu_seconds
                    own["cpu"].append(100 * cpu_seconds / seconds)
    bars: dict[str, dict[str, float]] = {"all": {"bar": 0.88, "goal": 0.92}}
    for state in states:
        if state != "off":
            yield figure(
                f"live redis GET, {CLIENTS} clients, {state}/off",
                "x",
                ratios(rates[state], rates["off"]),
                more_is_better=True,
                **bars.get(state, {}),
            )
    yield figure(
        "  with the flight recorder/without",
        "x",
        ratios(rates["stories"], rates["all"]),
        more_is_better=True,
    )
    for state, found in rates.items():
        yield figure(f"  requests, {state}", "/s", found)
    note = f"at {figure('', '', own['messages']).value:.0f} messages/s"
    yield figure("agent's CPU", "%", own["cpu"], bar=1, goal=0.3, note=note)
    yield figure("  resident", "MB", own["resident"], bar=100, goal=60)
    yield figure("  start to ready", "s", own["ready"], bar=1.5)


def _budget(folder: Path, progress: Progress, slices: int) -> Iterator[Figure]:
    """The same with the default budget, beside the agent stopped in its pauses.

    What a budget takes is less than one run of such a load differs from the next, so
    it goes on and on, and the agent is stopped in every other part of it.
    """
    words = f"-t get -n {ENDLESS} -c {CLIENTS} -q".split()
    rates: dict[str, list[float]] = {"budget": [], "stopped": []}
    with (
        _redis_server(folder) as port,
        _endless("redis-benchmark", "-p", str(port), *words),
        Agent() as agent,
    ):
        time.sleep(LOADED_SECONDS)
        held = []
        while len(held) < LOOKS:
            held.append(agent.held())
            time.sleep(LOADED_SECONDS / LOOKS)
        for i in range(slices):
            progress(f"redis, budget, {i + 1} of {slices}")
            rates["budget"].append(_commands_per_second(port))
            with agent.stopped(min(held)):
                rates["stopped"].append(_commands_per_second(port))
        share = sum(each > min(held) for each in held) / LOOKS
    yield figure(
        f"live redis GET, {CLIENTS} clients, budget/stopped",
        "x",
        ratios(rates["budget"], rates["stopped"]),
        more_is_better=True,
        bar=0.97,
        goal=0.985,
        note=f"attached for some {100 * share:.0f}% of the time",
    )
    for state, found in rates.items():
        yield figure(f"  requests, {state}", "/s", found)


@contextmanager
def _endless(*words: str) -> Iterator[None]:
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _commands_per_second(port: int) -> float:
    """What the server itself has counted in a slice of time."""
    before, begun = _commands(port), time.monotonic()
    time.sleep(SLICE_SECONDS)
    return (_commands(port) - before) / (time.monotonic() - begun)


def _commands(port: int) -> int:
    words = ["redis-cli", "-p", str(port), "info", "stats"]
    told = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    (line,) = [x for x in told.splitlines() if x.startswith("total_commands_processed")]
    return int(line.partition(":")[2])


@contextmanager
def _redis_server(folder: Path) -> Iterator[int]:
    with socket.create_server((LOOPBACK, 0)) as free:
        port = int(free.getsockname()[1])
    words = ["redis-server", "--port", str(port), "--bind", LOOPBACK, "--save", ""]
    server = subprocess.Popen([*words, "--dir", str(folder)], stdout=subprocess.DEVNULL)
    try:
        while True:
            with suppress(ConnectionRefusedError):
                socket.create_connection((LOOPBACK, port)).close()
                break
            if server.poll() is not None:
                raise RuntimeError("redis-server must run, ended at once")
        yield port
    finally:
        server.terminate()
        server.wait()


def _requests_per_second(port: int, requests: int) -> float:
    words = f"redis-benchmark -p {port} -t get -n {requests} -c {CLIENTS} --csv".split()
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    (row,) = [row for row in csv.reader(done.stdout.splitlines()) if "GET" in row]
    return float(row[1])


def _round_trips(
    folder: Path, progress: Progress, pairs: int, states: Mapping[str, State]
) -> Iterator[Figure]:
    """Medians on loopback, both ends on one CPU; without probes before and after."""
    cpu = cpus()[-1]
    with ping_pong(compiled("roundtrip", folder), "tcp", LOOPBACK, cpu, cpu) as asking:
        found: dict[str, list[float]] = {"off": [asking.p50_us()]}
        around: dict[str, list[float]] = defaultdict(list)
        measured = [state for state in states if state != "off"]
        for i, state in in_turn(measured, pairs):
            progress(f"round trips, {state}, {i + 1} of {pairs}")
            with states[state]():
                for _ in range(WARM_UP_WINDOWS):
                    asking.p50_us()
                found.setdefault(state, []).append(asking.p50_us())
            found["off"].append(asking.p50_us())
            around[state].append(sum(found["off"][-2:]) / 2)
    for state in measured:
        bars: dict[str, Any] = {"bar": 1.15, "goal": 1.11} if state == "all" else {}
        of_off = ratios(found[state], around[state])
        yield figure(f"live tcp 64 B p50, loopback, {state}/off", "x", of_off, **bars)
    with_it = ratios(found["stories"], found["all"])
    yield figure("  with the flight recorder/without", "x", with_it)
    for state, medians in found.items():
        yield figure(f"  p50, {state}", "us", medians)
