"""What the probes count of losses by group: drops, retransmits, arrivals."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np
from latprof_analysis.kernel_names import name_of
from numpy.typing import NDArray

from latprof_agent.capture.histograms import GROUPS
from latprof_agent.monitor.groups import PROTOCOLS
from latprof_agent.monitor.totals import Drop, Group, GroupTotals
from latprof_agent.probes.drop_reasons import (
    CLOSE,
    LISTEN_OVERFLOW,
    QDISC,
    SOCKET,
    DropReasons,
    DropVerdict,
    verdict_of,
)
from latprof_agent.probes.kernel_functions import KernelFunctions
from latprof_agent.probes.layout import Layout

Table = NDArray[Any]
# name of a map, types of its keys and values -> both
Entries = Callable[[str, np.dtype[Any], np.dtype[Any]], tuple[Table, Table]]

# name of a map, a key -> the value, whose entry is removed
Take = Callable[[str, bytes], bytes | None]

CAUSES = ("timeout", "fast", "probe", "handshake")
EARLY, DUPLICATE = "early", "duplicate"
UNREAD = "unread"
REFUSED = "refused"
UNSEEN = "unseen"
# By then a peer has reported its duplicates: several RTTs, and timers.
SETTLED_SECONDS = 3.0


class Losses:
    """Reads the probes' tables; everything counts from the start.

    Segments lost on the way (`transit`) are those that TCP sent again, less those that
    this host dropped and those that the peer got twice. That is never too many where
    the peer reports duplicates (SACK, RFC 2883; others are left out), and waits
    SETTLED_SECONDS for its report. Handshakes are left out: a listener may refuse.
    """

    def __init__(
        self,
        layout: Layout,
        entries: Entries,
        segments: Callable[[], Table],
        functions: KernelFunctions,
        reasons: DropReasons | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._layout = layout
        self._entries = entries
        self._segments = segments  # by the number of their group
        self._reasons = reasons or DropReasons()
        self._functions = functions
        self._clock = clock
        self._places = {n: name for name, n in layout.drop_places.items()}
        self._early = np.zeros(GROUPS)
        self._early_before = np.zeros(GROUPS)
        self._early_rate = np.zeros(GROUPS)  # of the last window
        # what moved from group to group, and drops of those that are gone
        self._moved = np.zeros((GROUPS, len(layout.segments.names or ())), "u8")
        self._kept: list[tuple[Any, Any]] = []
        self._resent: dict[int, deque[tuple[float, int]]] = {}
        self._transit: dict[int, int] = {}

    def account(self, seconds: float, attached: float, pause: float) -> None:
        """Add the early segments that were counted since the last time.

        Packets pass what counts these, so that it is attached in windows only; the
        rest is counted all the time. See `windows.Counts`.
        """
        early = self._segments()["early"].astype("f8")
        there = slice(len(early))
        fresh = early - self._early_before[there]
        self._early_before[there] = early
        share = seconds / attached if attached else 1.0
        self._early += self._early_rate * (pause / 2)
        self._early[there] += fresh * share
        if attached:
            self._early_rate[there] = fresh / attached
            self._early += self._early_rate * (pause / 2)

    def stand_for(self, seconds: float) -> None:
        """Let the last window stand for so much time after it."""
        self._early += self._early_rate * seconds

    def add_to(
        self, groups: dict[Group, GroupTotals], names: dict[int, Group]
    ) -> dict[DropVerdict, int]:
        """Put the state of now into groups, those included that have nothing else.

        Returns how many packets of watched flows the kernel freed, by what became of
        their data; those that carried none are in none of them.
        """
        layout = self._layout
        drops, dropped = self._entries("drops", layout.drop, layout.dropped)
        if self._kept:
            drops = np.append(drops, np.array([k for k, _ in self._kept], layout.drop))
            kept = np.array([v for _, v in self._kept], layout.dropped)
            dropped = np.append(dropped, kept)
        verdicts = self._add_drops(drops, dropped, groups, names)
        died = _died_by_sender(drops, dropped, self._lost(drops))
        segments = self._counted_segments()
        words = segments.view("u8").reshape(len(segments), -1)
        for number in np.flatnonzero(words.any(axis=1)).tolist():
            counted = segments[number]
            totals = _totals_of(number, "tcp", groups, names)
            _add_segments(totals, counted, round(self._early[number]))
            lost = self._lost_in_transit(number, counted, died.get(number, 0))
            if lost:
                totals.drops[Drop("transit", UNSEEN)] += lost
        return verdicts

    def _counted_segments(self) -> Table:
        words = self._segments().copy().view("u8").reshape(-1, self._moved.shape[1])
        words += self._moved[: len(words)]
        return words.view(self._layout.segments)[:, 0]

    def move(self, moves: dict[int, int], take: Take) -> None:
        """Let what groups have counted be others'; `take` removes from a map."""
        words = self._counted_segments().view("u8").reshape(-1, self._moved.shape[1])
        for number, other in moves.items():
            self._moved[other] += words[number]
            self._moved[number] -= words[number]
            self._early[other] += self._early[number]
            self._early[number] = self._early_rate[number] = 0
            self._resent.pop(number, None)
            transit = self._transit.pop(number, 0)
            self._transit[other] = self._transit.get(other, 0) + transit
        self._kept = [(_regrouped(key, moves), value) for key, value in self._kept]
        drops, _ = self._entries("drops", self._layout.drop, self._layout.dropped)
        gone = list(moves)
        of_them = np.isin(drops["group"], gone) | np.isin(drops["sender"], gone)
        for key in drops[of_them]:
            value = take("drops", key.tobytes())
            if value:
                dropped = np.frombuffer(value, self._layout.dropped)[0]
                self._kept.append((_regrouped(key, moves), dropped))

    def _add_drops(
        self,
        drops: Table,
        dropped: Table,
        groups: dict[Group, GroupTotals],
        names: dict[int, Group],
    ) -> dict[DropVerdict, int]:
        # to look up takes a third of a second: not for what is no loss
        lost = np.array(self._lost(drops), bool)
        functions = self._functions.names(drops["location"][lost].tolist())
        verdicts = dict.fromkeys(DropVerdict, 0)
        for key, value in zip(drops, dropped, strict=True):
            reason, verdict = self._verdict(key)
            if reason == LISTEN_OVERFLOW:
                self._take_refused(key, value, groups, names)
            if key["empty"]:
                continue
            verdicts[verdict] += int(value["packets"])
            if verdict is DropVerdict.HARMLESS:
                continue
            protocol = PROTOCOLS.get(int(key["protocol"]), "")
            totals = _totals_of(int(key["group"]), protocol, groups, names)
            if verdict is DropVerdict.DUPLICATE:
                totals.arrivals[DUPLICATE] += int(value["packets"])
                continue
            drop = self._drop(key, value, reason, functions)
            totals.drops[drop] += int(value["packets"])
            if lost_bytes := int(value["bytes"]):
                totals.dropped_bytes[drop] += lost_bytes
        for totals in groups.values():
            totals.drops += Counter()  # without what is not above 0
        return verdicts

    def _take_refused(
        self,
        key: Any,
        value: Any,
        groups: dict[Group, GroupTotals],
        names: dict[int, Group],
    ) -> None:
        """The end of a handshake that is refused counts twice at its listener."""
        drops = _totals_of(int(key["group"]), "tcp", groups, names).drops
        drops[Drop("socket", REFUSED)] -= int(value["buffers"])

    def _verdict(self, key: Any) -> tuple[str, DropVerdict]:
        place = self._places[int(key["place"])]
        if place in (UNREAD, REFUSED):
            return place, DropVerdict.LOST
        reason = self._reasons.name(int(key["reason"]))
        return reason, verdict_of(reason, at_receiver=place == "at_receiver")

    def _lost(self, drops: Table) -> list[bool]:
        """Whether segments with data died there on their way."""
        return [
            not key["empty"]
            and self._places[int(key["place"])] not in (UNREAD, REFUSED)
            and self._verdict(key)[1] is DropVerdict.LOST
            for key in drops
        ]

    def _drop(
        self, key: Any, value: Any, reason: str, functions: dict[int, str]
    ) -> Drop:
        function = functions.get(int(key["location"]), "")
        at = self._places[int(key["place"])]
        if at in (UNREAD, REFUSED):
            return Drop("close" if at == UNREAD else "socket", at)
        if reason in QDISC:
            return Drop("qdisc", reason, function, _device(key, value))
        if reason in SOCKET:
            return Drop("socket", reason, function)
        if reason in CLOSE:
            return Drop("close", reason, function)
        place = {"at_sender": "sender", "at_receiver": "receiver"}.get(at, "elsewhere")
        return Drop(place, reason, function)

    def _lost_in_transit(self, number: int, counted: Any, died: int) -> int:
        """Of a group; only grows, as a count must."""
        now = self._clock()
        resent = sum(int(counted[cause]) for cause in CAUSES if cause != "handshake")
        history = self._resent.setdefault(number, deque())
        history.append((now, resent - int(counted["unproven"])))
        while len(history) > 1 and history[1][0] <= now - SETTLED_SECONDS:
            history.popleft()
        settled = history[0][1] if history[0][0] <= now - SETTLED_SECONDS else 0
        known = settled - int(counted["spurious"]) - died
        self._transit[number] = max(self._transit.get(number, 0), known)
        return self._transit[number]


