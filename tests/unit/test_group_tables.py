"""The kernel's counts by group, added up in one thread and read in another."""

from __future__ import annotations

import os

import numpy as np
import pytest
from latprof_agent.capture.histograms import (
    BLOCK_GROUPS,
    GROUPS,
    OTHER_GROUPS,
    GroupTables,
)
from latprof_agent.monitor.group_room import (
    FULL_SECONDS,
    IDLE_SECONDS,
    LEAST_FREE,
    SETTLE_SECONDS,
    GroupRoom,
)
from latprof_agent.monitor.groups import GroupNames
from latprof_agent.monitor.totals import Group
from latprof_agent.probes.grouping import Grouping
from latprof_agent.probes.layout import layout_of

LAYOUT = layout_of()
FIRST = OTHER_GROUPS.start
SENT = LAYOUT.group_counts.names.index("sent_messages")
QUANTITIES = LAYOUT.quantities["quantities"]
SEND_QUEUE = LAYOUT.quantities["send_queue"]
VALUES = len(LAYOUT.group_counts.names)  # where those of histograms begin


class MadeTables:
    """The maps of one CPU, as a drain gives them."""

    def __init__(self):
        self.file = os.memfd_create("group_totals")
        os.ftruncate(self.file, GROUPS * LAYOUT.group_counts.itemsize)
        self.blocks, self.free = set(), []
        self.buckets, self.sums = {}, {}
        self.most_blocks = GROUPS

    def set_constant(self, *_):
        pass

    def set_entries(self, *_):
        pass

    def descriptor(self, _name):
        return os.dup(self.file)

    def grow(self, _name, block):
        if len(self.blocks) == self.most_blocks:
            raise OSError(12, "Cannot allocate memory")
        self.blocks.add(block)

    def put(self, name, key, value):
        assert (name, key) == ("free_groups", b"")
        self.free.append(int.from_bytes(value, "little"))

    def changes(self, _name, first, count):
        wanted = {
            n + k for n in np.frombuffer(first, "u4").tolist() for k in range(count)
        }
        buckets = [(h, b, n) for (h, b), n in self.buckets.items() if h in wanted]
        sums = [(h, ns) for h, ns in self.sums.items() if h in wanted]
        for h, b, _ in buckets:
            del self.buckets[h, b]
        for h, _ in sums:
            del self.sums[h]
        return np.array(buckets, "u4").tobytes(), np.array(sums, "u8").tobytes()

    def count(self, group, messages, bucket=None, each_ns=0):
        """So many more were sent, and took as long in the send queue."""
        at = group * LAYOUT.group_counts.itemsize
        row = np.frombuffer(
            os.pread(self.file, LAYOUT.group_counts.itemsize, at), LAYOUT.group_counts
        ).copy()
        row["sent_messages"] += messages
        os.pwrite(self.file, row.tobytes(), at)
        if bucket is not None:
            histogram = group * QUANTITIES + SEND_QUEUE
            key = histogram, bucket
            self.buckets[key] = self.buckets.get(key, 0) + messages
            self.sums[histogram] = self.sums.get(histogram, 0) + messages * each_ns


@pytest.fixture
def made():
    made = MadeTables()
    yield made
    os.close(made.file)


@pytest.fixture
def tables(made):
    tables = GroupTables(made, LAYOUT, 1)
    tables.open()
    tables.grow()
    yield tables
    tables.close()


def sent(tables, group=FIRST):
    return tables.states()[group].scaled[SENT]


def error(tables, group=FIRST):
    return tables.states()[group].variance[SENT] ** 0.5


def test_what_is_read_stays_while_another_thread_adds(made, tables):
    made.count(FIRST, 1)
    tables.account(1.0)
    read = tables.states()
    for state in read.values():
        made.count(FIRST, 4)
        made.count(FIRST + 1, 7)
        tables.account(1.0)
        assert state.scaled[SENT] == 1
    assert [state.scaled[SENT] for state in tables.states().values()] == [5, 7]


def test_all_that_was_measured_has_no_error(made, tables):
    for messages in (3, 90, 0, 12):
        made.count(FIRST, messages, bucket=5, each_ns=70)
        tables.account(1.0)
    state = tables.states()[FIRST]
    assert state.scaled == state.measured
    assert set(state.variance) == {0}
    assert state.counts[SEND_QUEUE][5] == state.scaled[VALUES + SEND_QUEUE] == 105
    assert state.sums_ns[SEND_QUEUE] == 105 * 70


