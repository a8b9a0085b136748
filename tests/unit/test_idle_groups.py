"""Groups that are idle make room only where there is none."""

import numpy as np
import pytest
from latprof_agent.capture.histograms import GROUPS, OTHER_GROUPS, GroupState
from latprof_agent.monitor.idle_groups import IDLE_SECONDS, IdleGroups

FULL = range(OTHER_GROUPS.start, GROUPS)


def states(numbers, counted):
    return {
        n: GroupState({}, np.zeros(1), np.zeros(1), np.array([counted(n)]))
        for n in numbers
    }


@pytest.mark.parametrize(
    ("numbers", "busy", "expected"),
    [
        (FULL, 0, True),
        (FULL, len(FULL) // 2, True),
        (FULL, len(FULL) - 10, False),
        (range(OTHER_GROUPS.start, 100), 0, False),
    ],
    ids=["all idle", "half idle", "few idle", "room left"],
)
def test_idle_groups_are_in_the_way_of_others(numbers, busy, expected):
    idle = IdleGroups()
    assert not idle.are_in_the_way(states(numbers, lambda n: 1.0), 0.0)
    later = states(numbers, lambda n: 2.0 if n <= busy else 1.0)
    assert idle.are_in_the_way(later, IDLE_SECONDS + 1) is expected


def test_a_full_table_without_others_stays():
    idle = IdleGroups()
    quiet = states(FULL, lambda n: 0.0 if n in OTHER_GROUPS else 1.0)
    idle.are_in_the_way(quiet, 0.0)
    assert not idle.are_in_the_way(quiet, 2 * IDLE_SECONDS)


@pytest.mark.parametrize("other", OTHER_GROUPS)
def test_others_of_any_protocol_and_role_need_room(other):
    idle = IdleGroups()
    empty = {*OTHER_GROUPS} - {other}
    made = states(FULL, lambda n: 0.0 if n in empty else 1.0)
    idle.are_in_the_way(made, 0.0)
    assert idle.are_in_the_way(made, 2 * IDLE_SECONDS)