def _regrouped(key: Any, moves: dict[int, int]) -> Any:
    """The same place, of the groups that its own have become."""
    found = key.copy()
    for name in ("group", "sender"):
        found[name] = moves.get(int(key[name]), int(key[name]))
    return found


def _died_by_sender(drops: Table, dropped: Table, lost: list[bool]) -> dict[int, int]:
    """Segments that died on this host, by the group that sent them."""
    died: dict[int, int] = {}
    for key, value, is_lost in zip(drops, dropped, lost, strict=True):
        sender = int(key["sender"])
        if is_lost and sender and PROTOCOLS.get(int(key["protocol"])) == "tcp":
            died[sender] = died.get(sender, 0) + int(value["packets"])
    return died


def _totals_of(
    number: int,
    protocol: str,
    groups: dict[Group, GroupTotals],
    names: dict[int, Group],
) -> GroupTotals:
    """What has no group yet is of none but its protocol."""
    return groups.setdefault(names.get(number, Group(protocol=protocol)), GroupTotals())


def _add_segments(totals: GroupTotals, counted: Any, early: int) -> None:
    for cause in CAUSES:
        if count := int(counted[cause]):
            totals.retransmits[cause] += count
    if early:
        totals.arrivals[EARLY] += early


def _device(key: Any, value: Any) -> str:
    """As `tc` shows it: "eth0 10:", or "eth0 0:2" of a queue without a handle."""
    name = name_of(value["device"].tobytes())
    major, minor = int(key["qdisc"]) >> 16, int(key["qdisc"]) & 0xFFFF
    return f"{name} {major:x}:" + (f"{minor:x}" if minor else "")
