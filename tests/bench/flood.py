"""A UDP flood of which every datagram is recorded, and what that costs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figure import Figure, figure
from programs import LATPROF, PLAIN_VETH, compiled, cpus
from progress import Progress

ROUNDS = 3
SECONDS = 10
PORT = "5001"


@dataclass(frozen=True)
class _Flood:
    """One recorded flood."""

    said: dict[str, Any]  # by the flooder
    summary: dict[str, Any]
    rows: int
    during_seconds: float  # the agent's CPU time
    whole_seconds: float  # with what it had still to write

    @property
    def complete(self) -> int:
        """Rows with both ends."""
        return sum(kind["complete"] for kind in self.summary["kinds"].values())

    @property
    def sent(self) -> int:
        """Datagrams of both ends."""
        return int(self.said["sent"] + self.said["received"])


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process itself, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rows(path: Path) -> int:
    with path.open("rb") as file:
        chunks = iter(lambda: file.read(1 << 20), b"")
        return sum(chunk.count(b"\n") for chunk in chunks) - 1


def flooded(flood: str, out: Path, *options: str) -> _Flood:
    """Run a flood under latprof; its words come on latprof's standard error."""
    sink = f"{flood} sink {cpus()[-1]} {PORT}"
    command = [*LATPROF, "run", *PLAIN_VETH, "--protocol", "udp", "--quiet", "--json"]
    command += [*options, "--out", str(out), "--server", sink, "--", flood, "send"]
    command += [str(cpus()[0]), "{server}", PORT, "64", str(SECONDS)]
    agent = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    at: dict[str, float] = {}
    said: dict[str, Any] = {}
    for line in agent.stderr:
        at[line.strip()] = at["now"] = _cpu_seconds(agent.pid)
        if line.startswith("{"):
            said = json.loads(line)
            break
    summary = json.loads(agent.stdout.read())
    if agent.wait():
        raise subprocess.CalledProcessError(agent.returncode, command)
    whole = summary["cost"]["agent_cpu_seconds"]
    rows = _rows(out / "messages.csv")
    return _Flood(said, summary, rows, at["now"] - at["begin"], whole)


def measure(folder: Path, progress: Progress) -> Iterator[Figure]:
    """Sender and sink on a CPU each; the agent where there is room."""
    program = compiled("flood", folder)
    floods = []
    for i in range(ROUNDS):
        progress(f"round {i + 1} of {ROUNDS}, {SECONDS} s")
        floods.append(flooded(program, folder / f"flood{i}"))
        (folder / f"flood{i}" / "messages.csv").unlink()
    rates = [f.sent / f.said["seconds"] for f in floods]
    lost = [sum(f.summary["lost_records"].values()) for f in floods]
    yield figure("udp 64 B flood, rate", "/s", rates)
    got = [f.said["cpu_seconds"] / f.said["seconds"] for f in floods]
    yield figure("  the flooder's own CPU: 1 is full rate", "core", got)
    unlike = [abs(f.sent - f.rows) for f in floods]
    halves = [f.rows - f.complete for f in floods]
    for name, counts in (
        ("lost records", lost),
        ("datagrams without a row", unlike),
        ("rows without both ends", halves),
    ):
        # not one may be, so a median would hide it
        note = f"of {sum(f.sent for f in floods)} datagrams in {ROUNDS} rounds"
        yield figure(f"  {name}, all rounds", "", [sum(counts)], bar=0, note=note)
    during = [f.during_seconds / f.said["seconds"] for f in floods]
    yield figure("  agent's CPU during the flood", "core", during, bar=0.2)
    whole = [f.whole_seconds / f.said["seconds"] for f in floods]
    yield figure("  with what it wrote afterwards", "core", whole)
    each = [f.whole_seconds / f.sent * 1e9 for f in floods]
    yield figure("  agent's CPU for a datagram", "ns", each)
