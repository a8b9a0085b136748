"""Guests on cables to each other, of which each records its half of what they say.

b serves, a and c ask it. Their clocks are QEMU's timer: they run as the machine's does,
but for what FAST adds to them, and for when a guest stands still.
"""

import csv
import json
import shlex
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from functools import cache, cached_property

import numpy as np
from guest import HERE, boot

# How much faster than the machine's a guest's clock is.
FAST = {"a": 0, "b": 50e-6, "c": -30e-6}
# Each guest's ends of cables, with its address.
CABLES = {
    "a": {"ab:1": "10.9.0.1"},
    "b": {"ab:2": "10.9.0.2", "bc:2": "10.9.1.2"},
    "c": {"bc:1": "10.9.1.1"},
}
SERVER = "b"
ASKS = {"a": "10.9.0.2", "c": "10.9.1.2"}
# The clock's source is read from QEMU's timer, not counted by the processor.
SCRIPT = """
hostname %(name)s
echo hpet >/sys/devices/system/clocksource/clocksource0/current_clocksource
/run/busybox adjtimex -f %(frequency)d >/dev/null
modprobe virtio_net
cable() { # NUMBER ADDRESS
    local device
    device=$(grep -l 52:54:00:01:0$1 /sys/class/net/*/address | cut -d/ -f5)
    ip address add $2/24 dev $device
    ip link set $device up
}
%(cables)s
$python %(program)s %(folder)s %(name)s
"""


class Guests:
    """Guests that talked, with what they left behind in a folder that they share."""

    def __init__(self, folder, requests, words=(), **parts):
        """`words` are options of latprof, `parts` is what each guest does."""
        self.folder, self.requests, self.names = folder, requests, list(parts)
        self.clients = [name for name in parts if name != SERVER]
        self.stopped_ns = None  # when b stood still, by the machine's CLOCK_REALTIME
        plan = {
            "requests": requests,
            "words": words,
            "clients": {next(iter(CABLES[n].values())): n for n in self.clients},
            "guests": {n: part | {"asks": ASKS.get(n)} for n, part in parts.items()},
        }
        (folder / "plan.json").write_text(json.dumps(plan))

    def run(self, kernels, meanwhile=lambda: None):
        """Boot all; where one of them fails, the others are to end as well."""
        with ThreadPoolExecutor(len(self.names) + 1) as pool:
            begun = [pool.submit(meanwhile)]
            begun += [pool.submit(self._boot, n, kernels[n]) for n in self.names]
            for each in as_completed(begun):
                if each.exception():
                    (self.folder / "failed").touch()
            for each in begun:
                each.result()

    def _boot(self, name, kernel):
        (self.folder / name).mkdir()
        addresses = enumerate(CABLES[name].values())
        words = {
            "name": name,
            "frequency": round(FAST[name] * 1e6 * (1 << 16)),
            "cables": "\n".join(f"cable {n} {address}" for n, address in addresses),
            "program": shlex.quote(str(HERE / "between.py")),
            "folder": shlex.quote(str(self.folder)),
        }
        boot(
            *(kernel, "real", SCRIPT % words, self.folder / name),
            share=str(self.folder),
            cables=" ".join(str(self.folder / end) for end in CABLES[name]),
            qmp=str(self.folder / f"{name}.qmp"),
            memory="1G",
        )

    def stop_server_midway(self):
        """Let it stand still, and its clock, while clients wait, for a second."""
        said = [self.folder / f"{name}.half" for name in self.clients]
        while not all(each.exists() for each in said):
            if (self.folder / "failed").exists():
                return
            time.sleep(0.05)
        with closing(socket.socket(socket.AF_UNIX)) as asked:
            asked.connect(str(self.folder / f"{SERVER}.qmp"))
            answers = asked.makefile()
            _ask(asked, answers, "qmp_capabilities")
            begin_ns = time.time_ns()
            _ask(asked, answers, "stop")
            time.sleep(1)
            _ask(asked, answers, "cont")
            self.stopped_ns = begin_ns, time.time_ns()
        (self.folder / "go-on").touch()

    def of(self, name, what):
        """What one of them wrote down."""
        return json.loads((self.folder / name / f"{what}.json").read_text())

    @cached_property
    def said(self):
        """What `latprof join` prints."""
        runs = [self.folder / name / "run" for name in self.names]
        words = ["join", *runs, "--out", self.folder / "joined"]
        joined = subprocess.run(
            [sys.executable, "-m", "latprof_agent", *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (joined.returncode, joined.stderr) == (0, "")
        return joined.stdout

    @cache  # noqa: B019 - there are three of these
    def rows(self, table):
        """The rows of what is joined."""
        assert self.said
        with (self.folder / "joined" / f"{table}.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    @cached_property
    def clocks(self):
        """What summary.json says of them."""
        assert self.said
        summary = json.loads((self.folder / "joined" / "summary.json").read_text())
        assert summary["unmatched"] == {}
        return summary["clocks"]

    def clock(self, name):
        """What is known of its clock over the first one's; what is not is infinite."""
        blank = {"low_ns": -np.inf, "high_ns": np.inf}
        rows = [row for row in self.rows("clocks") if row["host"] == name]
        return {"state": np.array([row["state"] for row in rows])} | {
            key: np.array([float(row[key] or blank[key]) for row in rows])
            for key in ("at_ns", "offset_ns", "low_ns", "high_ns")
        }

    def calls(self, client, at, what):
        """(number, before, after) of a program's calls, by its CLOCK_MONOTONIC."""
        found = [row[2:] for row in self.of(at, "calls") if row[:2] == [client, what]]
        return np.array(sorted(found))


def _ask(asked, answers, command):
    asked.sendall(json.dumps({"execute": command}).encode())
    while "return" not in json.loads(answers.readline()):
        pass  # events
