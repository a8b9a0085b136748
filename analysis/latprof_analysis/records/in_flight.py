"""How many bytes were on their way, of connections whose ends talk at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import mul

import numpy as np

from latprof_analysis.records.message_rows import Ints
from latprof_analysis.records.turn import FOREVER, Turn

# Of the messages so many may have been seen at one end only.
_UNKNOWN_SHARE = 0.001


@dataclass
class InFlight:
    """Bytes and how long each was between send call and read, added up."""

    byte_ns: int = 0  # exact, so that the order of adding makes no difference
    from_ns: int = FOREVER
    until_ns: int = 0
    messages: int = 0
    unknown: int = 0  # of them, whose way has one end

    def add(self, parts: Ints) -> None:
        """Take in messages; turns of several, of before, do not keep their times."""
        parts = parts.compress(parts[Turn.MESSAGES] == 1, axis=1)
        send_ns, read_ns = parts[Turn.FIRST_SEND_NS], parts[Turn.LAST_READ_NS]
        known = (send_ns > 0) & (send_ns != FOREVER) & (read_ns > send_ns)
        self.messages += len(known)
        self.unknown += len(known) - int(np.count_nonzero(known))
        if not known.any():
            return
        send_ns, read_ns = send_ns[known], read_ns[known]
        took_ns = (read_ns - send_ns).tolist()
        self.byte_ns += sum(map(mul, parts[Turn.BYTES][known].tolist(), took_ns))
        self.from_ns = min(self.from_ns, int(send_ns.min()))
        self.until_ns = max(self.until_ns, int(read_ns.max()))

    @classmethod
    def of_all(cls, parts: Iterable[InFlight]) -> InFlight:
        """Add up what was taken in in several parts."""
        found = cls()
        for part in parts:
            found.byte_ns += part.byte_ns
            found.from_ns = min(found.from_ns, part.from_ns)
            found.until_ns = max(found.until_ns, part.until_ns)
            found.messages += part.messages
            found.unknown += part.unknown
        return found

    @property
    def mean_bytes(self) -> float | None:
        """Bytes on their way at a time, from the first to the last of them.

        None where it is not known: of some messages one end alone was seen.
        """
        if not self.byte_ns or self.unknown > _UNKNOWN_SHARE * self.messages:
            return None
        return self.byte_ns / (self.until_ns - self.from_ns)
