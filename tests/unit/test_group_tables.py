"""The kernel's counts by group, added up in one thread and read in another."""

from __future__ import annotations

import os

import numpy as np
import pytest
from latprof_agent.capture.histograms import GROUPS, OTHER_GROUPS, GroupTables
from latprof_agent.monitor.groups import GroupNames
from latprof_agent.monitor.totals import Group
from latprof_agent.probes.grouping import Grouping
from latprof_agent.probes.layout import layout_of

LAYOUT = layout_of()
FIRST = OTHER_GROUPS.start


class MadeTables:
    """The maps of one CPU, as a drain gives them; no duration was counted."""

    def __init__(self):
        self.file = os.memfd_create("group_totals")
        os.ftruncate(self.file, GROUPS * LAYOUT.group_counts.itemsize)

    def set_constant(self, *_):
        pass

    def set_entries(self, *_):
        pass

    def descriptor(self, _name):
        return os.dup(self.file)

    def values(self, _name, _first, count):
        return bytes(count * LAYOUT.histogram.itemsize)

    def count(self, group, messages):
        """So many were sent in all."""
        row = np.zeros(1, LAYOUT.group_counts)
        row["sent_messages"] = messages
        os.pwrite(self.file, row.tobytes(), group * row.itemsize)


@pytest.fixture
def made():
    made = MadeTables()
    yield made
    os.close(made.file)


@pytest.fixture
def tables(made):
    tables = GroupTables(made, LAYOUT, 1)
    tables.open()
    yield tables
    tables.close()


def test_what_is_read_stays_while_another_thread_adds(made, tables):
    made.count(FIRST, 1)
    tables.account(FIRST)
    read = tables.states
    for state in read.values():
        made.count(FIRST, 5)
        made.count(FIRST + 1, 7)
        tables.account(FIRST + 1)
        assert state.counted.sum() == 1
    assert [state.counted.sum() for state in tables.states.values()] == [5, 7]


def test_names_that_were_read_stay_while_another_thread_reads_more():
    keys = np.zeros(2, LAYOUT.group)
    keys["service"] = 80, 443
    numbers = np.array([5, 7], "u4")  # 6: two CPUs met the same group at once
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