def test_windows_stand_for_half_of_the_pauses_around_them(made, tables):
    made.count(FIRST, 10, bucket=5, each_ns=70)
    tables.account(1.0)  # 10 a second
    made.count(FIRST, 20, bucket=6, each_ns=80)
    tables.account(1.0, pause=4.0)  # 20 a second
    state = tables.states()[FIRST]
    assert state.scaled[SENT] == 10 + 2 * 10 + 2 * 20 + 20
    assert state.measured[SENT] == 30
    assert state.counts[SEND_QUEUE][[5, 6]].tolist() == [30, 60]
    assert state.sums_ns[SEND_QUEUE] == 30 * 70 + 60 * 80


def test_the_pause_after_the_last_window_is_counted(made, tables):
    made.count(FIRST, 5)
    tables.account(0.05)  # 100 a second
    tables.stand_for(1.0)
    assert sent(tables) == 105
    tables.stand_for(1.0)
    assert sent(tables) == 205


def test_a_window_that_was_cut_stands_for_itself_alone(made, tables):
    made.count(FIRST, 5)
    tables.account(0.05)
    made.count(FIRST, 1)  # in a millisecond: 1000 a second, if that were a rate
    tables.account(0.001, pause=1.0)
    assert sent(tables) == 5 + 100 + 1


@pytest.mark.parametrize("seed", range(3))
def test_the_standard_error_is_that_of_repeated_runs(seed):
    """Traffic whose rate changes at random, measured for a tenth of the time."""
    rng = np.random.default_rng(seed)
    misses, errors = [], []
    for _ in range(60):
        made = MadeTables()
        tables = GroupTables(made, LAYOUT, 1)
        tables.open()
        tables.grow()
        truth = 0
        for _ in range(40):
            slices = rng.poisson(rng.gamma(4.0, 10.0, 10))
            truth += slices.sum()
            made.count(FIRST, int(slices[-1]))
            tables.account(0.05, pause=0.45)
        misses.append(sent(tables) - truth)
        errors.append(error(tables))
        os.close(made.file)
    # of 60 runs each is known to 1 / sqrt(2 * 60), 9%
    assert np.sqrt(np.mean(np.square(misses))) == pytest.approx(
        np.mean(errors), rel=0.35
    )


def test_that_none_came_in_a_window_does_not_say_that_none_came(made, tables):
    made.count(FIRST, 1)
    tables.account(1.0)
    for _ in range(10):
        tables.account(0.05, pause=1.0)
    assert sent(tables) <= 2
    # one in twenty windows of 50 ms would be one a second: ten of them
    assert 3 < error(tables) < 50


def test_what_one_group_had_is_anothers(made, tables):
    for group, messages in ((10, 7), (FIRST, 5)):
        made.count(group, messages, bucket=group, each_ns=group)
    tables.account(1.0)
    tables.move({10: FIRST})
    (state,) = tables.states().values()
    assert state.scaled[SENT] == state.measured[SENT] == 12
    assert state.counts[SEND_QUEUE][[10, FIRST]].tolist() == [7, 5]
    assert state.sums_ns[SEND_QUEUE] == 7 * 10 + 5 * FIRST
    # whoever has the number now begins at nothing
    made.count(10, 3, bucket=4, each_ns=1)
    tables.account(1.0)
    assert sent(tables, 10) == 3
    assert tables.states()[10].counts[SEND_QUEUE].sum() == 3


GIGABYTE = 1 << 30


class Taken:
    """How many numbers the kernel has taken, and how often it found none."""

    def __init__(self):
        self.numbers = self.refused = 0

    def __call__(self):
        return self.numbers, self.refused


@pytest.fixture
def taken():
    return Taken()


def room_of(tables, taken, memory=(24 * GIGABYTE, 20 * GIGABYTE)):
    room = GroupRoom(tables, taken, lambda: memory)
    room.begin()
    return room


def test_there_is_room_for_thousands_where_there_is_memory(made, tables, taken):
    room = room_of(tables, taken)
    for now in range(1000):
        taken.numbers = len(made.free) - LEAST_FREE // 2
        if room.step(now, list) != ([], False) or tables.room == GROUPS:
            break
    assert tables.room == GROUPS == 2 * 4096
    assert sorted(made.free) == list(range(OTHER_GROUPS.stop, GROUPS))
    assert not room.state(0.0).is_full


