"""What chrony says of the clock, from one that runs; nothing is made up of none."""

from __future__ import annotations

import shutil
import socket
import subprocess

import pytest
from latprof_agent.capture.clock_sources import read_clock_sources
from recording import wait_until

# Of its own, which leaves the clock alone and serves nobody.
CONFIGURATION = """
local stratum 8
port 0
cmdport 0
bindcmdaddress {0}/chronyd.sock
pidfile {0}/pid
driftfile {0}/drift
"""


def test_where_nothing_disciplines_the_clock_that_is_said(tmp_path):
    found = read_clock_sources(tmp_path / "none", tmp_path)
    assert found.pop("monotonic_ns") > 0
    assert found == {"chrony": None, "ptp": []}


@pytest.mark.skipif(not shutil.which("chronyd"), reason="needs chrony")
def test_what_chrony_says_is_kept(tmp_path):
    tmp_path.chmod(0o700)
    path, control = tmp_path / "chrony.conf", tmp_path / "chronyd.sock"
    path.write_text(CONFIGURATION.format(tmp_path))
    words = ["chronyd", "-x", "-d", "-u", "root", "-f", str(path)]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as chronyd:
        try:
            wait_until(control.exists, "chronyd")
            found = read_clock_sources(control, tmp_path)["chrony"]
        finally:
            chronyd.terminate()
    assert (found["stratum"], found["leap"]) == (8, "Normal")
    assert found["root_delay_ns"] == found["root_dispersion_ns"] == 0  # its own clock
    assert found["reference"] == "7F7F0101"  # of `local`


@pytest.mark.skipif(not shutil.which("chronyc"), reason="needs chrony")
def test_of_a_chrony_that_does_not_answer_nothing_is_known(tmp_path):
    path = tmp_path / "chronyd.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as silent:
        silent.bind(str(path))
        found = read_clock_sources(path, tmp_path)["chrony"]
    assert list(found) == ["unknown"]


def test_a_ptp_clock_that_cannot_be_opened_is_said_to_be_there(tmp_path):
    clock = tmp_path / "ptp-of-nobody"
    clock.mkdir()
    (clock / "clock_name").write_text("mlx5_ptp\n")
    (found,) = read_clock_sources(tmp_path / "none", tmp_path)["ptp"]
    assert found == {
        "device": "ptp-of-nobody",
        "name": "mlx5_ptp",
        "interfaces": [],
        "unknown": "No such file or directory",
    }
