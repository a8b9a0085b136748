"""What a thread read while a message waited for it: whom it was behind.

A reader's own record says what it did, not for whom. From all that its thread read
meanwhile: the messages of others, or earlier ones of the same flow, and the one that it
had in hand when this one became readable. A time is counted to what was read last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.story.sleeps import INPUTS
from latprof_analysis.story.story import Flight, Records

Ints = NDArray[np.int64]

# Of bytes that were read, and of the messages that ended in them: offsets as in
# messages.csv (none of datagrams), the flow by any number, the sender's process (0: not
# known).
READ = np.dtype(
    [
        *((name, "i8") for name in ("read_ns", "ready_ns", "flow", "start", "end")),
        *((name, "i4") for name in ("thread", "sender_pid")),
    ]
)
# Of messages their other stamps, too; 0: not known.
MESSAGE = np.dtype(
    READ.descr
    + [(f"{stamp}_ns", "i8") for stamp in ("send", "queue", "xmit", "arrive")]
)


class Waits(NamedTuple):
    """When a thread waited for input; what it did before `since_ns` is not known."""

    since_ns: int
    begin_ns: Ints
    end_ns: Ints


class Share(NamedTuple):
    """What a thread read of one flow while a message waited.

    Attributes
    ----------
    flow : int
    own : bool
        The message's own: what came before it.
    in_hand : bool
        Some of it was read before the message was readable, and nothing since, nor was
        it answered by then: the thread was at it.
    messages : int or None
        Whole ones. None: their sender is not on this host.
    read_bytes : int
    time_ns : int or None
        From its reads to the next ones, while the message waited, without what the
        thread waited for input. None: what it did is not known.
    pid : int
        Of the sender, 0 not known.
    """

    flow: int
    own: bool
    in_hand: bool
    messages: int | None
    read_bytes: int
    time_ns: int | None
    pid: int


def waits_of(flight: Flight, thread: int, calls: dict[int, str]) -> Waits:
    """Find when a thread slept for input.

    Parameters
    ----------
    flight : Flight
    thread : int
    calls : dict
        Names of system calls by number.
    """
    switches = flight.switches
    mine = switches[
        (switches["thread"] == thread) | (switches["left_thread"] == thread)
    ]
    since_ns = max(flight.begin_ns, flight.since("switches"))
    before = mine[mine["t_ns"] <= since_ns]
    # the last of its CPU: it has stayed there since
    if len(before) and before[-1]["thread"] == thread:
        since_ns = int(before[-1]["t_ns"])
    t_ns = mine["t_ns"].astype("i8")
    came = np.flatnonzero(mine["thread"] == thread)
    left = np.flatnonzero(_are_for_input(mine, calls) & (mine["left_thread"] == thread))
    next_came = np.searchsorted(came, left, side="right")
    # of two between which it was not seen to come, the first
    next_came, firsts = np.unique(next_came, return_index=True)
    ends = np.append(t_ns[came], flight.end_ns)[next_came]
    return Waits(since_ns, t_ns[left[firsts]], ends)


def _are_for_input(left: Records, calls: dict[int, str]) -> NDArray[np.bool_]:
    """Which left their CPU to sleep until something comes.

    Where one may not be disturbed, it waits for a disk or a lock.
    """
    inputs = [number for number, name in calls.items() if name in INPUTS]
    asleep = (left["left_state"] == 1) & np.isin(left["left_call"], inputs)
    return np.asarray(asleep)


def shares_of(
    reads: Records,
    messages: Records,
    own: tuple[int, int],
    ready_ns: int,
    read_ns: int,
    waits: Waits | None = None,
    answers_ns: Callable[[int], Ints] = lambda _: np.zeros(0, "i8"),
) -> list[Share]:
    """Count by flow what a thread read while a message waited for it.

    Parameters
    ----------
    reads : ndarray of READ
        What the thread read from before `ready_ns` on, in order of time.
    messages : ndarray of READ
        The messages whose last byte it read, by the same numbers of flows.
    own : tuple of int
        The message's flow, and the offset before its first byte.
    ready_ns, read_ns : int
        CLOCK_MONOTONIC: when it was readable, and read.
    waits : Waits, optional
        By default it is not known what the thread did, nor what it had in hand.
    answers_ns : callable
        When the thread's process sent something on the connection of a flow; by default
        never.

    Returns
    -------
    list of Share
        What took longest first, or where times are not known what had most bytes.
    """
    in_hand_ns = _in_hand_ns(reads, ready_ns, waits)
    if in_hand_ns and _is_answered(reads, messages, in_hand_ns, ready_ns, answers_ns):
        in_hand_ns = 0
    first_ns = in_hand_ns or ready_ns + 1
    reads = reads[(reads["read_ns"] >= first_ns) & (reads["read_ns"] < read_ns)]
    behind = (reads["flow"] == own[0]) & (reads["end"] > own[1])
    ends = np.where(behind, own[1], reads["end"])  # one read took both
    times = _times(reads, ready_ns, read_ns, waits) if waits else None
    at = (messages["read_ns"] >= first_ns) & (messages["read_ns"] < read_ns)
    whole = messages[at & ~_is_of(messages, own)]
    others = np.flatnonzero(~_is_of(reads, own))
    found = [
        Share(
            flow,
            flow == own[0],
            bool((reads["read_ns"][mine] <= ready_ns).any()),
            _count(whole[whole["flow"] == flow]),
            int((ends - reads["start"])[mine].sum()),
            None if times is None else int(times[mine].sum()),
            int(whole["sender_pid"][whole["flow"] == flow].max(initial=0)),
        )
        for flow in np.unique(reads["flow"][others]).tolist()
        for mine in [others[reads["flow"][others] == flow]]
    ]
    return sorted(found, key=lambda s: (-(s.time_ns or 0), -s.read_bytes, s.flow))


def _is_of(records: Records, own: tuple[int, int]) -> NDArray[np.bool_]:
    """Which are of the message itself, in pieces."""
    flow, start = own
    return np.asarray((records["flow"] == flow) & (records["start"] >= start))


def _in_hand_ns(reads: Records, ready_ns: int, waits: Waits | None) -> int:
    """When a thread read what it was at when something became readable; 0: nothing."""
    before = reads["read_ns"][reads["read_ns"] <= ready_ns]
    if not len(before) or waits is None:
        return 0
    last_ns = int(before[-1])
    waited = (waits.begin_ns > last_ns) & (waits.begin_ns <= ready_ns)
    return 0 if waits.since_ns > last_ns or waited.any() else last_ns


def _is_answered(
    reads: Records,
    messages: Records,
    at_ns: int,
    ready_ns: int,
    answers_ns: Callable[[int], Ints],
) -> bool:
    """Whether what was read last was answered before something became readable.

    One read may take several messages, each of which has its answer.
    """
    flow = int(reads["flow"][reads["read_ns"] == at_ns][-1])
    read_then = (messages["flow"] == flow) & (messages["read_ns"] == at_ns)
    sent_ns = answers_ns(flow)
    answers = ((sent_ns > at_ns) & (sent_ns <= ready_ns)).sum()
    return bool(answers >= max(read_then.sum(), 1))


def _times(reads: Records, ready_ns: int, read_ns: int, waits: Waits) -> Ints:
    """How long each read was the last one, less the thread's waits for input."""
    begin = np.maximum(reads["read_ns"], ready_ns)
    times = np.diff(np.r_[begin, read_ns])
    for waited in zip(waits.begin_ns.tolist(), waits.end_ns.tolist(), strict=True):
        begin_ns, end_ns = max(waited[0], ready_ns), min(waited[1], read_ns)
        # nothing is read meanwhile, so it is all behind the same read
        at = int(np.searchsorted(begin, begin_ns, side="right")) - 1
        if end_ns > begin_ns and at >= 0:
            times[at] -= end_ns - begin_ns
    return np.asarray(times, "i8")


