"""Parts of turns that are no part of a request or of its reply, by their first bytes.

    TLS     the handshake, and what a server sends by itself behind it (tickets);
            its closing words
    HTTP    an interim answer (100 Continue)
    HTTP/2  both ends talk at once on such a connection

TLS is encrypted, so what is a ticket follows from who has read what: a server that has
read nothing of the first request answers nothing. Where it had, and then sent several
messages, the first may be tickets or the reply: then the reply's beginning is not
known (`Turn.UNSPLIT`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.records.message_rows import Ints
from latprof_analysis.records.turn import FOREVER, Turn, no_turns

HANDSHAKES_KEPT = 1 << 16
# Records of TLS 1.3: a change of cipher, and the client's last word of a handshake by
# the hash that its cipher has; both in one.
_CHANGE_BYTES = 6
_FINISHED_BYTES = (58, 74)
_BOTH_BYTES = tuple(_CHANGE_BYTES + size for size in _FINISHED_BYTES)

_ALERT_BYTES = 24

Flags = NDArray[np.bool_]


def is_alert(turns: Ints, heads: dict[str, int]) -> Flags:
    """Whether turns are as long as an alert of TLS 1.3, mostly the closing one."""
    encrypted = turns[Turn.HEAD] == heads["tls_data"]
    return np.asarray(encrypted & (turns[Turn.BYTES] == _ALERT_BYTES))


@dataclass
class Sorted:
    """Parts in order, and those that were taken out of them."""

    parts: Ints
    closing: Ints
    interim: Ints
    # of connections: request and reply of a handshake, one column each
    handshakes: tuple[Ints, Ints]
    # conversations in which both ends talk at once
    http2: set[int] = field(default_factory=set)


@dataclass
class _Handshake:
    """What is known of a connection from its first record until its first reply."""

    first: Ints  # column of its first part
    begin_ns: int = FOREVER
    end_ns: int = 0
    hellos: int = 0
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
        self._open: dict[int, _Handshake] = {}  # by conversation

    def sort(self, parts: Ints, *, last: bool) -> Sorted:
        """Look at the parts that are new; `last`: nothing more will come."""
        heads = self._heads
        fresh = parts[Turn.SORTED] == 0
        parts[Turn.SORTED] = 1
        kind = np.where(fresh, parts[Turn.HEAD], 0)
        from_server = parts[Turn.IS_REPLY] == 1
        interim = (kind == heads["interim"]) & from_server
        closing = kind == heads["tls_alert"]
        # encrypted it is known by its length; of a client it may be a short request
        closing |= is_alert(parts, heads) & from_server & fresh
        http2 = parts[Turn.IDENTITY, kind == heads["http2"]]
        apart = interim | closing
        done: list[_Handshake] = []
        if self._open or (kind == heads["tls_handshake"]).any():
            self._follow(parts, kind, fresh & ~apart, apart, done)
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
            set(http2.tolist()),
        )

    def _follow(
        self,
        parts: Ints,
        kind: Ints,
        fresh: Flags,
        apart: Flags,
        done: list[_Handshake],
    ) -> None:
        """Follow handshakes part by part; put in `apart` which are none of turns."""
        identity = parts[Turn.IDENTITY]
        begun = np.unique(identity[kind == self._heads["tls_handshake"]])
        known = np.fromiter(self._open, "i8", len(self._open))
        mine = np.isin(identity, np.union1d(begun, known)) & fresh
        for i in np.flatnonzero(mine).tolist():
            of = int(identity[i])
            one = self._open.get(of)
            is_handshake = kind[i] == self._heads["tls_handshake"]
            if one is None:
                if not is_handshake:
                    continue
                one = self._begin(parts, i, apart)
            if is_handshake:
                apart[i] = True
                self._speak(one, parts[:, i])
            elif not parts[Turn.IS_REPLY, i]:
                apart[i] = self._ask(one, parts[:, i])
            else:
                apart[i] = self._answer(one, parts[:, i])
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

    @staticmethod
    def _speak(one: _Handshake, part: Ints) -> None:
        """A message of it that says so itself."""
        one.meet(part)
        if part[Turn.IS_REPLY]:
            one.old |= one.finished
            return
        if one.hellos and part[Turn.BYTES] > _CHANGE_BYTES:
            one.finished = True
        one.hellos += 1

    @staticmethod
    def _ask(one: _Handshake, part: Ints) -> bool:
        """Whether what a client says is still of the handshake."""
        size = int(part[Turn.BYTES])
        if not one.finished:
            one.finished = True
            # without a sender's half nothing is known but its size
            if part[Turn.HEAD] or size in (*_FINISHED_BYTES, *_BOTH_BYTES):
                one.meet(part)
                return True
        elif one.old and one.request_read_ns < 0 and size in _FINISHED_BYTES:
            # the server asked for another hello, which looks like a last word
            one.old = False
            one.meet(part)
            return True
        if one.request_read_ns < 0:
            one.request_read_ns = int(part[Turn.FIRST_READ_NS])
        return False

    @staticmethod
    def _answer(one: _Handshake, part: Ints) -> bool:
        """Whether what a server says answers nothing: a ticket, or a handshake's."""
        sent_ns = int(part[Turn.LAST_SEND_NS])
        if one.request_read_ns < 0 or 0 < sent_ns < one.request_read_ns:
            one.tickets |= one.finished
            return True
        part[Turn.UNSPLIT] = not (one.old or one.tickets)
        return False
