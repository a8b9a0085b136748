"""What a lab's responder of bulk data is allowed: as much as the plan asks for."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field

import pytest
from latprof_agent.workload import bulk_client, load
from latprof_agent.workload.bulk import BulkInLab, BulkPlan
from latprof_agent.workload.bulk_client import BulkPair
from latprof_agent.workload.load import Flows
from latprof_agent.workload.load_plan import Load

MIB = 1 << 20
READY = ["echo", "ready 7107"]


@dataclass
class Ends:
    """A lab that starts nothing but what says that it is ready."""

    b_address: str = "192.0.2.2"
    words: dict[str, list[str]] = field(default_factory=dict)

    def start(self, end, words, *_, **options):
        self.words[end] = words
        return subprocess.Popen(READY, **options)


@pytest.fixture
def ends(monkeypatch):
    for module in (bulk_client, load):
        monkeypatch.setattr(module, "find_executable", lambda name: name)
    return Ends()


def bound(words, option):
    return int(words[words.index(option) + 1])


def memory_of(sessions, receive_buffer_bytes, unit_bytes):
    """As guests.c and bulk_service.c reckon it over UDP: what each session may take."""
    thread, queued = MIB // 4 + 3 * unit_bytes, max(4 * MIB, receive_buffer_bytes)
    return sessions * (thread + 4 * MIB + 128 * unit_bytes + 2 * queued)


@pytest.mark.parametrize(
    ("channels", "receive_buffer_bytes"),
    [((1, 2, 4, 8), 64 * MIB), ((64,), 8_000_000), ((64,), 256 * MIB), ((64, 1), 0)],
)
def test_a_bulk_runs_responder_bears_its_channels_and_their_buffers(
    ends, channels, receive_buffer_bytes
):
    plan = BulkPlan(channels=channels, receive_buffer_bytes=receive_buffer_bytes)
    pair = BulkInLab(plan, ends)._client([])
    assert isinstance(pair, BulkPair)
    pair._client.wait()
    pair.finish()
    words = ends.words["b"]
    assert words[words.index("--workloads") + 1] == "bulk"
    most = max(channels)
    assert bound(words, "--max-sessions") >= most
    needed = memory_of(most, receive_buffer_bytes, 65507)
    assert needed <= bound(words, "--max-memory") < 1 << 40  # the most that it takes


def test_a_loads_responder_bears_the_flows_of_all_its_parts(ends):
    loads = [Load("tcp", 40), Load("udp", 40, "up", 10**6)]
    flows = Flows(ends, loads, None, frozenset())
    flows.kill()
    words = ends.words["b"]
    assert bound(words, "--max-sessions") >= 80
    assert bound(words, "--max-memory") >= memory_of(80, 0, 1400)
