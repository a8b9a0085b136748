"""Flows that a translator (NAT) made two of are one again, by what it cannot change."""

from __future__ import annotations

import numpy as np
import pytest
from halves import (
    DRAIN_NS,
    ENDS,
    LAYOUT,
    RECEIVER,
    SENDER,
    UDP,
    announced,
    batch_of,
    half_rows,
    record,
    rows_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_analysis.records.flows import Flows
from latprof_analysis.records.joiner import Joiner
from latprof_analysis.records.message_rows import MESSAGE, messages_of
from latprof_analysis.records.translations import LONGEST_NS, translated_pairs


def flows_of(*batches: list[np.ndarray]) -> Flows:
    flows = Flows(LAYOUT.rings["flows"])
    for batch in batches:
        flows.add(np.concatenate(batch))
    return flows


@pytest.mark.parametrize(
    "order", [(SENDER, RECEIVER), (RECEIVER, SENDER)], ids=["sender", "receiver"]
)
@pytest.mark.parametrize("together", [True, False], ids=["one-batch", "two-batches"])
def test_both_ends_of_a_translated_connection_are_one_flow_of_the_senders_addresses(
    order, together
):
    told = [announced(side) for side in order]
    flows = flows_of(told) if together else flows_of(*([one] for one in told))
    (place,) = set(flows.index(np.array([5, 6], "u8")).tolist())
    assert flows.table["flow"][place] == 5
    assert flows.source_addresses[place] == "10.0.0.1"
    assert flows.destination_addresses[place] == "10.0.0.254"
    assert flows.translated[place]
    assert flows.sender_here[place]
    assert flows.receiver_here[place]


@pytest.mark.parametrize(
    "other",
    [
        {"first_sequence": 12},
        {"first_answer": 23},
        {"first_answer": 0},  # not known: a first sequence alone is no proof
    ],
)
def test_connections_that_differ_in_a_first_sequence_stay_two_flows(other):
    flows = flows_of([announced(SENDER, **other), announced(RECEIVER)])
    assert flows.index(np.array([5, 6], "u8")).tolist() == [0, 1]
    assert not flows.translated.any()


def test_flows_of_datagrams_have_no_first_sequences():
    flows = flows_of([announced(side, protocol=UDP) for side in (SENDER, RECEIVER)])
    assert len(flows) == 2


def test_what_nothing_translated_is_not_said_to_be():
    same = ENDS[SENDER]
    flows = flows_of([announced(SENDER), announced(RECEIVER, **same)])
    assert len(flows) == 1
    assert not flows.translated.any()


@settings(max_examples=100, deadline=None)
@given(
    translated=st.lists(st.booleans(), min_size=1, max_size=12),
    used=st.sets(st.integers(0, 11)),
    random=st.randoms(use_true_random=False),
)
def test_flows_that_stay_keep_both_numbers_and_their_own_addresses(
    translated, used, random
):
    told = []
    for i, other in enumerate(translated):
        own = {"first_sequence": 100 + i, "flow": 1000 + i, "source": f"10.0.0.{i}"}
        told.append(announced(SENDER, **own))
        numbers = {"flow": 2000 + i if other else 1000 + i}
        told.append(announced(RECEIVER, **own | numbers))
    random.shuffle(told)
    flows = flows_of(told)
    n = len(translated)
    assert len(flows) == n
    used = sorted(i for i in used if i < n) or [0]
    flows.touch(flows.index(np.array([1000 + i for i in used], "u8")))
    stay = flows.release(len(used))
    assert len(stay) == len(flows) == len(used)
    for i, other in enumerate(translated):
        numbers = np.array([1000 + i, 2000 + i if other else 1000 + i], "u8")
        (place,) = set(flows.index(numbers).tolist())
        assert (place >= 0) == (i in used)
        if place >= 0:
            assert flows.table["first_sequence"][place] == 100 + i
            assert flows.source_addresses[place] == f"10.0.0.{i}"
            assert flows.translated[place] == other
    # one that was released and one that stays are found by their sequences again
    again = {"first_sequence": 100 + used[0], "flow": 3000}
    flows.add(announced(RECEIVER, **again))
    found = flows.index(np.array([1000 + used[0], 3000], "u8"))
    assert found[0] == found[1]
    gone = next((i for i in range(n) if i not in used), None)
    if gone is not None:
        flows.add(announced(RECEIVER, first_sequence=100 + gone, flow=3001))
        assert flows.index(np.array([3001], "u8")) == [len(flows) - 1]


def pairs_of(sent, ranges) -> list[tuple[int, int]]:
    return sorted(
        translated_pairs(
            half_rows("sent_messages", "xmit_ns", sent),
            half_rows("received_ranges", "arrive_ns", ranges),
        )
    )


def test_a_fingerprint_that_two_flows_have_says_nothing_of_either():
    # a reply with its request's payload, and by chance its identification
    sent = [(1, 70, 100), (1, 71, 200), (2, 71, 150), (2, 72, 250)]
    ranges = [(11, 70, 300), (11, 71, 300), (12, 71, 300), (12, 72, 300)]
    assert pairs_of(sent, ranges) == [(1, 11), (2, 12)]


def test_flows_with_the_same_fingerprints_are_pairs():
    sent = [(1, 70, 100), (1, 71, 200), (2, 80, 100), (3, 90, 100)]
    ranges = [(11, 71, 300), (12, 80, 300), (13, 99, 300)]
    assert pairs_of(sent, ranges) == [(1, 11), (2, 12)]


@pytest.mark.parametrize(
    ("sent", "ranges"),
    [
        ([(1, 70, 100), (2, 70, 100)], [(11, 70, 300)]),  # two senders
        ([(1, 70, 100)], [(11, 70, 300), (12, 70, 300)]),  # two receivers
        # each of two fingerprints says something else
        ([(1, 70, 100), (1, 71, 100)], [(11, 70, 300), (12, 71, 300)]),
        ([(1, 70, 100), (2, 71, 100)], [(11, 70, 300), (11, 71, 300)]),
        ([(1, 70, 400)], [(11, 70, 300)]),  # it came before it left
        ([(1, 70, 100)], [(11, 70, 200 + LONGEST_NS)]),
        ([(1, 70, 100)], [(11, 71, 300)]),
        ([], [(11, 71, 300)]),
    ],
)
def test_flows_that_are_alike_by_chance_or_to_several_are_no_pair(sent, ranges):
    assert pairs_of(sent, ranges) == []


def alike_to_one_only(sent, ranges) -> list[tuple[int, int]]:
    """Look at each datagram with each, one by one; all times fit."""
    plain = {
        key
        for _, key, _ in sent
        if all(len({f for f, k, _ in side if k == key}) == 1 for side in (sent, ranges))
    }
    like = {(s[0], r[0]) for s in sent for r in ranges if s[1] == r[1] in plain}
    return sorted(
        (s, r)
        for s, r in like
        if all((s == other[0]) == (r == other[1]) for other in like)
    )


rows = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 8)), max_size=12)


