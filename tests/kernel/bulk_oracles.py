"""What tests of bulk transfers share: other counts of them, and a known shaper."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
from latprof_agent import netns

SIZE = 1400
RATE_BPS = 100_000_000
DEADLINE_S = 60


def udp_counters(lab, end):
    """What the kernel counts of all UDP sockets of an end."""
    read = partial(Path("/proc/thread-self/net/snmp").read_text)
    lines = netns.run_in(lab.netns_of(end), read).splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith("Udp:"))
    return dict(zip(names, map(int, values), strict=True))


def run_iperf3(lab, *options):
    """iperf3's own report of a run from a to b."""
    if not shutil.which("iperf3"):
        pytest.skip("iperf3 is not installed")
    words = ["iperf3", "-s", "-1", "--forceflush"]
    server = lab.start("b", words, stdout=subprocess.PIPE, text=True)
    while "listening" not in server.stdout.readline():
        assert server.poll() is None
    client = lab.start(
        "a",
        ["iperf3", "-c", lab.b_address, "--json", *map(str, options)],
        stdout=subprocess.PIPE,
        text=True,
    )
    stdout, _ = client.communicate(timeout=DEADLINE_S)
    server.communicate(timeout=DEADLINE_S)
    return json.loads(stdout)["end"]


def shaped_lab(make_lab):
    # A bucket of 16 ms: a sender that has no CPU for less loses no tokens.
    return make_lab(
        qdisc="tbf", rate_bps=RATE_BPS, burst_bytes=200_000, queue_bytes=600_000
    )