def _count(whole: Records) -> int | None:
    """How many messages; of a sender elsewhere the rows are of bytes, not of them."""
    return len(whole) if whole["sender_pid"].all() else None


class Sender(NamedTuple):
    """Who sent what was read: a process, or what is known of a flow."""

    way: str
    pid: int
    comm: str


_MOST_SENDERS = 10
_OTHERS = Sender("others", 0, "")


def words_of_reads(
    shares: list[tuple[Share, Sender]], *, complete: bool
) -> dict[str, Any]:
    """Say by sender what a thread read while a message waited.

    Parameters
    ----------
    shares : list
        In their order, and who sent each.
    complete : bool
        Whether all that it read meanwhile was recorded.

    Returns
    -------
    dict
        ``messages``, ``bytes``, ``complete``, and ``senders``: ``way``, ``pid``,
        ``comm``, ``own``, ``in_hand``, ``flows``, ``messages``, ``bytes``, ``time_ns``;
        those of what took longest first.
    """
    by_sender: dict[tuple[Sender, bool], list[Share]] = {}
    for share, sender in shares:
        known = (sender, share.own) in by_sender or len(by_sender) < _MOST_SENDERS
        key = (sender, share.own) if known else (_OTHERS, False)
        by_sender.setdefault(key, []).append(share)
    senders = [
        {
            **sender._asdict(),
            "own": own,
            "in_hand": any(s.in_hand for s in found),
            "flows": len(found),
            "messages": _sum(s.messages for s in found),
            "bytes": sum(s.read_bytes for s in found),
            "time_ns": _sum(s.time_ns for s in found),
        }
        for (sender, own), found in by_sender.items()
    ]
    return {
        "messages": _sum(share.messages for share, _ in shares),
        "bytes": sum(share.read_bytes for share, _ in shares),
        "complete": complete,
        "senders": sorted(senders, key=lambda s: (-(s["time_ns"] or 0), -s["bytes"])),
    }


def _sum(values: Iterator[int | None]) -> int | None:
    """Add up; None where one is not known."""
    found = list(values)
    return None if None in found else sum(v for v in found if v is not None)
