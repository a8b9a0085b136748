"""Why a message was slow in its sender's socket, or lost on its way.

From what the flight recorder kept of what TCP asks before it sends a segment, and from
the segments that it sent again. The parts of a stage sum to it to the nanosecond; time
of which nothing is known is a part, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from latprof_analysis.story.next_hops import RESOLVING, AddressWait
from latprof_analysis.story.story import Part, Records, longest_spans

ZERO_WINDOW = "a zero window"
HELD, LOST, BEHIND = "held", "lost", "behind a missing segment"
NOT_KNOWN, UNKNOWN_WAY = "not told apart", "unknown from here"
# By the names of `enum held_by` in bpf/records.h: what bytes were held by.
_HOLDERS = {
    "pacing": "pacing",
    "congestion_window": "the congestion window",
    "loss_recovery": "the congestion window, while lost segments were sent again",
    "receive_window": "the receive window",
    "zero_window": ZERO_WINDOW,
    "cork": "a cork",
    "nagle": "Nagle",
    "delayed_ack": "Nagle until a delayed ACK",
    "own_backlog": "its own packets in the device's queue (TSQ)",
    "send_buffer": "a full send buffer",
}
# By those of `enum resent_by`: what made TCP send a segment again.
_SENDERS = {
    "timeout": "a retransmission timeout",
    "fast": "a fast retransmit",
    "probe": "a tail loss probe",
    "handshake": "a handshake's timer",
}
AGAIN = "sent again by "
_Times = Iterable[tuple[str, str, int]]
# linux/tcp.h: TCP_INFINITE_SSTHRESH, and the default of SO_MAX_PACING_RATE.
_NO_SSTHRESH = 0x7FFFFFFF
_NO_PACING = (1 << 64) - 1


class DroppedSegment(NamedTuple):
    """A segment that the sender's or the receiver's kernel dropped.

    Attributes
    ----------
    t_ns : int
        CLOCK_MONOTONIC.
    where : str
        In words, as the end of "lost ...".
    sure : bool
        Whether the kernel says why; it frees without a reason also what is copied.
    """

    t_ns: int
    where: str
    sure: bool


class Span(NamedTuple):
    """Some time in which bytes did not leave, for one reason; CLOCK_MONOTONIC.

    `row`: of `socket_state`, where it is TCP's.
    """

    begin_ns: int
    end_ns: int
    kind: str
    what: str
    row: Any = None


class HeldTime(NamedTuple):
    """What held the bytes of a TCP socket.

    Attributes
    ----------
    parts : list of Part
        The longest first; times sum to the span's. "held" says by what; "waiting for
        the link address of" whose, and "lost" how it was sent again after that; "not
        told apart" is what no record shows.
    timeline : list of dict
        What held them in the order of time: ``from_ns`` since the span began,
        ``time_ns``, ``kind``, ``what``, ``cpu`` (none), and in ``tcp`` the socket's
        state at its end (see `tcp_state`). Of more than 200 the longest.
    """

    parts: list[Part]
    timeline: list[dict[str, Any]]


def held_time(
    states: Records,
    flow: int,
    begin_ns: int,
    end_ns: int,
    names: dict[str, int],
    jiffy_ns: int,
    unresolved: Sequence[Span] = (),
) -> HeldTime:
    """Split the time of bytes in the send queue of a TCP socket.

    Parameters
    ----------
    states : ndarray of records
        ``socket_state`` of bpf/records.h, of any flows.
    flow : int
        Number of the flow that the bytes are of.
    begin_ns, end_ns : int
        CLOCK_MONOTONIC: when they were given to the socket, and handed to a device.
    names : dict
        Values of ``held`` by name.
    jiffy_ns : int
        Of the kernel that kept the records.
    unresolved : sequence of Span
        Of `unresolved_spans`: then nothing could leave, whatever else held it.
    """
    words = {number: _HOLDERS.get(name, "") for name, number in names.items()}
    own = states[states["flow"] == np.uint64(flow)]
    held = [
        Span(int(row["from_ns"]), int(row["until_ns"]), HELD, what, row)
        for row in own[np.argsort(own["from_ns"], kind="stable")]
        if (what := words.get(int(row["held"]), ""))
    ]
    found: list[tuple[str, str, int]] = []
    timeline: list[dict[str, Any]] = []
    known_ns = begin_ns
    for span in sorted(
        [*unresolved, *_without(held, unresolved)], key=lambda one: one.begin_ns
    ):
        first_ns = max(span.begin_ns, known_ns)
        last_ns = min(span.end_ns, end_ns)
        if last_ns > first_ns:
            found.append((NOT_KNOWN, "", first_ns - known_ns))
            found.append((span.kind, span.what, last_ns - first_ns))
            timeline.append(
                {
                    "from_ns": first_ns - begin_ns,
                    "time_ns": last_ns - first_ns,
                    **{"kind": span.kind, "what": span.what, "cpu": None},
                }
            )
            if span.row is not None:
                timeline[-1]["tcp"] = tcp_state(span.row, jiffy_ns)
            known_ns = last_ns
    return HeldTime(
        _parts([*found, (NOT_KNOWN, "", end_ns - known_ns)]), longest_spans(timeline)
    )


def unresolved_spans(
    waits: Sequence[AddressWait],
    resent: Records,
    end_ns: int,
    names: dict[str, int],
    dropped: Sequence[DroppedSegment] = (),
) -> list[Span]:
    """Return when bytes waited for a link address, or were lost for want of it.

    Parameters
    ----------
    waits : sequence of AddressWait
        Of the bytes' flow, in order.
    resent, names, dropped
        As in `lost_parts`.
    end_ns : int
        When they were handed to a device.
    """
    found = []
    begins_ns = [*(wait.begin_ns for wait in waits), end_ns]
    for wait, until_ns in zip(waits, begins_ns[1:], strict=True):
        found.append(Span(wait.begin_ns, wait.end_ns, RESOLVING, wait.what))
        again = _between(resent, wait.end_ns, until_ns)
        if wait.given_up and len(again):
            died, _ = _dropped_before(dropped, int(again["t_ns"][0]))
            what = f"{died}{AGAIN}{_sender(again[0], names)}"
            found.append(Span(wait.end_ns, until_ns, LOST, what))
    return found


def _without(spans: Sequence[Span], others: Sequence[Span]) -> Iterator[Span]:
    """Cut out of each span what others have, which are in order and apart."""
    for span in spans:
        first_ns = span.begin_ns
        for other in others:
            if other.begin_ns > first_ns:
                end_ns = min(other.begin_ns, span.end_ns)
                yield span._replace(begin_ns=first_ns, end_ns=end_ns)
            first_ns = max(first_ns, other.end_ns)
        yield span._replace(begin_ns=first_ns)


def tcp_state(row: Records, jiffy_ns: int) -> dict[str, int | None]:
    """Return what TCP knew of a socket at the end of a span, by TCP_INFO's fields.

    Returns
    -------
    dict of int or None
        ``cwnd_packets``; ``ssthresh_packets`` (none before the first loss);
        ``in_flight_packets``; ``window_bytes`` that the peer allows behind what it
        has; ``unsent_bytes`` in the socket's queue; ``mss_bytes``; ``least_rtt_us``;
        ``rto_us``; ``pacing_bytes_per_second`` (none where it is not paced).
    """
    ssthresh, pacing = int(row["ssthresh"]), int(row["pacing"])
    return {
        "cwnd_packets": int(row["cwnd"]),
        "ssthresh_packets": None if ssthresh >= _NO_SSTHRESH else ssthresh,
        "in_flight_packets": int(row["in_flight"]),
        "window_bytes": int(row["window_bytes"]),
        "unsent_bytes": int(row["unsent_bytes"]),
        "mss_bytes": int(row["mss"]),
        "least_rtt_us": int(row["rtt_us"]),
        "rto_us": int(row["rto_jiffies"]) * jiffy_ns // 1000,
        "pacing_bytes_per_second": None if pacing >= _NO_PACING else pacing,
    }


def lost_parts(
    resent: Records,
    end: int,
    begin_ns: int,
    end_ns: int,
    names: dict[str, int],
    dropped: Sequence[DroppedSegment] = (),
) -> list[Part] | None:
    """Split the time of a message's last byte on its way, where it was lost.

    Parameters
    ----------
    resent : ndarray of records
        ``retransmit`` of bpf/records.h, of the message's flow.
    end : int
        Offset of the message's last byte.
    begin_ns, end_ns : int
        CLOCK_MONOTONIC: when it first left, and arrived.
    names : dict
        Values of ``cause`` by name.
    dropped : sequence of DroppedSegment
        Of segments with that byte, in the order of time.

    Returns
    -------
    list of Part or None
        The longest first; times sum to ``end_ns - begin_ns``. "lost" is until it was
        sent again, each time, and where that is known; nothing here shows the rest.
        None: it was not sent again meanwhile.
    """
    its_own = (resent["start"] < end) & (resent["end"] >= end)
    resent = _between(resent[its_own], begin_ns, end_ns)
    if not len(resent):
        return None
    found, since_ns = [], begin_ns
    for row in resent:
        t_ns = int(row["t_ns"])
        died, dropped = _dropped_before(dropped, t_ns)
        what = f"{died}{AGAIN}{_sender(row, names)}"
        found.append((LOST, what, t_ns - since_ns))
        since_ns = t_ns
    return _parts([*found, (UNKNOWN_WAY, "", end_ns - since_ns)])


def _dropped_before(
    dropped: Sequence[DroppedSegment], again_ns: int
) -> tuple[str, Sequence[DroppedSegment]]:
    """Say where a segment died before it was sent again, and what died later.

    As the begin of a clause, "": it is not known.
    """
    own = [death for death in dropped if death.t_ns < again_ns]
    # freed without a reason may be what others with one were cut from
    first = min(own, key=lambda death: not death.sure, default=None)
    return f"{first.where}, " if first else "", dropped[len(own) :]


def lost_words(what: str, after: str = "") -> str:
    """Put in words what is known of a part that is "lost".

    Parameters
    ----------
    what : str
        Of the part.
    after : str
        How long after it was lost it was sent again, as " after 20 ms".

    Examples
    --------
    >>> lost_words("sent again by a tail loss probe", " after 20 ms")
    'lost, sent again after 20 ms by a tail loss probe'
    >>> lost_words("at a packet filter, sent again by a fast retransmit")
    'lost at a packet filter, sent again by a fast retransmit'
    """
    where, _, sender = what.rpartition(AGAIN)
    at = f" {where}" if where else ", "
    return f"{LOST}{at}{AGAIN.removesuffix(' by ')}{after} by {sender}"


def behind_parts(
    resent: Records,
    end: int,
    sent_ns: int,
    begin_ns: int,
    end_ns: int,
    names: dict[str, int],
    dropped: Sequence[DroppedSegment] = (),
) -> list[Part] | None:
    """Split the time for which a message that was there waited for an older segment.

    Parameters
    ----------
    resent, end, names
        As in `lost_parts`.
    sent_ns, begin_ns, end_ns : int
        CLOCK_MONOTONIC: when its last byte left, arrived, and became readable.
    dropped : sequence of DroppedSegment
        Of the segment that `filler_of` gives, in the order of time.

    Returns
    -------
    list of Part or None
        The longest first; times sum to ``end_ns - begin_ns``. None: nothing up to its
        end was sent again since it had left.
    """
    last = filler_of(resent, end, sent_ns, end_ns)
    if last is None:
        return None
    t_ns = int(last["t_ns"])
    died, _ = _dropped_before(dropped, t_ns)
    lost = f"{LOST} {died}" if died else ""
    again_ns = max(t_ns, begin_ns)
    by = f"{AGAIN}{_sender(last, names)}"
    return _parts(
        [
            (BEHIND, f"{lost}until it was {by}", again_ns - begin_ns),
            (BEHIND, f"{lost}which was {by}", end_ns - again_ns),
        ]
    )


def filler_of(resent: Records, end: int, sent_ns: int, end_ns: int) -> Records | None:
    """Return the segment that was sent again last before a message's end was readable.

    Of those up to its end, since it left; None: there is none. Parameters as those of
    `behind_parts`.
    """
    found = _between(resent[resent["start"] < end], sent_ns, end_ns)
    return np.asarray(found[-1]) if len(found) else None


def _between(resent: Records, begin_ns: int, end_ns: int) -> Records:
    inside = (resent["t_ns"] > begin_ns) & (resent["t_ns"] < end_ns)
    found = resent[inside]
    return np.asarray(found[np.argsort(found["t_ns"], kind="stable")])


def _sender(row: Records, names: dict[str, int]) -> str:
    words = {number: _SENDERS[name] for name, number in names.items()}
    return words.get(int(row["cause"]), "TCP")


def _parts(times: _Times) -> list[Part]:
    """Parts of these kinds, words and times; the same words are one."""
    found: Counter[tuple[str, str]] = Counter()
    for kind, what, time_ns in times:
        found[kind, what] += time_ns
    return [
        Part(kind, time_ns, what)
        for (kind, what), time_ns in found.most_common()
        if time_ns
    ]
