"""In a guest: `watch` and `agent` measure, CPUs leave and come, the clock jumps.

disturbed.py PYTHON: what they told, and what was done, is in told.json then.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

SIZE = 100
HOUR = 3600
CPU = 1
ONLINE = Path(f"/sys/devices/system/cpu/cpu{CPU}/online")
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Traffic(threading.Thread):
    """Exchanges one after another, until it is ended."""

    def __init__(self) -> None:
        super().__init__()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port = listening.getsockname()[1]
            self.ends = [socket.create_connection(listening.getsockname())]
            self.ends.append(listening.accept()[0])
        self.exchanges = 0
        self.ending = False

    def run(self) -> None:
        os.sched_setaffinity(0, {CPU})  # until that leaves
        while not self.ending:
            for sender, reader in (self.ends, self.ends[::-1]):
                sender.sendall(bytes(SIZE))
                reader.recv(SIZE, socket.MSG_WAITALL)
            self.exchanges += 1

    def wait_for(self, more: int) -> None:
        """Let so many more of them happen."""
        wanted = self.exchanges + more
        while self.exchanges < wanted:
            time.sleep(0.05)


def start(command: str, *words: str) -> subprocess.Popen:
    latprof = [sys.argv[1], "-m", "latprof_agent", command, *words]
    return subprocess.Popen(latprof, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Measuring:
    """Both commands: the agent begins with a CPU less than there will be."""

    def __init__(self, traffic: Traffic) -> None:
        only = ["--max-overhead", "none", "--port", str(traffic.port)]
        self.begun = time.monotonic()
        ONLINE.write_text("0")
        self.agent = start("agent", "--listen", "127.0.0.1:0", *only)
        self.url = self.agent.stderr.readline().decode().split()[-1]
        ONLINE.write_text("1")
        live = ["--json", "--interval", "1s", "--record", "run"]
        self.watch = start("watch", *live, *only)
        self.documents = [self.watch.stdout.readline()]
        self.scrapes: list[dict] = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        self.documents += self.watch.stdout

    def go_on(self) -> None:
        """Let whole intervals pass, then scrape."""
        wanted = len(self.documents) + 2
        while len(self.documents) < wanted:
            time.sleep(0.05)
        self.scrape()

    def scrape(self) -> None:
        """Keep a scrape, and the time since the start."""
        time.sleep(1.1)  # a state of the agent serves for a second
        asked = urllib.request.Request(self.url, headers={"Accept": OPENMETRICS})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            text = answer.read().decode()
        seconds = time.monotonic() - self.begun
        self.scrapes.append({"text": text, "running_seconds": seconds})

    def end(self) -> dict:
        """End them; what they told."""
        self.scrape()
        for process in (self.watch, self.agent):
            process.terminate()
        self.reader.join()
        ended = {
            command: {"status": process.wait(), "err": process.stderr.read().decode()}
            for command, process in (("watch", self.watch), ("agent", self.agent))
        }
        documents = [json.loads(line) for line in self.documents]
        return ended | {"documents": documents, "scrapes": self.scrapes}


def step_clock(hours: float) -> None:
    time.clock_settime(time.CLOCK_REALTIME, time.time() + hours * HOUR)


def main() -> None:
    traffic = Traffic()
    measuring = Measuring(traffic)
    measuring.scrape()
    traffic.start()
    traffic.wait_for(2000)  # in 200 kB some is sampled
    measuring.go_on()
    for online in "01":
        ONLINE.write_text(online)
        measuring.go_on()
    for hours in (5, -10):
        step_clock(hours)
        measuring.go_on()
    traffic.ending = True
    traffic.join()
    done = {"exchanges": traffic.exchanges, "port": traffic.port}
    Path("told.json").write_text(json.dumps(done | measuring.end()))


main()
