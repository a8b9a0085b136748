"""A process's name is the same text, whether /proc tells it or the probes do."""

from __future__ import annotations

import subprocess
import sys

import pytest
from latprof_agent.kernel_names import name_of
from latprof_agent.probes.filter import NAME_BYTES
from latprof_agent.process_table import comm_of

NAMED = """\
import sys
with open("/proc/self/comm", "wb", buffering=0) as comm:
    comm.write(bytes.fromhex(sys.argv[1]))
print(flush=True)
sys.stdin.read()
"""


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
