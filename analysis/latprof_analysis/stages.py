"""The stage models: stamps of a message, parts of an exchange, and what lies between.

A stamp that could not be taken is missing. Then two stages become one: its
time stands in the later of the two, the earlier is blank, so the stages that
are there always sum to end_to_end, to the nanosecond.

So it is with an exchange, a request turn and its reply turn on one connection:
request's way, server and reply's way sum to the response, and two parts that are
one for want of a stamp are named by both.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SENDER, WAY, RECEIVER = "sender", "way", "receiver"


class Stage(NamedTuple):
    """One stage of a message: between which stamps, at which end, and its words."""

    name: str
    since: str  # the stamps
    until: str
    side: str  # SENDER, WAY or RECEIVER
    about: str  # what its time is, as of "qdisc is ..."; empty: it names itself
    place: str  # where a message waits in it
    slow: str  # what a slow message did there, {}: how long
    colours: tuple[str, str]  # of a light page, of a dark one
    carries_black: bool = False  # text upon the light colour


MODEL = (
    Stage(
        *("application", "created", "send", SENDER),
        about="",
        place="the sender's program",
        slow="was made {} before its send call",
        colours=("#555e6a", "#8794a3"),
    ),
    Stage(
        *("send_queue", "send", "queue", SENDER),
        about="the wait in the send buffer",
        place="the sender's send buffer, behind its qdisc",
        slow="waited {} in its sender's socket (send buffer, windows, pacing, or for a "
        "link address)",
        colours=("#a87900", "#ecc04f"),
        carries_black=True,
    ),
    Stage(
        *("qdisc", "queue", "xmit", SENDER),
        about="the sojourn in the queueing discipline",
        place="the sender's qdisc",
        slow="waited {} in its sender's qdisc",
        colours=("#b8321f", "#ee6c55"),
    ),
    Stage(
        *("transit", "xmit", "arrive", WAY),
        about="the wire and both NICs",
        place="the link, or the port of the middle towards the receiver",
        slow="took {} between the drivers",
        colours=("#0b62c4", "#4f9cf9"),
    ),
    Stage(
        *("receive_stack", "arrive", "ready", RECEIVER),
        about="from the arrival until it could be read",
        place="the receiver's stack",
        slow="waited {} in its receiver's stack, for no reason that was seen",
        colours=("#169483", "#3fc9b0"),
        carries_black=True,
    ),
    Stage(
        *("receive_queue", "ready", "read", RECEIVER),
        about="until it was read",
        place="the receiver's socket",
        slow="its receiver had not read for {}",
        colours=("#6b1d78", "#eab8ee"),
    ),
)
STAGES = tuple(stage.name for stage in MODEL)
STAMPS = (MODEL[0].since, *(stage.until for stage in MODEL))


def stages_at(side: str) -> tuple[str, ...]:
    """Name the stages at one end of a message, in their order.

    Examples
    --------
    >>> stages_at(RECEIVER)
    ('receive_stack', 'receive_queue')
    """
    return tuple(stage.name for stage in MODEL if stage.side == side)


BLANK = np.iinfo(np.int64).min
# Kinds of messages, and of exchanges, that are in no figure but those made for them:
# of the warm-up, of trains, whose messages wait for each other, and beside a load.
WARMUP, TRAIN, TRAIN_REPLY = "warmup", "train", "train reply"
LOADED, LOADED_REPLY = "loaded", "loaded reply"
# Of exchanges: those that are some, and what is none.
EXCHANGE, HANDSHAKE, UNANSWERED = "exchange", "handshake", "unanswered"
APART = (
    *(WARMUP, TRAIN, TRAIN_REPLY, LOADED, LOADED_REPLY),
    *(HANDSHAKE, UNANSWERED),
)
# What ended the waiting for an answer that did not come.
WAITING, GIVEN_UP, NEXT_SENT = "not by the end", "client closed", "next one sent"
CLOSED_BY_SERVER, WAS_RESET, TIMED_OUT = "server closed", "reset", "TCP timed out"
OUTCOMES = (WAITING, GIVEN_UP, NEXT_SENT, CLOSED_BY_SERVER, WAS_RESET, TIMED_OUT)
# Of round trips of a run with a load: those without it, and those beside it.
IDLE = "idle"
# Column: 1 where a message was sent while latprof's own cost was measured, which makes
# it slower. It is in all figures, as any other.
PROBE_STATISTICS = "probe_statistics"

Stamps = dict[str, NDArray[np.int64]]


def stages_of(stamps: Stamps) -> dict[str, NDArray[np.int64]]:
    """Compute all stages and end_to_end from stamps, 0 where missing.

    Parameters
    ----------
    stamps : dict of name to array, shape (n,)
        One array per name in STAMPS, CLOCK_MONOTONIC in ns.

    Returns
    -------
    dict of name to array, shape (n,)
        STAGES and ``end_to_end`` in ns, BLANK where there is none.
    """
    stages: dict[str, NDArray[np.int64]] = {}
    since = stamps["created"]
    first = since
    for stage, stamp in zip(STAGES, STAMPS[1:], strict=True):
        until = stamps[stamp]
        stages[stage] = np.where((since > 0) & (until > 0), until - since, BLANK)
        since = np.where(until > 0, until, since)
        first = np.where(first > 0, first, until)
    read = stamps["read"]
    whole = (read > 0) & (first > 0) & ((stamps["created"] > 0) | (stamps["send"] > 0))
    stages["end_to_end"] = np.where(whole, read - first, BLANK)
    return stages


def merged_name(stage: str, stamps: dict[str, bool]) -> str:
    """Name a stage by those it stands for: all since the last stamp present."""
    last = STAGES.index(stage)
    start = last
    while start > 0 and not stamps[STAMPS[start]]:
        start -= 1
    return "+".join(STAGES[start : last + 1])


def missing_code(stamps: Stamps) -> NDArray[np.uint8]:
    """One bit per missing stamp, so that rows can be grouped by what they lack."""
    code: Any = 0
    for bit, stamp in enumerate(STAMPS):
        code = code | ((stamps[stamp] <= 0).astype(np.uint8) << bit)
    return np.asarray(code, np.uint8)


# Not a part as the others, which sum up: the response, where it paused, until then.
UNTIL_PAUSE = "until_pause"
# In the order in which they are shown: as people call them, and how far within others.
_LABELS = {
    "response": (0, "response"),
    "request_way": (1, "request's way"),
    "server": (1, "server"),
    "server_queue": (2, "not yet read"),
    "server_wakeup": (3, "waiting for CPU"),
    "server_work": (2, "not yet answered"),
    "server_cpu": (3, "on CPU"),
    "server_cpu_wait": (3, "waiting for CPU again"),
    "server_sleep": (3, "asleep"),
    "reply_way": (1, "reply's way"),
    "reply_pauses": (2, "server paused"),
    "client_queue": (2, "not yet read by client"),
    "client_wakeup": (3, "client waiting for CPU"),
    UNTIL_PAUSE: (1, "until its first pause"),
}
PARTS = tuple(_LABELS)
SUMMANDS = ("request_way", "server", "reply_way")
#: Of `server_work`, what its thread did; they sum to it where they are known.
WORK_PARTS = ("server_cpu", "server_cpu_wait", "server_sleep")
INNER_PARTS = tuple(
    name for name in PARTS if name not in ("response", *SUMMANDS, UNTIL_PAUSE)
)
# Where parts begin and end: without one of them, two parts are one.
EXCHANGE_STAMPS = ("request_sent", "request_ready", "request_read", "reply_sent")
_CHAINS = (
    (("request_way", "request_ready"), ("server", "reply_sent"), ("reply_way", "")),
    (
        ("request_way", "request_ready"),
        ("server_queue", "request_read"),
        ("server_work", "reply_sent"),
    ),
)


@cache
def parts_present(missing: int) -> tuple[tuple[str, str], ...]:
    """Return the parts of exchanges that lack these stamps, and their columns.

    Parameters
    ----------
    missing : int
        Bit i is set where `STAMPS` [i] is missing.

    Examples
    --------
    >>> dict(parts_present(0b0010))["request_way+server"]  # without request_ready
    'server_ns'
    >>> [name for name, _ in parts_present(0)] == list(PARTS)
    True
    """
    there = {stamp: not missing >> bit & 1 for bit, stamp in enumerate(EXCHANGE_STAMPS)}
    names: dict[str, str] = {}
    for chain in _CHAINS:
        waiting: list[str] = []
        for part, end in chain:
            waiting.append(part)
            names.setdefault(part, "+".join(waiting))
            # before the first stamp there is nothing that a part could stand for
            if not end or there[end] or not _begun(there, end):
                waiting = []
    return tuple((names.get(part, part), f"{part}_ns") for part in PARTS)


def _begun(there: dict[str, bool], end: str) -> bool:
    return any(there[stamp] for stamp in EXCHANGE_STAMPS[: EXCHANGE_STAMPS.index(end)])


def part_order(name: str) -> int:
    """Return the place of a part, or of several that are one, among all.

    Examples
    --------
    >>> sorted(["reply_way", "request_way+server", "response"], key=part_order)
    ['response', 'request_way+server', 'reply_way']
    """
    return PARTS.index(name.rsplit("+", maxsplit=1)[-1])


def part_label(name: str, indent: str = "  ") -> str:
    """Name a part for people, as far within as it is a part of others.

    Examples
    --------
    >>> part_label("server_queue"), part_label("request_way+server", "")
    ('    not yet read', "request's way + server")
    """
    found = [_LABELS[part] for part in name.split("+")]
    depth = max(depth for depth, _ in found)
    return indent * depth + " + ".join(label for _, label in found)
