"""What a scrape of 200 groups takes: time, bytes, and the memory of who serves it.

The memory is that of all formats at once; a Prometheus takes one.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from figure import Figure, figure
from progress import Progress

SCRAPES = 21
GROUPS = 200
# Each scrape writes a state of its own: none is fresh.
SERVER = f"""\
import sys
from pathlib import Path
from latprof_agent.service import states
from served import served
states.FRESH_SECONDS = 0.0
with served({GROUPS}) as made:
    print(made.port, flush=True)
    sys.stdin.readline()
    status = Path("/proc/self/status").read_text()
    print(status.split("VmRSS:")[1].split()[0])
"""
FORMATS = {
    "text": "text/plain;version=0.0.4",
    "OpenMetrics": "application/openmetrics-text;version=1.0.0",
    "protobuf": "application/vnd.google.protobuf;encoding=delimited;"
    "proto=io.prometheus.client.MetricFamily",
}


def measure(_folder: Path, progress: Progress) -> Iterator[Figure]:
    """Scrape it in each format, as Prometheus does: compressed."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
        text=True,
    ) as server:
        assert server.stdin and server.stdout
        port = int(server.stdout.readline())
        for name, accept in FORMATS.items():
            progress(name)
            whole, _ = _scrape(port, {"Accept": accept})
            headers = {"Accept": accept, "Accept-Encoding": "gzip"}
            found = [_scrape(port, headers) for _ in range(SCRAPES)]
            took = [seconds * 1e3 for _, seconds in found]
            note = f"{found[0][0] / 1e6:.2f} MB sent"
            what = f"scrape of {GROUPS} groups, {name}"
            yield figure(what, "ms", took, bar=150, goal=50, note=note)
            bar = 3 if name == "protobuf" else 20
            yield figure("  bytes", "MB", [whole / 1e6], bar=bar)
        out, _ = server.communicate("\n")
        yield figure(
            "  memory of who serves it", "MB", [int(out) * 1024 / 1e6], bar=200, goal=60
        )


def _scrape(port: int, headers: dict[str, str]) -> tuple[int, float]:
    """Bytes of the body, and the seconds until it is there."""
    begun = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/metrics", headers=headers)
    body = connection.getresponse().read()
    seconds = time.monotonic() - begun
    connection.close()
    return len(body), seconds
