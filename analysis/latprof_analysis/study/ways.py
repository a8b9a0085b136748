"""Ways of messages: who sent to whom, and in pairs what comes back from a server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from latprof_analysis.stages import RECEIVER, SENDER, stages_at
from latprof_analysis.study.grouped import coarser
from latprof_analysis.study.totals import MESSAGE

if TYPE_CHECKING:
    from latprof_analysis.read.rows import Columns, Rows, Text

_TO = " -> "
_AT_PORT = re.compile(r":\d+$")
OURS = ("request", "reply")  # kinds of latprof's own generator


class Pair(NamedTuple):
    """Two ways between the same ends, or one where nothing came back.

    `ways` holds figures of a summary's ``kinds``: by ``request`` and ``reply``, or by
    ``messages`` where it is not known which end is the server.
    """

    name: str
    ways: dict[str, dict[str, Any]]

    @property
    def messages(self) -> int:
        """How many messages went both ways."""
        return sum(figures["messages"] for figures in self.ways.values())

    @property
    def is_ours(self) -> bool:
        """Whether latprof's own generator sent them."""
        return _TO not in self.name and set(self.ways) <= set(OURS)


def pairs_of(kinds: Mapping[str, dict[str, Any]]) -> list[Pair]:
    """Pair the ways of a summary's ``kinds``: the generator's, then the largest.

    Examples
    --------
    >>> ways = ("tcp a -> b:80", "tcp b:80 -> a", "tcp request", "tcp reply")
    >>> for pair in pairs_of({way: {"messages": 1} for way in ways}):
    ...     print(pair.name, list(pair.ways))
    tcp ['request', 'reply']
    tcp a -> b:80 ['request', 'reply']
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for kind, figures in kinds.items():
        name, way = _named(kind)
        found.setdefault(name, {})[way] = figures
    pairs = [Pair(name, _in_order(ways)) for name, ways in found.items()]
    ours = [pair for pair in pairs if pair.is_ours]
    others = [pair for pair in pairs if not pair.is_ours]
    return ours + sorted(others, key=lambda pair: -pair.messages)


def _named(kind: str) -> tuple[str, str]:
    """Name the pair that a kind belongs to, and its way in it."""
    protocol, _, rest = kind.partition(" ")
    if rest in OURS:
        return protocol, rest
    sender, to, receiver = rest.partition(_TO)
    if not to:
        return kind, "messages"
    if _AT_PORT.search(receiver):
        return kind, "request"
    if _AT_PORT.search(sender):
        return f"{protocol} {receiver}{_TO}{sender}", "reply"
    return kind, "messages"


def _in_order(ways: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {way: ways[way] for way in (*OURS, "messages") if way in ways}


class Seen(NamedTuple):
    """Of so many messages of a way the stages, and where they were seen."""

    messages: int
    stages: dict[str, dict[str, Any]]
    where: str = ""  # empty: from end to end


_HALVES = {
    "at the sender": stages_at(SENDER),
    "at the receiver": stages_at(RECEIVER),
}


def seen_of(figures: Mapping[str, Any]) -> Seen:
    """Return the stages of whole messages; of halves where no message is whole.

    Examples
    --------
    >>> half = {"messages": 7, "stages": {"qdisc": {"n": 7, "p50_ns": 9}}}
    >>> seen_of({"complete": 0, "stages": {}, "halves": half}).where
    'at the sender'
    """
    halves = figures.get("halves") or {"messages": 0, "stages": {}}
    if figures["complete"] or not halves["messages"]:
        return Seen(figures["complete"], figures["stages"])
    there = {name.rsplit("+", 1)[-1] for name in halves["stages"]}
    where = [end for end, stages in _HALVES.items() if there & set(stages)]
    return Seen(halves["messages"], halves["stages"], " or ".join(where) or "in part")


def other_hosts(workload: Mapping[str, Any]) -> str:
    """Name the hosts that a run's own messages went to; nothing of a lab.

    Examples
    --------
    >>> other_hosts({"plan": None, "bulk": {"to": "192.0.2.7"}})
    'host 192.0.2.7'
    >>> other_hosts({"mesh": {"to": ["192.0.2.7:7107", "192.0.2.8:7107"]}})
    'hosts 192.0.2.7:7107, 192.0.2.8:7107'
    """
    plans = (workload.get(name) or {} for name in ("plan", "ops", "mesh", "bulk"))
    to = next((plan["to"] for plan in plans if plan.get("to")), "")
    names = [to] if isinstance(to, str) else to
    return f"host{'s' if len(names) > 1 else ''} {', '.join(names)}" if to else ""


def time_by_stage(pair: Pair) -> dict[str, float]:
    """Return the share of each stage in the time of both ways together.

    Examples
    --------
    >>> way = {"qdisc": (3, 2.0), "transit": (3, 6.0), "end_to_end": (3, 8.0)}
    >>> stages = {name: {"n": n, "mean_ns": ns} for name, (n, ns) in way.items()}
    >>> time_by_stage(Pair("tcp", {"request": {"stages": stages}}))
    {'qdisc': 0.25, 'transit': 0.75}
    """
    sums: dict[str, float] = {}
    for figures in pair.ways.values():
        for name, stage in figures["stages"].items():
            if stage["n"]:
                sums[name] = sums.get(name, 0.0) + stage["n"] * stage["mean_ns"]
    sums.pop("wakeup", None)  # a part of receive_queue
    whole = sums.pop("end_to_end", 0.0)
    return {name: time / whole for name, time in sums.items()} if whole else {}


def with_ends(messages: Rows, level: int) -> Rows:
    """Put the way of other programs' messages into the place of their kind.

    Parameters
    ----------
    messages : Rows
        Columns of `read.schema`; older folders have no ``way``.
    level : int
        How coarse, as in `coarser`.
    """
    ends = _ends(messages, level)
    return messages if ends is None else messages.with_text("kind", *ends)


def _ends(messages: Columns, level: int) -> Text | None:
    """Return kinds with ways in the place of other programs'; None if all are ours."""
    (kind, kinds), (way, ways) = messages.texts["kind"], messages.texts["way"]
    foreign = messages.are("kind", MESSAGE) & (way >= 0)
    if not foreign.any():
        return None
    coarse = [coarse_way(name, level) for name in ways]
    used = {kinds[i] for i in np.unique(kind[~foreign]) if i >= 0}
    used |= {coarse[i] for i in np.unique(way[foreign])}
    labels = sorted(used)
    place = {label: i for i, label in enumerate(labels)}
    to = [
        np.array([place.get(name, -1) for name in (*old, "")])
        for old in (kinds, coarse)
    ]
    return np.where(foreign, to[1][way], to[0][kind]).astype(np.int32), labels


def coarse_way(way: str, level: int) -> str:
    """Return a way so coarse, as of `coarser`; it is of any protocol.

    Examples
    --------
    >>> coarse_way("curl -> 10.0.0.1:80", 1), coarse_way("to servers", 2)
    ('curl -> elsewhere:80', 'to servers')
    """
    return coarser(f"- {way}", level).partition(" ")[2]


def with_ways(exchanges: Rows, level: int) -> Rows:
    """Make the ways of exchanges so coarse, as `with_ends` does."""
    codes, names = exchanges.texts["way"]
    if not level or not names:
        return exchanges
    coarse = [coarse_way(name, level) for name in names]
    labels = sorted(set(coarse))
    to = np.array([*(labels.index(name) for name in coarse), -1], np.int32)
    return exchanges.with_text("way", to[codes], labels)
