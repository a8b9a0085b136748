"""Sender's and receiver's halves to messages, vectorised, in bounded memory.

The halves come from one ring per CPU, so in no order among CPUs. Whatever has
a time after the start of the last drain may have neighbours that were not
drained yet, and waits (`settled`). TCP halves meet by (flow, offset): a
message's receiver half is the first range of its flow that ends at or behind
its own end, if it also begins before that. Datagrams meet by flow and fingerprint,
and where several are alike by when they were due. What has no other half leaves
after a few seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.records.arrays import Batch, stacked
from latprof_analysis.records.conversations import EPHEMERAL, Conversations
from latprof_analysis.records.datagrams import match_datagrams
from latprof_analysis.records.endings import Endings
from latprof_analysis.records.flows import SIDE_ACCEPTED, SIDE_CLOSED, Flows
from latprof_analysis.records.freed_segments import FreedSegments
from latprof_analysis.records.lower_devices import LowerTransmits
from latprof_analysis.records.one_ended import OneEnded
from latprof_analysis.records.path_devices import PathDevices
from latprof_analysis.records.process_names import ProcessNames
from latprof_analysis.records.recording import RecordLayout
from latprof_analysis.records.retransmits import Retransmits, newest
from latprof_analysis.records.stream_key import OFFSET_BITS, stream_key
from latprof_analysis.records.translations import Translations

Array = NDArray[Any]

# A stamp is taken up to this long before its record is in the ring.
SETTLE_NS = 2_000_000
# A sender that lost its CPU in a send call may report the call's bytes this late.
RANGE_KEEP_NS = 300_000_000
# So long a sent half waits: where no receiver is known, or a later datagram of its
# flow was received; and where its receiver is here, and may not have read it yet.
ALONE_NS = 3_000_000_000
UNREAD_NS = 60_000_000_000
PENDING_LIMIT = 1 << 18
ALONE_LIMIT = 1 << 16  # without a receiver: 0.13 s of a flood of 500,000/s
FLOW_LIMIT = 1 << 17  # 40 MB
# Counted by this name, though they have both halves: a place of loss.
UNREAD_AT_CLOSE = "unread at close"
FOREVER = np.iinfo(np.int64).max


@dataclass
class Pairs:
    """Joined halves: rows of `sent` and `received` belong together.

    An index of -1 is a half that is not there.
    """

    sent: Array
    received: Array
    sent_index: Array
    received_index: Array


@dataclass
class _Halves:
    """Halves that were taken in, and what was found of them so far."""

    sent: Array
    sent_flow: Array
    partner: Array  # of each sent half: index of its range, -1 none yet
    ranges: Array
    range_flow: Array
    used: Array  # whether a range has a sent half


class Joiner:
    """Takes batches in, gives pairs out; `unmatched` counts by cause."""

    def __init__(
        self,
        layout: RecordLayout,
        flow_limit: int = FLOW_LIMIT,
        ephemeral: range = EPHEMERAL,
        slack_ns: int = 0,
    ) -> None:
        """`slack_ns` is what stamps of two hosts may be wrong by, where there are."""
        self._slack_ns = slack_ns
        self._flow_limit = flow_limit
        self.flows = Flows(layout.rings["flows"])
        self.conversations = Conversations(self.flows, ephemeral)
        self.endings = Endings(self.flows, self.conversations, layout.endings)
        self.heads = layout.heads
        self.names = ProcessNames()
        self.unmatched: dict[str, int] = {}
        self.drained_ns = 0  # all from before was fed
        self._flags = layout.flags
        self._sent = np.empty(0, layout.rings["sent_messages"])
        self._ranges = np.empty(0, layout.rings["received_ranges"])
        self._early = np.empty(0, layout.rings["early_segments"])
        self._accepts = np.empty(0, layout.rings["flows"])
        self._retransmits = Retransmits(self.flows, layout.rings["retransmits"])
        self._freed = FreedSegments(self.flows, layout.rings["freed_segments"])
        # by flow: the end of the last range that was released
        self._forgotten = np.empty(0, "i8")
        # by flow: when the last datagram was sent that was received, too
        self._met_ns = np.empty(0, "i8")
        self._lower = LowerTransmits()
        self.path_devices = PathDevices(self.flows)
        self._translations = Translations(self.flows)
        self._one_ended = OneEnded(self.flows)

    def _count(self, cause: str, n: int) -> None:
        if n:
            self.unmatched[cause] = self.unmatched.get(cause, 0) + n

    def flag(self, name: str) -> int:
        """A bit of the records' flags; 0: an older recording does not have it."""
        return self._flags.get(name, 0)

    def feed(self, batch: Batch, drained_ns: int) -> Pairs:
        """Join what is settled.

        `drained_ns` is the time just before the batch was drained.
        """
        self.drained_ns = drained_ns
        if (flows := len(self.flows)) > self._flow_limit:
            stay = self.flows.release(self._flow_limit // 2)
            self._count("flows released", flows - len(stay))
            self._forgotten = self._forgotten[stay]
            self._met_ns = self._met_ns[stay]
            self._translations.release(stay)
            self.conversations.release(stay)
        sides = batch["flows"]["side"]
        accepts, closes = sides == SIDE_ACCEPTED, sides == SIDE_CLOSED
        self._accepts = newest(self._accepts, batch["flows"].compress(accepts))
        announced = batch["flows"].compress(~accepts & ~closes)
        if len(announced):
            self.flows.add(announced)
            self.conversations.add(announced)
            fresh = len(self.flows) - len(self._forgotten)
            self._forgotten = np.r_[self._forgotten, np.zeros(fresh, "i8")]
            self._met_ns = np.r_[self._met_ns, np.zeros(fresh, "i8")]
        self.endings.add(batch["flows"].compress(closes))
        self.names.add(batch["tasks"])
        self._early = newest(self._early, batch["early_segments"])
        self._retransmits.add(batch["retransmits"])
        self._freed.add(batch["freed_segments"])
        self._lower.add(batch["lower_transmits"])
        self.path_devices.add(batch["path_devices"])
        self._sent = stacked(self._sent, batch["sent_messages"])
        self._ranges = stacked(self._ranges, batch["received_ranges"])
        return self._join(drained_ns - SETTLE_NS)

    def waiting(self) -> bool:
        """Whether a further `feed` may give pairs without new records."""
        return len(self._ranges) > 0 or len(self._sent) > 0

    def finish(self) -> Pairs:
        """Give out everything that is left, halves too."""
        return self._join(FOREVER)

    def _join(self, settled_ns: int) -> Pairs:
        settled = self._ranges["read_ns"].astype("i8") <= settled_ns
        ranges = self._ranges.compress(settled)
        held = self._ranges.compress(~settled)
        pending = _Halves(
            self._sent,
            self.flows.index(self._sent["flow"]),
            np.full(len(self._sent), -1, "i8"),
            ranges,
            self.flows.index(ranges["flow"]),
            np.zeros(len(ranges), bool),
        )
        held_flow = self.flows.index(held["flow"])
        self.flows.touch(pending.sent_flow, pending.range_flow, held_flow)
        self._match_streams(pending)
        self._match_datagrams(pending)
        done_sent = self._done_sent(pending, settled_ns)
        self._lower.last_xmit(pending.sent, np.flatnonzero(done_sent))
        alone, kept = self._leave_ranges(pending, settled_ns)
        self._sent = self._sent.compress(~done_sent)
        self._forget_lower(settled_ns)
        self._ranges = stacked(ranges.compress(kept), held)
        sent_index, alone_index = np.flatnonzero(done_sent), np.flatnonzero(alone)
        none = np.full(len(alone_index), -1, "i8")
        return Pairs(
            pending.sent,
            ranges,
            np.concatenate([sent_index, none]),
            np.concatenate([pending.partner[sent_index], alone_index]),
        )

    def _match_streams(self, halves: _Halves) -> None:
        sent, ranges = halves.sent, halves.ranges
        stream = np.flatnonzero((sent["key"] == 0) & (halves.sent_flow >= 0))
        received = np.flatnonzero((ranges["key"] == 0) & (halves.range_flow >= 0))
        ends = sent["end"][stream].astype("i8")
        # its own range was released: a later one would be another's
        stream = stream[ends > self._forgotten[halves.sent_flow[stream]]]
        if not len(stream) or not len(received):
            return
        keys = stream_key(halves.range_flow[received], ranges["end"][received])
        order = np.argsort(keys)
        keys, received = keys[order], received[order]
        flow = halves.sent_flow[stream]
        at = np.searchsorted(keys, stream_key(flow, sent["end"][stream]))
        inside = at < len(keys)
        at[~inside] = 0
        same = inside & (keys[at] >> OFFSET_BITS == flow)
        # the record of its own range may be lost: the next one begins behind it
        starts = ranges["start"][received[at]]
        same &= starts < sent["end"][stream]
        halves.partner[stream[same]] = received[at[same]]
        halves.used[received[at[same]]] = True

    def _match_datagrams(self, halves: _Halves) -> None:
        both = halves.sent, halves.sent_flow, halves.ranges, halves.range_flow
        united = self._translations.unite(*both)
        for gone, kept in united:
            self.conversations.unite(gone, kept)
        if united:
            halves.sent_flow[:] = self.flows.index(halves.sent["flow"])
            halves.range_flow[:] = self.flows.index(halves.ranges["flow"])
        sent, received = match_datagrams(
            halves.sent,
            halves.ranges,
            halves.sent_flow,
            halves.range_flow,
            self._slack_ns,
        )
        halves.partner[sent] = received
        halves.used[received] = True
        flow = halves.sent_flow[sent]
        xmit_ns = halves.sent["xmit_ns"][sent].astype("i8")
        known = flow >= 0
        np.maximum.at(self._met_ns, flow[known], xmit_ns[known])

    def _done_sent(self, halves: _Halves, settled_ns: int) -> Array:
        """Which sent halves are given out: joined, or without hope."""
        done = halves.partner >= 0
        dropped = (halves.sent["key"] != 0) & (halves.sent["xmit_ns"] == 0)
        self._count("dropped before the driver", int(dropped.sum()))
        done |= dropped
        waiting = np.flatnonzero(~done)
        expired = self._forgotten_of(halves, waiting)
        over = np.zeros(len(waiting), bool)
        over[: max(0, len(waiting) - PENDING_LIMIT)] = True
        over |= self._waited_long(halves, waiting, settled_ns)
        self._count("sent, receiver's half too late", int(expired.sum()))
        alone = waiting[over & ~expired]
        unread = self._never_read(halves, alone)
        self._count("sent, receiver closed", int(unread.sum()))
        flow = halves.sent_flow[alone[~unread]]
        self._count_alone("sent, ", "receiver", flow, self.flows.receiver_here)
        done[waiting[over | expired]] = True
        return done

    def _count_alone(self, had: str, lacks: str, flow: Array, seen: Array) -> None:
        """Count halves that have no other by cause, by their flows.

        `seen` is true of flows that the missing end announced.
        """
        there = np.r_[seen, False][flow]
        self._count(f"{had}no {lacks}'s half", int(there.sum()))
        end = "destination" if lacks == "receiver" else "source"
        for cause, n in self._one_ended.causes(flow[~there], end).items():
            self._count(f"{had}{lacks} {cause}", n)

    def _never_read(self, halves: _Halves, at: Array) -> Array:
        """Which streams' halves are behind all that was read when their reader closed.

        One before that was read, too: its record was lost. Of a reader that was not
        seen to get anything of its flow, nothing is known of what it read.
        """
        flow = halves.sent_flow[at]
        here = np.r_[self.flows.receiver_here, False][flow]
        here &= (flow >= 0) & (halves.sent["key"][at] == 0)
        if not here.any():
            return np.asarray(here)
        known = halves.range_flow >= 0
        read_end = np.r_[self._forgotten, 0]
        ends = halves.ranges["end"].astype("i8")
        np.maximum.at(read_end, halves.range_flow[known], ends[known])
        found = here & (halves.sent["end"][at].astype("i8") > read_end[flow])
        places = np.unique(flow[found]).tolist()
        closed = [place for place in places if self.endings.reader_closed(place)]
        return np.asarray(found & np.isin(flow, closed))

    def _waited_long(self, halves: _Halves, at: Array, settled_ns: int) -> Array:
        """Which of these sent halves have waited so long that none will come."""
        flow, sent = halves.sent_flow[at], halves.sent
        datagram = sent["key"][at] != 0
        left_ns = np.maximum(sent["xmit_ns"], sent["send_ns"])[at].astype("i8")
        receiver_here = np.r_[self.flows.receiver_here, False][flow]
        later = np.r_[self._met_ns, 0][flow] > left_ns
        alone = ~receiver_here | (datagram & later)
        patience = np.where(alone, ALONE_NS, UNREAD_NS)
        # what is read from a stream is never lost, however late it is
        stays = receiver_here & ~datagram & (settled_ns != FOREVER)
        over = (left_ns < settled_ns - patience) & ~stays
        over[np.flatnonzero(~receiver_here)[:-ALONE_LIMIT]] = True
        return np.asarray(over)

    def _forget_lower(self, settled_ns: int) -> None:
        """Keep of lower devices what a half that waits, or comes late, will ask for."""
        waiting_ns = self._sent["xmit_ns"][self._sent["xmit_ns"] > 0].astype("i8")
        oldest_ns = waiting_ns.min(initial=settled_ns - RANGE_KEEP_NS)
        self._lower.forget_before(int(oldest_ns))

    def _forgotten_of(self, halves: _Halves, at: Array) -> Array:
        flow = halves.sent_flow[at]
        stream = (halves.sent["key"][at] == 0) & (flow >= 0)
        ends = halves.sent["end"][at].astype("i8")
        return np.asarray(stream & (ends <= np.r_[self._forgotten, 0][flow]))

    def _leave_ranges(self, halves: _Halves, settled_ns: int) -> tuple[Array, Array]:
        """Which ranges are given out alone, and which are kept for later halves."""
        ranges, flow = halves.ranges, halves.range_flow
        datagram = ranges["key"] != 0
        old = ranges["read_ns"].astype("i8") < settled_ns - RANGE_KEEP_NS
        old |= settled_ns == FOREVER
        # a range that no send ends in is not a message where the sender is here
        sender_here = np.r_[self.flows.sender_here, False][flow]
        alone = old & ~halves.used & (datagram | ~sender_here)
        doubted = alone & np.r_[self.flows.ambiguous, False][flow]
        self._count("received, several namespaces send so", int(doubted.sum()))
        self._count_alone(
            "received, ", "sender", flow[alone & ~doubted], self.flows.sender_here
        )
        unread = (ranges["flags"] & self._flags["RECORD_UNREAD"]) != 0
        self._count(UNREAD_AT_CLOSE, int((unread & (alone | halves.used)).sum()))
        gone = old | (datagram & halves.used)
        stream = gone & ~datagram & (flow >= 0)
        np.maximum.at(self._forgotten, flow[stream], ranges["end"][stream].astype("i8"))
        return alone, ~gone

    def early_arrivals(self, flow: Array, end: Array) -> Array:
        """Arrival of the early segment that holds each end; 0 unknown."""
        if not len(self._early):
            return np.zeros(len(end), "i8")
        keys = stream_key(self.flows.index(self._early["flow"]), self._early["end"])
        order = np.argsort(keys, kind="stable")
        at = np.searchsorted(keys[order], stream_key(self.flows.index(flow), end))
        inside = at < len(order)
        at[~inside] = 0
        found = order[at]
        same = inside & (self._early["flow"][found] == flow)
        return np.where(same, self._early["arrive_ns"][found].astype("i8"), 0)

    def retransmits_of(self, flow: Array, start: Array, end: Array) -> Array:
        """How many retransmitted packets overlap each range [start, end)."""
        return self._retransmits.overlapping(flow, start, end)

    def needless_of(
        self, flow: Array, start: Array, end: Array, ready_ns: Array
    ) -> Array:
        """How many retransmitted packets that end in each range left when it was there.

        `ready_ns` is when the range was; 0 unknown.
        """
        return self._retransmits.ending_after(flow, start, end, ready_ns)

    def resent_before(self, flow: int, end: int) -> Array:
        """Packets of a flow that were sent again lately, if they begin before `end`."""
        return self._retransmits.before(flow, end)

    def freed_with(self, flow: int, end: int) -> Array:
        """Segments with the byte before `end` that the kernel freed lately."""
        return self._freed.with_byte(flow, end)

    def arrived_early(self, flow: int, arrive_ns: int) -> bool:
        """Whether what came then of a flow had a hole before it."""
        early = self._early[self._early["arrive_ns"] == arrive_ns]
        return bool((early["flow"] == np.uint64(flow)).any())

    def accepted_ns(self, flow: int) -> int:
        """When the connection of a flow was accepted; 0: not known.

        Known only where bytes of it were readable before.
        """
        place = self.flows.index(np.array([flow], "u8"))[0]
        mine = self.flows.index(self._accepts["flow"]) == place
        return int(self._accepts["t_ns"][mine].max(initial=0)) if place >= 0 else 0
