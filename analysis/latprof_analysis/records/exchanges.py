"""Messages of both directions -> exchanges: a request turn and its reply turn.

A *turn* is what one end says until the other answers. Turns are taken in the order
in which the client saw them: its own messages when it sent them, the server's when it
had read them (where the client was not seen: when the server could read, and when it
sent). A request turn and the reply turn behind it are an exchange if the server
answered after it had read, and all that it had read, and the client went on after it
had read all that was sent. Else both talked at once, and which bytes answer which is
not to be known from outside: then the whole conversation has no exchange, and those
that were given out before are taken back. Two exceptions:

    DNS   answers are paired with queries by their identification
    UDP   a request is given up when the next one is sent, unless that follows at once;
          what answers it later is none of that one's reply

What nobody answered is given out, too, with what ended the waiting; so are handshakes
of TLS, which are no part of a request (`protocols`).

A turn is a column of sums, not a list of messages: what is open takes little memory,
however long one end talks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.records.conversations import Conversations
from latprof_analysis.records.endings import Endings
from latprof_analysis.records.flows import IPPROTO_TCP, Flows
from latprof_analysis.records.in_flight import InFlight
from latprof_analysis.records.least_responses import LeastResponses
from latprof_analysis.records.message_rows import (
    LOADED,
    LOADED_REPLY,
    TRAIN,
    TRAIN_REPLY,
    WARMUP,
    Ints,
    Messages,
)
from latprof_analysis.records.protocols import Protocols, may_be_alert
from latprof_analysis.records.turn import (
    FOREVER,
    LARGEST,
    LEAST,
    NONE,
    OF_LAST,
    SUMS,
    Turn,
    first_of,
    no_turns,
)
from latprof_analysis.stages import (
    CLOSED_BY_SERVER,
    EXCHANGE,
    GIVEN_UP,
    HANDSHAKE,
    NEXT_SENT,
    TIMED_OUT,
    UNANSWERED,
    WAITING,
    WAS_RESET,
)

# How long after it was over a message may come from the joiner: where both ends are
# here, and where one half waited in vain for the other.
LATE_NS = 500_000_000
LATE_ALONE_NS = 4_000_000_000
# Messages that wait until those before them are there, and open turns.
WAITING_LIMIT = 1 << 19
OPEN_LIMIT = 1 << 17
# Nothing on its way, and all read, for so long: what a client said before was no part
# of its request, and what a server says then may be none of its reply.
PAUSE_NS = 100_000_000
# Datagrams that follow each other sooner are one request.
BURST_NS = 10_000_000
# Whoever closes so soon after its last words does not wait for an answer.
AT_ONCE_NS = 1_000_000
# Late answers of UDP, and more of them than there are exchanges: a window of requests.
FEWEST_LATE = 4

PUSHED = "pushed without a request"
AT_ONCE = "both sides talked at once"
HTTP2 = "HTTP/2: both sides talk at once"
QUIC = "QUIC: both sides talk at once"
EARLY = "TLS 0-RTT: sent with the handshake"
NOT_ANSWERED = "without an answer"
BEFORE_PAUSE = "not answered before a pause"
CLOSING_WORDS = "closing"
OF_HANDSHAKE = "handshake"
INTERIM = "interim answer"
LATE_ANSWER = "answer to a request that was given up"

_IDENTITY_BITS, _TIME_BITS = 20, 43  # 2.4 hours
_ID_SHIFT = 40  # of a query's identification in a conversation's

Flags = NDArray[np.bool_]


@dataclass
class Found:
    """Turns that became known, of one kind.

    `outcome` says for each request of `UNANSWERED` what ended the waiting, after
    `waited_ns`.
    """

    kind: str
    request: Ints
    reply: Ints
    outcome: list[str] = field(default_factory=list)
    waited_ns: Ints = field(default_factory=lambda: np.empty(0, "i8"))


@dataclass(frozen=True)
class Overlap:
    """A conversation that has no exchange, whose earlier ones are none, either."""

    place: int  # of one of its flows, when it was found
    from_ns: int
    until_ns: int
    cause: str


class Exchanges:
    """Takes finished messages, gives pairs of turns.

    `no_exchange` and `no_exchange_bytes` count messages that are in none, by who sent
    to whom and cause. `taken_back` are conversations whose exchanges that were given
    out are none. `least_responses_ns` says, by the same, what no response took less
    than since it was known that the ends talk at once, and `in_flight`, by cause, how
    many bytes were on their way since then.
    """

    def __init__(
        self,
        flows: Flows,
        conversations: Conversations,
        endings: Endings,
        heads: dict[str, int],
    ) -> None:
        self.no_exchange: Counter[tuple[str, str]] = Counter()
        self.no_exchange_bytes: Counter[tuple[str, str]] = Counter()
        self.taken_back: list[Overlap] = []
        self.least_responses_ns: dict[tuple[str, str], int] = {}
        self.in_flight: defaultdict[str, InFlight] = defaultdict(InFlight)
        self._least = LeastResponses()
        self._flows = flows
        self._conversations = conversations
        self._endings = endings
        self._heads = heads
        self._protocols = Protocols(heads)
        self._waiting: list[Ints] = []
        self._open = NONE
        self._now_ns = 0
        self._overlapped: dict[int, str] = {}  # why, by conversation
        self._late: Counter[int] = Counter()  # answers, less exchanges; UDP

    def add(self, rows: Messages | None, until_ns: int, now_ns: int) -> list[Found]:
        """Take messages in; all that were over before `until_ns` are here.

        Return exchanges, and what is none, as tables of `Turn`. With FOREVER nothing
        more will come; what has no answer then waited until `now_ns`.
        """
        self._now_ns = now_ns
        if rows is not None and len(rows) and len(self._flows):
            place = self._flows.index(rows.retransmit_range[0])
            answered = self._conversations.both_ways[place]
            answered = answered | (rows.numbers["head"] == self._heads["dns_query"])
            if answered.all():
                self._waiting.append(_timed(self._parts(rows, place)))
            else:
                at = np.flatnonzero(answered)
                self._waiting.append(_timed(self._parts(rows.take(at), place[at])))
                self._waiting.append(self._unanswered(rows, place, ~answered))
        parts = np.concatenate([self._open, *self._over(until_ns)], axis=1)
        parts = parts.take(_in_order(parts), axis=1)
        found: list[Found] = []
        parts = self._of_turns(parts, found, last=until_ns == FOREVER)
        parts = self._latest(parts, found)
        known = len(self._overlapped)
        found += self._paired(_merged(parts), until_ns)
        if fresh := list(self._overlapped)[known:]:
            mine = np.isin(parts[Turn.IDENTITY], np.array(fresh, "i8"))
            # by themselves: what stays open comes again
            self._bound(parts.compress(mine, axis=1), AT_ONCE, LeastResponses())
        return found

    def _of_turns(self, parts: Ints, found: list[Found], *, last: bool) -> Ints:
        """Return what asks and answers, and is of conversations that take turns."""
        done = self._protocols.sort(parts, last=last)
        self._count(done.closing, CLOSING_WORDS)
        self._count(done.interim, INTERIM)
        self._count(done.early, EARLY)
        if done.handshakes[0].shape[1]:
            found.append(Found(HANDSHAKE, *done.handshakes))
        parts = done.parts
        for identity, is_quic in done.multiplexed.items():
            if identity not in self._overlapped:
                self._overlap(identity, parts, QUIC if is_quic else HTTP2)
        if not self._overlapped:
            return parts
        both = self._is_overlapped(parts[Turn.IDENTITY])
        if not both.any():
            return parts
        for cause in (AT_ONCE, HTTP2, QUIC):
            of = [i for i, why in self._overlapped.items() if why == cause]
            mine = np.isin(parts[Turn.IDENTITY], np.array(of, "i8"))
            without = parts.compress(mine, axis=1)
            self._count(without, cause)
            self._bound(without, cause, self._least)
            measured = _is_measured(without)
            self.in_flight[cause].add(without.compress(measured, axis=1))
        return parts.compress(~both, axis=1)

    def _bound(self, parts: Ints, cause: str, least: LeastResponses) -> None:
        """Note how long the responses take at least of which these are a part."""
        least_ns = least.of(parts)
        at = np.flatnonzero(least_ns < FOREVER)
        measured, place = self._measured(parts.take(at, axis=1))
        least_ns = least_ns[at][measured]
        found, index = np.unique(place, return_inverse=True)
        fastest_ns = np.full(len(found), FOREVER)
        np.minimum.at(fastest_ns, index, least_ns)
        for one, ns in zip(found.tolist(), fastest_ns.tolist(), strict=True):
            key = self._conversations.label(one), cause
            known_ns = self.least_responses_ns.get(key, FOREVER)
            self.least_responses_ns[key] = min(ns, known_ns)

    def _is_overlapped(self, identity: Ints) -> Flags:
        known = np.fromiter(self._overlapped, "i8", len(self._overlapped))
        return np.isin(identity, known)

    def _overlap(self, identity: int, turns: Ints, cause: str) -> None:
        """No turn of this conversation is an exchange any more, nor ever was."""
        self._overlapped[identity] = cause
        mine = turns.compress(turns[Turn.IDENTITY] == identity, axis=1)
        place = self._flows.index(mine[Turn.FLOW].view("u8"))
        if not len(place) or place[0] < 0:
            return
        from_ns = self._conversations.first_ns(int(place[0]))
        until_ns = int(mine[Turn.END_NS].max())
        self.taken_back.append(Overlap(int(place[0]), from_ns, until_ns, cause))

    def _latest(self, parts: Ints, found: list[Found]) -> Ints:
        """Leave out of each request turn what was given up before the last of it."""
        if not parts.shape[1]:
            return parts
        identity, is_reply = parts[Turn.IDENTITY], parts[Turn.IS_REPLY] == 1
        same = (identity[1:] == identity[:-1]) & (is_reply[1:] == is_reply[:-1])
        goes_on = np.r_[False, same]  # the turn of the part before
        apart = (parts[Turn.TRAIN] | parts[Turn.WARMUP] | parts[Turn.LOADED]) == 1
        send_ns, read_ns = parts[Turn.FIRST_SEND_NS], parts[Turn.LAST_READ_NS]
        idle_ns = np.r_[0, np.where(send_ns == FOREVER, 0, send_ns)[1:] - read_ns[:-1]]
        paused = goes_on & (np.r_[0, read_ns[:-1]] > 0) & (idle_ns >= PAUSE_NS)
        parts[Turn.PAUSE_NS] = np.where(
            paused & is_reply, np.r_[0, read_ns[:-1]], parts[Turn.PAUSE_NS]
        )
        # a question that is asked again is the same one
        alone = (parts[Turn.IS_DATAGRAM] == 1) & (identity >> _ID_SHIFT == 0)
        last_ns = np.r_[0, parts[Turn.LAST_SEND_NS][:-1]]
        alone &= (send_ns != FOREVER) & (send_ns - last_ns >= BURST_NS)
        anew = goes_on & ~is_reply & ~apart & (paused | alone)
        if not anew.any():
            return self._without_late(parts)
        number = np.cumsum(~goes_on)  # of the turn
        last = np.zeros(number[-1] + 1, np.intp)
        np.maximum.at(last, number[anew], np.flatnonzero(anew))
        gone = np.arange(len(number)) < last[number]
        datagram = parts[Turn.IS_DATAGRAM] == 1
        self._give_up(parts, gone & datagram, found)
        self._count(parts.compress(gone & ~datagram, axis=1), BEFORE_PAUSE)
        again = np.bincount(number[gone & datagram], minlength=len(last))
        parts[Turn.REPEATED, last[last > 0]] += again[last > 0]
        return self._without_late(parts.compress(~gone, axis=1))

    def _give_up(self, parts: Ints, gone: Flags, found: list[Found]) -> None:
        """Requests of datagrams, of which the next was sent before an answer came."""
        at = np.flatnonzero(gone)
        if not len(at):
            return
        request = parts.take(at, axis=1)
        next_ns = parts[Turn.FIRST_SEND_NS].take(at + 1)
        waited = np.where(next_ns == FOREVER, 0, next_ns - request[Turn.LAST_SEND_NS])
        self._count(request, NOT_ANSWERED)
        none, outcome = no_turns(len(at)), [NEXT_SENT] * len(at)
        waited = np.maximum(waited, 0)
        found.append(Found(UNANSWERED, request, none, outcome, waited))

    def _without_late(self, parts: Ints) -> Ints:
        """Leave out datagrams that were sent before their request had been read."""
        replies = (parts[Turn.IS_REPLY] == 1) & (parts[Turn.IS_DATAGRAM] == 1)
        replies &= parts[Turn.IDENTITY] >> _ID_SHIFT == 0
        if not replies.any():
            return parts
        identity = parts[Turn.IDENTITY]
        # of each part the last request before it
        at = np.where(parts[Turn.IS_REPLY] == 0, np.arange(len(identity)), -1)
        at = np.maximum.accumulate(at)
        of_it = (at >= 0) & (identity[at] == identity)
        read_ns = parts[Turn.FIRST_READ_NS].take(np.maximum(at, 0))
        sent_ns = parts[Turn.LAST_SEND_NS]
        late = replies & of_it & (sent_ns > 0) & (read_ns != FOREVER)
        late &= sent_ns < read_ns
        if not late.any():
            return parts
        self._count(parts.compress(late, axis=1), LATE_ANSWER)
        self._late.update(identity[late].tolist())
        return parts.compress(~late, axis=1)

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
        send = first_of(stamps["send"], stamps["queue"], stamps["xmit"])
        read = stamps["read"]
        when = np.where(
            to_server | ~client_here, first_of(send, stamps["ready"], read), read
        )
        parts = np.empty((len(Turn), len(flow)), "i8")
        heads, head = self._heads, rows.numbers["head"]
        parts[Turn.HEAD] = head
        of_dns = (head == heads["dns_query"]) | (head == heads["dns_answer"])
        asked = (rows.numbers["head_id"] + 1) << _ID_SHIFT
        parts[Turn.IDENTITY] = known.identity[place] + np.where(of_dns, asked, 0)
        datagrams = np.r_[self._flows.table["protocol"] != IPPROTO_TCP, False]
        parts[Turn.IS_DATAGRAM] = datagrams[place]
        parts[Turn.IS_REPLY] = ~to_server
        parts[Turn.FLOW] = flow.view("i8")
        parts[Turn.RUN_NS] = rows.numbers["answer_run_ns"]
        parts[Turn.WAITED_NS] = rows.numbers["answer_waited_ns"]
        parts[Turn.FIRST_SEQUENCE] = rows.numbers["sequence"]
        parts[Turn.LAST_SEQUENCE] = rows.numbers["sequence"]
        parts[Turn.BEGIN_NS] = parts[Turn.END_NS] = when
        parts[Turn.LAST_SEND_NS], parts[Turn.LAST_READ_NS] = send, read
        parts[Turn.FIRST_SEND_NS] = np.where(send > 0, send, FOREVER)
        parts[Turn.FIRST_READ_NS] = np.where(read > 0, read, FOREVER)
        parts[Turn.SENDER_PID] = np.maximum(rows.numbers["sender_pid"], 0)
        parts[Turn.READER_PID] = np.maximum(rows.numbers["reader_pid"], 0)
        kind = rows.texts["kind"][0]
        parts[Turn.WARMUP] = kind == WARMUP
        parts[Turn.TRAIN] = (kind == TRAIN) | (kind == TRAIN_REPLY)
        parts[Turn.LOADED] = (kind == LOADED) | (kind == LOADED_REPLY)
        parts[[Turn.MUDDLED, Turn.SORTED, Turn.UNSPLIT, Turn.REPEATED]] = 0
        parts[Turn.PAUSES_NS] = 0
        parts[Turn.PAUSE_NS] = FOREVER
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
            return NONE
        ends = np.r_[begins[1:], len(at)] - 1
        # the first and the last of each, and sums over all
        edge = at[np.r_[begins, ends]]
        edges = self._parts(rows.take(edge), place[edge])
        parts, last = edges[:, : len(begins)], edges[:, len(begins) :]
        parts[LEAST] = np.minimum(parts[LEAST], last[LEAST])
        parts[LARGEST] = np.maximum(parts[LARGEST], last[LARGEST])
        parts[OF_LAST] = last[OF_LAST]
        parts[Turn.SORTED] = 0
        _, start, end = rows.retransmit_range
        again = np.maximum(rows.numbers["retransmits"][at], 0)
        parts[Turn.MESSAGES] = ends - begins + 1
        parts[Turn.BYTES] = np.add.reduceat((end - start)[at], begins)
        parts[Turn.RETRANSMITS] = np.add.reduceat(again, begins)
        return _timed(parts)

    def _paired(self, turns: Ints, until_ns: int) -> list[Found]:
        """Take turns in their order; keep what is open."""
        identity, is_reply = turns[Turn.IDENTITY], turns[Turn.IS_REPLY] == 1
        starts = np.r_[True, identity[1:] != identity[:-1]][: len(identity)]
        pushed = starts & is_reply
        self._count(turns.compress(pushed, axis=1), PUSHED)
        if pushed.any():
            turns, is_reply = turns.compress(~pushed, axis=1), is_reply[~pushed]
            identity = turns[Turn.IDENTITY]
        requests = np.flatnonzero(~is_reply)
        answered = _has(identity, requests, 1)
        # the next exchange shows whether all of this one's reply had been read
        followed = _has(identity, requests, 3)
        left = len(identity) - 2 * int(np.count_nonzero(followed))
        ended = _closed(identity, turns[Turn.END_NS], until_ns, left)[requests]
        final = (answered & ended) | followed
        silent = ~answered & ended
        done = requests[final]
        self._open = turns.take(_but(len(identity), done, requests[silent]), axis=1)
        early, late = _talked_at_once(turns, requests[answered])
        bad = np.zeros(len(identity), bool)
        bad[requests[answered]] = early | late
        # what came too early for an answer was part of the reply before
        before = requests[answered][early] - 2
        before = before[before >= 0]
        bad[before] |= identity[before] == identity[before + 2]
        self._learn_overlaps(turns, done, bad)
        bad |= self._is_overlapped(identity)
        at_once = done[bad[done]]
        for each in (at_once, at_once + 1):
            self._count(turns.take(each, axis=1), AT_ONCE)
        quiet = requests[silent]
        self._count(turns.take(quiet[bad[quiet]], axis=1), AT_ONCE)
        good = done[~bad[done]]
        pairs = turns.take(good, axis=1), turns.take(good + 1, axis=1)
        found = [Found(EXCHANGE, *pairs)]
        found += self._never_answered(turns.take(quiet[~bad[quiet]], axis=1))
        return found

    def _learn_overlaps(self, turns: Ints, done: NDArray[np.intp], bad: Flags) -> None:
        """Learn from pairs in which conversations both ends talk at once."""
        identity = turns[Turn.IDENTITY]
        reply_to = np.minimum(done + 1, len(identity) - 1)
        datagram = turns[Turn.IS_DATAGRAM].take(done) == 1
        several = turns[Turn.MESSAGES].take(reply_to) > 1
        bad[done] |= datagram & several & (turns[Turn.REPEATED].take(done) > 0)
        bad[done] |= self._is_encrypted_pipeline(turns, done, reply_to)
        apart = turns[Turn.WARMUP] | turns[Turn.TRAIN] | turns[Turn.LOADED]
        counts = (apart.take(done) == 0) & (identity.take(done) >> _ID_SHIFT == 0)
        of = identity.take(done)
        for one in np.unique(of[counts & bad[done] & ~datagram]).tolist():
            if one not in self._overlapped:
                self._overlap(one, turns, AT_ONCE)
        if not (self._late or (datagram & bad[done]).any()):
            return
        self._late.update(of[counts & datagram & bad[done]].tolist())
        # of those in doubt only: of others nothing is to be weighed
        doubted = np.isin(of, np.fromiter(self._late, "i8", len(self._late)))
        self._late.subtract(of[counts & datagram & ~bad[done] & doubted].tolist())
        for one, excess in list(self._late.items()):
            if excess >= FEWEST_LATE and one not in self._overlapped:
                self._overlap(one, turns, AT_ONCE)

    def _is_encrypted_pipeline(
        self, turns: Ints, request: NDArray[np.intp], reply: NDArray[np.intp]
    ) -> Flags:
        """Whether a server answered before it had all, and what is not to be seen.

        Hardly a pipeline, but HTTP/2, whose ends talk at once.
        """
        encrypted = turns[Turn.HEAD].take(request) == self._heads["tls_data"]
        whole_ns = np.maximum(turns[Turn.READY_NS], turns[Turn.LAST_READ_NS])
        answered_ns = turns[Turn.FIRST_SEND_NS].take(reply)
        known = (answered_ns > 0) & (answered_ns != FOREVER)
        return np.asarray(encrypted & known & (whole_ns.take(request) > answered_ns))

    def _never_answered(self, request: Ints) -> list[Found]:
        """Say what ended the waiting of requests, if anything did."""
        outcomes, waited = [], []
        alert = may_be_alert(request, self._heads)
        closing = np.zeros(len(alert), bool)
        here = self._client_here(request)
        for i in range(request.shape[1]):
            sent_ns = int(request[Turn.LAST_SEND_NS, i]) or int(request[Turn.END_NS, i])
            identity = int(request[Turn.IDENTITY, i]) & (1 << _ID_SHIFT) - 1
            closing[i] = self._endings.server_was_done(identity, sent_ns)
            end = self._endings.after(identity, sent_ns, client_here=bool(here[i]))
            outcomes.append(WAITING)
            waited.append((end.t_ns if end else self._now_ns) - sent_ns)
            if not end:
                continue
            # one that goes on waits for an answer, as short as its words are
            closing[i] |= alert[i]
            if end.timed_out:
                outcomes[-1] = TIMED_OUT
            elif end.was_reset:
                outcomes[-1] = WAS_RESET
            elif end.by_client:
                outcomes[-1] = GIVEN_UP
                closing[i] |= waited[-1] < AT_ONCE_NS
            else:
                outcomes[-1] = CLOSED_BY_SERVER
        self._count(request.compress(closing, axis=1), CLOSING_WORDS)
        at = np.flatnonzero(~closing)
        request = request.take(at, axis=1)
        self._count(request, NOT_ANSWERED)
        if not len(at):
            return []
        named = [outcomes[i] for i in at.tolist()]
        waited_ns = np.array(waited, "i8")[at]
        return [Found(UNANSWERED, request, no_turns(len(at)), named, waited_ns)]

    def _client_here(self, turns: Ints) -> Flags:
        """Whether the client's end of each was seen, as far as its flow is known."""
        place = self._flows.index(turns[Turn.FLOW].view("u8"))
        return np.asarray(np.r_[self._conversations.client_here, False][place])

    def _count(self, turns: Ints, cause: str) -> None:
        """Count the messages of turns that are no part of an exchange."""
        measured, place = self._measured(turns)
        found, index = np.unique(place, return_inverse=True)
        counts = np.zeros((2, len(found)), "i8")
        for row, turn in enumerate((Turn.MESSAGES, Turn.BYTES)):
            np.add.at(counts[row], index, turns[turn][measured])
        for at, messages, size in zip(found.tolist(), *counts.tolist(), strict=True):
            who = self._conversations.label(at)
            self.no_exchange[who, cause] += messages
            self.no_exchange_bytes[who, cause] += size

    def _measured(self, turns: Ints) -> tuple[Flags, Ints]:
        """Return which are of no warm-up, train or load, and the places of these."""
        measured = _is_measured(turns)
        return measured, self._flows.index(turns[Turn.FLOW][measured].view("u8"))


