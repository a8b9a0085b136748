"""How long the responses take at least of connections whose ends talk at once.

Which request a reply is of cannot be known there. But it is one that was sent before
the reply was, so the time from the last of those until the client has read is the least
that it can be.
"""

from __future__ import annotations

import numpy as np

from latprof_analysis.records.message_rows import Ints
from latprof_analysis.records.turn import FOREVER, Turn, first_of


class LeastResponses:
    """Keeps of each conversation when its last request was sent."""

    def __init__(self) -> None:
        self._sent_ns: dict[int, int] = {}

    def of(self, parts: Ints) -> Ints:
        """Return nanoseconds for each part: FOREVER where it is no message of a reply.

        `parts` are messages, or turns that are not over: of a turn of requests the last
        counts, and one of replies does not, as it shows the times of all its messages
        no more. What a sender's half does not show is taken to be as late as the
        receiver's says: so the time is never more than it is.
        """
        is_reply = parts[Turn.IS_REPLY] == 1
        send, read = parts[Turn.LAST_SEND_NS], parts[Turn.FIRST_READ_NS]
        read = np.where(read == FOREVER, 0, read)
        begun_ns = first_of(send, parts[Turn.READY_NS], read)
        until_ns = first_of(read, parts[Turn.READY_NS], send)
        identity = parts[Turn.IDENTITY]
        order = np.lexsort((is_reply, begun_ns, identity))
        last_ns = self._last_requests_ns(
            identity[order], np.where(is_reply, 0, begun_ns)[order]
        )
        least_ns = np.full(len(order), FOREVER)
        least_ns[order] = np.where(
            last_ns > 0, np.maximum(until_ns[order] - last_ns, 0), FOREVER
        )
        least_ns[~is_reply | (parts[Turn.MESSAGES] > 1)] = FOREVER
        return least_ns

    def _last_requests_ns(self, identity: Ints, request_ns: Ints) -> Ints:
        """Return when the last request until each part was sent, 0 where none was."""
        if not len(identity):
            return request_ns
        starts = np.r_[True, identity[1:] != identity[:-1]]
        begin = np.flatnonzero(starts)[np.cumsum(starts) - 1]
        at = np.where(request_ns > 0, np.arange(len(identity)), -1)
        at = np.maximum.accumulate(at)
        conversations = identity[starts].tolist()
        before = np.array([self._sent_ns.get(one, 0) for one in conversations], "i8")
        before = before[np.cumsum(starts) - 1]
        # one of an earlier step may have been sent after one of this
        last_ns = np.maximum(np.where(at >= begin, request_ns[at], 0), before)
        ends = np.r_[starts[1:], True]
        self._sent_ns.update(zip(conversations, last_ns[ends].tolist(), strict=True))
        return np.asarray(last_ns)
