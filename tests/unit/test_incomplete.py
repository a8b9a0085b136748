"""What is not whole is said with its cause: above 0.1% in a line, in JSON always."""

from __future__ import annotations

import pytest
from latprof_analysis.study.incomplete import as_dicts, causes_of, incomplete_text

RUN = {"workload": {"plan": None}, "lab": None, "unmatched": {}}
LATE = "sent, receiver's half too late"


def run_of(messages, **told):
    kinds = {"tcp message": {"messages": messages, "complete": messages}}
    return RUN | {"kinds": kinds} | told


@pytest.mark.parametrize("lab", [None, {"known": {}}])
def test_halves_that_came_too_late_are_said_in_a_lab_too(lab):
    document = run_of(1000, unmatched={LATE: 213}, lab=lab)
    text = incomplete_text(document)
    assert text.startswith("of 1000 messages 213 (21.3%) have both halves")
    assert [one["messages"] for one in as_dicts(document)] == [213]


@pytest.mark.parametrize(("late", "is_said"), [(8, True), (1, False), (2, True)])
def test_a_cause_is_in_json_always_and_on_the_screen_above_its_share(late, is_said):
    document = run_of(1000, unmatched={LATE: late})
    assert bool(incomplete_text(document)) == is_said
    (told,) = as_dicts(document)
    assert (told["name"], told["messages"], told["share"]) == (LATE, late, late / 1000)


@pytest.mark.parametrize(("lost", "begin"), [(0, "were never read"), (1, "have no r")])
def test_what_was_not_read_is_sure_where_no_record_of_reading_is_lost(lost, begin):
    lost_records = {"received_ranges": lost, "flows": 3}
    unmatched = {"sent, receiver closed": 9}
    document = run_of(100, unmatched=unmatched, lost_records=lost_records)
    (cause,) = causes_of(document)
    assert cause.sentence.startswith(begin)
    assert ("were lost" in cause.sentence) == bool(lost)


def test_a_missing_stamp_is_explained_as_far_as_counters_do():
    counters = {"coalesced_in_backlog": 30}
    document = run_of(100, missing_stamps={"arrive": 40}, counters=counters)
    (cause,) = causes_of(document)
    assert cause.sentence == (
        "have no `arrive`: 30 of segments that were merged while their socket was in "
        "use, why is not known of 10"
    )
    (cause,) = causes_of(run_of(100, missing_stamps={"arrive": 40, "created": 100}))
    assert cause.sentence == "have no `arrive`: why is not known"


def test_what_is_not_measured_is_named_with_its_share():
    text = incomplete_text(run_of(30, counters={"segmented_sends": 70}))
    assert text == (
        "not measured beside 30 messages: 70 (70.0%) packets of UDP_SEGMENT (GSO)"
    )
    assert incomplete_text(run_of(30, counters={"segmented_sends": 0})) == ""
    alone = {"kinds": {}, "counters": {"multipath_sockets": 4}}
    assert incomplete_text(RUN | alone) == (
        "not measured beside 0 messages: 4 sockets of MPTCP, whose messages are not "
        "counted"
    )
    both = run_of(1000, unmatched={LATE: 9}, counters={"multipath_sockets": 4})
    assert incomplete_text(both).startswith("of 1000 messages 9 (0.9%) have both")
    assert "; not measured beside 1000 messages: 4 sockets" in incomplete_text(both)
