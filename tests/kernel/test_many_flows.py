"""Thousands of flows at once: each row has its addresses, or the advice helps."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from latprof_process import run

# udp: 36,000 datagrams, 18,000 announcements, far more than a drain finds at a time
SOCKETS = {"udp": 9000, "tcp": 12000}
ROWS = {"udp": 4, "tcp": 2}  # of each socket
PROCESSES = 3
ADDRESSES = ["source_address", "source_port", "destination_address", "destination_port"]
ADVICE = "use a larger --ring-bytes"


@pytest.fixture(scope="module")
def many_sockets(tmp_path_factory) -> str:
    """The program that makes them, built."""
    built = tmp_path_factory.mktemp("many") / "many_sockets"
    source = Path(__file__).with_name("many_sockets.c")
    subprocess.run(["cc", "-O1", "-o", built, source], check=True)
    return str(built)


def record(tmp_path, *words: str) -> tuple[pd.DataFrame, dict, str]:
    """The rows, the records that were lost by ring, and what was said of them."""
    out = tmp_path / "run"
    latprof = run("run", "--no-lab", "--quiet", f"--out={out}", *words)
    assert latprof.process.returncode == 0, latprof.err
    summary = json.loads((out / "summary.json").read_text())
    lost = {ring: n for ring, n in summary["lost_records"].items() if n}
    return pd.read_csv(out / "messages.csv"), lost, latprof.out + latprof.err


@pytest.mark.thorough
@pytest.mark.parametrize("busy", [0, 2])
@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_each_of_many_flows_has_its_addresses(tmp_path, many_sockets, protocol, busy):
    sockets = SOCKETS[protocol]
    words = map(str, (protocol, PROCESSES, sockets, busy))
    rows, lost, said = record(tmp_path, "--", many_sockets, *words)
    assert lost == {}
    assert ADVICE not in said
    assert len(rows) == ROWS[protocol] * sockets
    assert rows[ADDRESSES].notna().all().all()
    assert rows["way"].notna().all()


@pytest.mark.thorough
@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_where_a_ring_was_full_the_advice_helps(tmp_path, many_sockets, protocol):
    """Rings of 32 slots overflow whenever they are drained, those of the advice never.

    A burst of 1000 sockets has 4000 announcements at most in a ring of 65,536 slots.
    """
    traffic = ("--", many_sockets, protocol, "1", "1000", "0")
    (small, large) = (tmp_path / "small", tmp_path / "large")
    small.mkdir()
    large.mkdir()
    rows, lost, said = record(small, "--ring-bytes=4KiB", *traffic)
    assert lost["flows"] > 0
    assert f"lost {lost['flows']} records of flows" in said.replace("\n", " ")
    assert ADVICE in " ".join(said.split())
    assert rows[ADDRESSES].isna().any(axis=None) or len(rows) < ROWS[protocol] * 1000

    rows, lost, said = record(large, "--ring-bytes=8MiB", *traffic)
    assert lost == {}
    assert ADVICE not in " ".join(said.split())
    assert len(rows) == ROWS[protocol] * 1000
    assert rows[ADDRESSES].notna().all().all()
