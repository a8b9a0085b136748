"""Make recordings of several hosts from one of all ends: the truth needs no other host.

What each end saw goes into a recording of its own, and each end gets its own clock.
What each message truly took is in the whole recording. Ends are told apart by the
namespaces of their sockets, or in one namespace by who is the client: who accepted, or
has the lower port, is on the second host.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from latprof_agent.capture.recording_writer import RecordingWriter
from latprof_analysis.kernel_names import name_of
from latprof_analysis.records.flows import SIDE_RECEIVER, SIDE_SENDER
from latprof_analysis.records.host_records import HostRecords
from latprof_analysis.records.recording import CLOCKS, NAME, SOURCES, Recording, Step
from numpy.typing import NDArray

Clock = Callable[[NDArray[np.int64]], NDArray[np.int64]]
# By which end of a flow a ring's records are.
_OF_SENDER = (
    *("sent_messages", "retransmits", "lower_transmits", "acknowledgements"),
    "path_devices",
)
_OF_RECEIVER = ("received_ranges", "early_segments")
ROLE_SERVER = 2  # of records.h
_STRANGER = np.uint64(
    0x5DEECE66D
)  # makes the number of a flow whose sender is not here


class _Writer(RecordingWriter):
    """Writes the clocks that were recorded, not those of now."""

    recorded: NDArray[Any] | None = None

    def _clocks(self) -> NDArray[Any] | None:
        return self.recorded


class _Ends:
    """On which of so many hosts each flow's ends are."""

    def __init__(self, path: Path, hosts: int, second: Collection[str]) -> None:
        recording = Recording(path)
        parts = [step.rings["flows"] for step in recording.steps()]
        flows = np.concatenate(parts)
        flows = flows[np.isin(flows["side"], (SIDE_SENDER, SIDE_RECEIVER))]
        netns = list(dict.fromkeys(flows["netns"].tolist()))
        accepted = flows[flows["accepted"] == 1]
        servers = dict(
            zip(accepted["flow"].tolist(), accepted["side"].tolist(), strict=True)
        )
        self._of: dict[int, dict[int, int]] = {SIDE_SENDER: {}, SIDE_RECEIVER: {}}
        for record in flows:
            side = int(record["side"])
            number = min(netns.index(record["netns"]), hosts - 1)
            if len(netns) == 1:
                number = int(servers.get(int(record["flow"]), _by_port(record)) == side)
            self._of[side][int(record["flow"])] = number
        if second:
            self._by_process(path, second)
        known = flows[(flows["side"] == SIDE_RECEIVER) & (flows["sender_netns"] != 0)]
        self.knows_sender = np.unique(known["flow"])

    def _by_process(self, path: Path, second: Collection[str]) -> None:
        """Ends are where their processes are, of which these are on the second host."""
        there: set[int] = set()
        ends: dict[tuple[int, int], int] = {}
        for step in Recording(path).steps():
            for task in step.rings["tasks"]:
                if name_of(task["comm"].tobytes()) in second:
                    there.add(int(task["pid"]))
            for side, ring in (
                (SIDE_SENDER, "sent_messages"),
                (SIDE_RECEIVER, "received_ranges"),
            ):
                for record in step.rings[ring]:
                    ends[side, int(record["flow"])] = int(record["pid"])
        for (side, flow), pid in ends.items():
            self._of[side][flow] = int(pid in there)

    def host(self, flow: NDArray[Any], side: int) -> NDArray[np.int64]:
        of = self._of[side]
        return np.array([of.get(n, -1) for n in flow.tolist()], "i8")

    def announces(self, flows: NDArray[Any]) -> NDArray[np.int64]:
        """The host that made each record of the ring of flows."""
        sends = flows["side"] == SIDE_SENDER
        # who closed or accepted one sends it, or, where it sent nothing, gets it
        sends |= (flows["side"] > SIDE_RECEIVER) & (flows["first_sequence"] != 0)
        of = (
            self.host(flows["flow"], SIDE_SENDER),
            self.host(flows["flow"], SIDE_RECEIVER),
        )
        return np.where(sends, *of)


def _by_port(record: Any) -> int:
    """The server's side of a flow: a client has the higher port."""
    higher = record["source_port"] > record["destination_port"]
    return SIDE_RECEIVER if higher else SIDE_SENDER


@dataclass(frozen=True)
class Wall:
    """A wall clock that something sets, and what chronyd says of it."""

    wrong_ns: int = 0
    chrony: dict[str, Any] | None = None
    largest_error_ns: int = 0  # as the kernel has it, from which it grows
    synchronised: int = 1


def split(
    path: Path,
    folder: Path,
    *clocks: Clock,
    second: Collection[str] = (),
    walls: Sequence[Wall] = (),
) -> list[Path]:
    """Write what each host saw by its clock.

    Processes with names in `second` are on the second host, whoever is the client.
    Without `walls` no wall clock was ever set: each is ahead as its host's other clock.
    Returns the run folders that are made in `folder`, named a, b and so on.
    """
    ends = _Ends(path, len(clocks), second)
    folders = [folder / name for name in "abcdefgh"[: len(clocks)]]
    for host, (into, clock) in enumerate(zip(folders, clocks, strict=True)):
        wall = walls[host] if walls else None
        _write(path, into, lambda rings, host=host: _of(rings, ends, host), clock, wall)
    return folders


