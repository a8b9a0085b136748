"""Joining halves: any order of coming gives the rows of a slow reference."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_agent.join.datagrams import match_datagrams
from latprof_agent.join.flows import IPPROTO_TCP
from latprof_agent.join.joiner import (
    PENDING_LIMIT,
    RANGE_KEEP_NS,
    SETTLE_NS,
    Joiner,
)
from latprof_agent.probes.layout import layout_of

LAYOUT = layout_of()
DRAIN_NS = 20_000_000
SENDER, RECEIVER = 1, 2


@dataclass(frozen=True)
class Record:
    """A record of a ring, when it was made and when it was in the ring."""

    ring: str
    values: tuple[tuple[str, int], ...]
    made_ns: int
    seen_ns: int


def record(ring: str, made_ns: int, delay_ns: int, **values: int) -> Record:
    return Record(ring, tuple(values.items()), made_ns, made_ns + delay_ns)


def announcements(flow: int, *sides: int) -> list[Record]:
    return [
        record("flows", 0, 0, flow=flow, side=side, protocol=IPPROTO_TCP)
        for side in sides
    ]


def batch_of(records: list[Record]) -> dict:
    """One drain's arrays."""
    batch = {}
    for ring, dtype in LAYOUT.rings.items():
        mine = [r for r in records if r.ring == ring]
        batch[ring] = np.zeros(len(mine), dtype)
        for i, found in enumerate(mine):
            for name, value in found.values:
                batch[ring][name][i] = value
    return batch


def joined(records: list[Record]) -> tuple[list, dict[str, int]]:
    """Drain every 20 ms what is in the rings by then; all pairs, and the counts."""
    joiner, pairs = Joiner(LAYOUT), []
    waiting = sorted(records, key=lambda r: r.seen_ns)
    now = 0
    while waiting:
        now += DRAIN_NS
        ready = [r for r in waiting if r.seen_ns <= now]
        waiting = waiting[len(ready) :]
        pairs += rows_of(joiner.feed(batch_of(ready), now))
    pairs += rows_of(joiner.finish())
    return sorted(pairs), joiner.unmatched


def rows_of(found) -> list:
    """(flow or key, end, read) of each pair; 0 for a half that is not there."""
    rows = []
    for s, r in zip(found.sent_index, found.received_index, strict=True):
        half = found.sent[s] if s >= 0 else found.received[r]
        read_ns = int(found.received[r]["read_ns"]) if r >= 0 else 0
        rows.append((int(half["flow"]), int(half["key"]), int(half["end"]), read_ns))
    return rows


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
    transits=st.lists(st.integers(1000, 9000), min_size=90, max_size=90),
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


def message(flow: int, end: int, at_ns: int) -> Record:
    return record("sent_messages", at_ns, 0, flow=flow, end=end, xmit_ns=at_ns)


def range_of(flow: int, end: int, at_ns: int, key: int = 0, start: int = 0) -> Record:
    values = {"flow": flow, "start": start, "end": end, "key": key}
    values |= {"read_ns": at_ns}
    return record("received_ranges", at_ns, 0, **values)


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
    assert unmatched == {"sent, no receiver's half": 1, "received, no sender's half": 2}


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


def test_memory_is_bounded_where_no_partner_ever_comes():
    joiner = Joiner(LAYOUT)
    joiner.feed(batch_of(announcements(1, SENDER, RECEIVER)), 0)
    batch = batch_of([])
    batch["sent_messages"] = np.zeros(PENDING_LIMIT // 4, LAYOUT.rings["sent_messages"])
    batch["sent_messages"]["flow"] = 1
    given_out, held_bytes = 0, []
    tracemalloc.start()
    for i in range(24):
        size = len(batch["sent_messages"])
        batch["sent_messages"]["end"] = np.arange(i * size, (i + 1) * size) + 1
        given_out += len(joiner.feed(batch, i * DRAIN_NS).sent_index)
        held_bytes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    # six times the limit came in: all but the limit were given out, as halves
    assert given_out == 24 * (PENDING_LIMIT // 4) - PENDING_LIMIT
    assert joiner.unmatched == {"sent, no receiver's half": given_out}
    assert held_bytes[-1] <= 1.2 * held_bytes[5]


def test_flows_that_are_not_used_are_let_go(monkeypatch):
    # halves are kept for 15 drains, so 300 flows and the old one are in use
    limit, fresh, drains = 800, 20, 100
    monkeypatch.setattr("latprof_agent.join.joiner.FLOW_LIMIT", limit)
    joiner, rows, expected = Joiner(LAYOUT), [], []
    old = 10**6
    for i in range(drains):
        now = (i + 1) * DRAIN_NS
        flows = [i * fresh + n + 1 for n in range(fresh)]
        records = announcements(old, SENDER, RECEIVER) if i == 0 else []
        for flow in flows:
            records += announcements(flow, SENDER, RECEIVER)
        for flow, end in [(old, i + 1), *((flow, 7) for flow in flows)]:
            records += [message(flow, end, now - 9), range_of(flow, end, now - 5)]
            expected.append((flow, 0, end, now - 5))
        rows += rows_of(joiner.feed(batch_of(records), now))
        assert len(joiner.flows) <= limit + fresh
        assert joiner.flows.index(joiner.flows.table["flow"]).tolist() == list(
            range(len(joiner.flows))
        )
    rows += rows_of(joiner.finish())
    assert sorted(rows) == sorted(expected)
    gone = drains * fresh + 1 - len(joiner.flows)
    assert joiner.unmatched == {"flows released": gone}


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
