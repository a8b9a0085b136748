"""Segments that TCP sent again when what they hold had arrived."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_agent.probes.layout import layout_of
from latprof_analysis.records.retransmits import Retransmits
from latprof_analysis.report.overview import losses, retransmitted

PACKETS = layout_of().rings["retransmits"]


class Flows:
    """Two flows, by their numbers."""

    def index(self, flow):
        return (flow == 8).astype("i8")


def retransmits(*packets):
    """Packets as (flow, start, end, t_ns)."""
    made = np.zeros(len(packets), PACKETS)
    for row, packet in zip(made, packets, strict=True):
        row["flow"], row["start"], row["end"], row["t_ns"] = packet
    found = Retransmits(Flows(), PACKETS)
    found.add(made)
    return found


def needless(found, *rows):
    """Counts of rows as (flow, start, end, ready_ns)."""
    flow, start, end, ready_ns = map(np.array, zip(*rows, strict=True))
    counts = found.ending_after(flow.astype("u8"), start, end, ready_ns)
    return counts.tolist()


def test_what_left_when_all_of_a_message_had_arrived_is_needless():
    found = retransmits((7, 0, 100, 50), (7, 100, 200, 60), (8, 0, 100, 70))
    rows = [(7, 0, 100, 40), (7, 100, 200, 65), (8, 0, 100, 69), (8, 100, 200, 10)]
    assert needless(found, *rows) == [1, 0, 1, 0]


def test_a_packet_of_two_messages_is_counted_with_its_last_byte():
    found = retransmits((7, 0, 150, 50))
    assert needless(found, (7, 0, 100, 10), (7, 100, 200, 10)) == [0, 1]


def test_of_what_did_not_arrive_nothing_is_needless():
    assert needless(retransmits((7, 0, 100, 50)), (7, 0, 100, 0)) == [0]
    assert needless(retransmits(), (7, 0, 100, 10)) == [0]


packets = st.tuples(
    st.sampled_from([7, 8]), st.integers(0, 20), st.integers(1, 6), st.integers(1, 9)
)


@given(st.lists(packets, max_size=20), st.lists(st.integers(0, 9), min_size=12))
def test_it_counts_as_one_that_looks_at_each(made, ready):
    sent = [(flow, at, at + size, t_ns) for flow, at, size, t_ns in made]
    rows = [
        (flow, 5 * n, 5 * n + 5, ready[6 * place + n])
        for place, flow in enumerate((7, 8))
        for n in range(6)
    ]
    expected = [
        sum(
            flow == of and start < end <= behind and 0 < ready_ns < t_ns
            for of, _, end, t_ns in sent
        )
        for flow, start, behind, ready_ns in rows
    ]
    assert needless(retransmits(*sent), *rows) == expected


@pytest.mark.parametrize(
    ("count", "more"),
    [
        (0, ""),
        (2, ", 2 of them needlessly: the message had arrived before"),
        (5, ", all needlessly: the message had arrived before"),
        (None, ""),  # of an older run
    ],
)
def test_what_was_sent_again_is_not_said_to_be_lost(count, more):
    document = {"kinds": {"tcp a": {"retransmits": 5, "resent": 4}}}
    document |= {} if count is None else {"needless_retransmits": count}
    assert retransmitted(document) == f"5 segments of 4 messages{more}"
    assert losses(document) == ""
