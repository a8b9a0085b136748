"""Which records of a mesh's clients are round trips of a test."""

from __future__ import annotations

import os

import numpy as np
import pytest
from latprof_agent.workload.generator_log import log_in
from latprof_agent.workload.mesh_log import MeshEnds, MeshLog
from test_whole_messages import FIELDS

HOSTS = ("h0", "h1", "h2")
PORT = 7107
NAMES = tuple(
    dict.fromkeys((*FIELDS, "intended_ns", "peer", "receive_called_ns", "created_ns"))
)


@pytest.fixture
def logs():
    descriptors = [os.memfd_create(f"log of {host}") for host in HOSTS]
    yield descriptors
    for descriptor in descriptors:
        os.close(descriptor)


def say(log, *sent_ns):
    """A client has had answers of its first peer to messages of these times."""
    rows = [
        {"sequence": i, "size_bytes": 64, "reply_bytes": 64, "request_end": 64 * i}
        | {"sent_ns": at, "intended_ns": at, "received_ns": at + 50}
        for i, at in enumerate(sent_ns, 1)
    ]
    if not os.fstat(log).st_size:
        os.pwrite(log, f"{' '.join(NAMES)}\n".encode(), 0)
    table = np.array([[row.get(name, 0) for name in NAMES] for row in rows], "<u8")
    os.pwrite(log, table.tobytes(), os.fstat(log).st_size)


def test_what_was_sent_before_a_client_came_too_late_is_of_no_test(logs):
    places = {f"10.0.0.{i}": i for i in range(3)}
    ends = MeshEnds(HOSTS, {(host, PORT): i for host, i in places.items()}, places)
    mesh = MeshLog("udp", ends)
    mesh.begin(1, [log_in(log) for log in logs])
    say(logs[0], 100, 200)
    assert mesh.read() is None
    for log in logs:
        os.ftruncate(log, 0)
    mesh.begin(1000, [log_in(log) for log in logs])
    say(logs[0], 1100)
    assert mesh.read() is None
    say(logs[1], 1200)
    mesh.counts()
    found = mesh.read()
    assert sorted(found.numbers["sent_ns"].tolist()) == [1100, 1200]
    assert mesh.sent == 2
    say(logs[2], 1300)
    assert mesh.read().numbers["sent_ns"].tolist() == [1300]
    assert mesh.read() is None
