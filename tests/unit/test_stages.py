"""The stage model: what is there always sums to end_to_end."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_analysis.stages import (
    BLANK,
    STAGES,
    STAMPS,
    merged_name,
    missing_code,
    stages_of,
)

ALL = (100, 110, 130, 160, 200, 250, 310)  # created to read


def stamps_of(*rows: tuple[int, ...]) -> dict:
    return dict(zip(STAMPS, np.array(rows, "i8").T, strict=True))


def test_with_all_stamps_each_stage_is_the_time_between_two():
    found = {name: int(v[0]) for name, v in stages_of(stamps_of(ALL)).items()}
    assert found == {
        "application": 10,
        "send_queue": 20,
        "qdisc": 30,
        "transit": 40,
        "receive_stack": 50,
        "receive_queue": 60,
        "end_to_end": 210,
    }


def test_a_missing_stamp_blanks_the_earlier_stage_and_gives_the_later_both_times():
    row = list(ALL)
    row[STAMPS.index("arrive")] = 0
    found = {name: int(v[0]) for name, v in stages_of(stamps_of(tuple(row))).items()}
    assert found["transit"] == BLANK
    assert found["receive_stack"] == 40 + 50
    assert found["end_to_end"] == 210


def test_without_created_a_message_begins_with_its_send_call():
    found = stages_of(stamps_of((0, *ALL[1:])))
    assert found["application"][0] == BLANK
    assert found["end_to_end"][0] == 200


def test_without_read_or_beginning_there_is_no_end_to_end():
    found = stages_of(stamps_of((*ALL[:-1], 0), (0, 0, *ALL[2:])))
    assert (found["end_to_end"] == BLANK).all()


@settings(deadline=None)
@given(
    gaps=st.lists(st.integers(0, 10**12), min_size=7, max_size=7),
    present=st.lists(st.booleans(), min_size=7, max_size=7),
)
def test_stages_sum_to_end_to_end_whatever_is_missing(gaps, present):
    times = np.cumsum(np.array(gaps, "i8")) + 1
    found = stages_of(stamps_of(tuple(np.where(present, times, 0))))
    parts = [int(found[stage][0]) for stage in STAGES]
    total = int(found["end_to_end"][0])
    whole = present[-1] and (present[0] or present[1])
    assert (total != BLANK) == whole
    if whole:
        assert sum(part for part in parts if part != BLANK) == total


def test_merged_stages_are_named_by_those_they_stand_for():
    there = dict.fromkeys(STAMPS, True)
    assert merged_name("transit", there) == "transit"
    assert merged_name("receive_stack", there | {"arrive": False}) == (
        "transit+receive_stack"
    )
    assert merged_name("transit", there | {"queue": False, "xmit": False}) == (
        "send_queue+qdisc+transit"
    )


def test_rows_that_lack_the_same_stamps_have_the_same_code():
    no_arrive = (*ALL[:4], 0, *ALL[5:])
    codes = missing_code(stamps_of(ALL, no_arrive, ALL, no_arrive))
    assert codes.tolist() == [0, 16, 0, 16]
