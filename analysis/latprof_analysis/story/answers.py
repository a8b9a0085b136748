"""What a thread waited for in a socket, and who sent it, when, for which question.

For a packet an interrupt wakes a thread, which is nobody. But what the thread reads
first then, if that became readable as it was woken, is what it waited for. The message
says who sent it, and what the thread's end had said last before: where both took turns,
the time between is the other end's, of its queue and of the ways.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.stages import MODEL

Records = NDArray[Any]

# Between the time at which bytes became readable and the wake for them, at most.
WAKING_NS = 200_000
# Of a story: those that were waited for longest.
MOST = 256
WORK, QUEUE = "work", "receive_queue"
REQUEST, REPLY = "request", "reply"
_WAY = [stage for stage in MODEL if stage.since != "created" and stage.until != "read"]


class Peer(NamedTuple):
    """The other end of a socket; `pid` 0: it is not on this host, or not known.

    `own_address` and `own_port` are the socket's, `protocol` is tcp or udp.
    """

    address: str
    port: int
    pid: int = 0
    comm: str = ""
    own_address: str = ""
    own_port: int = 0
    protocol: str = "tcp"


class Took(NamedTuple):
    """Where most of the time between a question and its answer was.

    Attributes
    ----------
    stage : str
        "work": at the other end, from its read to its send. "receive_queue": until
        that read the question. Else "request" or "reply", and a stage of it.
    begin_ns, end_ns : int
        CLOCK_MONOTONIC.
    whole_ns : int
        From the question's send call until the answer was readable.
    thread : int
        Of the other end, that read the question.
    """

    stage: str
    begin_ns: int
    end_ns: int
    whole_ns: int
    thread: int


class Answer(NamedTuple):
    """Bytes that a thread read first after it had read nothing for a while.

    `took` is None where they are no answer in its turn, or that is not known.
    """

    thread: int
    ready_ns: int
    read_ns: int
    peer: Peer
    took: Took | None = None


class Answers:
    """Answers by the thread that read them."""

    def __init__(self, answers: Sequence[Answer] = ()) -> None:
        self._of_thread: dict[int, list[Answer]] = {}
        for one in sorted(answers, key=lambda one: one.read_ns):
            self._of_thread.setdefault(one.thread, []).append(one)

    def ending(self, thread: int, wake_ns: int) -> Answer | None:
        """Return the one for which a thread was woken then; None: not known."""
        mine = self._of_thread.get(thread, [])
        at = bisect_left(mine, wake_ns, key=lambda one: one.read_ns)
        if at < len(mine) and 0 <= wake_ns - mine[at].ready_ns <= WAKING_NS:
            return mine[at]
        return None


NO_ANSWERS = Answers()


def after_pauses(reads: Records, least_ns: int) -> Records:
    """Return those before which their thread had read nothing for so long.

    Parameters
    ----------
    reads : ndarray of READ
        Of any threads, in any order.
    least_ns : int
        The first read of a thread is one, too.

    Returns
    -------
    ndarray of READ
        In the order of threads and time; of many those after the longest pauses.
    """
    reads = reads[np.lexsort((reads["start"], reads["read_ns"], reads["thread"]))]
    pauses_ns = np.diff(reads["read_ns"], prepend=0)
    pauses_ns[np.diff(reads["thread"], prepend=-1) != 0] = np.iinfo("i8").max
    found = np.flatnonzero(pauses_ns >= least_ns)
    if len(found) > MOST:
        longest = np.argsort(-pauses_ns[found], kind="stable")[:MOST]
        found = np.sort(found[longest])
    return np.asarray(reads[found])


def answers_of(
    reads: Records,
    messages: Records,
    asked_on: Callable[[int], int],
    peer_of: Callable[[int, int], Peer],
) -> Iterator[Answer]:
    """Say of bytes that threads had waited for who sent them, and for what.

    Parameters
    ----------
    reads : ndarray of READ
        As `after_pauses` gives them.
    messages : ndarray of MESSAGE
        Those of the time, in any order.
    asked_on : callable
        Gives the number of the flow on which it is asked for what one brings, -1 where
        nobody asks.
    peer_of : callable
        Gives who sends on a flow, by its number and the sender's process.
    """
    flows = set(reads["flow"].tolist())
    flows |= {asked_on(flow) for flow in flows}
    by_flow = _by_flow(messages[np.isin(messages["flow"], list(flows))])
    for read in reads:
        flow = int(read["flow"])
        came = by_flow.get(flow, messages[:0])
        at = int(np.searchsorted(came["read_ns"], read["read_ns"]))
        took, pid = None, 0
        if at < len(came) and _is_in(read, came[at]):
            pid = int(came[at]["sender_pid"])
            asked = by_flow.get(asked_on(flow), messages[:0])
            before = came[at - 1] if at else None
            took = _took(came[at], before, asked)
        times = int(read["ready_ns"]), int(read["read_ns"])
        yield Answer(int(read["thread"]), *times, peer_of(flow, pid), took)


def _by_flow(messages: Records) -> dict[int, Records]:
    """Those of each flow, in the order in which they were read."""
    if not len(messages):
        return {}
    order = np.lexsort((messages["end"], messages["read_ns"], messages["flow"]))
    messages = messages[order]
    flows, begins = np.unique(messages["flow"], return_index=True)
    each = np.split(messages, begins[1:])
    return dict(zip(flows.tolist(), each, strict=True))


def _is_in(read: Any, message: Any) -> bool:
    """Whether a message begins in what was read; datagrams are read as a whole."""
    if message["end"] <= 0:
        return bool(message["read_ns"] == read["read_ns"])
    return bool(read["start"] <= message["start"] < read["end"])


def _took(answer: Any, before: Any, asked: Records) -> Took | None:
    """Find the question of an answer, and where the time between was.

    None where they do not take turns: what was said last was said before the answer
    before had been read, or was not read before this one was sent.
    """
    sent_ns = int(answer["send_ns"])
    asked = asked[(asked["send_ns"] > 0) & (asked["send_ns"] < sent_ns)]
    if not len(asked):
        return None
    question = asked[np.argmax(asked["send_ns"])]
    ready_ns, read_ns = int(question["ready_ns"]), int(question["read_ns"])
    early = before is not None and before["read_ns"] > question["send_ns"]
    if early or not 0 < ready_ns <= read_ns <= sent_ns or answer["ready_ns"] <= 0:
        return None
    spans = [
        (WORK, read_ns, sent_ns),
        (QUEUE, ready_ns, read_ns),
        *_ways(REQUEST, question),
        *_ways(REPLY, answer),
    ]
    longest = max(spans, key=lambda span: span[2] - span[1])
    whole_ns = int(answer["ready_ns"]) - int(question["send_ns"])
    return Took(*longest, whole_ns, int(question["thread"]))


def _ways(name: str, message: Any) -> Iterator[tuple[str, int, int]]:
    """Give the stages of a message until it is readable, in which it was."""
    begin_ns = int(message["send_ns"])
    for stage in _WAY:
        end_ns = int(message[f"{stage.until}_ns"])
        if end_ns >= begin_ns:
            yield f"{name} {stage.name}", begin_ns, end_ns
            begin_ns = end_ns
