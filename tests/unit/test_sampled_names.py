"""Processes of the sample have their names, though they end before it is joined."""

from __future__ import annotations

import subprocess
from subprocess import PIPE

import numpy as np
import pytest
from halves import LAYOUT, batch_of, record
from latprof_agent.monitor.late_names import LateNames
from latprof_agent.monitor.sample_rows import RECORDS, SampleRows


def told_of(ring, pid):
    return batch_of([record(ring, 0, 0, pid=pid)])


class Sample:
    """As the monitor names processes: when records are drained, and when joined."""

    def __init__(self):
        self.rows = SampleRows(LAYOUT, LAYOUT.roles["server"], range(32768, 61000))
        self.late = LateNames(self.rows.joiner.names, RECORDS)
        self.names = self.rows.joiner.names

    def join(self, batch):
        self.rows.name(batch, self.late.take())


@pytest.fixture
def sample():
    return Sample()


@pytest.mark.parametrize("ring", RECORDS)
def test_who_ends_after_it_was_drained_has_a_name(sample, ring):
    words = ["sh", "-c", "echo; read line"]
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE) as process:
        process.stdout.readline()
        sample.late.look(told_of(ring, process.pid))
        process.stdin.close()
    sample.join(told_of(ring, process.pid))
    assert sample.names.newest(process.pid) == "sh"


def test_who_was_gone_leaves_its_number_to_the_next(sample):
    with subprocess.Popen(["true"]) as process:
        pass
    sample.late.look(told_of("turns", process.pid))
    sample.join(told_of("turns", process.pid))
    assert process.pid not in sample.names


def test_an_exec_that_the_probes_saw_names_what_comes_after_it(sample):
    words = ["sh", "-c", "echo; read line"]
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE) as process:
        process.stdout.readline()
        sample.late.look(told_of("turns", process.pid))
        renamed = batch_of([record("tasks", 0, 0, pid=process.pid, t_ns=500)])
        renamed["tasks"]["comm"] = np.frombuffer(b"redis-server".ljust(16, b"\0"), "u8")
        sample.join(renamed)
        process.stdin.close()
    at_ns = np.array([499, 500, 501])
    index, words = sample.names.of(np.full(3, process.pid), at_ns)
    assert [words[i] for i in index] == ["sh", "redis-server", "redis-server"]
