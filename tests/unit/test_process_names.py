"""A process's name is the same text, whether /proc tells it or the probes do."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from latprof_agent.probes.filter import NAME_BYTES
from latprof_agent.process_table import comm_of
from latprof_analysis.kernel_names import name_of
from latprof_analysis.records.process_names import NAMES_KEPT, ProcessNames

NAMED = """\
import sys
with open("/proc/self/comm", "wb", buffering=0) as comm:
    comm.write(bytes.fromhex(sys.argv[1]))
print(flush=True)
sys.stdin.read()
"""

# (since, name) of one process
RENAMED = [(100, "sh"), (200, "python3"), (300, "redis")]


@pytest.mark.parametrize(
    ("comm", "told"),
    [
        (b"redis-server", "redis-server"),
        (b"\xff\xfeweb", r"\xff\xfeweb"),
        ("naïve".encode(), "naïve"),
        (b" a\r\nb\t ", " a\r\nb\t "),
        (b"cut behind 15 \xc3\xa9", r"cut behind 15 \xc3"),
    ],
)
def test_a_name_is_the_same_from_proc_and_from_the_probes(comm, told):
    words = [sys.executable, "-c", NAMED, comm.hex()]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **pipes) as process:
        process.stdout.readline()
        assert comm_of(process.pid) == told
        process.stdin.close()
    assert name_of(comm[: NAME_BYTES - 1].ljust(NAME_BYTES, b"\0")) == told
    assert comm_of(process.pid) == ""


def test_each_time_has_its_name_whatever_the_order_it_was_met_in():
    names = ProcessNames()
    for since, name in sorted(RENAMED, key=lambda told: told[1]):
        names.note(7, name, since)
    names.note(8, "other", 150)
    at = np.array([0, 99, 100, 199, 200, 250, 300, 10**18, 5, 150])
    index, words = names.of(np.array([7] * 8 + [8, 9]), at)
    assert [words[i] for i in index] == [
        *("sh", "sh", "sh", "sh", "python3", "python3", "redis", "redis"),
        *("other", ""),
    ]
    assert names.newest(7) == "redis"
    assert names.newest(9) == ""


def test_who_changes_its_name_all_the_time_takes_no_memory():
    names = ProcessNames()
    for since in range(10 * NAMES_KEPT):
        names.note(1, f"worker {since}", since)
    _, words = names.of(np.array([1]), np.array([0]))
    assert len(words) <= NAMES_KEPT + 1
    assert names.newest(1) == f"worker {10 * NAMES_KEPT - 1}"
    for pid in range(100):
        names.note(pid, "x", 0)
    names.keep(10)
    assert [pid for pid in range(100) if pid in names] == [*range(90, 100)]
