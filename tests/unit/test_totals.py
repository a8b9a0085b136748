"""Totals of messages and round trips: merge laws, counts, and what stays bounded."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_analysis.stages import BLANK, STAGES, STAMPS
from latprof_analysis.study.grouped import MOST_WAYS, Grouped, distinct
from latprof_analysis.study.totals import MessageTotals, TripTotals
from message_rows import MessageRows, message

gaps = st.lists(st.integers(0, 10**6), min_size=7, max_size=7)
present = st.lists(st.sampled_from([True, True, True, False]), min_size=7, max_size=7)


@st.composite
def messages(draw):
    """A message with any stamps missing."""
    stamps = np.cumsum(draw(gaps)) + 1
    there = draw(present)
    return message(
        tuple(int(s) if t else None for s, t in zip(stamps, there, strict=True)),
        kind=draw(st.sampled_from(["request", "reply", "warmup", "message"])),
        protocol=draw(st.sampled_from(["tcp", "udp"])),
        size_bytes=draw(st.sampled_from([0, 1, 18, 1024, 1500, 10**7, 2**40])),
        packets=draw(st.sampled_from([None, 1, 2, 46])),
        hops=draw(st.sampled_from([None, 0, 3])),
        retransmits=draw(st.sampled_from([None, 0, 2])),
        sender_comm=draw(st.sampled_from([None, "a", "b"])),
        way=draw(st.sampled_from([None, "a -> b:80", "b:80 -> a", "a -> 10.0.0.1:80"])),
        probe_statistics=draw(st.sampled_from([None, None, 1])),
    )


batches = st.lists(messages(), max_size=12)


def totals_of(*parts, most=4):
    made = MessageTotals(most)
    for part in parts:
        made.add(MessageRows(part))
    return made


def merged(*parts):
    whole = MessageTotals(parts[0].most)
    for part in parts:
        whole.merge(pickle.loads(pickle.dumps(part)))
    return whole


def state(made):
    """All that totals hold."""

    def groups(by):
        return by.exact, {
            low: {name: h.as_dict() for name, h in found.items()}
            for low, found in by.groups.items()
        }

    kinds = {
        name: {
            **vars(kind),
            "smallest_transit": kind.smallest_transit.as_dict(),
            "legs": {n: h.as_dict() for n, h in kind.legs.histograms.items()},
            **{by: groups(vars(kind)[by]) for by in ("by_size", "by_hops")},
            **{by: groups(vars(kind)[by]) for by in ("by_packets", "halves", "hosts")},
        }
        for name, kind in made.kinds.items()
    }
    rest = {k: v for k, v in vars(made).items() if k not in ("_kinds", "_ways")}
    return {**rest, "kinds": kinds, "level": made._ways.level}


@settings(deadline=None)
@given(batches, batches)
def test_merging_totals_equals_adding_all_rows_to_one(a, b):
    whole = state(totals_of(a + b))
    assert state(merged(totals_of(a), totals_of(b))) == whole
    assert state(totals_of(a, b)) == whole


@settings(deadline=None)
@given(batches, batches)
def test_merging_totals_is_commutative(a, b):
    a, b = totals_of(a), totals_of(b)
    assert state(merged(a, b)) == state(merged(b, a))


@settings(deadline=None)
@given(batches, batches, batches)
def test_merging_totals_is_associative(a, b, c):
    a, b, c = totals_of(a), totals_of(b), totals_of(c)
    assert state(merged(merged(a, b), c)) == state(merged(a, merged(b, c)))


many = st.lists(
    st.sampled_from(
        [f"p{i} -> s:80" for i in range(20)]
        + [f"p -> 10.0.0.{i}:80" for i in range(20)]
    ),
    max_size=60,
)


@settings(deadline=None)
@given(many, many)
def test_of_many_ways_the_same_are_told_in_any_order(a, b):
    parts = [
        [message((1, 2, 3, 4, 5, 6, 9), kind="message", way=way) for way in ways]
        for ways in (a, b)
    ]
    together = totals_of(parts[0] + parts[1], most=0)
    found = {name: kind.messages for name, kind in together.kinds.items()}
    assert len(found) <= MOST_WAYS
    assert sum(found.values()) == len(a) + len(b)
    for order in (parts, parts[::-1]):
        whole = merged(*(totals_of(part, most=0) for part in order))
        assert {n: k.messages for n, k in whole.kinds.items()} == found
    if len({*a, *b}) <= MOST_WAYS:
        assert found == Counter(f"tcp {way}" for way in a + b)


@settings(deadline=None)
@given(st.permutations([message((1, 2, 3, 4, 5, 6, 9), hops=h) for h in range(4)]))
def test_of_equally_slow_messages_the_same_is_named_in_any_order(rows):
    together = totals_of(rows).slowest
    assert totals_of(*([row] for row in rows)).slowest == together
    assert together["hops"] == 0


@settings(deadline=None)
@given(st.lists(messages(), min_size=1, max_size=40))
def test_counts_sums_and_extremes_are_those_of_a_groupby(rows):
    frame = pd.DataFrame(rows)
    frame = frame[frame["kind"] != "warmup"]
    made = totals_of(rows)
    found = made.as_dict()
    told = frame["way"].where(frame["kind"] == "message")
    names = frame["protocol"] + " " + told.fillna(frame["kind"])
    assert set(found) == set(names)
    lacking = dict.fromkeys(STAMPS, 0)
    for name, part in frame.groupby(names):
        whole = part[part["end_to_end_ns"].notna()]
        figures = found[name]
        assert figures["messages"] == len(part)
        assert figures["complete"] == len(whole)
        for stamp in STAMPS:
            lacking[stamp] += int(whole[f"{stamp}_ns"].isna().sum())
        for column in ("packets", "retransmits"):
            assert figures[column] == part[column].sum()
        assert figures["bytes"] == part["size_bytes"].sum()
        assert figures["resent"] == (part["retransmits"] > 0).sum()
        kind = made.kinds[name]
        marked = part["probe_statistics"] == 1
        assert figures["probe_statistics"] == marked.sum()
        half = part[part["end_to_end_ns"].isna()]
        assert figures["halves"]["messages"] == len(part) - len(whole)
        for stage, seen in figures["halves"]["stages"].items():
            column = f"{stage.rsplit('+', maxsplit=1)[-1]}_ns"
            assert seen["max_ns"] <= half[column].max()
        counted = sum(s["n"] for s in figures["halves"]["stages"].values())
        stages = [f"{stage}_ns" for stage in STAGES]
        assert counted == half[stages].notna().sum().sum()
        for stage, histogram in kind.stages.items():
            if "+" not in stage and stage not in ("wakeup", "end_to_end"):
                assert histogram.max_ns <= whole[f"{stage}_ns"].max()
        if len(whole):
            ends = kind.stages["end_to_end"]
            assert ends.sum_ns == whole["end_to_end_ns"].sum()
            assert ends.max_ns == whole["end_to_end_ns"].max()
        for column, by in (("hops", kind.by_hops), ("packets", kind.by_packets)):
            counts = whole[column].value_counts(dropna=False)
            each = {low: h["end_to_end"].count for low, h in by.groups.items()}
            assert each == {BLANK if pd.isna(v) else v: n for v, n in counts.items()}
    assert made.missing == lacking
    ends = frame["end_to_end_ns"].max()
    assert (made.slowest or {}).get("end_to_end_ns", 0) == (ends if ends > 0 else 0)


def test_a_stage_with_the_time_of_a_missing_stamp_bears_both_names():
    row = message((10, 20, 30, 40, None, 60, 70))
    stages = totals_of([row]).as_dict()["tcp request"]["stages"]
    assert "transit" not in stages
    assert stages["transit+receive_stack"]["max_ns"] == 20
    assert totals_of([row]).missing == {**dict.fromkeys(STAMPS, 0), "arrive": 1}


def test_hosts_of_datagrams_have_the_time_outside_qdisc_and_transit():
    stamps = (10, 20, 30, 45, 100, 160, 177)
    rows = [
        message(stamps, protocol=protocol, size_bytes=size)
        for protocol, size in (("udp", 18), ("udp", 1024), ("tcp", 18))
    ]
    rows.append(message((10, 20, 30, None, 100, 160, 177), protocol="udp"))
    made = totals_of(rows, most=0)
    hosts = made.kinds["udp request"].hosts.groups
    counted = {size: h["hosts"].count for size, h in hosts.items() if h}
    assert counted == {18: 1, 1024: 1}
    assert hosts[18]["hosts"].sum_ns == (177 - 10) - (100 - 30)
    assert not made.kinds["tcp request"].hosts.groups


def test_stages_that_run_backwards_are_counted_and_in_no_figure():
    row = message((10, 20, 30, 40, 35, 60, 70))
    made = totals_of([row])
    assert made.backwards == 1
    assert "transit" not in made.kinds["tcp request"].stages


def test_the_smallest_size_has_only_transits_of_its_own():
    small = message((1, 2, 3, 4, 9, 10, 11), size_bytes=18)
    merged_stage = message((1, 2, None, None, 9, 10, 11), size_bytes=1)
    made = totals_of([message((1, 2, 3, 4, 5, 6, 7)), small, merged_stage])
    assert made.as_dict()["tcp request"]["smallest"] == {
        "size_bytes": 18,
        "transit_min_ns": 5,
        "transit_p10_ns": None,
        "n": 1,
    }


def test_sizes_are_told_apart_up_to_64_and_by_octaves_beyond():
    rows = [message((1, 2, 3, 4, 5, 6, 7), size_bytes=n) for n in range(1, 66)]
    few, many = totals_of(rows[:64], most=64), totals_of(rows, most=64)
    sizes = {
        name: stages["end_to_end"]["n"]
        for name, stages in many.as_dict()["tcp request"]["sizes"].items()
    }
    assert list(few.as_dict()["tcp request"]["sizes"])[:2] == ["1", "2"]
    assert sizes == {
        **{"1": 1, "2-3": 2, "4-7": 4, "8-15": 8, "16-31": 16, "32-63": 32},
        "64-127": 2,
    }


def test_totals_that_tell_nothing_apart_have_the_same_stages():
    rows = [message((1, 2, 3, 4, 5, 6, n), size_bytes=n) for n in range(7, 40)]
    plain, detailed = (totals_of(rows, most=n).as_dict() for n in (0, 64))
    assert plain["tcp request"].items() <= detailed["tcp request"].items()
    assert "sizes" not in plain["tcp request"]


def test_a_file_with_any_number_of_kinds_is_refused():
    row = message((1, 2, 3, 4, 5, 6, 7))
    rows = [{**row, "kind": f"k{n}"} for n in range(65)]
    with pytest.raises(ValueError, match="kinds of messages must be at most 64"):
        totals_of(rows)


@settings(deadline=None)
@given(st.lists(st.sampled_from([BLANK, 0, 1, 70, 2**20, 2**62]), max_size=30))
def test_distinct_values_are_those_of_numpy(values):
    values = np.array(values, "i8")
    found, index = distinct(values)
    assert found.tolist() == np.unique(values).tolist()
    np.testing.assert_array_equal(found[index], values)


def test_totals_of_different_detail_do_not_merge():
    with pytest.raises(ValueError, match="most must be the same, got 4 and 8"):
        Grouped(4).merge(Grouped(8))


trips = st.lists(
    st.tuples(
        st.sampled_from([18, 64, 1024]),
        st.one_of(st.just(BLANK), st.integers(0, 10**10)),
        st.integers(0, 10**12),
        st.one_of(st.just(BLANK), st.integers(0, 10**12)),
        st.sampled_from([0, 0, 1]),
    ),
    max_size=20,
)


def trip_totals_of(rows):
    made = TripTotals(most=2)
    *columns, disturbed = np.array(rows, "i8").reshape(-1, 5).T
    made.add(*columns, disturbed == 1)
    return made


def trip_state(made):
    groups = {
        low: {name: h.as_dict() for name, h in found.items()}
        for low, found in made.by_size.groups.items()
    }
    exact = made.by_size.exact
    lateness = made.lateness.as_dict()
    return {**vars(made), "by_size": (exact, groups), "lateness": lateness}


@settings(deadline=None)
@given(trips, trips)
def test_merging_round_trips_equals_adding_all_to_one(a, b):
    for parts in ((a, b), (b, a)):
        whole = TripTotals(most=2)
        for part in parts:
            whole.merge(pickle.loads(pickle.dumps(trip_totals_of(part))))
        assert trip_state(whole) == trip_state(trip_totals_of(a + b))


def test_lost_round_trips_are_counted_and_have_no_time():
    lost, last = (18, BLANK, 10**9, 0, 0), (64, 9, 2 * 10**9, 0, 0)
    made = trip_totals_of([(18, 7, 0, 0, 0), lost, last])
    found = made.as_dict()
    assert (found["sent"], found["lost"], found["loss_ratio"]) == (3, 1, 1 / 3)
    assert found["achieved_per_second"] == 1.0
    assert {size: f["n"] for size, f in found["sizes"].items()} == {"18": 1, "64": 1}
    assert found["lateness"]["max_ns"] == 2 * 10**9


def test_totals_load_neither_pandas_nor_scipy_stats_nor_pyarrow():
    code = (
        "import sys, latprof_analysis.study.totals;"
        "print({'pandas', 'scipy.stats', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert done.stdout.decode().strip() == "set()"


def test_round_trips_sent_while_our_cost_was_measured_are_in_all_figures():
    sent = [(18, 7, 0, 0, 0), (18, 900, 1, 0, 1), (18, BLANK, 2, 0, 1)]
    found = trip_totals_of(sent).as_dict()
    assert (found["sent"], found["lost"], found["probe_statistics"]) == (3, 1, 1)
    assert (found["rtt"]["n"], found["rtt"]["max_ns"]) == (2, 900)
