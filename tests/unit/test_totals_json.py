"""What was measured comes back from JSON as it was, of whatever kind."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from latprof_agent.monitor.totals import (
    Counted,
    Drop,
    Exemplar,
    Fit,
    Group,
    GroupTotals,
    Own,
    Quantity,
    Room,
    Totals,
    Waiting,
)
from latprof_agent.monitor.totals_json import as_json, of_json
from latprof_analysis.stats.kernel_histogram import CoarseHistogram

GROUP = Group("tcp", "client", "80", comm='a"b\udcff')


def everything():
    histogram = CoarseHistogram.of([5, 100, 2**40])
    histogram.unmeasured, histogram.variance = 2, 0.25
    drops = Counter({Drop("qdisc", "QDISC_DROP", device="eth0 10:"): 3})
    return Totals(
        t_ns=2**62,
        unix_seconds=1.5e9,
        groups={
            GROUP: GroupTotals(
                {Quantity.RESPONSE: histogram},
                Counter({Counted.SENT_BYTES: 2**60}),
                drops,
                drops,
                Counter({"timeout": 1}),
                measured=Counter({Counted.SENT_BYTES: 7}),
                variance={Counted.SENT_BYTES: 0.5},
            )
        },
        own=Own(3.0, 2.0, {"turns": 1}, groups=Room(1, 2, 3, 4, is_full=True)),
        fits={(GROUP, Quantity.QDISC): Fit(1.0, 0.5, 2.0, 3.0, 1.0, 4.0, 0.99, 300)},
        exemplars=[Exemplar(GROUP, Quantity.SERVER, 9, 8, 7, {"server": 9}, "x", 6)],
        capabilities=[{"name": "sent", "offered": True}],
        waiting={GROUP: Waiting(2, 0.5)},
        gone=("netns=a", "port=80"),
        stories={(7, 8): {"id": "one"}},
        story_counts={"told": 1},
        renamed={GROUP: Group("tcp", "client", "80", comm="of a pod")},
    )


@pytest.mark.parametrize("totals", [everything(), Totals()])
def test_all_comes_back(totals):
    found = of_json(Totals, json.loads(json.dumps(as_json(totals))))
    for group, of in totals.groups.items():
        for quantity, histogram in of.histograms.items():
            again = found.groups[group].histograms.pop(quantity)
            assert (again.counts == histogram.counts).all()
            rest = "sum_ns", "unmeasured", "variance"
            for name in rest:
                assert getattr(again, name) == getattr(histogram, name)
        of.histograms.clear()
    assert found == totals


@pytest.mark.parametrize(
    "damaged", [[], [1] * 12, None, 5, [[]] * 11, [0, 0, [[1, 2]]] + [[]] * 8]
)
def test_what_is_no_such_thing_is_refused(damaged):
    with pytest.raises((ValueError, TypeError)):
        of_json(Totals, damaged)
