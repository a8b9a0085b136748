"""Joining halves: any order of coming gives the rows of a slow reference."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from halves import (
    DRAIN_NS,
    LAYOUT,
    RECEIVER,
    SENDER,
    UDP,
    Record,
    announcements,
    batch_of,
    joined,
    message,
    range_of,
    record,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_analysis.records.datagrams import match_datagrams
from latprof_analysis.records.flows import (
    IPPROTO_TCP,
    SIDE_ACCEPTED,
    SIDE_CLOSED,
    Flows,
)
from latprof_analysis.records.joiner import (
    ALONE_NS,
    RANGE_KEEP_NS,
    SETTLE_NS,
    UNREAD_NS,
    Joiner,
)


@st.composite
def streams(draw) -> list[Record]:
    """Messages of some flows, read in pieces that need not be messages."""
    records: list[Record] = []
    delays = st.integers(0, SETTLE_NS)
    for flow in range(1, draw(st.integers(1, 3)) + 1):
        records += announcements(flow, SENDER, RECEIVER)
        now, end, ends = 1000, 0, []
        for size in draw(st.lists(st.integers(1, 50_000), min_size=1, max_size=12)):
            now += draw(st.integers(0, 30_000_000))
            end += size
            ends.append((end, now))
            late = draw(delays)
            values = {"flow": flow, "end": end, "xmit_ns": now, "send_ns": now}
            records.append(record("sent_messages", now, late, **values))
        records += draw(reads_of(flow, ends))
    return records


@st.composite
def reads_of(draw, flow: int, ends: list[tuple[int, int]]) -> list[Record]:
    """Ranges up to the last end; some end within a message, some span many."""
    last = ends[-1][0]
    cuts = draw(st.sets(st.integers(1, last), max_size=12)) | {last}
    cuts |= {end for end, _ in ends if draw(st.booleans())}
    found, start, read_ns = [], 0, 0
    for cut in sorted(cuts):
        sent_ns = next(t for end, t in ends if end >= cut)
        read_ns = max(read_ns, sent_ns) + draw(st.integers(1, 20_000_000))
        late = draw(st.integers(0, SETTLE_NS))
        values = {"flow": flow, "start": start, "end": cut}
        values |= {"read_ns": read_ns, "ready_ns": read_ns}
        found.append(record("received_ranges", read_ns, late, **values))
        start = cut
    return found


def slow_reference(records: list[Record]) -> list:
    """Look for each message's range one by one, with all records at hand."""
    rows = []
    for sent in (dict(r.values) for r in records if r.ring == "sent_messages"):
        best = None
        for other in (dict(r.values) for r in records if r.ring == "received_ranges"):
            fits = other["flow"] == sent["flow"] and other["end"] >= sent["end"]
            if fits and (best is None or other["end"] < best["end"]):
                best = other
        rows.append((sent["flow"], 0, sent["end"], best["read_ns"] if best else 0))
    return sorted(rows)


@settings(max_examples=150, deadline=None)
@given(streams(), st.randoms(use_true_random=False))
def test_streams_join_as_the_reference_does_in_any_order(records, random):
    random.shuffle(records)
    rows, unmatched = joined(records)
    assert rows == slow_reference(records)
    assert unmatched == {}


@settings(max_examples=150, deadline=None)
@given(
    keys=st.lists(st.integers(1, 4), min_size=1, max_size=20),
    delays=st.lists(st.integers(0, SETTLE_NS), min_size=40, max_size=40),
    random=st.randoms(use_true_random=False),
)
def test_datagrams_that_are_alike_join_in_their_order(keys, delays, random):
    records = announcements(7, SENDER, RECEIVER)
    expected = []
    for i, key in enumerate(keys):
        xmit_ns = 1000 + i * 100_000
        read_ns = xmit_ns + 50_000
        values = {"flow": 7, "key": key, "end": i + 1}
        sent = record("sent_messages", xmit_ns, delays[i], xmit_ns=xmit_ns, **values)
        times = {"arrive_ns": xmit_ns + 1000, "read_ns": read_ns}
        values = {"flow": 7, "key": key, "end": i + 1}
        there = record("received_ranges", read_ns, delays[-1 - i], **times, **values)
        records += [sent, there]
        expected.append((7, key, i + 1, read_ns))
    random.shuffle(records)
    assert joined(records) == (sorted(expected), {})


def of_one_flow(sent, ranges) -> tuple:
    """Flow indices where there is one flow only."""
    return np.zeros(len(sent), "i8"), np.zeros(len(ranges), "i8")


