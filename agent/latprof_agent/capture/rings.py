"""The probes' rings: how large they are, and what was drained of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from latprof_analysis.records.arrays import Records, as_bytes

# Both halves of every message pass through the first two; a ring of them that fits
# into a CPU's cache costs a ping-pong 0.5 us less than one of 16 MB. The others are as
# busy with short connections: each has records of its addresses at both ends in both
# directions, and of its device in each direction; a packet has one for each device
# below its first one.
LARGE_RINGS = (
    *("sent_messages", "received_ranges"),
    *("flows", "path_devices", "lower_transmits"),
)
LARGE_RING_BYTES = 1 << 22
ALL_RINGS_BYTES = 1 << 29  # for all CPUs together, so that large hosts stay modest
SMALL_RING_BYTES = 1 << 18
SMALL_RING_SHARE = LARGE_RING_BYTES // SMALL_RING_BYTES
# These are of stories only, whose memory is bounded; their records are of losses.
STORY_RINGS = ("freed_segments",)
STORY_RING_BYTES = 1 << 13
STORY_RING_SHARE = LARGE_RING_BYTES // STORY_RING_BYTES
HEAP_RECORDS = 1 << 10


def large_ring_bytes(cpus: int) -> int:
    """Bytes for each CPU's large rings: a power of two within the budget."""
    share = ALL_RINGS_BYTES // (len(LARGE_RINGS) * cpus)
    return max(SMALL_RING_BYTES, min(LARGE_RING_BYTES, 1 << share.bit_length() - 1))


def bytes_of_ring(ring: str, large_bytes: int) -> int:
    """Bytes of one CPU's ring, where a large one has so many.

    All grow with it, so that a user who sees that a ring was full can enlarge it.
    """
    if ring in LARGE_RINGS:
        return large_bytes
    if ring in STORY_RINGS:
        return max(STORY_RING_BYTES, large_bytes // STORY_RING_SHARE)
    return max(min(large_bytes, SMALL_RING_BYTES), large_bytes // SMALL_RING_SHARE)


class Heap:
    """Records of one ring that were drained and not read yet, in room that stays.

    Fresh memory for every drain would cost more than the copy itself.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._room = np.empty(HEAP_RECORDS, dtype)
        self._spare = np.empty(HEAP_RECORDS, dtype)
        self._used = 0
        self.none = np.empty(0, dtype)

    def room(self, records: int) -> Records:
        """Give so much room behind what is there, for `add`."""
        if self._used + records > len(self._room):
            room = np.empty(2 * (self._used + records), self._room.dtype)
            as_bytes(room)[: self._used] = as_bytes(self._room)[: self._used]
            self._room = room
        return self._room[self._used : self._used + records]

    def add(self, records: int) -> None:
        """So many records are in the room that was given last."""
        self._used += records

    def take(self) -> Records:
        """Give what is there, valid until the next time."""
        found = self._room[: self._used]
        self._room, self._spare, self._used = self._spare, self._room, 0
        return found
