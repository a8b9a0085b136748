"""The most memory that `latprof run` takes at a million messages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from figure import Figure, figure
from programs import PLAIN_VETH, latprof_run, placements
from progress import Progress

MESSAGES = 1_000_000
IMPORTS = """\
import latprof_agent.session, latprof_agent.cli.run, latprof_agent.cli.progress_bar
from pathlib import Path
status = Path("/proc/self/status").read_text()
print(status.split("VmHWM:")[1].split()[0])
"""


def measure(folder: Path, progress: Progress) -> Iterator[Figure]:
    """Half a million round trips of 64 bytes over plain veth."""
    client, server = next(iter(placements().values()))
    words = [*PLAIN_VETH, "--protocol", "tcp", "--sizes", "64"]
    words += ["--rounds", str(MESSAGES // 2), "--warmup", "0"]
    words += ["--client-cpu", str(client), "--server-cpu", str(server)]
    progress(f"{MESSAGES} messages")
    summary = latprof_run(folder / "memory", *words).summary
    recorded = sum(kind["messages"] for kind in summary["kinds"].values())
    peak = summary["cost"]["agent_peak_bytes"] / 1e6
    yield figure(f"peak memory at {recorded} messages", "MB", [peak], bar=400, goal=200)
    command = [sys.executable, "-c", IMPORTS]
    kilobytes = int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    yield figure("  of which Python and its imports", "MB", [kilobytes * 1024 / 1e6])
