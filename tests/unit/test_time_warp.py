"""Time Warp's latencies A, B, C, D: from stamps, by hand and to the nanosecond."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_analysis.report.build import build_report
from latprof_analysis.report.depth import depth
from latprof_analysis.report.parts import Figure, Fold, Table
from latprof_analysis.study.analysis import analyze
from latprof_analysis.study.time_warp import latencies_of
from latprof_analysis.study.totals import MessageTotals
from message_rows import MessageRows, message
from run_folders import write_run

# created, send, queue, xmit, arrive, ready, read
WHOLE = (100, 130, 140, 150, 350, 360, 1000)


def found(*rows, most=4):
    totals = MessageTotals(most)
    totals.add(MessageRows(list(rows)))
    return totals.time_warp()["kinds"]


def values(latencies):
    return {name: (told["n"], told["mean_ns"]) for name, told in latencies.items()}


def test_each_latency_is_between_the_stamps_of_its_definition():
    told = found(message(WHOLE))["tcp request"]
    assert values(told) == {
        "A": (1, 900.0),
        "B": (1, 30.0),
        "C": (1, 220.0),
        "D": (1, 650.0),
    }


@pytest.mark.parametrize(
    ("lacking", "known"),
    [
        ("created", {"A": 870, "C": 220, "D": 650}),  # then A is from the send call
        ("send", {"A": 900, "D": 650}),
        ("arrive", {"A": 900, "B": 30}),
        ("read", {"B": 30, "C": 220}),
        ("queue", {"A": 900, "B": 30, "C": 220, "D": 650}),
        ("xmit", {"A": 900, "B": 30, "C": 220, "D": 650}),
        ("ready", {"A": 900, "B": 30, "C": 220, "D": 650}),
    ],
)
def test_what_lacks_a_stamp_is_not_guessed_and_named(lacking, known):
    place = ("created", "send", "queue", "xmit", "arrive", "ready", "read").index(
        lacking
    )
    stamps = tuple(None if i == place else s for i, s in enumerate(WHOLE))
    totals = MessageTotals()
    totals.add(MessageRows([message(stamps)]))
    document = totals.time_warp()
    told = document["kinds"]["tcp request"]
    assert {n: mean for n, (count, mean) in values(told).items() if count} == known
    assert all(count in (0, 1) for count, _ in values(told).values())
    unknown = document["unknown"].get("tcp request", {})
    assert set(unknown) == set(told) - set(known)
    assert all(f"no stamp {lacking}: " in why for why in unknown.values())
    stamped = document["stamped"]["tcp request"]
    assert stamped.pop("messages") == 1
    assert stamped == {stamp: int(stamp != lacking) for stamp in stamped}


gaps = st.lists(st.integers(0, 10**9), min_size=7, max_size=7)


@settings(deadline=None)
@given(st.lists(gaps, min_size=1, max_size=20))
def test_a_is_the_sum_of_b_c_and_d_to_the_nanosecond(rows):
    stamps = [tuple((np.cumsum(row) + 1).tolist()) for row in rows]
    totals = MessageTotals()
    totals.add(MessageRows([message(one) for one in stamps]))
    legs = totals.kinds["tcp request"].all_legs()
    sums = {name: histogram.sum_ns for name, histogram in legs.histograms.items()}
    assert sums["A"] == sums["B"] + sums["C"] + sums["D"]
    assert sums["A"] == sum(one[6] - one[0] for one in stamps)
    columns = ("created_ns", "send_ns", "arrive_ns", "read_ns")
    frame = pd.DataFrame([[one[i] for i in (0, 1, 4, 6)] for one in stamps])
    each = latencies_of(frame.set_axis(columns, axis=1))
    assert (each["A"] == each["B"] + each["C"] + each["D"]).all()


def test_stamps_as_large_as_a_clock_tells_them_lose_no_nanosecond():
    late = 2**61  # no double could tell two neighbours apart
    frame = pd.DataFrame(
        {"created_ns": [late], "send_ns": [late + 1], "arrive_ns": [late + 3],
         "read_ns": [late + 7]}, dtype="Int64"
    )  # fmt: skip
    each = {name: ns.tolist() for name, ns in latencies_of(frame).items()}
    assert each == {"A": [7.0], "B": [1.0], "C": [2.0], "D": [4.0]}


def test_kinds_are_protocols_requests_replies_and_messages_of_any_ends():
    rows = [
        message(WHOLE),
        message(WHOLE, kind="reply", protocol="udp"),
        message(WHOLE, kind="warmup"),
        message(WHOLE, kind="message", way="a -> b:80"),
        message(WHOLE, kind="message", way="b:80 -> a"),
        message(WHOLE, probe_statistics=1),  # sent while our own cost was measured
    ]
    rows += [
        message(WHOLE, kind="train"),
        message(WHOLE, kind="loaded reply"),
        message(WHOLE, kind="loaded reply", probe_statistics=1),
    ]
    told = {kind: latencies["A"]["n"] for kind, latencies in found(*rows).items()}
    assert told == {
        "tcp request": 2,
        "tcp message": 2,
        "udp reply": 1,
        "tcp train": 1,
        "tcp loaded reply": 2,
    }


def test_parts_merge_to_what_the_whole_tells():
    rows = [
        message(WHOLE),
        message((None, *WHOLE[1:]), kind="train"),
        message((*WHOLE[:6], None), kind="message", way="a -> b:80"),
        message(WHOLE, kind="train"),
    ]
    whole, merged = MessageTotals(), MessageTotals()
    whole.add(MessageRows(rows))
    for row in rows:
        part = MessageTotals()
        part.add(MessageRows([row]))
        merged.merge(part)
    assert merged.time_warp() == whole.time_warp()
    assert whole.time_warp()["stamped"]["tcp train"]["created"] == 1


def test_a_latency_without_a_message_that_has_both_its_stamps_is_named():
    half, other = (*WHOLE[:4], None, None, None), (None, None, None, None, *WHOLE[4:])
    told = MessageTotals()
    told.add(MessageRows([message(half), message(other)]))
    why = told.time_warp()["unknown"]["tcp request"]
    assert why == {
        "A": "no message has both send and read",
        "C": "no message has both send and arrive",
    }


def test_no_messages_at_all_are_told():
    (of, why), *_ = MessageTotals().time_warp()["unknown"].items()
    assert (of, list(why)) == ("every message", ["A", "B", "C", "D"])


def test_a_stamp_before_the_one_it_follows_is_in_no_latency():
    told = found(message((100, 130, 140, 150, 120, 360, 1000)))["tcp request"]
    assert told["C"]["n"] == 0
    assert told["D"]["mean_ns"] == 880


def test_a_folder_without_the_section_is_told_from_its_rows(tmp_path):
    rows = write_run(tmp_path / "run")
    document = analyze(tmp_path / "run").document
    for kind in ("request", "reply"):
        told = document["time_warp"]["kinds"][f"tcp {kind}"]
        of = rows[rows["kind"] == kind]
        truth = {
            "A": of["read_ns"] - of["created_ns"],
            "B": of["send_ns"] - of["created_ns"],
            "C": of["arrive_ns"] - of["send_ns"],
            "D": of["read_ns"] - of["arrive_ns"],
        }
        for name, times in truth.items():
            assert told[name]["n"] == len(times)
            assert told[name]["mean_ns"] == pytest.approx(times.mean(), rel=1e-12)
            assert told[name]["max_ns"] == times.max()
    tables = [part for part in depth(document) if isinstance(part, Table)]
    (table,) = (t for t in tables if t.title.startswith("tcp request: Time Warp"))
    assert [row[0] for row in table.rows] == ["A", "B", "C", "D"]


def test_the_report_has_a_table_and_three_pieces_of_b_c_and_d(tmp_path):
    rows = write_run(tmp_path / "run")
    study = analyze(tmp_path / "run")
    # what waits for no acknowledgements is another experiment
    assert "time-warp" not in {one.name for one in build_report(study, "").sections}
    study.document["workload"] = {"plan": {"max_acks": 2}}
    report = build_report(study, "run")
    (section,) = (one for one in report.sections if one.name == "time-warp")
    tables = [part for part in section.parts if isinstance(part, Table)]
    assert [table.title.split(":")[0] for table in tables] == [
        "tcp request",
        "tcp reply",
    ]
    folds = [part for part in section.parts if isinstance(part, Fold)]
    figures = [figure for fold in folds for figure in fold.parts]
    assert all(isinstance(figure, Figure) for figure in figures)
    assert [figure.name for figure in figures] == [
        f"pieces-tcp-{kind}-{latency}"
        for kind in ("request", "reply")
        for latency in ("b", "c", "d")
    ]
    # each of its bars' messages, on one of its two scales, are all of them
    waits = figures[2].data
    of = rows[rows["kind"] == "request"]
    drawn = waits.loc[waits["bins"] == "linear", "messages"].sum()
    assert drawn == len(of)
    longest = (of["read_ns"] - of["arrive_ns"]).max()
    assert waits["to_ns"].max() >= longest >= waits["from_ns"].max()