def own_time(times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give a host the clock of the recording."""
    return times


def _of(rings: dict[str, Any], ends: _Ends, host: int) -> dict[str, Any]:
    """Choose the records of one host."""
    found = dict(rings)
    for side, of_side in ((SIDE_SENDER, _OF_SENDER), (SIDE_RECEIVER, _OF_RECEIVER)):
        for ring in (ring for ring in of_side if ring in rings):
            records = rings[ring]
            found[ring] = records[ends.host(records["flow"], side) == host]
    if "turns" in rings:  # each end's own
        turns = rings["turns"]
        sides = (
            ends.host(turns["flow"], side) for side in (SIDE_RECEIVER, SIDE_SENDER)
        )
        found["turns"] = turns[np.where(turns["role"] == ROLE_SERVER, *sides) == host]
    found["flows"] = rings["flows"][ends.announces(rings["flows"]) == host]
    # a receiver does not know the namespace of a sender on another host
    for ring in (*_OF_RECEIVER, "flows"):
        records = found[ring] = found[ring].copy()
        flow = records["flow"]
        strange = ends.host(flow, SIDE_SENDER) != host
        strange &= np.isin(flow, ends.knows_sender)
        if ring == "flows":
            strange &= records["side"] == SIDE_RECEIVER
            records["sender_netns"][strange] = 0
        flow[strange] ^= _STRANGER
    return found


def _write(
    path: Path,
    into: Path,
    choose: Callable[[dict[str, Any]], dict[str, Any]],
    clock: Clock,
    wall: Wall | None,
) -> None:
    into.mkdir(parents=True)
    recording = Recording(path)
    header = {k: v for k, v in recording.header.items() if k != "format"}
    header["host"] = {"name": into.name, "machine": into.name, "boot": into.name}
    if wall:
        header[SOURCES] = {"chrony": wall.chrony, "ptp": []}
    moves = HostRecords(0, clock)
    rings = recording.layout.rings
    with (into / NAME).open("wb") as file:
        writer = _Writer(file.write, rings, header)
        for step in recording.steps():
            for said in step.notes:
                note = {SOURCES: header[SOURCES]} if wall and SOURCES in said else said
                if "one_clock" in note.get("source", {}):
                    note["source"]["one_clock"] = False
                if into.name == "a" or not _OF_A_SOURCE & set(note):
                    writer.note(**_by(clock, note))
            clocks = step.beside[CLOCKS].copy()
            ahead_ns = clock(clocks["monotonic_ns"].copy()) - clocks["monotonic_ns"]
            clocks["monotonic_ns"] += ahead_ns
            for name in ("realtime_ns", "tai_ns"):
                clocks[name] += wall.wrong_ns if wall else ahead_ns
            if wall:
                seconds = clocks["monotonic_ns"] // 1_000_000_000
                clocks["largest_error_ns"] = wall.largest_error_ns + seconds * 500_000
                clocks["synchronised"] = wall.synchronised
            writer.recorded = clocks
            _write_step(writer, step, choose, moves, clock, with_logs=into.name == "a")
        writer.close()


_OF_A_SOURCE = {"source", "of_source", "round_trips"}


def _write_step(
    writer: _Writer,
    step: Step,
    choose: Callable[[dict[str, Any]], dict[str, Any]],
    moves: HostRecords,
    clock: Clock,
    *,
    with_logs: bool,
) -> None:
    logs = step.logs if with_logs else ()
    layouts = {ring: records.dtype for ring, records in step.rings.items()}
    if step.drained_ns is None:  # a copy of what all CPUs did, if anything
        writer.step(None, moves.moved(step.rings, layouts), logs=logs)
        return
    batch = moves.moved(choose(step.rings), layouts)
    writer.step(_at(clock, step.drained_ns), batch, logs=logs)


def _at(clock: Clock, time_ns: int) -> int:
    return int(clock(np.array([time_ns], "i8"))[0]) if time_ns else 0


def _by(clock: Clock, note: dict[str, Any]) -> dict[str, Any]:
    """A note with its times on another clock."""
    match note:
        case {"copy": _, "since_ns": since}:
            times = {n: _at(clock, note[n]) for n in ("begin_ns", "end_ns")}
            moved = {
                ring: [[cpu, _at(clock, t)] for cpu, t in of]
                for ring, of in since.items()
            }
            return note | times | {"since_ns": moved}
        case {"asked": [begin, end, number]}:
            return {"asked": [_at(clock, begin), _at(clock, end), number]}
        case {"names": names}:
            stacks = [[_at(clock, t), *more] for t, *more in names["stacks"]]
            losses = [
                [
                    [_at(clock, t) for t in times],
                    [[_at(clock, t), *more] for t, *more in found],
                ]
                for times, found in names["losses"]
            ]
            return {"names": names | {"stacks": stacks, "losses": losses}}
    return note
