"""Bulk transfers over channels: throughput, loss, and where each datagram died.

One part of the run after the other, in random order: each number of channels over
each protocol. Or for each number of channels a search for the highest rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from latprof_analysis.study.bulk import (
    BULK_COLUMNS,
    balance,
    bulk_document,
    bulk_rows,
    direction_figures,
)

from latprof_agent.errors import WorkloadError
from latprof_agent.lab.lab import Lab
from latprof_agent.probes.filter import Filter
from latprof_agent.recorder import STEP_SECONDS
from latprof_agent.sinks.run_files import RunFolder
from latprof_agent.workload.bulk_client import BulkClient, BulkPair
from latprof_agent.workload.bulk_places import (
    Counted,
    count,
    dropped_between,
    session_packets,
)
from latprof_agent.workload.bulk_search import RateSearch, Trial
from latprof_agent.workload.responder import limits_of_bulk
from latprof_agent.workload.workload import Plan, RunContext, Workload

DEFAULT_CHANNELS = (1, 2, 4, 8)
DEFAULT_SECONDS, TRIAL_SECONDS = 3.0, 2.0
# What a search has found is confirmed by trials so many times as long.
CONFIRM_TIMES = 3
# Of slots in which throughput is counted: a hundred of each part.
_SLOTS, _LEAST_SLOT_S, _MOST_SLOT_S = 100, 0.01, 0.1
# Until what a part still has on its way is in the counters.
_SETTLE_SECONDS = 0.05
SLOT_COLUMNS = (
    *("part", "protocol", "channels", "direction", "channel", "end"),
    *("start_ns", "slot_ns", "bytes"),
)
RUN_COLUMNS = (
    *("part", "channels", "direction", "channel"),
    *("first_number", "datagrams", "end_ns", "in_receive_buffer"),
)

Directions = dict[str, dict[str, Any]]  # figures by `up` and `down`


def longest_datagram(mtu_bytes: int, *, ipv6: bool) -> int:
    """Return the bytes of payload that a packet holds beside IP and UDP."""
    return mtu_bytes - (48 if ipv6 else 28)


@dataclass(frozen=True)
class BulkPlan(Plan):
    """Transfers that were asked for; 0: no limit, or the system's.

    Of a search `duration_seconds` are those of the trial that confirms its rate.
    """

    kind = "bulk"

    protocols: tuple[str, ...] = ("tcp", "udp")
    channels: tuple[int, ...] = DEFAULT_CHANNELS
    datagram_bytes: int = 1400
    volume_bytes: int = 0
    duration_seconds: float = DEFAULT_SECONDS
    offer_bps: int = 0
    direction: str = "up"
    receive_buffer_bytes: int = 0
    send_way: str = "auto"
    receive_way: str = "auto"
    find_rate: float | None = None
    trial_seconds: float = TRIAL_SECONDS
    client_cpu: int | None = None
    server_cpu: int | None = None
    seed: int = 1

    @property
    def parts(self) -> list[tuple[str, int]]:
        """Protocol and channels of each, in random order."""
        every = [(p, channels) for p in self.protocols for channels in self.channels]
        order = np.random.default_rng(self.seed).permutation(len(every))
        return [every[place] for place in order.tolist()]

    def open(self, lab: Lab | None) -> Workload:
        """Place it in the lab."""
        assert lab
        return BulkInLab(self, lab)

    def client_words(self, protocol: str, channels: int) -> list[str]:
        """Arguments of the client's process, but for whom it asks."""
        words = ["--protocol", protocol, "--channels", str(channels)]
        words += ["--direction", self.direction, "--slot", str(self._slot_ns)]
        if self.volume_bytes:
            words += ["--bytes", str(self.volume_bytes)]
        else:
            words += ["--duration", str(self.duration_seconds)]
        if self.offer_bps:
            words += ["--rate", str(self.offer_bps)]
        if protocol == "udp":
            words += ["--size", str(self.datagram_bytes)]
            words += ["--send-way", self.send_way, "--receive-way", self.receive_way]
            if self.receive_buffer_bytes:
                words += ["--receive-buffer", str(self.receive_buffer_bytes)]
        return words

    @property
    def _slot_ns(self) -> int:
        seconds = self.duration_seconds / _SLOTS
        return round(1e9 * min(_MOST_SLOT_S, max(_LEAST_SLOT_S, seconds)))


