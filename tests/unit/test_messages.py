"""Rows of messages.csv: what is put in after the halves were joined."""

from __future__ import annotations

import numpy as np
from latprof_analysis.records.message_rows import Messages
from latprof_analysis.stages import BLANK


def rows_of(**columns: list[int]) -> Messages:
    numbers = {name: np.array(values, "i8") for name, values in columns.items()}
    n = len(numbers["send_ns"])
    for name in ("created_ns", "ready_ns", "read_ns"):
        numbers.setdefault(name, np.full(n, 900))
    numbers["created_ns"][:] = 0
    return Messages(numbers, {}, (np.zeros(n), np.zeros(n), np.zeros(n)))


def test_stamps_of_a_retransmission_are_not_those_of_the_first_departure():
    rows = rows_of(
        send_ns=[100, 100, 100, 100],
        queue_ns=[500, 110, 110, 500],
        xmit_ns=[510, 510, 120, 510],
        arrive_ns=[300, 300, 300, 300],
        retransmits=[0, 0, 0, 0],
    )
    rows.set_retransmits(np.array([1, 2, 1, 0]))
    rows.set_created(np.zeros(4, "i8"))
    assert rows.numbers["queue_ns"].tolist() == [BLANK, 110, 110, 500]
    # the last was sent once: that it runs backwards is an error, and must show
    assert rows.numbers["xmit_ns"].tolist() == [BLANK, BLANK, 120, 510]
    assert rows.numbers["transit_ns"].tolist() == [200, 190, 180, -210]


def test_messages_without_a_count_of_retransmits_keep_none():
    rows = rows_of(
        send_ns=[100], queue_ns=[110], xmit_ns=[120], arrive_ns=[0], retransmits=[BLANK]
    )
    rows.set_retransmits(np.array([3]))
    assert rows.numbers["retransmits"].tolist() == [BLANK]