def _is_measured(turns: Ints) -> Flags:
    apart = turns[Turn.WARMUP] | turns[Turn.TRAIN] | turns[Turn.LOADED]
    return np.asarray(apart == 0)


def _timed(parts: Ints) -> Ints:
    """Leave out what has no time: a reply that the client never read is none to it."""
    timed = parts[Turn.END_NS] > 0
    return parts if timed.all() else parts.take(np.flatnonzero(timed), axis=1)


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
    turns[LEAST] = np.minimum.reduceat(parts[LEAST], begins, axis=1)
    turns[LARGEST] = np.maximum.reduceat(parts[LARGEST], begins, axis=1)
    turns[SUMS] = np.add.reduceat(parts[SUMS], begins, axis=1)
    turns[OF_LAST] = parts[OF_LAST].take(ends, axis=1)
    return turns


def _has(identity: Ints, at: NDArray[np.intp], ahead: int) -> Flags:
    """Whether so many turns ahead is one of the same conversation."""
    there = at + ahead < len(identity)
    then = np.where(there, at + ahead, at)
    return np.asarray(there & (identity[then] == identity[at]))


def _closed(identity: Ints, end_ns: Ints, until_ns: int, left: int) -> Flags:
    """Of which turns the conversation is over, or must be taken to be.

    `left`: so many are open. Those that are paired now are none of them, however many
    came at once.
    """
    if until_ns == FOREVER:
        return np.ones(len(identity), bool)
    excess = left - OPEN_LIMIT
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
