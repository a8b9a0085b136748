"""Parts of turns that are no part of a request or of its reply, by their first bytes.

    TLS     the handshake, and what a server sends by itself behind it (tickets);
            its closing words
    HTTP    an interim answer (100 Continue)
    HTTP/2  both ends talk at once on such a connection
    QUIC    the same; what is in its datagrams is not to be seen

TLS is encrypted, so what is a ticket follows from who has read what: a server that has
read nothing of the first request answers nothing. Where it had, and then sent several
messages, the first may be tickets or the reply: then the reply's beginning is not
known (`Turn.UNSPLIT`). A request that came with the handshake (0-RTT) is answered
beside it, by what looks the same: it is in no exchange.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.records.message_rows import Ints
from latprof_analysis.records.turn import FOREVER, Turn, no_turns

HANDSHAKES_KEPT = 1 << 16
# Records of TLS 1.3, which some fill up by 16 bytes (Java): the client's last word of a
# handshake by the hash that its cipher has; that behind a change of cipher.
_CHANGE_BYTES = 6
_FINISHED_BYTES = (58, 74, 58 + 16, 74 + 16)
_LAST_BYTES = (*_FINISHED_BYTES, *(_CHANGE_BYTES + size for size in _FINISHED_BYTES))
_MOST_WORDS = 3  # of a client's second flight: certificate, proof, last word

_ALERT_BYTES = 24
_FILLED_ALERT_BYTES = _ALERT_BYTES + 16
# What a message of a handshake begins with; recordings may be older than all but one.
_OF_HANDSHAKE = ("tls_handshake", "tls_hello", "tls_early", "tls_change")

Flags = NDArray[np.bool_]


def is_alert(turns: Ints, heads: dict[str, int]) -> Flags:
    """Whether turns are as long as an alert of TLS 1.3, mostly the closing one."""
    encrypted = turns[Turn.HEAD] == heads["tls_data"]
    return np.asarray(encrypted & (turns[Turn.BYTES] == _ALERT_BYTES))


def may_be_alert(turns: Ints, heads: dict[str, int]) -> Flags:
    """The same of the last words of a client, which some fill up."""
    encrypted = turns[Turn.HEAD] == heads["tls_data"]
    size = turns[Turn.BYTES] // np.maximum(turns[Turn.MESSAGES], 1)
    return np.asarray(encrypted & np.isin(size, (_ALERT_BYTES, _FILLED_ALERT_BYTES)))


def _is_closing(parts: Ints, heads: dict[str, int]) -> Flags:
    """Whether parts, in order, are a server's that are as long as an alert.

    Not the first word to a request of more than that, which it has read by then, where
    that is known: it is a reply of two bytes.
    """
    found = is_alert(parts, heads) & (parts[Turn.IS_REPLY] == 1)
    at = np.flatnonzero(found[1:])
    before, part = parts.take(at, axis=1), parts.take(at + 1, axis=1)
    unread = before[Turn.FIRST_READ_NS] > part[Turn.FIRST_SEND_NS]
    found[at + 1] = ~(
        (before[Turn.IDENTITY] == part[Turn.IDENTITY])
        & (before[Turn.IS_REPLY] == 0)
        & ~may_be_alert(before, heads)
        & ~(unread & (before[Turn.ALONE] == 0))
    )
    return np.asarray(found)


@dataclass
class Sorted:
    """Parts in order, and those that were taken out of them."""

    parts: Ints
    closing: Ints
    interim: Ints
    # of connections: request and reply of a handshake, one column each
    handshakes: tuple[Ints, Ints]
    early: Ints  # requests that came with a handshake, and what may answer them
    # conversations in which both ends talk at once, and whether they are of QUIC
    multiplexed: dict[int, bool]


@dataclass
class _Handshake:
    """What is known of a connection from its first record until its first reply."""

    first: Ints  # column of its first part
    begin_ns: int = FOREVER
    end_ns: int = 0
    hellos: int = 0
    early: bool = False  # a request came with the client's hello
    words: int = 0  # of the client's second flight, encrypted
    finished: bool = False  # the client has said its last word of it
    old: bool = False  # before TLS 1.3: the server had the last word
    tickets: bool = False  # were seen
    request_read_ns: int = -1  # when the server read the first request; -1: none yet
    counted: bool = False

    def meet(self, part: Ints) -> None:
        """Take in a part of it."""
        if part[Turn.IS_REPLY]:
            self.end_ns = max(self.end_ns, int(part[Turn.LAST_READ_NS]))
        else:
            self.begin_ns = min(self.begin_ns, int(part[Turn.FIRST_SEND_NS]))
            self.end_ns = max(self.end_ns, int(part[Turn.LAST_SEND_NS]))

    def turns(self) -> tuple[Ints, Ints]:
        """Return it as a request and a reply."""
        request, reply = no_turns(1), no_turns(1)
        request[:, 0] = self.first
        request[Turn.FIRST_SEND_NS] = self.begin_ns
        request[[Turn.READY_NS, Turn.LAST_READ_NS]] = 0
        reply[Turn.LAST_READ_NS] = self.end_ns
        return request, reply


class Protocols:
    """Takes parts of turns in order, gives those that ask and answer."""

    def __init__(self, heads: dict[str, int]) -> None:
        self._heads = heads
        self._of_handshake = [heads[kind] for kind in _OF_HANDSHAKE if kind in heads]
        self._open: dict[int, _Handshake] = {}  # by conversation

    def sort(self, parts: Ints, *, last: bool) -> Sorted:
        """Look at the parts that are new; `last`: nothing more will come."""
        heads = self._heads
        fresh = parts[Turn.SORTED] == 0
        parts[Turn.SORTED] = 1
        kind = np.where(fresh, parts[Turn.HEAD], 0)
        identity, from_server = parts[Turn.IDENTITY], parts[Turn.IS_REPLY] == 1
        interim = (kind == heads["interim"]) & from_server
        closing = kind == heads["tls_alert"]
        quic = fresh & (kind == heads.get("quic", -1))
        multiplexed = quic | (kind == heads["http2"])
        at = np.flatnonzero(multiplexed)
        apart = interim | closing
        early = np.zeros(len(kind), bool)
        done: list[_Handshake] = []
        if self._open or np.isin(kind, self._of_handshake).any():
            self._follow(parts, fresh & ~apart, apart, early, done)
        # encrypted it is known by its length, which a short request or reply has, too
        if (is_alert(parts, heads) & from_server & fresh & ~apart).any():
            kept = np.flatnonzero(~apart)
            short = kept[_is_closing(parts.take(kept, axis=1), heads) & fresh[kept]]
            closing[short] = apart[short] = True
        if last:
            done += [one for one in self._open.values() if not one.counted]
            self._open.clear()
        turns = [one.turns() for one in done]
        none = no_turns(0)
        return Sorted(
            parts.compress(~apart, axis=1) if apart.any() else parts,
            parts.compress(closing, axis=1),
            parts.compress(interim, axis=1),
            (
                np.concatenate([none, *(request for request, _ in turns)], axis=1),
                np.concatenate([none, *(reply for _, reply in turns)], axis=1),
            ),
            parts.compress(early, axis=1),
            dict(zip(identity[at].tolist(), quic[at].tolist(), strict=True)),
        )

    def _follow(
        self,
        parts: Ints,
        fresh: Flags,
        apart: Flags,
        early: Flags,
        done: list[_Handshake],
    ) -> None:
        """Follow handshakes part by part.

        Put in `apart` which are none of turns, and in `early` which of them are of a
        request that came with the handshake.
        """
        identity = parts[Turn.IDENTITY]
        of_handshake = np.isin(parts[Turn.HEAD], self._of_handshake)
        begun = np.unique(identity[of_handshake & fresh])
        known = np.fromiter(self._open, "i8", len(self._open))
        mine = np.isin(identity, np.union1d(begun, known)) & fresh
        for i in np.flatnonzero(mine).tolist():
            of = int(identity[i])
            one = self._open.get(of)
            if one is None:
                if not of_handshake[i]:
                    continue
                one = self._begin(parts, i, apart)
            early[i] = parts[Turn.HEAD, i] == self._heads.get("tls_early")
            one.early |= bool(early[i])
            if of_handshake[i]:
                apart[i] = True
                self._speak(one, parts[:, i])
            elif not parts[Turn.IS_REPLY, i]:
                apart[i] = self._ask(one, parts[:, i])
            else:
                apart[i] = self._answer(one, parts[:, i])
                early[i] = apart[i] and one.early and one.finished
            if one.request_read_ns >= 0 and not one.counted:
                one.counted = True
                done.append(one)
            if parts[Turn.IS_REPLY, i] and not apart[i]:
                del self._open[of]

    def _begin(self, parts: Ints, at: int, apart: Flags) -> _Handshake:
        """A handshake begins; what was asked before is its hello, seen by one end."""
        identity = int(parts[Turn.IDENTITY, at])
        one = _Handshake(parts[:, at].copy())
        if len(self._open) >= HANDSHAKES_KEPT:
            del self._open[next(iter(self._open))]
        self._open[identity] = one
        if not parts[Turn.IS_REPLY, at]:
            return one
        before = np.flatnonzero(parts[Turn.IDENTITY, :at] == identity)
        for i in before[parts[Turn.IS_REPLY, before] == 0].tolist():
            apart[i] = True
            one.first = parts[:, i].copy()
            one.hellos += 1
            one.meet(parts[:, i])
        return one

    def _speak(self, one: _Handshake, part: Ints) -> None:
        """A message of it that says so itself."""
        one.meet(part)
        if part[Turn.IS_REPLY]:
            one.old |= one.finished
            return
        hello = part[Turn.HEAD] in (
            self._heads.get("tls_hello"),
            self._heads.get("tls_early"),
        )
        if one.hellos and part[Turn.BYTES] > _CHANGE_BYTES:
            # not so where the server has asked for another hello
            one.finished = not hello
        one.hellos += 1

    @staticmethod
    def _ask(one: _Handshake, part: Ints) -> bool:
        """Whether what a client says is still of the handshake.

        Its second flight is one message, or one for each word; the last is known by its
        length.
        """
        if not one.finished:
            is_last = int(part[Turn.BYTES]) in _LAST_BYTES
            one.words += 1
            one.finished = is_last or one.early or one.words >= _MOST_WORDS
            # without a sender's half nothing is known but its size
            if part[Turn.HEAD] or is_last:
                one.meet(part)
                return True
            one.finished = True
        if one.request_read_ns < 0:
            one.request_read_ns = int(part[Turn.FIRST_READ_NS])
        return False

    @staticmethod
    def _answer(one: _Handshake, part: Ints) -> bool:
        """Whether what a server says answers nothing: a ticket, or a handshake's."""
        # what the client said was its flight, of another length
        one.finished |= one.words > 0
        sent_ns = int(part[Turn.LAST_SEND_NS])
        if one.request_read_ns < 0 or 0 < sent_ns < one.request_read_ns:
            one.tickets |= one.finished
            return True
        part[Turn.UNSPLIT] = not (one.old or one.tickets)
        return False
