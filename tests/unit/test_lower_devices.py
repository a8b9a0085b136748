"""A message's `xmit` is when its packet left the last device of the sender's."""

from __future__ import annotations

import numpy as np
from halves import (
    DRAIN_NS,
    LAYOUT,
    RECEIVER,
    SENDER,
    announcements,
    batch_of,
    message,
    range_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_analysis.records import lower_devices
from latprof_analysis.records.joiner import ALONE_NS, RANGE_KEEP_NS, Joiner
from latprof_analysis.records.lower_devices import KEPT, MOST_TABLES, LowerTransmits

BRIDGE, NIC = 3, 4


def lower(*rows: tuple[int, int, int, int], key: int = 0) -> np.ndarray:
    """Records of (device, start, end, time) of flow 1."""
    made = np.zeros(len(rows), LAYOUT.rings["lower_transmits"])
    made["flow"], made["key"] = 1, key
    for i, row in enumerate(rows):
        made["ifindex"][i], made["start"][i], made["end"][i], made["t_ns"][i] = row
    return made


def sent_of(*rows: tuple[int, int], key: int = 0) -> np.ndarray:
    """Sent halves of flow 1: (end, when it left its first device)."""
    made = np.zeros(len(rows), LAYOUT.rings["sent_messages"])
    made["flow"], made["key"] = 1, key
    made["end"], made["xmit_ns"] = np.array(rows).T
    return made


def xmit_of(sent: np.ndarray, *batches: np.ndarray) -> list[int]:
    made = LowerTransmits()
    for batch in batches:
        made.add(batch)
    made.last_xmit(sent, np.arange(len(sent)))
    return sent["xmit_ns"].tolist()


def test_the_last_device_that_a_messages_end_passed_tells_when_it_left():
    rows = [(BRIDGE, 0, 1448, 20), (NIC, 0, 1448, 50), (BRIDGE, 1448, 2000, 21)]
    passed = lower(*rows, (NIC, 1448, 2000, 90))
    sent = sent_of((1000, 10), (1448, 10), (1449, 11), (2000, 11))
    assert xmit_of(sent, passed) == [50, 50, 90, 90]


def test_what_passed_no_device_below_keeps_its_time():
    passed = lower((NIC, 1000, 2000, 50))
    sent = sent_of((900, 10), (1000, 11), (1001, 12), (2001, 13))
    # behind its own packet another begins: that is no time of it
    assert xmit_of(sent, passed) == [10, 11, 50, 13]


def test_a_half_that_never_left_gets_no_time():
    assert xmit_of(sent_of((100, 0)), lower((NIC, 0, 100, 50))) == [0]


def test_a_retransmission_is_not_when_it_left_first():
    first = lower((NIC, 0, 3000, 50), (NIC, 3000, 6000, 60))
    # cut in another way, and within the first one's end
    again = lower((NIC, 0, 1448, 500), (NIC, 1448, 2896, 501), (NIC, 0, 3000, 502))
    for batches in ((np.concatenate([first, again]),), (first, again)):
        sent = sent_of((1400, 10), (2000, 10), (3000, 10), (6000, 20))
        assert xmit_of(sent, *batches) == [50, 50, 50, 60]


def test_records_of_several_cpus_in_one_batch_are_taken_in_their_time():
    passed = lower((NIC, 0, 100, 500), (NIC, 0, 100, 50), (NIC, 100, 200, 60))
    assert xmit_of(sent_of((100, 10), (200, 11)), passed) == [50, 60]


def test_datagrams_pass_devices_by_their_number_and_fingerprint():
    passed = lower((NIC, 0, 2, 70), (NIC, 0, 1, 50), (NIC, 0, 1, 99), key=7)
    assert xmit_of(sent_of((1, 10), (2, 11), (3, 12), key=7), passed) == [50, 70, 12]
    assert xmit_of(sent_of((1, 10), key=8), passed) == [10]


def test_flows_are_told_apart():
    passed = lower((NIC, 0, 100, 50))
    sent = sent_of((100, 10), (100, 10))
    sent["flow"] = 0, 2
    assert xmit_of(sent, passed) == [10, 10]


@st.composite
def streams(draw):
    """Packets of flows over two devices, in order, some of them again later."""
    records, sent, now = [], [], 100
    for flow in range(1, draw(st.integers(1, 3)) + 1):
        end = 0
        for size in draw(st.lists(st.integers(1, 3000), min_size=1, max_size=10)):
            now += draw(st.integers(1, 50))
            passed = [now + draw(st.integers(1, 40)) for _ in range(2)]
            # no packet passes the one before it
            passed = [
                max([t, *(r[4] + 1 for r in records if r[0] == flow and r[1] == i)])
                for i, t in enumerate(passed)
            ]
            records += [(flow, i, end, end + size, t) for i, t in enumerate(passed)]
            inside = end + draw(st.integers(1, size))
            sent.append((flow, inside, now, max(passed)))
            end += size
        start = draw(st.integers(0, end - 1))
        again = now + draw(st.integers(10**4, 10**5))
        records.append((flow, draw(st.integers(0, 1)), start, end, again))
    return records, sent


@settings(max_examples=150, deadline=None)
@given(streams(), st.integers(1, 7), st.booleans())
def test_any_division_into_batches_gives_the_first_time_of_each_device(
    made, size, merging
):
    records, sent = made
    rows = np.zeros(len(records), LAYOUT.rings["lower_transmits"])
    for i, name in enumerate(("flow", "ifindex", "start", "end", "t_ns")):
        rows[name] = [one[i] for one in records]
    rows = rows[np.argsort(rows["t_ns"], kind="stable")]
    halves = np.zeros(len(sent), LAYOUT.rings["sent_messages"])
    for i, name in enumerate(("flow", "end", "xmit_ns")):
        halves[name] = [one[i] for one in sent]
    most, lower_devices.MOST_TABLES = lower_devices.MOST_TABLES, 3 if merging else 64
    try:
        batches = [rows[i : i + size] for i in range(0, len(rows), size)]
        assert xmit_of(halves, *batches) == [expected for *_, expected in sent]
    finally:
        lower_devices.MOST_TABLES = most


def many(feed: int, count: int, flow: int = 1) -> np.ndarray:
    made = np.zeros(count, LAYOUT.rings["lower_transmits"])
    made["flow"], made["ifindex"] = flow, NIC
    made["end"] = np.arange(feed * count, (feed + 1) * count) + 1
    made["start"], made["t_ns"] = made["end"] - 1, feed * DRAIN_NS + 5
    return made


def test_records_that_nothing_will_ask_for_are_let_go_and_none_is_sorted_twice(
    monkeypatch,
):
    sorted_records, lexsort = [], np.lexsort
    monkeypatch.setattr(
        np, "lexsort", lambda keys: sorted_records.append(len(keys[0])) or lexsort(keys)
    )
    joiner, rate, feeds = Joiner(LAYOUT), 2000, 60  # 100,000 packets/s
    joiner.feed(batch_of(announcements(1, SENDER, RECEIVER)), 0)
    held = []
    for feed in range(1, feeds + 1):
        now, end = (feed + 1) * DRAIN_NS, (feed + 1) * rate
        batch = batch_of([message(1, end, feed * DRAIN_NS + 1)])
        there = range_of(1, end, feed * DRAIN_NS + 9, start=feed * rate)
        batch["received_ranges"] = batch_of([there])["received_ranges"]
        batch["lower_transmits"] = many(feed, rate)
        found = joiner.feed(batch, now)
        assert found.sent["xmit_ns"].tolist() == [feed * DRAIN_NS + 5]
        held.append(len(joiner._lower))
    # what may still come late is that of RANGE_KEEP_NS
    assert max(held) <= (RANGE_KEEP_NS // DRAIN_NS + 2) * rate
    assert sum(sorted_records) == feeds * rate


def test_records_that_a_waiting_half_may_ask_for_stay_up_to_a_bound():
    joiner, rate = Joiner(LAYOUT), KEPT // 20
    batch = batch_of([*announcements(1, SENDER), message(1, rate, 1)])
    batch["lower_transmits"] = many(0, rate)
    joiner.feed(batch, DRAIN_NS)
    for feed in range(1, 40):
        batch = batch_of([])
        batch["lower_transmits"] = many(feed, rate, flow=2)
        joiner.feed(batch, (feed + 1) * DRAIN_NS)
        assert len(joiner._lower) == min((feed + 1) * rate, KEPT // rate * rate)
    joiner.feed(batch_of([]), 2 * ALONE_NS)  # it has left
    assert len(joiner._lower) == 0


def test_a_slow_sender_makes_no_end_of_tables():
    made = LowerTransmits()
    for feed in range(1000):
        made.add(many(feed, 1))
        assert len(made._tables) <= MOST_TABLES
    assert len(made) == 1000