class BulkRuns(Workload):
    """The parts, or the trials of a search, one after the other."""

    may_see_nothing = True  # it measures without probes, too

    def __init__(self, plan: BulkPlan) -> None:
        super().__init__()
        self._plan = plan
        self._slots: list[list[Any]] = []
        self._loss_runs: list[list[Any]] = []
        self._parts = 0  # trials of a search, too: slots and loss runs name theirs

    def _client(self, words: list[str]) -> BulkClient:
        """Start whoever does a part."""
        raise NotImplementedError

    def _check(self) -> None:
        """Raise a LatprofError where what it runs over has gone."""

    def _count(self) -> Any:
        """Read all counters of packets that were dropped."""
        raise NotImplementedError

    def _balance(self, directions: Directions, before: Any) -> dict[str, Any]:
        """Hold datagrams that were sent against counters, since they were read.

        `balance`, None where an end did not report, and `dropped_at_sockets`, as the
        kernel counts them, where it is ours.
        """
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        """For run.json."""
        return {"bulk": asdict(self._plan)}

    def figures(self) -> dict[str, Any]:
        """The tables."""
        return {"bulk": bulk_document(self.runs)}

    def write(self, folder: RunFolder) -> None:
        """Write a row of each part and channel, each slot, each run of losses."""
        parts = [run["bulk"] for run in self.runs if "bulk" in run]
        folder.write_rows("bulk.csv", BULK_COLUMNS, bulk_rows(parts))
        folder.write_rows("slots.csv", SLOT_COLUMNS, self._slots)
        folder.write_rows("loss_runs.csv", RUN_COLUMNS, self._loss_runs)

    def follow(self, scene: RunContext) -> None:
        """Do all parts; raises WorkloadError where one cannot be done."""
        parts = self._plan.parts
        for done, (protocol, channels) in enumerate(parts):
            if scene.interrupt.seen:
                return
            if self._plan.find_rate is None:
                where = (done, len(parts))
                self._follow_part(self._plan, protocol, channels, scene, where)
            else:
                self._search(channels, self._plan.find_rate, scene)

    def _search(self, channels: int, most_loss: float, scene: RunContext) -> None:
        plan, done = self._plan, len(self.runs)
        search = RateSearch(most_loss, plan.trial_seconds, plan.duration_seconds)
        for offer_bps, seconds in search.tries():
            asked = replace(plan, offer_bps=offer_bps, duration_seconds=seconds)
            where = (len(search.trials), 0)
            self._follow_part(asked, "udp", channels, scene, where)
            part = self.runs.pop()["bulk"] if len(self.runs) > done else None
            trial = _trial(part, seconds) if part else None
            if scene.interrupt.seen or not trial:
                break
            search.add(trial)
        if search.trials:
            self.runs.append({"search": {"channels": channels, **search.as_dict()}})

    def _follow_part(
        self,
        plan: BulkPlan,
        protocol: str,
        channels: int,
        scene: RunContext,
        where: tuple[int, int],
    ) -> None:
        before = self._count()
        client = self._client(plan.client_words(protocol, channels))
        try:
            while client.running():
                if scene.interrupt.seen:
                    client.stop()
                self._check()
                scene.recorder.step_for(STEP_SECONDS)
                gone = client.seconds / (plan.duration_seconds or math.inf)
                self._show_progress(f"{protocol} {channels}", gone, where, scene)
        finally:
            client.stop()
            try:
                client.finish()
            except WorkloadError as error:
                raise scene.folder.explain(error) from error
            finally:
                scene.recorder.step_for(_SETTLE_SECONDS)
                self._take(protocol, channels, plan.offer_bps, client.result, before)

    def _show_progress(
        self, name: str, gone: float, where: tuple[int, int], scene: RunContext
    ) -> None:
        done, parts = where
        part = min(1.0, gone)
        if parts:
            scene.progress("bulk", 0, done + part, parts)
        else:
            scene.progress(f"{name}, trial {done + 1}", 0, part, 1)

    def _take(
        self,
        protocol: str,
        channels: int,
        offer_bps: int,
        said: dict[str, Any],
        before: Any,
    ) -> None:
        """Make figures of what a part said, and of the counters since."""
        ends = {way: said[way] for way in ("up", "down") if said.get(way)}
        if not ends:  # it ended before it began
            return
        part, self._parts = self._parts, self._parts + 1
        directions = {way: direction_figures(one, way) for way, one in ends.items()}
        dropped: dict[str, Any] = {"balance": None, "dropped_at_sockets": None}
        if protocol == "udp":
            dropped = self._balance(directions, before)
        self.runs.append(
            {
                "bulk": {
                    "part": part,
                    "protocol": protocol,
                    "channels": channels,
                    "offered_bps": offer_bps,
                    "stopped": bool(said.get("stopped", True)),
                    "max_rate_bytes": said.get("max_rate_bytes", 0),
                    "directions": directions,
                    **dropped,
                }
            }
        )
        for way, one in ends.items():
            names = [part, protocol, channels, way]
            self._slots += [[*names, *row] for row in _slot_rows(one, way)]
            names = [part, channels, way]
            self._loss_runs += [[*names, *row] for row in _loss_run_rows(one)]


