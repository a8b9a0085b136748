"""Which of the segments that the kernel freed held a byte of a flow."""

from __future__ import annotations

import numpy as np
import pytest
from latprof_agent.probes.layout import layout_of
from latprof_analysis.records.flows import IPPROTO_TCP, Flows
from latprof_analysis.records.freed_segments import FreedSegments

RINGS = layout_of().rings
FLOW, OTHER = 0xFFFF_FFFF_FFFF_FFF0, 7
CLIENT, SERVER = 40_000, 80


def known(first_sequence, number=FLOW):
    """Flows with one from the client to the server."""
    flows = Flows(RINGS["flows"])
    told = np.zeros(1, RINGS["flows"])
    told["flow"], told["protocol"] = number, IPPROTO_TCP
    told["source_port"], told["destination_port"] = CLIENT, SERVER
    told["first_sequence"], told["side"] = first_sequence, 1
    flows.add(told)
    return flows


def freed(*segments, ports=(CLIENT, SERVER)):
    """Records of (time, first sequence number, bytes)."""
    made = np.zeros(len(segments), RINGS["freed_segments"])
    for row, (t_ns, start, count) in zip(made, segments, strict=True):
        row["t_ns"], row["start"] = t_ns, start & 0xFFFFFFFF
        row["end"] = (start + count) & 0xFFFFFFFF
        row["source_port"], row["destination_port"] = ports
    return made


def times(first_sequence, records, end, flow=FLOW):
    kept = FreedSegments(known(first_sequence), RINGS["freed_segments"])
    kept.add(records)
    return kept.with_byte(flow, end)["t_ns"].tolist()


@pytest.mark.parametrize("first", [1000, (1 << 32) - 500, (1 << 32) - 1100])
def test_a_segment_holds_its_bytes_also_where_sequence_numbers_wrap(first):
    records = freed((30, first + 1000, 500), (20, first + 1000, 500), (10, first, 1000))
    for end in (1001, 1300, 1500):
        assert times(first, records, end) == [20, 30]
    for end in (1, 1000):
        assert times(first, records, end) == [10]
    assert times(first, records, 1501) == []


def test_of_four_gigabytes_only_their_last_32_bits_are_compared():
    records = freed((10, 1000 + 600, 400))
    assert times(1000, records, (5 << 32) + 700) == [10]


@pytest.mark.parametrize(
    ("ports", "found"),
    [
        ((CLIENT, 8080), [10]),  # translated: another server
        ((50_000, SERVER), [10]),  # or another client
        ((SERVER, CLIENT), []),  # the other direction
        ((50_000, 8080), []),
    ],
)
def test_a_translator_leaves_one_of_the_ports(ports, found):
    assert times(1000, freed((10, 1000, 400), ports=ports), 400) == found


def test_nothing_is_found_of_what_is_not_known():
    records = freed((10, 0, 400), (10, 1000, 400))
    assert times(0, records, 400) == []  # where its sequence numbers begin
    assert times(1000, records, 400, OTHER) == []
    empty = FreedSegments(Flows(RINGS["flows"]), RINGS["freed_segments"])
    empty.add(records)
    assert len(empty.with_byte(FLOW, 400)) == 0
