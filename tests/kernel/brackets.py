"""What an oracle knows: not before and not after, per message."""

from __future__ import annotations

import numpy as np

STAGES = ("send_queue", "qdisc", "transit", "receive_stack", "receive_queue")


def outside_ns(found, earliest, latest):
    """How far each value lies outside of what the oracle says is possible."""
    return np.maximum(np.maximum(earliest - found, found - latest), 0)


def bracket_at(log, ends):
    """When a logged count reached each of `ends`: earliest and latest."""
    earliest, latest, counts = np.array(log, "i8").T
    at = np.searchsorted(np.maximum.accumulate(counts), ends)
    return earliest[at], latest[at]


def bracket_of_calls(log, ends):
    """Before and after the call that passed each of `ends`."""
    before, after, sizes = np.array(log, "i8").T
    at = np.searchsorted(np.cumsum(sizes), ends)
    return before[at], after[at]
