"""Bytes on their way: what a closed form says of messages at known times."""

from __future__ import annotations

import numpy as np
import pytest
from latprof_analysis.records.in_flight import InFlight
from latprof_analysis.records.turn import FOREVER, Turn, no_turns


def parts_of(send_ns, read_ns, size):
    made = no_turns(len(send_ns))
    made[Turn.FIRST_SEND_NS], made[Turn.LAST_READ_NS] = send_ns, read_ns
    made[Turn.BYTES], made[Turn.MESSAGES] = size, 1
    return made


def test_it_is_rate_times_delay():
    """Little's law: 100 bytes each 1,000 ns, each 10,000 ns on its way."""
    send_ns = 5_000 + 1_000 * np.arange(10_000)
    found = InFlight()
    for piece in np.array_split(send_ns, 7):
        found.add(parts_of(piece, piece + 10_000, 100))
    assert found.mean_bytes == pytest.approx(1000, rel=0.002)


def test_one_after_the_other_fill_the_time():
    send_ns = 1 + 50 * np.arange(100)
    found = InFlight()
    found.add(parts_of(send_ns, send_ns + 50, 7))
    assert found.mean_bytes == 7


def test_turns_of_several_are_of_before():
    send_ns = 1 + 50 * np.arange(100)
    parts = parts_of(send_ns, send_ns + 50, 7)
    parts[Turn.MESSAGES, :3] = 2
    found = InFlight()
    found.add(parts)
    assert (found.mean_bytes, found.messages) == (7, 97)


@pytest.mark.parametrize("missing", ["send", "read"])
def test_of_messages_with_one_end_it_is_not_known(missing):
    send_ns = 1 + 50 * np.arange(100)
    parts = parts_of(send_ns, send_ns + 50, 7)
    if missing == "send":
        parts[Turn.FIRST_SEND_NS, 3] = FOREVER
    else:
        parts[Turn.LAST_READ_NS, 3] = 0
    found = InFlight()
    found.add(parts)
    assert found.mean_bytes is None


def test_without_any_it_is_not_known():
    assert InFlight().mean_bytes is None
    empty = InFlight()
    empty.add(no_turns(0))
    assert empty.mean_bytes is None
