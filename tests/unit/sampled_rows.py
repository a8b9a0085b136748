"""Rows of messages.csv as the joiner gives them, from arrays."""

from __future__ import annotations

import numpy as np
from latprof_analysis.records.message_rows import COLUMNS, KINDS, TEXTS, Messages
from latprof_analysis.stages import BLANK, STAMPS

MESSAGE = KINDS.index("message")


def messages_rows(
    size, stamps, ways=("a -> b:80",), way=0, protocol="tcp", addresses=("10.0.0.1",)
):
    """Rows of these sizes and stamps: (n, 6) from send to read, BLANK where missing."""
    n = len(size)
    numbers = {
        name: np.full(n, BLANK)
        for name in COLUMNS
        if name not in TEXTS and not name.endswith("_range")
    }
    numbers["size_bytes"] = np.asarray(size, "i8")
    numbers["packets"] = -(-numbers["size_bytes"] // 1448)
    numbers["retransmits"] = np.zeros(n, "i8")
    numbers["sequence"] = np.arange(1, n + 1)
    for name, stamp in zip(STAMPS[1:], np.asarray(stamps, "i8").T, strict=True):
        numbers[f"{name}_ns"] = stamp
    index = np.zeros(n, "i4")
    texts = {
        "protocol": (index + (protocol == "udp"), ["tcp", "udp"]),
        "source_address": (index, list(addresses)),
        "destination_address": (index, ["10.0.0.2"]),
        "kind": (index + MESSAGE, KINDS),
        "way": (index + np.asarray(way, "i4"), list(ways)),
        "sender_comm": (index, ["a"]),
        "reader_comm": (index, ["b"]),
        "reader_thread_comm": (index, ["b"]),
    }
    none = np.zeros(n, "i8")
    rows = Messages(numbers, texts, (none, none, none))
    rows.set_created(none.copy())
    return rows


def link_stamps(t_ns, end_to_end_ns):
    """Stamps where all but 10 us of the time is transit."""
    t_ns, end_to_end_ns = np.asarray(t_ns, "i8"), np.asarray(end_to_end_ns, "i8")
    read = t_ns + end_to_end_ns
    xmit = t_ns + 5000
    return np.column_stack([t_ns, t_ns + 3000, xmit, read - 5000, read - 3000, read])
