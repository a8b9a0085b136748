"""The rings themselves: what they hold when full, and round their end."""

from __future__ import annotations

import os

import numpy as np
import pytest
from latprof_agent.capture.capture import Capture
from latprof_agent.probes.catalogue import capabilities
from latprof_agent.probes.filter import Filter
from recording import tcp_pair

RING_BYTES = 4096
BYTES = 64


@pytest.fixture
def lab(make_lab):
    """Two ends."""
    return make_lab()


@pytest.fixture
def capture(lab):
    """Probes with rings of one page that nobody drains; a pair to send over."""
    client, server = tcp_pair(lab)
    watched = Filter(netns=(lab.a_inode, lab.b_inode), protocols=("tcp",))
    found = capabilities(("tcp",))
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cpus)})  # one CPU's ring takes all
    try:
        with Capture(watched, found, RING_BYTES) as capture, client, server:
            capture.start(draining=False)
            yield capture, client, server
    finally:
        os.sched_setaffinity(0, cpus)


def pass_messages(count, client, server):
    for _ in range(count):
        client.send(bytes(BYTES))
        server.recv(BYTES)


def ports_of(flows):
    """From where to where, of each announcement."""
    columns = flows["source_port"].tolist(), flows["destination_port"].tolist()
    return list(zip(*columns, strict=True))


def drained(capture):
    capture.drain()
    return {ring: records.copy() for ring, records in capture.read().items()}


def test_a_full_ring_counts_what_it_had_no_room_for(capture):
    capture, client, server = capture
    sent = 200
    pass_messages(sent, client, server)
    capture.stop()
    batch = {ring: records.copy() for ring, records in capture.read().items()}
    counters = capture.counters()
    for ring in ("sent_messages", "received_ranges"):
        kept = len(batch[ring])
        assert 0 < kept < RING_BYTES // BYTES
        # the oldest are kept, whole
        assert batch[ring]["end"].tolist() == [BYTES * (i + 1) for i in range(kept)]
        assert kept + counters[f"lost_{ring}"] == sent


def test_a_drained_ring_goes_round_without_a_loss(capture):
    capture, client, server = capture
    batches = []
    for _ in range(60):
        pass_messages(10, client, server)
        batches.append(drained(capture))
    capture.stop()
    for ring in ("sent_messages", "received_ranges"):
        ends = np.concatenate([batch[ring]["end"] for batch in batches])
        assert ends.tolist() == [BYTES * (i + 1) for i in range(600)]
        assert capture.counters()[f"lost_{ring}"] == 0


def test_a_flow_that_found_no_room_is_announced_with_its_next_message(lab, capture):
    capture, *_ = capture
    pairs = [tcp_pair(lab) for _ in range(60)]
    ports = {(c.getsockname()[1], s.getsockname()[1]) for c, s in pairs}
    batches = []
    for _ in range(2):
        for i, (client, server) in enumerate(pairs):
            pass_messages(1, client, server)
            if batches and i % 5 == 0:
                batches.append(drained(capture))
        batches.append(drained(capture))
    for pair in pairs:
        for end in pair:
            end.close()
    told_first = ports & set(ports_of(batches[0]["flows"]))
    assert 0 < len(told_first) < len(ports) / 2
    assert capture.counters()["lost_flows"] > 0
    flows = np.concatenate([batch["flows"] for batch in batches])
    for side in (1, 2):  # the sender's and the receiver's: once each
        told = ports_of(flows[flows["side"] == side])
        assert sorted(told) == sorted(ports)