@settings(max_examples=300, deadline=None)
@given(rows, rows)
def test_pairs_are_those_of_a_slow_reference(sent, ranges):
    sent = [(flow, key, 100) for flow, key in sent]
    ranges = [(flow + 10, key, 300) for flow, key in ranges]
    assert pairs_of(sent, ranges) == alike_to_one_only(sent, ranges)


def test_translated_datagrams_join_and_have_the_senders_addresses():
    told = [announced(side, protocol=UDP) for side in (SENDER, RECEIVER)]
    batch = batch_of(
        [
            record("sent_messages", 0, 0, flow=5, key=k, end=k, xmit_ns=1000 * k)
            for k in (1, 2, 3)
        ]
    )
    batch["flows"] = np.concatenate(told)
    batch["received_ranges"] = half_rows(
        "received_ranges", "arrive_ns", [(6, 2, 2500), (6, 3, 3500)]
    )
    batch["received_ranges"]["read_ns"] = 4000
    joiner = Joiner(LAYOUT)
    found = joiner.feed(batch, DRAIN_NS)
    assert rows_of(found) == [(5, 2, 2, 4000), (5, 3, 3, 4000)]
    made = messages_of(joiner, found, lambda flows: np.full(len(flows), MESSAGE))
    made.set_created(np.zeros(len(made), "i8"))
    for i in range(2):
        row = made.row(i)
        assert (row["source_address"], row["destination_address"]) == (
            ENDS[SENDER]["source"],
            ENDS[SENDER]["destination"],
        )
        assert row["translated"] == 1


def exchanges_of(flows: range, feed: int) -> dict:
    """Of each flow two datagrams, and what a translator made of both."""
    batch = batch_of([])
    for side, offset in ((SENDER, 0), (RECEIVER, 10**6)):
        made = np.repeat(announced(side, protocol=UDP), len(flows))
        made["flow"] = np.array(flows) + offset
        made["source_port"] = np.array(flows) % 2**16
        batch["flows"] = np.concatenate([batch["flows"], made])
    keys = np.repeat(np.array(flows), 2) * 2 + np.arange(2 * len(flows)) % 2
    for ring, stamp, offset in (
        ("sent_messages", "xmit_ns", 0),
        ("received_ranges", "arrive_ns", 10**6),
    ):
        batch[ring] = np.zeros(len(keys), LAYOUT.rings[ring])
        batch[ring]["flow"] = np.repeat(np.array(flows), 2) + offset
        batch[ring]["key"] = keys
        batch[ring][stamp] = feed * DRAIN_NS + offset // 10**5
    batch["received_ranges"]["read_ns"] = feed * DRAIN_NS + 20
    return batch


def test_thousands_of_translated_flows_in_one_drain_are_all_joined():
    joiner, count = Joiner(LAYOUT), 2000
    found = joiner.feed(exchanges_of(range(1, count + 1), 1), 2 * DRAIN_NS)
    assert len(found.sent_index) == 2 * count
    assert (found.sent_index >= 0).all()
    assert (found.received_index >= 0).all()
    assert joiner.unmatched == {}


def test_a_flow_that_gets_another_port_from_its_translator_stays_one():
    joiner = Joiner(LAYOUT)
    joiner.feed(exchanges_of(range(1, 2), 1), 2 * DRAIN_NS)
    again = exchanges_of(range(1, 2), 3)
    again["flows"] = again["flows"][1:]
    again["flows"]["flow"] = again["received_ranges"]["flow"] = 77
    for ring in ("sent_messages", "received_ranges"):
        again[ring]["key"] += 100
    found = joiner.feed(again, 4 * DRAIN_NS)
    assert (found.sent_index >= 0).all()
    assert (found.received_index >= 0).all()
    assert joiner.flows.index(np.array([1, 77], "u8")).tolist() == [0, 0]
