"""What recording both ends, agent included, leaves of a busy server's throughput."""

from __future__ import annotations

import csv
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from figure import Figure, beside, figure, in_turn, ratios
from programs import Recording
from progress import Progress

REQUESTS = 200_000
CLIENTS = 50
PROGRAMS = ("redis-server", "redis-benchmark", "redis-cli")
# The server and its load in one command, so that both ends are recorded.
COMMAND = """\
redis-server --port $1 --bind 127.0.0.1 --save '' --appendonly no \
    --dir "$2" --logfile "$2/redis.log" &
until redis-cli -p $1 ping 2>&1 | grep -q PONG; do
    kill -0 $! || exit 1
    sleep 0.05
done
echo begin
redis-benchmark -p $1 -t get -n $3 -c $4 --csv
redis-cli -p $1 shutdown nosave
wait
"""


def measure(folder: Path, progress: Progress, pairs: int) -> Iterator[Figure]:
    """GET by 50 clients at once, with and without probes."""
    if not redis_is_here():
        return
    found: dict[str, list[float]] = {"off": [], "on": []}
    lost, disturbed = 0, []
    for i, state in in_turn([*found], pairs):
        progress(f"probes {state}, pair {i + 1} of {pairs}")
        rate, missed, others = requests_per_second(folder, watched=state == "on")
        found[state].append(rate)
        lost += missed
        disturbed.append(others)
    yield figure(
        f"redis GET, {CLIENTS} clients, requests on/off",
        "x",
        ratios(found["on"], found["off"]),
        bar=0.8,
        goal=0.87,
        more_is_better=True,
        note=", ".join(filter(None, [f"{lost} lost records", beside(disturbed)])),
    )
    for state, rates in found.items():
        yield figure(f"  requests, probes {state}", "/s", rates)


def redis_is_here() -> bool:
    """Whether it can be measured; else says on stderr why not."""
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        print(f"redis: not measured: no {', '.join(missing)} here", file=sys.stderr)
    return not missing


def requests_per_second(
    folder: Path, *options: str, watched: bool = True
) -> tuple[float, int, bool]:
    """The rate that redis-benchmark says, and how many records were lost.

    And whether others' probes were attached meanwhile. With options of the run.
    """
    words = ["--no-lab", *options, *([] if watched else ["--no-probes"])]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    numbers = (str(port), str(folder), str(REQUESTS), str(CLIENTS))
    run = Recording(folder / "run", words, ["sh", "-c", COMMAND, "sh", *numbers])
    run.wait_for("begin")
    disturbed = run.require_probes(attached=watched)
    fields = next(csv.reader([run.wait_for('"GET"')]))
    summary = run.summary()
    if watched:
        summary.require_messages(2 * REQUESTS)
    return float(fields[1]), summary.lost_records, disturbed
