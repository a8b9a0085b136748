"""What counts as slow in a group: the slowest share of what came lately."""

import numpy as np
import pytest
from latprof_agent.monitor.limits import LIMITED, ROUNDS_KEPT, TOKENS, Limits
from latprof_agent.probes.layout import layout_of
from latprof_analysis.stats.kernel_histogram import BUCKETS, bucket_of

LAYOUT = layout_of()
GROUP, OTHER = 7, 2
SEND_QUEUE = LAYOUT.quantities["send_queue"]


class Tables:
    """Send queue times of two groups."""

    def __init__(self):
        self.counts = np.zeros((10, BUCKETS))

    def add(self, group, times, ns):
        self.counts[group, bucket_of(ns)] += times

    def active(self):
        return self.counts.sum(axis=1).astype("i8")

    def values(self, quantities):
        found = np.zeros((len(self.counts), len(quantities)))
        found[:, quantities.index(SEND_QUEUE)] = self.counts.sum(axis=1)
        return found

    def together(self, quantities, firsts, groups):
        found = np.zeros((len(groups), len(quantities), len(firsts)), "f4")
        place = quantities.index(SEND_QUEUE)
        for at, group in enumerate(groups.tolist()):
            found[at, place] = np.add.reduceat(self.counts[group], firsts)
        return groups, found


class Put(dict):
    def __call__(self, name, key, value):
        assert name == "group_limits"
        limit = np.frombuffer(value, LAYOUT.group_limit)[0]
        self[int.from_bytes(key, "little")] = limit


@pytest.fixture
def put():
    return Put()


def test_the_slowest_in_a_thousand_of_the_last_rounds_are_slow(put):
    tables, limits = Tables(), Limits(LAYOUT, put)
    tables.add(GROUP, 20_000, 10_000_000)
    limits.update(tables)
    slow_ns = int(put[GROUP]["sent_ns"])
    assert slow_ns <= 10_000_000 < slow_ns * 1.3
    assert put[GROUP]["tokens"] == TOKENS
    assert put[GROUP]["turn_ns"] == 0  # of what nothing came
    for _ in range(ROUNDS_KEPT):
        tables.add(GROUP, 20_000, 1_000)
        limits.update(tables)
    assert put[GROUP]["sent_ns"] <= 1_000  # the slow ones were long ago


def test_a_group_that_counts_nothing_keeps_its_limit(put):
    tables, limits = Tables(), Limits(LAYOUT, put)
    tables.add(GROUP, 20_000, 1_000)
    limits.update(tables)
    put.clear()
    tables.add(OTHER, 5, 1_000)
    limits.update(tables)
    assert put == {}  # of the other group too few to know


def test_a_group_that_is_busy_no_more_has_none_slow_and_begins_anew(put):
    tables, limits = Tables(), Limits(LAYOUT, put)
    tables.add(GROUP, 20_000, 1_000)
    limits.update(tables)
    assert put[GROUP]["sent_ns"] > 0
    for _ in range(ROUNDS_KEPT):
        tables.add(GROUP, 5, 1_000)
        limits.update(tables)
    assert put[GROUP]["sent_ns"] == 0
    # what came before is not among the last rounds
    for _ in range(2):
        tables.add(GROUP, 20_000, 10_000_000)
        limits.update(tables)
    slow_ns = int(put[GROUP]["sent_ns"])
    assert slow_ns <= 10_000_000 < slow_ns * 1.3


def test_what_moved_to_others_is_not_new_there(put):
    tables, limits = Tables(), Limits(LAYOUT, put)
    tables.add(GROUP, 20_000, 10_000_000)
    tables.add(OTHER, 20_000, 1_000)
    limits.update(tables)
    tables.counts[OTHER] += tables.counts[GROUP]
    tables.counts[GROUP] = 0
    limits.move({GROUP: OTHER})
    for _ in range(ROUNDS_KEPT):
        tables.add(OTHER, 20_000, 1_000)
        limits.update(tables)
    assert put[OTHER]["sent_ns"] <= 1_000


def test_a_limit_of_the_users_holds_at_once(put):
    limits = Limits(LAYOUT, put, fixed_ns=5_000)
    limits.begin(3)
    assert set(put) == {0, 1, 2}
    assert all(put[1][name] == 5_000 for name in LIMITED)
