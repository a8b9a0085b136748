"""How long packets waited for their next hop's link address, from made records.

A slow reference tells each nanosecond by itself.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_agent.probes.layout import layout_of
from latprof_analysis.report.story_lines import conclusion
from latprof_analysis.story.next_hops import (
    RESOLVING,
    AddressWait,
    wait_of_datagram,
    waits_of,
)
from latprof_analysis.story.sockets import (
    HELD,
    LOST,
    NOT_KNOWN,
    DroppedSegment,
    held_time,
    unresolved_spans,
)
from latprof_analysis.story.story import Flight

LAYOUT = layout_of()
FLOW, OTHER, MS, JIFFY_NS = 0xFFFF_FFFF_FFFF_FFF0, 3, 1_000_000, 4_000_000
HOP = "10.0.0.2"
WHOSE = f"{HOP} (neighbour resolution)"


def flight_of(*waits, address=HOP):
    """What a recorder kept of (from, until, given up), of the flow or another one."""
    made = np.zeros(len(waits), LAYOUT.flights["address_waits"])
    found = ip_address(address)
    packed = found.packed if found.version == 6 else b"\0" * 10 + b"\xff\xff"
    packed += found.packed if found.version == 4 else b""
    for row, (from_ns, until_ns, given_up, *flow) in zip(made, waits, strict=True):
        row["from_ns"], row["until_ns"], row["given_up"] = from_ns, until_ns, given_up
        row["flow"] = flow[0] if flow else FLOW
        row["next_hop"] = np.frombuffer(packed, "<u8")
    return Flight(0, 1 << 60, {"address_waits": made}, {})


def resent(*times):
    made = np.zeros(len(times), LAYOUT.rings["retransmits"])
    made["t_ns"], made["end"], made["cause"] = times, 1, LAYOUT.resent["timeout"]
    return made


def states(*spans):
    made = np.zeros(len(spans), LAYOUT.flights["socket_states"])
    for row, (from_ns, until_ns) in zip(made, spans, strict=True):
        row["from_ns"], row["until_ns"], row["flow"] = from_ns, until_ns, FLOW
        row["held"] = LAYOUT.held["nagle"]
    return made


def held_with(flight, rows, begin_ns, end_ns, again=(), dropped=()):
    waits = waits_of(flight, FLOW, begin_ns, end_ns)
    spans = unresolved_spans(waits, resent(*again), end_ns, LAYOUT.resent, dropped)
    times = begin_ns, end_ns
    return held_time(rows, FLOW, *times, LAYOUT.held, JIFFY_NS, spans)


def told(parts):
    return [(part.kind, part.what, part.time_ns) for part in parts]


@pytest.mark.parametrize("address", [HOP, "fd77::2"])
def test_it_is_of_whose_address_was_not_known(address):
    (wait,) = waits_of(flight_of((10, 90, 0), address=address), FLOW, 0, 100)
    assert wait == AddressWait(10, 90, address, given_up=False)


def test_packets_that_wait_at_once_are_one_wait_that_the_last_one_ends():
    flight = flight_of(
        *((30, 90, 0), (10, 50, 1), (20, 40, 0)),
        *((5, 95, 0, OTHER), (120, 300, 1), (400, 500, 0)),
    )
    assert waits_of(flight, FLOW, 15, 200) == [
        AddressWait(15, 90, HOP, given_up=False),
        AddressWait(120, 200, HOP, given_up=True),
    ]


def test_an_older_recording_has_none():
    flight = Flight(0, 1 << 60, {}, {})
    assert waits_of(flight, FLOW, 0, 100) == []
    assert wait_of_datagram(flight, FLOW, 0, 100) is None


def test_a_datagram_has_its_own_wait_until_it_is_queued():
    flight = flight_of((11, 100, 0), (21, 102, 0), (31, 104, 0), (12, 13, 1))
    for send_ns, queue_ns in ((10, 101), (20, 103), (30, 105)):
        wait = wait_of_datagram(flight, FLOW, send_ns, queue_ns)
        assert wait == AddressWait(send_ns + 1, queue_ns, HOP, given_up=False)
    assert wait_of_datagram(flight, FLOW, 40, 200) is None
    assert wait_of_datagram(flight, OTHER, 10, 101) is None


def test_while_it_waits_nothing_else_holds_it():
    rows = states((0, 150), (180, 260))
    held = held_with(flight_of((100, 200, 0)), rows, 50, 300)
    assert told(held.parts) == [
        (HELD, "Nagle", 110),
        (RESOLVING, WHOSE, 100),
        (NOT_KNOWN, "", 40),
    ]
    assert [(s["from_ns"], s["time_ns"], "tcp" in s) for s in held.timeline] == [
        *((0, 50, True), (50, 100, False), (150, 60, True)),
    ]


def spans_of(room):
    """Spans in order and apart, of a line of so much room."""
    edges = st.lists(st.integers(0, room), max_size=8, unique=True).map(sorted)
    return edges.map(lambda e: list(zip(e[::2], e[1::2], strict=False)))


@given(spans_of(60), spans_of(60), st.integers(0, 60), st.integers(1, 60))
def test_parts_are_those_of_each_nanosecond(held, waited, begin_ns, took_ns):
    end_ns = begin_ns + took_ns

    def of(ns):
        if any(first <= ns < last for first, last in waited):
            return RESOLVING
        return HELD if any(first <= ns < last for first, last in held) else NOT_KNOWN

    flight = flight_of(*((*span, 0) for span in waited))
    found = held_with(flight, states(*held), begin_ns, end_ns)
    expected = Counter(map(of, range(begin_ns, end_ns)))
    assert {part.kind: part.time_ns for part in found.parts} == dict(expected)
    assert sum(s["time_ns"] for s in found.timeline) == took_ns - expected[NOT_KNOWN]


def test_what_was_given_up_is_lost_until_it_was_sent_again():
    flight = flight_of((1 * MS, 301 * MS, 1), (501 * MS, 700 * MS, 0))
    where = "at neighbour resolution (NEIGH_FAILED in f)"
    dropped = [DroppedSegment(301 * MS + 5, where, True)]
    held = held_with(flight, states(), MS, 700 * MS, (501 * MS - 10, 900 * MS), dropped)
    assert told(held.parts) == [
        (RESOLVING, WHOSE, 499 * MS),
        (LOST, f"{where}, sent again by a retransmission timeout", 200 * MS),
    ]
    # where no kernel said so, or it was not sent again, no more is said
    silent = held_with(flight, states(), MS, 700 * MS, (501 * MS - 10,))
    assert (LOST, "sent again by a retransmission timeout", 200 * MS) in told(
        silent.parts
    )
    assert (NOT_KNOWN, "", 200 * MS) in told(
        held_with(flight, states(), MS, 700 * MS).parts
    )


def sentence_of(held):
    whole_ns = sum(part.time_ns for part in held.parts)
    message = {"end_to_end_ns": whole_ns, "retransmits": 0}
    message |= {"sender_comm": "client", "sender_pid": 81}
    of = {"time_ns": whole_ns, "parts": [vars(part) for part in held.parts]}
    return conclusion({"message": message, "stages": {"send_queue": of}})


def test_the_conclusion_says_whose_address_it_waited_for():
    flight = flight_of((10 * MS, 2050 * MS, 0))
    assert sentence_of(held_with(flight, states(), 0, 2050 * MS)) == (
        "2.05 s of 2.05 s in the send queue of client (pid 81), waiting for the link "
        "address of 10.0.0.2 (neighbour resolution) for 2.04 s"
    )


def test_the_conclusion_says_that_it_was_not_found():
    flight = flight_of((0, 300 * MS, 1))
    where = "at neighbour resolution (NEIGH_FAILED in f)"
    dropped = [DroppedSegment(300 * MS, where, True)]
    held = held_with(flight, states(), 0, 900 * MS, (900 * MS - 10,), dropped)
    assert sentence_of(held) == (
        "900 ms of 900 ms in the send queue of client (pid 81), lost at neighbour "
        "resolution (NEIGH_FAILED in f), sent again after 600 ms by a retransmission "
        "timeout"
    )
