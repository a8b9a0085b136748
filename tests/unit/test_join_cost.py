"""What joining costs, by counts: what is kept, looked at and sorted."""

from __future__ import annotations

import tracemalloc

import numpy as np
from halves import (
    DRAIN_NS,
    LAYOUT,
    RECEIVER,
    SENDER,
    UDP,
    announced,
    announcements,
    batch_of,
    half_rows,
    message,
    range_of,
    rows_of,
)
from latprof_analysis.records import translations
from latprof_analysis.records.flows import Flows
from latprof_analysis.records.joiner import ALONE_LIMIT, PENDING_LIMIT, Joiner
from latprof_analysis.records.translations import LOOKS, translated_pairs


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


def test_flows_that_are_not_used_are_let_go():
    # halves are kept for 15 drains, so 300 flows and the old one are in use
    limit, fresh, drains = 800, 20, 100
    joiner, rows, expected = Joiner(LAYOUT, flow_limit=limit), [], []
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


class Looks:
    """Counts what the search for translated flows is given."""

    def __init__(self, monkeypatch) -> None:
        self.calls: list[tuple[int, int]] = []
        monkeypatch.setattr(translations, "translated_pairs", self)

    def __call__(self, sent, ranges) -> list[tuple[int, int]]:
        self.calls.append((len(sent), len(ranges)))
        return translated_pairs(sent, ranges)


def flood(feed: int, count: int, flow: int) -> np.ndarray:
    made = np.zeros(count, LAYOUT.rings["sent_messages"])
    made["flow"], made["xmit_ns"] = flow, feed * DRAIN_NS
    made["key"] = made["end"] = np.arange(feed * count, (feed + 1) * count) + 1
    return made


def test_a_flood_to_a_host_that_is_not_here_is_not_looked_at(monkeypatch):
    looks, sorted_halves = Looks(monkeypatch), []
    lexsort = np.lexsort
    monkeypatch.setattr(
        np, "lexsort", lambda keys: sorted_halves.append(len(keys[0])) or lexsort(keys)
    )
    joiner = Joiner(LAYOUT)
    told = [announced(SENDER, protocol=UDP), announced(SENDER, flow=7, protocol=UDP)]
    told.append(announced(RECEIVER, flow=7, protocol=UDP))
    given_out = 0
    for feed in range(1, 9):
        batch = batch_of([])
        batch["flows"] = np.concatenate(told)
        # 5 is the flood; 7 is a flow with both ends here
        both = flood(feed, 10, 7)
        batch["sent_messages"] = np.concatenate([flood(feed, 50_000, 5), both])
        ranges = [(7, int(half["key"]), feed * DRAIN_NS + 5) for half in both]
        batch["received_ranges"] = half_rows("received_ranges", "arrive_ns", ranges)
        batch["received_ranges"]["read_ns"] = feed * DRAIN_NS + 9
        given_out += len(joiner.feed(batch, (feed + 1) * DRAIN_NS).sent_index)
    assert looks.calls == []
    # only the flow that something was received of was sorted
    assert sorted_halves
    assert max(sorted_halves) <= 20
    assert given_out == 8 * 10 + 8 * 50_000 - ALONE_LIMIT


def test_of_what_comes_from_another_host_a_few_datagrams_are_looked_at(monkeypatch):
    looks = []
    is_one_of = translations._is_one_of
    monkeypatch.setattr(
        translations,
        "_is_one_of",
        lambda values, keys: looks.append(len(keys)) or is_one_of(values, keys),
    )
    joiner = Joiner(LAYOUT)
    told = [announced(side, protocol=UDP) for side in (SENDER, RECEIVER)]
    for feed in range(1, 40):
        batch = batch_of([])
        batch["flows"] = np.concatenate(told)
        batch["sent_messages"] = flood(feed, 1000, 5)
        keys = range(10**6 + 100 * feed, 10**6 + 100 * feed + 100)
        ranges = [(6, key, feed * DRAIN_NS + 5) for key in keys]
        batch["received_ranges"] = half_rows("received_ranges", "arrive_ns", ranges)
        batch["received_ranges"]["read_ns"] = feed * DRAIN_NS + 9
        joiner.feed(batch, (feed + 1) * DRAIN_NS)
    assert looks
    # 3900 came; a flow is looked at until LOOKS is passed, 256 at once
    assert sum(looks) <= LOOKS + translations.LOOKS_AT_ONCE


def test_many_flows_from_elsewhere_are_looked_at_a_few_at_a_time():
    flows = Flows(LAYOUT.rings["flows"])
    count = 2 * translations.LOOKS_AT_ONCE
    elsewhere = np.repeat(announced(RECEIVER, protocol=UDP), count)
    elsewhere["flow"] = np.arange(count) + 100
    flows.add(np.concatenate([announced(SENDER, protocol=UDP), elsewhere]))
    made = translations.Translations(flows)
    ranges = np.zeros(count, LAYOUT.rings["received_ranges"])
    ranges["flow"], ranges["key"] = elsewhere["flow"], np.arange(count) + 1
    sent = flood(1, 10, 5)
    looked = []
    for _ in range(10):
        before = made._looked.sum()
        index = [flows.index(one["flow"]) for one in (sent, ranges)]
        made.unite(sent, index[0], ranges, index[1])
        looked.append(made._looked.sum() - before)
    assert set(looked) == {translations.LOOKS_AT_ONCE}


def test_the_answer_to_a_translated_flood_is_found_among_it():
    """Half a second of a flood, and one datagram back, come in one feed."""
    flows = Flows(LAYOUT.rings["flows"])
    # 5 to 6 is the flood, 15 to 16 the answer; no end knows the other's addresses
    ends = [
        announced(side, flow=n, protocol=UDP)
        for side, n in ((SENDER, 5), (RECEIVER, 6), (SENDER, 15), (RECEIVER, 16))
    ]
    flows.add(np.concatenate(ends))
    made = translations.Translations(flows)
    answer = flood(1, 1, 15)
    answer["key"] = 10**6
    sent = np.concatenate([answer, flood(1, 5000, 5)])
    ranges = np.zeros(len(sent), LAYOUT.rings["received_ranges"])
    ranges["flow"] = np.where(sent["flow"] == 15, 16, 6)
    ranges["key"], ranges["arrive_ns"] = sent["key"], sent["xmit_ns"] + 5
    made.unite(sent, flows.index(sent["flow"]), ranges, flows.index(ranges["flow"]))
    numbers = np.array([5, 6, 15, 16], "u8")
    places = flows.index(numbers).tolist()
    assert places[0] == places[1] != places[2] == places[3]