class BulkInLab(BulkRuns):
    """Between the two ends of a lab."""

    def __init__(self, plan: BulkPlan, lab: Lab) -> None:
        super().__init__(plan)
        self._lab = lab

    def watched(self, protocols: tuple[str, ...]) -> Filter:
        """All of the lab."""
        return Filter(netns=self._lab.inodes, protocols=protocols)

    def _client(self, words: list[str]) -> BulkClient:
        plan = self._plan
        limits = limits_of_bulk(max(plan.channels), plan.receive_buffer_bytes)
        return BulkPair(self._lab, words, limits, plan.client_cpu, plan.server_cpu)

    def _check(self) -> None:
        self._lab.check()

    def _count(self) -> Counted:
        return count(self._lab)

    def _balance(self, directions: Directions, before: Counted) -> dict[str, Any]:
        dropped = dropped_between(before, self._count(), self._plan.direction)
        own = session_packets(dropped, directions) if _all_reported(directions) else 0
        return {
            "balance": balance(directions, dropped.places, own),
            "dropped_at_sockets": dropped.at_sockets,
        }


def _all_reported(directions: Directions) -> bool:
    """Check that both ends of all directions reported their counts."""
    return all(
        figures[name] is not None
        for figures in directions.values()
        for name in ("sent", "received")
    )


def _trial(part: dict[str, Any], seconds: float) -> Trial | None:
    """Return a part as a trial; None where an end did not report."""
    if not part["balance"]:
        return None
    (figures,) = part["directions"].values()
    sender, receiver = (
        ("client", "server") if "up" in part["directions"] else ("server", "client")
    )
    places = sorted(part["balance"]["places"], key=lambda place: -place["packets"])
    return Trial(
        seconds,
        part["offered_bps"],
        figures[sender]["average_bps"] or 0.0,
        figures[receiver]["average_bps"] or 0.0,
        figures["loss"] or 0.0,
        tuple(place["place"] for place in places if place["packets"]),
    )


def _slot_rows(said: dict[str, Any], way: str) -> Iterator[list[Any]]:
    ends = ("client", "server") if way == "up" else ("server", "client")
    for one in said["channels"]:
        for end, half in zip(ends, (one["sender"], one["receiver"]), strict=True):
            for place, sent in enumerate(half["slot_bytes"] if half else ()):
                start_ns = half["start_ns"] + place * half["slot_ns"]
                yield [one["channel"], end, start_ns, half["slot_ns"], sent]


def _loss_run_rows(said: dict[str, Any]) -> Iterator[list[Any]]:
    for one in said["channels"]:
        for run in (one["receiver"] or {}).get("loss_run_list", ()):
            yield [one["channel"], *run]