def halves_of(xmit, arrive, keys) -> tuple:
    """Sent halves and ranges of datagrams, `end` telling which is whose."""
    sent = np.zeros(len(keys), LAYOUT.rings["sent_messages"])
    ranges = np.zeros(len(keys), LAYOUT.rings["received_ranges"])
    sent["xmit_ns"], ranges["arrive_ns"] = xmit, arrive
    for half in (sent, ranges):
        half["key"], half["end"] = keys, np.arange(len(keys))
    return sent, ranges


@settings(max_examples=100, deadline=None)
@given(
    gaps=st.lists(st.integers(10_000, 400_000), min_size=30, max_size=90),
    # none takes more than twice the longest of the others: that is the join's bound
    transits=st.lists(st.integers(4500, 9000), min_size=90, max_size=90),
    missing=st.lists(st.sampled_from(["", "", "", "sent", "range"]), min_size=90),
    random=st.randoms(use_true_random=False),
)
def test_a_datagram_alike_takes_no_others_stamps_where_its_own_are_missing(
    gaps, transits, missing, random
):
    n = len(gaps)
    xmit = 10**12 + np.cumsum(gaps)
    # of each three one is alike to others; the rest tell how long the way takes
    keys = np.where(np.arange(n) % 3 == 0, 1, 1000 + np.arange(n))
    sent, ranges = halves_of(xmit, xmit + transits[:n], keys)
    keep = {
        half: [i for i in range(n) if missing[i] != half or i % 3]
        for half in ("sent", "range")
    }
    for order in keep.values():
        random.shuffle(order)
    sent, ranges = sent[keep["sent"]], ranges[keep["range"]]
    ours, theirs = match_datagrams(sent, ranges, *of_one_flow(sent, ranges))
    both = set(keep["sent"]) & set(keep["range"])
    found = dict(zip(sent["end"][ours], ranges["end"][theirs], strict=True))
    assert {i: found.get(i) for i in both} == {i: i for i in both}


def test_a_flood_of_datagrams_that_are_all_alike_joins_in_their_order():
    n = 200_000
    xmit = 10**12 + np.arange(n) * 5000
    sent, ranges = halves_of(xmit, xmit + 50_000, np.full(n, 7))
    order = np.random.default_rng(1).permutation(n)
    flows = of_one_flow(sent, ranges)
    ours, theirs = match_datagrams(sent[order], ranges, *flows)
    assert len(ours) == n
    assert (order[ours] == theirs).all()


def test_what_finds_no_partner_is_given_out_and_counted_by_cause():
    records = announcements(1, SENDER, RECEIVER) + announcements(2, RECEIVER)
    records += [message(1, 100, 1000), message(1, 200, 2000), range_of(1, 100, 9000)]
    records += [range_of(2, 50, 9000), range_of(1, 3, 9000, key=77)]
    rows, unmatched = joined(records)
    assert rows == [
        (1, 0, 100, 9000),
        (1, 0, 200, 0),
        (1, 77, 3, 9000),
        (2, 0, 50, 9000),
    ]
    assert unmatched == {
        "sent, no receiver's half": 1,
        "received, no sender's half": 1,
        "received, sender not seen": 1,
    }


def test_a_range_inside_a_message_is_no_message():
    records = announcements(1, SENDER, RECEIVER)
    records += [message(1, 100, 1000), range_of(1, 40, 5000), range_of(1, 100, 6000)]
    assert joined(records) == ([(1, 0, 100, 6000)], {})


def test_a_sender_that_tells_too_late_is_counted_and_not_joined_to_another():
    late_ns = 9000 + 2 * RANGE_KEEP_NS
    records = announcements(1, SENDER, RECEIVER)
    records += [range_of(1, 100, 9000), range_of(1, 300, late_ns)]
    records += [record("sent_messages", 1000, late_ns, flow=1, end=100, xmit_ns=1000)]
    rows, unmatched = joined(records)
    assert rows == [(1, 0, 100, 0)]
    assert unmatched == {"sent, receiver's half too late": 1}


def test_a_message_whose_range_record_was_lost_takes_no_stamps_of_the_next():
    records = announcements(1, SENDER, RECEIVER)
    records += [message(1, end, 1000) for end in (100, 200, 300)]
    # the record of (100, 200] was lost: the next begins behind it
    records += [range_of(1, 100, 5000), range_of(1, 300, 7000, start=200)]
    rows, unmatched = joined(records)
    assert rows == [(1, 0, 100, 5000), (1, 0, 200, 0), (1, 0, 300, 7000)]
    assert unmatched == {"sent, no receiver's half": 1}


