"""Processes of the sample have their names, though they end before it is joined."""

from __future__ import annotations

import subprocess
from subprocess import PIPE

import numpy as np
import pytest
from halves import DRAIN_NS, LAYOUT, batch_of, record
from latprof_agent.monitor.sampled import RECORDS, Sampled


def told_of(ring, pid):
    return batch_of([record(ring, 0, 0, pid=pid)])


@pytest.fixture
def sampled():
    return Sampled(LAYOUT, range(32768, 61000), [], [])


@pytest.mark.parametrize("ring", RECORDS)
def test_who_ends_after_it_was_drained_has_a_name(sampled, ring):
    words = ["sh", "-c", "echo; read line"]
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE) as process:
        process.stdout.readline()
        sampled.name_processes(told_of(ring, process.pid))
        process.stdin.close()
    sampled.add(told_of(ring, process.pid), DRAIN_NS, {})
    assert sampled.joiner.names.newest(process.pid) == "sh"


def test_who_was_gone_leaves_its_number_to_the_next(sampled):
    with subprocess.Popen(["true"]) as process:
        pass
    sampled.name_processes(told_of("turns", process.pid))
    assert process.pid not in sampled.joiner.names


def test_an_exec_that_the_probes_saw_names_what_comes_after_it(sampled):
    words = ["sh", "-c", "echo; read line"]
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE) as process:
        process.stdout.readline()
        sampled.name_processes(told_of("turns", process.pid))
        renamed = batch_of([record("tasks", 0, 0, pid=process.pid, t_ns=500)])
        renamed["tasks"]["comm"] = np.frombuffer(b"redis-server".ljust(16, b"\0"), "u8")
        sampled.name_processes(renamed)
        process.stdin.close()
    at_ns = np.array([499, 500, 501])
    index, words = sampled.joiner.names.of(np.full(3, process.pid), at_ns)
    assert [words[i] for i in index] == ["sh", "redis-server", "redis-server"]
