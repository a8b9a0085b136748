"""Messages of both directions -> exchanges: a request turn and its reply turn.

A *turn* is what one end says until the other answers. Turns are taken in the order
in which the client saw them: its own messages when it sent them, the server's when it
had read them (where the client was not seen: when the server could read, and when it
sent). A request turn and the reply turn behind it are an exchange if the server
answered after it had read, and all that it had read, and the client went on after it
had read all that was sent: else both talked at once, and which bytes answer which is
not to be told from outside.

A turn is a column of sums, not a list of messages: what is open takes little memory,
however long one end talks.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum, auto

import numpy as np
from latprof_analysis.stages import PROBE_STATISTICS
from numpy.typing import NDArray

from latprof_agent.join.conversations import Conversations
from latprof_agent.join.flows import Flows
from latprof_agent.join.joiner import FOREVER
from latprof_agent.join.message_rows import (
    LOADED,
    LOADED_REPLY,
    TRAIN,
    TRAIN_REPLY,
    WARMUP,
    Ints,
    Messages,
)

# How long after it was over a message may come from the joiner: where both ends are
# here, and where one half waited in vain for the other.
LATE_NS = 500_000_000
LATE_ALONE_NS = 4_000_000_000
# Messages that wait until those before them are there, and open turns.
WAITING_LIMIT = 1 << 19
OPEN_LIMIT = 1 << 17

PUSHED = "pushed without a request"
AT_ONCE = "both sides talked at once"
UNANSWERED = "without an answer"


class Turn(IntEnum):
    """Rows of a table with a column for each turn, or part of one.

    A time that is not known is 0 where the last counts, and FOREVER where the first.
    """

    IDENTITY = 0  # of the conversation
    IS_REPLY = auto()
    # of the first message
    FLOW = auto()
    FIRST_SEQUENCE = auto()
    # the least
    BEGIN_NS = auto()  # in the client's order
    FIRST_SEND_NS = auto()
    FIRST_READ_NS = auto()
    # the largest
    END_NS = auto()
    LAST_SEND_NS = auto()
    LAST_READ_NS = auto()
    SENDER_PID = auto()
    READER_PID = auto()
    DISTURBED = auto()  # met the measuring of our own cost
    WARMUP = auto()
    TRAIN = auto()  # of the generator's trains, whose turns overlap
    LOADED = auto()  # beside a load
    MUDDLED = auto()  # came when the other end's next turn had begun
    ALONE = auto()  # one end of the conversation was seen
    # sums
    MESSAGES = auto()
    BYTES = auto()
    RETRANSMITS = auto()
    PAUSES_NS = auto()  # nothing was on its way, and all had been read
    # of the last message
    READY_NS = auto()
    WAKEUP_NS = auto()
    LAST_SEQUENCE = auto()


_LEAST = slice(Turn.BEGIN_NS, Turn.END_NS)
_LARGEST = slice(Turn.END_NS, Turn.MESSAGES)
_SUMS = slice(Turn.MESSAGES, Turn.READY_NS)
_OF_LAST = slice(Turn.READY_NS, len(Turn))

_NONE = np.empty((len(Turn), 0), "i8")
_IDENTITY_BITS, _TIME_BITS = 20, 43  # 2.4 hours

Flags = NDArray[np.bool_]


class Exchanges:
    """Takes finished messages, gives pairs of turns.

    `no_exchange` counts messages that are in none, by who sent to whom and cause.
    """

    def __init__(self, flows: Flows, conversations: Conversations) -> None:
        self.no_exchange: Counter[tuple[str, str]] = Counter()
        self._flows = flows
        self._conversations = conversations
        self._waiting: list[Ints] = []
        self._open = _NONE

    def add(self, rows: Messages | None, until_ns: int) -> tuple[Ints, Ints]:
        """Take messages in; all that were over before `until_ns` are here.

        Return the requests and replies of exchanges, as tables of `Turn`. With
        FOREVER nothing more will come.
        """
        if rows is not None and len(rows) and len(self._flows):
            place = self._flows.index(rows.retransmit_range[0])
            answered = self._conversations.both_ways[place]
            if answered.all():
                self._waiting.append(_told(self._parts(rows, place)))
            else:
                at = np.flatnonzero(answered)
                self._waiting.append(_told(self._parts(rows.take(at), place[at])))
                self._waiting.append(self._unanswered(rows, place, ~answered))
        parts = np.concatenate([self._open, *self._over(until_ns)], axis=1)
        turns = _merged(parts.take(_in_order(parts), axis=1))
        return self._paired(turns, until_ns)

    def _over(self, until_ns: int) -> list[Ints]:
        """Take what has all before it here from what waits; of too much the oldest."""
        over, self._waiting, waited = [], [], self._waiting
        excess = sum(parts.shape[1] for parts in waited) - WAITING_LIMIT
        for parts in waited:
            late_ns = np.where(parts[Turn.ALONE] == 1, LATE_ALONE_NS, LATE_NS)
            is_over = parts[Turn.END_NS] < until_ns - late_ns
            if is_over.all() or until_ns == FOREVER or excess > 0:
                over.append(parts)
                excess -= parts.shape[1]
            elif not is_over.any():
                self._waiting.append(parts)
            else:
                over.append(parts.take(np.flatnonzero(is_over), axis=1))
                self._waiting.append(parts.take(np.flatnonzero(~is_over), axis=1))
        return over

    def _parts(self, rows: Messages, place: Ints) -> Ints:
        """Return messages of these flows as parts of turns."""
        flow, start, end = rows.retransmit_range
        known = self._conversations
        to_server, client_here = known.to_server[place], known.client_here[place]
        stamps = {
            name: np.maximum(rows.numbers[f"{name}_ns"], 0)
            for name in ("send", "queue", "xmit", "ready", "read")
        }
        send = _first_of(stamps["send"], stamps["queue"], stamps["xmit"])
        read = stamps["read"]
        when = np.where(
            to_server | ~client_here, _first_of(send, stamps["ready"], read), read
        )
        parts = np.empty((len(Turn), len(flow)), "i8")
        parts[Turn.IDENTITY] = known.identity[place]
        parts[Turn.IS_REPLY] = ~to_server
        parts[Turn.FLOW] = flow.view("i8")
        parts[Turn.FIRST_SEQUENCE] = rows.numbers["sequence"]
        parts[Turn.LAST_SEQUENCE] = rows.numbers["sequence"]
        parts[Turn.BEGIN_NS] = parts[Turn.END_NS] = when
        parts[Turn.LAST_SEND_NS], parts[Turn.LAST_READ_NS] = send, read
        parts[Turn.FIRST_SEND_NS] = np.where(send > 0, send, FOREVER)
        parts[Turn.FIRST_READ_NS] = np.where(read > 0, read, FOREVER)
        parts[Turn.SENDER_PID] = np.maximum(rows.numbers["sender_pid"], 0)
        parts[Turn.READER_PID] = np.maximum(rows.numbers["reader_pid"], 0)
        parts[Turn.DISTURBED] = rows.numbers[PROBE_STATISTICS] == 1
        kind = rows.texts["kind"][0]
        parts[Turn.WARMUP] = kind == WARMUP
        parts[Turn.TRAIN] = (kind == TRAIN) | (kind == TRAIN_REPLY)
        parts[Turn.LOADED] = (kind == LOADED) | (kind == LOADED_REPLY)
        parts[Turn.MUDDLED] = parts[Turn.PAUSES_NS] = 0
        parts[Turn.MESSAGES] = 1
        parts[Turn.BYTES] = end - start
        parts[Turn.RETRANSMITS] = np.maximum(rows.numbers["retransmits"], 0)
        parts[Turn.READY_NS] = stamps["ready"]
        parts[Turn.WAKEUP_NS] = rows.numbers["wakeup_ns"]
        parts[Turn.ALONE] = ~known.whole[place]
        parts[Turn.END_NS, place < 0] = 0
        return parts

    def _unanswered(self, rows: Messages, place: Ints, which: Flags) -> Ints:
        """Return messages to which nobody has said a word yet: a part for each flow.

        The other end's first word would be here before them, so none is between them.
        """
        at = np.flatnonzero(which & (place >= 0))
        at = at[np.argsort(place[at], kind="stable")]
        sequence = rows.numbers["sequence"]
        if ((np.diff(sequence[at]) <= 0) & (np.diff(place[at]) == 0)).any():
            at = at[np.lexsort((sequence[at], place[at]))]
        begins = np.flatnonzero(np.diff(place[at], prepend=-1))
        if not len(begins):
            return _NONE
        ends = np.r_[begins[1:], len(at)] - 1
        # the first and the last of each, and sums over all
        edge = at[np.r_[begins, ends]]
        edges = self._parts(rows.take(edge), place[edge])
        parts, last = edges[:, : len(begins)], edges[:, len(begins) :]
        parts[_LEAST] = np.minimum(parts[_LEAST], last[_LEAST])
        parts[_LARGEST] = np.maximum(parts[_LARGEST], last[_LARGEST])
        parts[_OF_LAST] = last[_OF_LAST]
        _, start, end = rows.retransmit_range
        again = np.maximum(rows.numbers["retransmits"][at], 0)
        parts[Turn.MESSAGES] = ends - begins + 1
        parts[Turn.BYTES] = np.add.reduceat((end - start)[at], begins)
        parts[Turn.RETRANSMITS] = np.add.reduceat(again, begins)
        return _told(parts)

    def _paired(self, turns: Ints, until_ns: int) -> tuple[Ints, Ints]:
        """Take turns in their order; keep what is open."""
        identity, is_reply = turns[Turn.IDENTITY], turns[Turn.IS_REPLY] == 1
        starts = np.r_[True, identity[1:] != identity[:-1]][: len(identity)]
        pushed = starts & is_reply
        self._count(turns.compress(pushed, axis=1), PUSHED)
        if pushed.any():
            turns, is_reply = turns.compress(~pushed, axis=1), is_reply[~pushed]
            identity = turns[Turn.IDENTITY]
        requests = np.flatnonzero(~is_reply)
        ended = _closed(identity, turns[Turn.END_NS], until_ns)[requests]
        answered = _has(identity, requests, 1)
        # the next exchange shows whether all of this one's reply had been read
        final = (answered & ended) | _has(identity, requests, 3)
        silent = ~answered & ended
        self._count(turns.take(requests[silent], axis=1), UNANSWERED)
        done = requests[final]
        self._open = turns.take(_but(len(identity), done, requests[silent]), axis=1)
        early, late = _talked_at_once(turns, requests[answered])
        bad = np.zeros(len(identity), bool)
        bad[requests[answered]] = early | late
        # what came too early for an answer was part of the reply before
        before = requests[answered][early] - 2
        before = before[before >= 0]
        bad[before] |= identity[before] == identity[before + 2]
        at_once = done[bad[done]]
        for each in (at_once, at_once + 1):
            self._count(turns.take(each, axis=1), AT_ONCE)
        good = done[~bad[done]]
        return turns.take(good, axis=1), turns.take(good + 1, axis=1)

    def _count(self, turns: Ints, cause: str) -> None:
        """Count the messages of turns that are no part of an exchange."""
        apart = turns[Turn.WARMUP] | turns[Turn.TRAIN] | turns[Turn.LOADED]
        measured = turns.compress(apart == 0, axis=1)
        place = self._flows.index(measured[Turn.FLOW].view("u8"))
        found, index = np.unique(place, return_inverse=True)
        counts = np.zeros(len(found), "i8")
        np.add.at(counts, index, measured[Turn.MESSAGES])
        for at, count in zip(found.tolist(), counts.tolist(), strict=True):
            who = self._conversations.labels[at] if at >= 0 else ""
            self.no_exchange[who, cause] += count


def _told(parts: Ints) -> Ints:
    """Leave out what has no time: a reply that the client never read is none to it."""
    told = parts[Turn.END_NS] > 0
    return parts if told.all() else parts.take(np.flatnonzero(told), axis=1)


def _first_of(*stamps: Ints) -> Ints:
    """Return the first of stamps that is known, 0 where none is."""
    found = stamps[0]
    for others in stamps[1:]:
        found = np.where(found > 0, found, others)
    return found


def _in_order(parts: Ints) -> NDArray[np.intp]:
    """Order parts by conversation and time; what was read at once by its bytes.

    What a client has read at the very time at which it sends came before.
    """
    if not parts.shape[1]:
        return np.empty(0, np.intp)
    identity, begin_ns = parts[Turn.IDENTITY], parts[Turn.BEGIN_NS]
    first, since = identity.min(), begin_ns.min()
    # one key is sorted in a tenth of the time of three
    fits = (identity.max() - first) >> _IDENTITY_BITS == 0
    if fits and (begin_ns.max() - since) >> _TIME_BITS == 0:
        key = (identity - first) << _TIME_BITS | (begin_ns - since)
        order = np.argsort(key)
        if np.diff(key[order]).all():
            return order
    sent = parts[Turn.IS_REPLY] == 0
    return np.lexsort((parts[Turn.FIRST_SEQUENCE], sent, begin_ns, identity))


def _merged(parts: Ints) -> Ints:
    """Make one of the parts of each turn; they must be in order."""
    if not parts.shape[1]:
        return parts
    keys = parts[[Turn.IDENTITY, Turn.IS_REPLY]]
    changes = keys[:, 1:] != keys[:, :-1]
    other_end, other = changes[1] & ~changes[0], changes.any(axis=0)
    muddled = other_end & (parts[Turn.BEGIN_NS, 1:] < parts[Turn.END_NS, :-1])
    parts[Turn.MUDDLED, 1:] |= muddled
    parts[Turn.MUDDLED, :-1] |= muddled
    send, read = parts[Turn.FIRST_SEND_NS, 1:], parts[Turn.LAST_READ_NS, :-1]
    paused = ~other & (read > 0) & (send != FOREVER) & (send > read)
    parts[Turn.PAUSES_NS, 1:] += np.where(paused, send - read, 0)
    begins = np.r_[0, np.flatnonzero(other) + 1]
    if len(begins) == parts.shape[1]:
        return parts
    ends = np.r_[begins[1:], parts.shape[1]] - 1
    turns: Ints = parts[:, begins]
    turns[_LEAST] = np.minimum.reduceat(parts[_LEAST], begins, axis=1)
    turns[_LARGEST] = np.maximum.reduceat(parts[_LARGEST], begins, axis=1)
    turns[_SUMS] = np.add.reduceat(parts[_SUMS], begins, axis=1)
    turns[_OF_LAST] = parts[_OF_LAST].take(ends, axis=1)
    return turns


def _has(identity: Ints, at: NDArray[np.intp], ahead: int) -> Flags:
    """Whether so many turns ahead is one of the same conversation."""
    there = at + ahead < len(identity)
    then = np.where(there, at + ahead, at)
    return np.asarray(there & (identity[then] == identity[at]))


def _closed(identity: Ints, end_ns: Ints, until_ns: int) -> Flags:
    """Of which turns the conversation is over, or must be taken to be."""
    if until_ns == FOREVER:
        return np.ones(len(identity), bool)
    excess = len(identity) - OPEN_LIMIT
    if excess <= 0:
        return np.zeros(len(identity), bool)
    last = np.r_[identity[1:] != identity[:-1], True]
    lengths = np.diff(np.flatnonzero(np.r_[True, last]))
    quiet_ns = end_ns[last]
    oldest = np.partition(quiet_ns, min(excess, len(quiet_ns) - 1))
    return np.repeat(quiet_ns <= oldest[min(excess, len(quiet_ns) - 1)], lengths)


def _but(count: int, pairs: NDArray[np.intp], single: NDArray[np.intp]) -> Ints:
    """Which turns are neither in these pairs nor these by themselves."""
    kept = np.ones(count, bool)
    kept[pairs] = kept[pairs + 1] = kept[single] = False
    return np.flatnonzero(kept)


def _talked_at_once(turns: Ints, request: NDArray[np.intp]) -> tuple[Flags, Flags]:
    """Which answers began too early for one, and which pairs are none else."""
    reply = request + 1
    answered_ns = turns[Turn.FIRST_SEND_NS].take(reply)
    ended_ns = turns[Turn.LAST_SEND_NS].take(reply)
    early = answered_ns < turns[Turn.BEGIN_NS].take(request)
    read_ns = turns[Turn.FIRST_READ_NS].take(request)
    early |= (read_ns != FOREVER) & (answered_ns < read_ns)
    late = (ended_ns > 0) & (turns[Turn.LAST_READ_NS].take(request) > ended_ns)
    muddled = turns[Turn.MUDDLED]
    late |= (muddled.take(request) | muddled.take(reply)) == 1
    return early, late
