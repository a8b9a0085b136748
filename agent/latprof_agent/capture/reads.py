"""What was read lately, when and by which thread, as long as there is room."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np
from latprof_analysis.records.arrays import as_bytes
from latprof_analysis.records.newest import drop_oldest
from latprof_analysis.story.reads import READ
from numpy.typing import NDArray

Records = NDArray[Any]

# 50 MB, and of messages 84; at 200,000 a second those of 5 s.
CHUNKS, CHUNK_RECORDS = 256, 4096


class _Chunk:
    """Room for records; fewer and larger ones than come together."""

    def __init__(self, records: int, dtype: np.dtype[Any]) -> None:
        self._room = np.empty(records, dtype)
        self._used = 0
        self.begin_ns = np.iinfo("i8").max
        self.end_ns = 0

    def add(self, records: Records) -> Records:
        """Take as many as there is room for; return the others."""
        mine = records[: len(self._room) - self._used]
        if len(mine):
            end = self._used + len(mine)
            as_bytes(self._room)[self._used : end] = as_bytes(mine)
            self._used = end
            self.begin_ns = min(self.begin_ns, int(mine["read_ns"].min()))
            self.end_ns = max(self.end_ns, int(mine["read_ns"].max()))
        return records[len(mine) :]

    def records(self) -> Records:
        """Give those that are there, which stay as they are."""
        return self._room[: self._used]


class Reads:
    """The newest records of READ, or of MESSAGE."""

    def __init__(
        self,
        chunks: int = CHUNKS,
        chunk_records: int = CHUNK_RECORDS,
        dtype: np.dtype[Any] = READ,
    ) -> None:
        self._most = chunks
        self._chunk_records = chunk_records
        self._dtype = dtype
        self._chunks: deque[_Chunk] = deque()
        self._since_ns = 0
        self._lock = threading.Lock()

    def add(self, records: Records) -> None:
        """Take in records that came, in any order."""
        with self._lock:
            while len(records):
                if self._chunks:
                    records = self._chunks[-1].add(records)
                if len(records):
                    self._chunks.append(_Chunk(self._chunk_records, self._dtype))
            while len(self._chunks) > self._most:
                self._since_ns = max(self._since_ns, self._chunks.popleft().end_ns)

    @property
    def since_ns(self) -> int:
        """From then on all that came is there."""
        return self._since_ns

    @property
    def newest_ns(self) -> int:
        """When the last of them was read."""
        with self._lock:
            return max((chunk.end_ns for chunk in self._chunks), default=0)

    def of_thread(self, thread: int, begin_ns: int, end_ns: int) -> Records:
        """Give what a thread read until `end_ns`, in order of time.

        From the last one at or before `begin_ns` on, if that is there.
        """
        with self._lock:
            kept = [
                (chunk.end_ns, chunk.records())
                for chunk in self._chunks
                if chunk.begin_ns <= end_ns
            ]
        found: list[Records] = [np.zeros(0, self._dtype)]
        last_ns = 0  # of those at or before `begin_ns`
        for newest_ns, chunk in reversed(kept):
            if newest_ns < last_ns:
                continue
            mine = chunk[(chunk["thread"] == thread) & (chunk["read_ns"] <= end_ns)]
            before = mine["read_ns"][mine["read_ns"] <= begin_ns]
            last_ns = max(last_ns, int(before.max(initial=0)))
            found.append(mine)
        records = np.concatenate(found[::-1])
        records = records[records["read_ns"] >= last_ns]
        return np.asarray(records[np.argsort(records["read_ns"], kind="stable")])

    def within(self, begin_ns: int, end_ns: int) -> Records:
        """Give what was read in a span, in no order."""
        with self._lock:
            kept = [
                chunk.records()
                for chunk in self._chunks
                if chunk.begin_ns <= end_ns and chunk.end_ns >= begin_ns
            ]
        found = [
            chunk[(chunk["read_ns"] >= begin_ns) & (chunk["read_ns"] <= end_ns)]
            for chunk in kept
        ]
        return np.concatenate([np.zeros(0, self._dtype), *found])


def reads_of(ranges: Records, never_read: int) -> Records:
    """Make READ of records of the ring; `never_read`: flags of what was not."""
    found = np.zeros(len(ranges), READ)
    for name in ("read_ns", "ready_ns", "flow", "thread"):
        found[name] = ranges[name]
    datagram = ranges["key"] != 0
    # a datagram has no offsets in a stream: its size is what was read
    found["start"] = np.where(datagram, 0, ranges["start"])
    found["end"] = np.where(datagram, ranges["size_bytes"], ranges["end"])
    return np.asarray(found[(ranges["flags"] & never_read) == 0])


MOST_ANSWERS = 1 << 14


class Answers:
    """Threads by when they began to answer what they had long: the newest of them."""

    def __init__(self) -> None:
        self._threads: dict[tuple[int, int], int] = {}

    def add(self, turns: Records) -> None:
        """Take in records of the ring `turns`."""
        keys = zip(turns["pid"].tolist(), turns["send_ns"].tolist(), strict=True)
        self._threads.update(zip(keys, turns["thread"].tolist(), strict=True))
        drop_oldest(self._threads, MOST_ANSWERS)

    def thread(self, pid: int, sent_ns: int) -> int | None:
        """Which thread of a process began to answer then; None: not known."""
        return self._threads.get((pid, sent_ns))
