"""Bounded tables keep as many as they say, and the newest."""

from __future__ import annotations

import numpy as np
import pytest
from latprof_agent.capture.reads import MOST_ANSWERS, Answers
from latprof_agent.monitor.flow_groups import KEPT, FlowGroups
from latprof_agent.monitor.samples import NO_GROUP
from latprof_agent.probes.layout import layout_of

RINGS = layout_of().rings


def turns(first, behind):
    found = np.zeros(behind - first, RINGS["turns"])
    found["pid"], found["send_ns"] = 7, np.arange(first, behind)
    found["thread"] = found["send_ns"] + 1
    return found


@pytest.mark.parametrize("count", [MOST_ANSWERS - 1, MOST_ANSWERS + 100])
def test_of_answers_the_newest_are_known(count):
    answers = Answers()
    for first in range(0, count, 1000):
        answers.add(turns(first, min(first + 1000, count)))
    oldest = max(0, count - MOST_ANSWERS)
    assert answers.thread(7, oldest) == oldest + 1
    assert answers.thread(7, count - 1) == count
    assert answers.thread(7, oldest - 1) is None
    assert answers.thread(8, oldest) is None


@pytest.mark.parametrize("count", [KEPT - 1, KEPT + 100])
def test_of_flows_groups_the_newest_are_known(count):
    flows = np.zeros(count, RINGS["flows"])
    flows["flow"], flows["group"] = np.arange(1, count + 1), 3
    groups = FlowGroups()
    for part in np.array_split(flows, 9):
        groups.add(part)
    known = [
        of(flows["flow"]) != NO_GROUP for of in (groups.of_senders, groups.of_receivers)
    ]
    assert sorted(one.sum() for one in known) == [0, min(count, KEPT)]
    assert max(known, key=np.sum)[-KEPT:].all()
