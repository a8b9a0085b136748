"""Halves without the other one are counted by what was seen of the missing end."""

from __future__ import annotations

import numpy as np
import pytest
from halves import LAYOUT, RECEIVER, SENDER, mapped
from latprof_analysis.records.flows import Flows
from latprof_analysis.records.one_ended import (
    NOT_FOLLOWED,
    NOT_SEEN,
    NOT_WATCHED,
    OneEnded,
)

HERE, THERE, LOOPBACK = "10.0.0.1", "192.0.2.7", "127.0.0.1"


def announced(number, side, source, destination):
    record = np.zeros(1, LAYOUT.rings["flows"])
    record["flow"], record["side"], record["protocol"] = number, side, 17
    for name, (address, port) in (("source", source), ("destination", destination)):
        record[name], record[f"{name}_port"] = mapped(address), port
    return record


@pytest.mark.parametrize(
    ("to", "cause"),
    [
        ((THERE, 80), NOT_SEEN),
        ((LOOPBACK, 80), NOT_WATCHED),
        ((HERE, 81), NOT_WATCHED),  # a socket of another flow has that address
        ((HERE, 80), NOT_FOLLOWED),  # ... and that port
    ],
)
def test_the_cause_is_what_is_known_of_the_other_end(to, cause):
    flows = Flows(LAYOUT.rings["flows"])
    causes = OneEnded(flows)
    sends = announced(1, SENDER, (HERE, 4000), to)
    served = announced(2, RECEIVER, (THERE, 4001), (HERE, 80))
    flows.add(np.concatenate([sends, served]))
    assert causes.causes(np.array([0, 0, 0]), "destination") == {cause: 3}
    assert causes.causes(np.array([-1]), "destination") == {NOT_SEEN: 1}
    assert causes.causes(np.array([0]), "source") == {NOT_FOLLOWED: 1}


def test_an_end_that_is_announced_later_is_known_from_then_on():
    flows = Flows(LAYOUT.rings["flows"])
    causes = OneEnded(flows)
    flows.add(announced(1, SENDER, (HERE, 4000), (THERE, 80)))
    assert causes.causes(np.array([0]), "destination") == {NOT_SEEN: 1}
    flows.add(announced(2, SENDER, (THERE, 80), (HERE, 4000)))
    assert causes.causes(np.array([0]), "destination") == {NOT_FOLLOWED: 1}
