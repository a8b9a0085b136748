"""The parts of an exchange: a request turn and its reply turn on one connection.

Request's way, server and reply's way sum to the response, to the nanosecond. A
stamp that could not be taken is missing: then two parts are one, whose time stands
in the later of the two; it is named by both.
"""

from __future__ import annotations

from functools import cache

# In the order in which they are shown: as people call them, and how far within others.
_LABELS = {
    "response": (0, "response"),
    "request_way": (1, "request's way"),
    "server": (1, "server"),
    "server_queue": (2, "not yet read"),
    "server_wakeup": (3, "waiting for CPU"),
    "server_work": (2, "at work"),
    "reply_way": (1, "reply's way"),
    "reply_pauses": (2, "server paused"),
}
PARTS = tuple(_LABELS)
SUMMANDS = ("request_way", "server", "reply_way")
# Where parts begin and end: without one of them, two parts are one.
STAMPS = ("request_sent", "request_ready", "request_read", "reply_sent")
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
    there = {stamp: not missing >> bit & 1 for bit, stamp in enumerate(STAMPS)}
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
    return any(there[stamp] for stamp in STAMPS[: STAMPS.index(end)])


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