def given_out_after(records: list[Record], after_ns: int) -> int:
    """How many halves leave once nothing new came for that long."""
    joiner = Joiner(LAYOUT)
    now = max(r.seen_ns for r in records) + DRAIN_NS
    found = len(joiner.feed(batch_of(records), now).sent_index)
    nothing = batch_of([])
    assert joiner.waiting()
    return found + len(joiner.feed(nothing, now + after_ns).sent_index)


@pytest.mark.parametrize("key", [0, 9])
def test_a_half_whose_receiver_is_not_here_leaves_after_seconds_of_silence(key):
    here = [record("flows", 0, 0, flow=1, side=SENDER)]
    here.append(record("sent_messages", 9, 0, flow=1, key=key, end=1, xmit_ns=9))
    assert given_out_after(here, ALONE_NS // 2) == 0
    assert given_out_after(here, ALONE_NS) == 1


def test_a_half_whose_tcp_receiver_is_here_stays_however_late_it_reads():
    records = [*announcements(1, SENDER, RECEIVER), message(1, 100, 1000)]
    assert given_out_after(records, 10 * UNREAD_NS) == 0


def test_a_datagram_whose_receiver_is_here_waits_for_it_unless_a_later_one_was_read():
    records = [record("flows", 0, 0, flow=1, side=side) for side in (SENDER, RECEIVER)]
    for number in (1, 2):
        values = {"flow": 1, "key": number, "end": number, "xmit_ns": 1000 * number}
        records.append(record("sent_messages", 1000 * number, 0, **values))
    assert given_out_after(records, UNREAD_NS // 2) == 0
    assert given_out_after(records, UNREAD_NS) == 2
    times = {"arrive_ns": 3000, "read_ns": 4000}
    records.append(record("received_ranges", 4000, 0, flow=1, key=2, **times))
    assert given_out_after(records, ALONE_NS // 2) == 1
    assert given_out_after(records, ALONE_NS) == 2


def test_retransmitted_segments_count_to_the_messages_they_overlap():
    joiner = Joiner(LAYOUT)
    records = announcements(1, SENDER) + announcements(2, SENDER)
    spans = [(1, 0, 1000), (1, 900, 1100), (1, 5000, 6000), (2, 0, 10)]
    records += [
        record("retransmits", 1, 0, flow=flow, start=start, end=end)
        for flow, start, end in spans
    ]
    joiner.feed(batch_of(records), DRAIN_NS)
    asked = [(1, 0, 900), (1, 900, 1000), (1, 1000, 5000), (1, 5999, 9000), (2, 10, 20)]
    flow, start, end = (np.array(column) for column in zip(*asked, strict=True))
    # by hand: how many of the flow's spans [start, end) overlap each
    overlaps = [
        sum(f == g and s < e2 and s2 < e for g, s2, e2 in spans) for f, s, e in asked
    ]
    found = joiner.retransmits_of(flow.astype("u8"), start, end)
    assert found.tolist() == overlaps


def test_when_a_connection_was_accepted_is_no_announcement_of_its_flow():
    joiner = Joiner(LAYOUT)
    accept = record("flows", 70, 0, flow=5, side=SIDE_ACCEPTED, t_ns=70)
    joiner.feed(batch_of([*announcements(5, RECEIVER), accept]), 100)
    joiner.feed(batch_of(announcements(6, RECEIVER)), 200)
    assert [joiner.accepted_ns(flow) for flow in (5, 6, 7)] == [70, 0, 0]
    assert joiner.flows.table["side"].tolist() == [RECEIVER, RECEIVER]
    assert not joiner.flows.sender_here.any()


def datagrams_of(flow: int, side: int, netns: int, port: int = 7) -> np.ndarray:
    """The announcement of a flow of UDP by one end, with its sender's namespace."""
    made = np.zeros(1, LAYOUT.rings["flows"])
    values = {"flow": flow, "side": side, "protocol": UDP, "source_port": port}
    for name, value in (values | {"sender_netns": netns}).items():
        made[name] = value
    return made


def places(flows: Flows, *numbers: int) -> list[int]:
    return flows.index(np.array(numbers, "u8")).tolist()


@pytest.mark.parametrize("order", [1, -1])
def test_a_receiver_without_its_senders_namespace_has_the_only_one_that_sends_so(order):
    flows = Flows(LAYOUT.rings["flows"])
    ends = [datagrams_of(1, SENDER, 50), datagrams_of(2, RECEIVER, 0)]
    for one in [*ends, datagrams_of(3, SENDER, 51, port=8)][::order]:
        flows.add(one)
    (sender, receiver, other) = places(flows, 1, 2, 3)
    assert sender == receiver != other
    assert flows.table["sender_netns"][sender] == 50
    assert not flows.translated.any()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("at_once", [True, False])
def test_a_receiver_without_its_senders_namespace_has_none_of_two(order, at_once):
    flows = Flows(LAYOUT.rings["flows"])
    ends = [datagrams_of(1, SENDER, 50), datagrams_of(2, SENDER, 51)]
    ends = [*ends, datagrams_of(3, RECEIVER, 0)]
    records = [ends[i] for i in order]
    for batch in [np.concatenate(records)] if at_once else records:
        flows.add(batch)
    found = places(flows, 1, 2, 3)
    assert len(set(found)) == 3
    assert flows.receiver_here[found].tolist() == [False, False, True]
    assert flows.sender_here[found].tolist() == [True, True, False]
    assert flows.ambiguous[found].tolist() == [False, False, True]
    assert flows.table["flow"][found].tolist() == [1, 2, 3]


def connection(*ends_of_closing: tuple[int, str]) -> list[Record]:
    """Flow 1 of a client and flow 2 of its server, and how which flow's end ended."""
    ports = {1: (40000, 80, 11, 22), 2: (80, 40000, 22, 11)}
    records = []
    for flow, (source, destination, first, answer) in ports.items():
        for side in (SENDER, RECEIVER):
            values = {"source_port": source, "destination_port": destination}
            values |= {"first_sequence": first, "first_answer": answer}
            values |= {"flow": flow, "side": side, "protocol": IPPROTO_TCP}
            values |= {"accepted": int((source == 80) == (side == SENDER))}
            records.append(record("flows", 0, 0, **values))
    for flow, how in ends_of_closing:
        values = {"flow": flow, "side": SIDE_CLOSED, "t_ns": 5000}
        records.append(record("flows", 5000, 0, accepted=LAYOUT.endings[how], **values))
    return records


@pytest.mark.parametrize(
    ("endings", "cause"),
    [
        ([(2, "closed")], "receiver closed"),
        ([(2, "reset")], "receiver closed"),
        ([(1, "closed"), (2, "by_peer")], "no receiver's half"),  # its sender did
        ([], "no receiver's half"),
    ],
)
def test_what_a_reader_closed_without_reading_is_told_from_what_is_lost(endings, cause):
    records = connection(*endings)
    records += [message(1, 100, 1000), range_of(1, 100, 2000), message(1, 200, 3000)]
    rows, unmatched = joined(records)
    assert rows == [(1, 0, 100, 2000), (1, 0, 200, 0)]
    assert unmatched == {f"sent, {cause}": 1}


@pytest.mark.parametrize(
    ("drains_before", "cause"), [(1, "receiver closed"), (2, "no receiver's half")]
)
def test_an_end_may_be_read_a_drain_before_its_flow_is_announced(drains_before, cause):
    """Those of flows that nobody announces must not gather."""
    *announced, closed = connection((2, "closed"))
    later = drains_before * DRAIN_NS + 1
    later_ones = [
        *announced,
        *(message(1, 100, 1000), range_of(1, 100, 2000), message(1, 200, 3000)),
    ]
    late = [replace(one, seen_ns=later + one.seen_ns) for one in later_ones]
    rows, unmatched = joined([closed, *late])
    assert rows == [(1, 0, 100, 2000), (1, 0, 200, 0)]
    assert unmatched == {f"sent, {cause}": 1}


def test_of_a_reader_that_was_not_seen_to_get_anything_no_close_tells():
    """Its path is not followed: it may have read all."""
    records = [
        one
        for one in connection((2, "closed"))
        if {("flow", 1), ("side", RECEIVER)} - set(one.values)
    ]
    _, unmatched = joined([*records, message(1, 100, 1000)])
    assert list(unmatched.values()) == [1]
    assert not {"sent, receiver closed", "sent, no receiver's half"} & unmatched.keys()


def test_what_stands_before_bytes_that_were_read_was_not_left_by_its_reader():
    records = connection((2, "closed"))
    records += [message(1, end, 1000) for end in (100, 200)]
    records += [range_of(1, 200, 2000, start=100)]  # the record of (0, 100] was lost
    _, unmatched = joined(records)
    assert unmatched == {"sent, no receiver's half": 1}