def test_the_idlest_make_room_where_there_is_no_memory(made, tables, taken):
    made.most_blocks = 2
    room = room_of(tables, taken)
    named = made.free.copy()
    taken.numbers = len(named)
    busy = named[::2]
    for now in range(int(IDLE_SECONDS) + 3):
        for number in busy:
            made.count(number, 1)
        tables.account(1.0)
        leaving, again = room.step(float(now), lambda: named)
        if leaving:
            break
    assert leaving
    assert again  # so that no socket goes on counting there
    assert set(leaving) <= set(named[1::2])
    assert room.settled(now + SETTLE_SECONDS / 2) == []
    assert room.settled(now + SETTLE_SECONDS) == leaving
    room.give()
    assert made.free[len(named) :] == leaving
    assert room.state(float(now)).evicted == len(leaving)


def test_full_is_said_where_a_group_found_no_room(made, tables, taken):
    made.most_blocks = 2
    room = room_of(tables, taken)
    taken.numbers = len(made.free)
    for number in made.free:
        made.count(number, 1)
    tables.account(1.0)
    room.step(0.0, list)
    assert not room.state(0.0).is_full
    taken.refused = 1
    room.step(1.0, list)
    state = room.state(2.0)
    assert state.is_full
    assert state.refused == 1
    assert state.named == len(made.free)
    assert state.limit == tables.room == 2 * BLOCK_GROUPS
    # when there is room again, whoever found none is asked again
    made.most_blocks = GROUPS
    tables.grow()
    assert room.step(3.0, list) == ([], True)
    assert not room.state(2.0 + 2 * FULL_SECONDS).is_full


@pytest.mark.parametrize(
    ("whole", "least", "most"),
    [(GIGABYTE // 2, BLOCK_GROUPS, 2048), (4 * GIGABYTE, 1024, 8192)],
)
def test_a_small_host_gives_less(made, tables, taken, whole, least, most):
    room = room_of(tables, taken, (whole, whole // 2))
    assert least <= room.state(0.0).limit <= most


def test_names_that_were_read_stay_while_another_thread_reads_more():
    keys = np.zeros(2, LAYOUT.group)
    keys["service"] = 80, 443
    numbers = np.array([5, 7], "u4")
    there = 1
    names = GroupNames(LAYOUT, Grouping(), lambda: (keys[:there], numbers[:there]))
    for _ in names.read():
        there = 2
        names.read()
    assert {n: group.service for n, group in names.read().items()} == {
        **dict.fromkeys(OTHER_GROUPS, "other"),
        5: "80",
        7: "443",
    }


def test_a_number_is_anothers_once_it_was_forgotten():
    keys = np.zeros(1, LAYOUT.group)
    keys["service"], keys["protocol"], keys["role"] = 80, 17, LAYOUT.roles["server"]
    names = GroupNames(LAYOUT, Grouping(), lambda: (keys, np.array([5], "u4")))
    assert names.read()[5].service == "80"
    assert names.read()[names.other(5)] == Group("udp", "server", "other")
    assert names.key(5) == keys[0].tobytes()
    names.forget([5])
    keys["service"] = 443
    assert names.read()[5].service == "443"


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (
            ("service",),
            [
                Group(protocol, role, service="other")
                for protocol in ("tcp", "udp")
                for role in ("client", "server")
            ],
        ),
        (("remote",), [Group(p, remote="other") for p in ("tcp", "udp")]),
        (
            ("comm", "interface"),
            [Group(p, comm="other", interface="other") for p in ("tcp", "udp")],
        ),
    ],
)
def test_what_has_no_room_has_the_labels_of_the_others(by, expected):
    none = np.zeros(0, LAYOUT.group), np.zeros(0, "u4")
    names = GroupNames(LAYOUT, Grouping(by), lambda: none)

    assert sorted(set(names.read().values())) == expected


def test_a_group_that_counted_nothing_is_the_same_object(made, tables):
    made.count(FIRST, 1, bucket=3, each_ns=1)
    made.count(10, 1, bucket=3, each_ns=1)
    tables.account(1.0)
    before = tables.states()
    made.count(10, 1, bucket=4, each_ns=1)
    tables.account(1.0)
    after = tables.states()
    assert after[FIRST] is before[FIRST]
    assert after[10].scaled[SENT] == 2
    assert after[10].counts[SEND_QUEUE].sum() == 2


def test_what_stands_for_a_pause_moves_with_its_group(made, tables):
    made.count(10, 5, bucket=3, each_ns=70)
    tables.account(0.05)  # 100 a second
    tables.move({10: FIRST})
    tables.stand_for(1.0)
    (state,) = tables.states().values()
    assert state.scaled[SENT] == 105
    assert state.counts[SEND_QUEUE][3] == 105
    assert state.sums_ns[SEND_QUEUE] == 105 * 70
