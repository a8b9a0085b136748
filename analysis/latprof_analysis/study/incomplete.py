"""Messages that are not whole, by cause: as far as counters name one, and no further.

A document has the counts by cause (``unmatched``, ``counters``, ``missing_stamps``);
each cause has one sentence here. Where the cause is not known the sentence says so,
and what would show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from latprof_analysis.study.ways import other_hosts
from latprof_analysis.text import percent, plural

Figures = Mapping[str, Any]

# Rarer causes are in summary.json only.
LEAST_SHARE = 1e-3

_AT_ITS_PORT = "`latprof run attach --port` with its port would watch it"
_ON_ITS_HOST = (
    "whether it is on this host is not known; `latprof run attach --port` with its "
    "port, on the host that has it, would show its half"
)
_PATH = (
    "that socket is watched, and none of that flow was seen to come to it: they were "
    "lost, or took a path that latprof does not follow; which is not known (nstat "
    "there counts what came)"
)
_CLOSED = "sent, receiver closed"
# By key of `unmatched`: what is said of so many messages.
_HALVES = {
    "sent, receiver's half too late": (
        "have both halves, which came so far apart that they were not joined"
    ),
    "sent, no receiver's half": (
        "lack their receiver's half, though its socket was seen: why is not known "
        "(lost, or unread when the run ended, as `nstat` or `ss` there would show)"
    ),
    _CLOSED: (
        "were never read: their reader closed its connection, or lost it, before "
        "(as happens to last words: close_notify of TLS, GOAWAY of HTTP/2)"
    ),
    "sent, receiver path not followed": f"lack their receiver's half: {_PATH}",
    "sent, receiver not watched": (
        f"lack their receiver's half: it has an address of this host, and is no socket "
        f"that was watched; {_AT_ITS_PORT}"
    ),
    "sent, receiver not seen": (
        f"lack their receiver's half: no watched socket has its address; {_ON_ITS_HOST}"
    ),
    "received, no sender's half": (
        "lack their sender's half, though its socket was seen: why is not known"
    ),
    "received, sender path not followed": (
        "lack their sender's half: that socket is watched, and none of that flow was "
        "seen to leave it: how it was sent is not known"
    ),
    "received, sender not watched": (
        f"lack their sender's half: it has an address of this host, and is no socket "
        f"that was watched; {_AT_ITS_PORT}"
    ),
    "received, sender not seen": (
        f"lack their sender's half: no watched socket has its address; {_ON_ITS_HOST}"
    ),
    "not told": "were seen at one end only: these files do not say why",
}
_CLOSED_OR_LOST = (
    "have no receiver's half: their reader closed its connection, or lost it, before "
    "it read them, or the record of its reading is among those that were lost"
)
_TOO_LATE = "sent, receiver's half too late"
# Ends that are on other hosts, where that is known of latprof's own workloads.
_NOT_HERE = ("sent, receiver not seen", "received, sender not seen")
# By counter: what is beside the messages, and has no row.
_NOT_MEASURED = {
    "segmented_sends": "packets of UDP_SEGMENT (GSO)",
    "multipath_sockets": "sockets of MPTCP, whose messages are not counted",
    "unmatched_datagram_reads": "reads of datagrams whose arrival was not seen",
    "unreadable_headers": "packets whose TCP header was not readable",
    "unrecorded_sends": "send calls that had no room in their socket's list",
    "failed_storage": "times that no memory was left for a socket's state",
    "failed_inserts": "datagrams or ranges that had no room in a table",
    "offline_cpus": "records of CPUs that came after the start",
}
_OF_SOCKETS = ("multipath_sockets", "failed_storage")
# By stamp: which counters explain that it is missing.
_STAMPS = {
    "send": {"udp_without_send": "of datagrams whose send call was not seen"},
    "ready": {"unseen_ready": "of bytes that became readable without a trace of it"},
    "arrive": {
        "unseen_ready": "of bytes that became readable without a trace of it",
        "coalesced_in_backlog": "of segments that were merged while their socket was "
        "in use",
    },
}


class Cause(NamedTuple):
    """So many messages, or what would have been some, lack something; and why."""

    name: str
    messages: int
    share: float | None  # of all messages that were looked at; None: not known
    sentence: str


def causes_of(document: Figures) -> list[Cause]:
    """Return all causes, those of most messages first.

    Parameters
    ----------
    document : mapping
        A summary, or what `analyze` makes of runs.

    Examples
    --------
    >>> document = {"kinds": {"tcp message": {"messages": 1000, "complete": 990}},
    ...     "unmatched": {"sent, receiver's half too late": 10}, "lab": None}
    >>> [(one.name, one.messages, one.share) for one in causes_of(document)]
    [("sent, receiver's half too late", 10, 0.01)]
    """
    kinds = (document.get("kinds") or {}).values()
    messages = sum(figures["messages"] for figures in kinds)
    found = [
        Cause(name, n, _share(name, n, messages), sentence)
        for name, n, sentence in (
            *_of_halves(document),
            *_of_counters(document),
            *_of_stamps(document, messages),
        )
        if n
    ]
    return sorted(found, key=lambda one: -_rank(one))


def _share(name: str, n: int, messages: int) -> float | None:
    """Return which share these are of what was looked at.

    Nobody knows how many messages passed sockets that are not followed.
    """
    if name in _OF_SOCKETS:
        return None
    return n / (messages + n if name in _NOT_MEASURED else max(messages, n))


def incomplete_text(document: Figures) -> str:
    """Say in one line what is not whole, of shares above 0.1%; empty: nothing."""
    kinds = (document.get("kinds") or {}).values()
    messages = sum(figures["messages"] for figures in kinds)
    found = [one for one in causes_of(document) if _rank(one) > LEAST_SHARE]
    beside = [one for one in found if one.name in _NOT_MEASURED]
    of_them = [one for one in found if one not in beside]
    parts = (
        (f"of {plural(messages, 'message')}", of_them),
        (f"not measured beside {plural(messages, 'message')}:", beside),
    )
    return "; ".join(
        f"{begin} {'; '.join(map(_counted, causes))}"
        for begin, causes in parts
        if causes
    )


def _counted(cause: Cause) -> str:
    share = "" if cause.share is None else f" ({percent(cause.share)})"
    return f"{cause.messages:,}{share} {cause.sentence}"


def _rank(cause: Cause) -> float:
    return 1.0 if cause.share is None else cause.share


def as_dicts(document: Figures) -> list[dict[str, Any]]:
    """Return all causes for JSON."""
    return [one._asdict() for one in causes_of(document)]


def summed(document: Figures, name: str) -> Counter[str]:
    """Return counts by cause, of all runs of a document."""
    found: Counter[str] = Counter()
    for one in (document, *(document.get("runs") or {}).values()):
        found.update(one.get(name) or {})
    return found


def _of_halves(document: Figures) -> Iterator[tuple[str, int, str]]:
    unmatched = summed(document, "unmatched")
    workload = document.get("workload")
    if document.get("lab") or not workload:  # both ends are watched: others were lost
        unmatched = Counter({_TOO_LATE: unmatched[_TOO_LATE]})
    elif "unmatched" not in document and not document.get("runs"):
        unmatched["not told"] = _one_ended(document)
    hosts = other_hosts(workload or {})
    lost = summed(document, "lost_records")["received_ranges"]
    for name, n in unmatched.items():
        if name == _CLOSED and lost:
            yield name, n, _CLOSED_OR_LOST
        elif name in _HALVES:
            elsewhere = hosts if name in _NOT_HERE else ""
            yield name, n, _at(elsewhere) if elsewhere else _HALVES[name]


def _one_ended(document: Figures) -> int:
    """Count messages that lack a half, where no counter came with them."""
    kinds = (document.get("kinds") or {}).values()
    return sum(figures["messages"] - figures["complete"] for figures in kinds)


def _at(hosts: str) -> str:
    return (
        f"were seen at this end only: the other end is on the {hosts}; to see its "
        "half, run `latprof echo --record DIR --lend` there"
    )


def _of_counters(document: Figures) -> Iterator[tuple[str, int, str]]:
    counters = summed(document, "counters")
    for name, sentence in _NOT_MEASURED.items():
        yield name, counters[name], sentence


def _of_stamps(document: Figures, messages: int) -> Iterator[tuple[str, int, str]]:
    """Say which stamps are missing, and how many of them a counter explains."""
    counters = summed(document, "counters")
    for stamp, n in (document.get("missing_stamps") or {}).items():
        if stamp == "created":  # of the generator's own only
            continue
        known = _STAMPS.get(stamp, {})
        texts = [f"{counters[c]:,} {why}" for c, why in known.items() if counters[c]]
        rest = n - sum(counters[c] for c in known)
        if rest > 0 or not texts:
            texts.append("why is not known" + (f" of {rest:,}" if texts else ""))
        yield f"no {stamp}", n, f"have no `{stamp}`: {', '.join(texts)}"
