"""Of a responder's recording a client gets what is its host's, and nothing of others.

Held against a plain loop over the same records.
"""

from __future__ import annotations

from ipaddress import ip_address

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_agent.lend.client_records import ClientRecords
from latprof_agent.probes.layout import layout_of
from latprof_analysis.records.recording import Step

RINGS = layout_of().rings
WITH_FLOW = [ring for ring, dtype in RINGS.items() if "flow" in dtype.names]
HERE, CLIENT, OTHER = "192.0.2.1", "192.0.2.7", "192.0.2.8"
PORT, ASKING_PORT, SINCE_NS = 7107, 40_000, 1_000


def raw(address: str) -> np.ndarray:
    """As flows have it."""
    packed = ip_address(address).packed
    mapped = packed if len(packed) == 16 else bytes(10) + b"\xff\xff" + packed
    return np.frombuffer(mapped, "u1")


def records(ring: str, **columns: object) -> np.ndarray:
    """As many as the columns are long; other fields are 0."""
    first = next(iter(columns.values()))
    made = np.zeros(len(first), RINGS[ring])
    for name, values in columns.items():
        made[name] = values
    return made


def flow(number: int, client: str, port: int = 50_000, t_ns: int = SINCE_NS):
    """To the responder, or where it is odd from it."""
    ends = (client, port), (HERE, PORT)
    source, destination = reversed(ends) if number % 2 else ends
    return records(
        "flows",
        flow=[number],
        t_ns=[t_ns],
        source=[raw(source[0])],
        destination=[raw(destination[0])],
        source_port=[source[1]],
        destination_port=[destination[1]],
    )


def step(drained_ns: int | None = SINCE_NS, notes=(), **rings: np.ndarray) -> Step:
    found = {ring: np.zeros(0, dtype) for ring, dtype in RINGS.items()} | rings
    return Step(drained_ns, found, {}, [(0, 0, b"log")], list(notes))


def of_client(address: str = CLIENT) -> ClientRecords:
    return ClientRecords(raw(address).tobytes(), ASKING_PORT, SINCE_NS)


@given(
    hosts=st.lists(st.sampled_from([CLIENT, OTHER, "2001:db8::7"]), max_size=9),
    times=st.lists(st.integers(SINCE_NS - 5, SINCE_NS + 5), min_size=9, max_size=9),
    named=st.lists(st.integers(0, 9), max_size=20),
    ring=st.sampled_from(WITH_FLOW),
)
@settings(max_examples=200, deadline=None)
def test_of_each_ring_a_client_gets_the_records_of_its_flows(hosts, times, named, ring):
    flows = [flow(n, host, 50_000 + n, times[n]) for n, host in enumerate(hosts)]
    announced = np.concatenate([np.zeros(0, RINGS["flows"]), *flows])
    mine = {
        n for n, host in enumerate(hosts) if host == CLIENT and times[n] >= SINCE_NS
    }
    of = of_client()
    found = of.of(step(flows=announced))
    assert found
    assert found.rings["flows"]["flow"].tolist() == sorted(mine)
    if ring != "flows":
        found = of.of(step(**{ring: records(ring, flow=named)}))
        assert found
        assert found.rings[ring]["flow"].tolist() == [n for n in named if n in mine]
    assert found.logs == []


@pytest.mark.parametrize("address", [CLIENT, "2001:db8::7"])
def test_both_ways_are_the_clients(address):
    both = np.concatenate([flow(2, address), flow(3, address)])
    found = of_client(address).of(step(flows=both))
    assert found
    assert found.rings["flows"]["flow"].tolist() == [2, 3]


def test_the_connection_on_which_it_asks_is_not_in_it():
    asking = flow(2, CLIENT, ASKING_PORT), flow(3, CLIENT, ASKING_PORT)
    found = of_client().of(step(flows=np.concatenate([*asking, flow(4, CLIENT)])))
    assert found
    assert found.rings["flows"]["flow"].tolist() == [4]


def test_a_ring_that_says_not_whose_its_records_are_is_left_empty():
    dtype = np.dtype([("t_ns", "<u8"), ("secret", "<u8")])
    found = of_client().of(step(news=np.ones(3, dtype)))
    assert found
    assert len(found.rings["news"]) == 0


def test_segments_that_were_freed_go_by_ports_that_nobody_else_has():
    of = of_client()
    shared = flow(2, OTHER, 50_001), flow(4, CLIENT, 50_001)
    own = flow(6, CLIENT, 50_002)
    foreign = flow(8, OTHER, 50_003)
    of.of(step(flows=np.concatenate([*shared, own, foreign])))
    freed = records(
        "freed_segments",
        source_port=[50_001, 50_002, 50_003, PORT],
        destination_port=[PORT, PORT, PORT, 50_002],
    )
    found = of.of(step(freed_segments=freed))
    assert found
    assert found.rings["freed_segments"]["source_port"].tolist() == [50_002]


def test_untraced_periods_are_those_of_its_time():
    ends = [SINCE_NS - 1, SINCE_NS, SINCE_NS + 1]
    found = of_client().of(
        step(untraced_periods=records("untraced_periods", until_ns=ends))
    )
    assert found
    assert found.rings["untraced_periods"]["until_ns"].tolist() == ends[1:]


def test_names_are_of_processes_in_its_records_and_come_once():
    of = of_client()
    comms = records("tasks", pid=[7, 8, 9], t_ns=[1, 2, 3])
    assert of.of(step(SINCE_NS - 1, tasks=comms)) is None  # named before its time
    both = np.concatenate([flow(2, CLIENT), flow(4, OTHER)])
    sent = records("sent_messages", flow=[2, 4], pid=[7, 8])
    first = of.of(step(flows=both, sent_messages=sent))
    read = records("received_ranges", flow=[2], pid=[7], thread=[9])
    second = of.of(step(received_ranges=read))
    renamed = records("tasks", pid=[7, 8], t_ns=[SINCE_NS, SINCE_NS])
    third = of.of(step(tasks=renamed))
    names = [
        [] if one is None else one.rings["tasks"]["pid"].tolist()
        for one in (first, second, third)
    ]
    assert names == [[7], [9], [7]]


def test_counts_are_those_since_its_time_began():
    of = of_client()
    of.of(step(SINCE_NS - 9, [{"counters": {"lost_turns": 5, "early_xmits": 1}}]))
    of.of(step(None, [{"counters": {"lost_turns": 6}}]))
    found = [
        of.of(step(drained_ns, [{"counters": {"lost_turns": n}}]))
        for drained_ns, n in ((SINCE_NS, 8), (None, 9), (SINCE_NS + 1, 20))
    ]
    counted = [one.notes for one in found if one]
    assert counted == [[{"counters": {"lost_turns": n}}] for n in (2, 3, 14)]


def test_neither_paths_nor_options_of_the_responder_are_handed_out():
    of = of_client()
    running = {
        "host": "there",
        "kernel": "6.18",
        "arguments": ["echo", "--secret-file", "/root/secret"],
        "folder": "/root/there",
        "name": "mine",
        "state": "running",
    }
    found = of.of(step(notes=[{"running": running}, {"run": running}]))
    assert found
    assert found.notes == []
    said = of.description
    assert (said["host"], said["kernel"], said["state"]) == ("there", "6.18", "running")
    assert "secret" not in str(said)
    assert (said["folder"], said["arguments"], said["name"]) == (None, [], "")
