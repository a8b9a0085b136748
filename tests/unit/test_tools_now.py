"""The tools that are installed here write files that are read as they print them."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import time
from contextlib import contextmanager

import pytest
from free_ports import LOOPBACK, free_port
from latprof_analysis.read import read_samples

DEADLINE_SECONDS = 20


@contextmanager
def server(*words):
    """A server of a tool; where that is not installed the test is left out."""
    if not shutil.which(words[0]):
        pytest.skip(f"{words[0]} is not installed")
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def answered(*words):
    """Run a client until its server answers."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if not done.returncode and '"error"' not in done.stdout:
            return done.stdout
        assert time.monotonic() < deadline, done.stdout + done.stderr


def test_irtt_as_installed(tmp_path):
    at, out = f"{LOOPBACK}:{free_port()}", tmp_path / "out.json.gz"
    words = ("-i", "10ms", "-d", "200ms", "-l", "200", "-o", str(out), at)
    with server("irtt", "server", "-b", at):
        answered("irtt", "client", "-Q", *words)
    samples = read_samples(out)
    told = json.loads(gzip.decompress(out.read_bytes()))["stats"]
    assert len(samples.frame) == told["packets_sent"] > 0
    assert samples.skipped_rows == 0
    assert samples.frame["size_bytes"].eq(200).all()


@pytest.mark.parametrize("reverse", [(), ("-R",)])
def test_iperf3_as_installed(reverse, tmp_path):
    port = str(free_port())
    words = ("-u", "-b", "1M", "-l", "1000", "-t", "1", "-J", *reverse)
    with server("iperf3", "-s", "-p", port):
        told = answered("iperf3", "-c", LOOPBACK, "-p", port, *words)
    path = tmp_path / "out.json"
    path.write_text(told)
    (transfer,) = read_samples(path).meta["transfers"]
    assert transfer["direction"] == f"to the {'client' if reverse else 'server'}"
    total = json.loads(told)["end"]["sum"]
    assert transfer["jitter_ns"] == pytest.approx(1e6 * total["jitter_ms"])
    assert transfer["lost_packets"] == total["lost_packets"]
