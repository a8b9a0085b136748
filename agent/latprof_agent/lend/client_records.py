"""What of a responder's recording belongs to one of its clients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from latprof_analysis.records.recording import Step
from numpy.typing import NDArray

FLOWS, TASKS, FREED, UNTRACED = (
    *("flows", "tasks", "freed_segments", "untraced_periods"),
)
# Of what is before the client's time, too: a name is recorded once.
ALWAYS = (TASKS,)
# Of run.json, what a client gets: neither paths nor options of the responder's.
_SAID = (
    *("format", "written_unix_seconds", "host", "kernel", "machine", "clock"),
    *("workload", "lab", "capabilities"),
)
_PORTS = ["source_port", "destination_port"]
_THREADS = ("pid", "thread")

Array = NDArray[Any]


class ClientRecords:
    """Keeps of each step what belongs to the flows of one client's host.

    These are flows with its address at either end that were announced in its time, but
    for the connection on which it asks. Of rings that name a flow their records stay;
    of names those of processes in these records; of segments that the kernel freed
    those between the same ports, unless others had the same; and times in which a CPU
    could not be traced. All other rings are left empty: what is not known to be the
    client's stays.

    Parameters
    ----------
    address : bytes
        Of the client: 16 bytes, IPv4 mapped.
    asks_from : int
        Port of the connection on which it asks.
    since_ns : int
        CLOCK_MONOTONIC: where the client's time began.
    """

    def __init__(self, address: bytes, asks_from: int, since_ns: int) -> None:
        self._address = np.frombuffer(address, "u1")
        self.since_ns = since_ns
        self._asks_from, self._began = asks_from, False
        self._flows = np.empty(0, "u8")
        self._ports: set[tuple[int, int]] = set()
        self._ports_of_others: set[tuple[int, int]] = set()
        self._names: dict[int, list[Array]] = defaultdict(list)
        self._named: set[int] = set()  # whose name the client has
        self._counted: dict[str, int] = {}
        self._counted_before: dict[str, int] = {}
        self.description: dict[str, Any] = {}  # as of the newest step, for run.json

    def of(self, step: Step) -> Step | None:
        """Return the client's part of a step; None: it was before its time."""
        notes = list(map(self._note, step.notes))
        names = step.rings[TASKS]
        for at, pid in enumerate(names["pid"].tolist()):
            self._names[pid].append(names[at : at + 1].copy())
        self._began |= (step.drained_ns or 0) >= self.since_ns
        if not self._began:
            self._counted_before = dict(self._counted)
            return None
        if FLOWS in step.rings:
            self._announce(step.rings[FLOWS])
        rings = {ring: self._kept(ring, step.rings[ring]) for ring in step.rings}
        rings[TASKS] = self._fresh_names(rings, names)
        return Step(step.drained_ns, rings, step.beside, [], [n for n in notes if n])

    def _announce(self, flows: Array) -> None:
        to, by = (
            (flows[end] == self._address).all(axis=1)
            for end in ("destination", "source")
        )
        asking = by & (flows["source_port"] == self._asks_from)
        asking |= to & (flows["destination_port"] == self._asks_from)
        mine = (to | by) & ~asking & (flows["t_ns"] >= self.since_ns)
        self._flows = np.union1d(self._flows, flows["flow"][mine])
        self._ports |= set(flows[_PORTS][mine].tolist())
        self._ports_of_others |= set(flows[_PORTS][~mine].tolist())

    def _kept(self, ring: str, records: Array) -> Array:
        kept = np.zeros(len(records), bool)
        if "flow" in (records.dtype.names or ()):
            kept = np.isin(records["flow"], self._flows)
        elif ring == FREED:
            mine = self._ports - self._ports_of_others
            pairs = records[_PORTS].tolist()
            kept = np.fromiter((pair in mine for pair in pairs), bool)
        elif ring == UNTRACED:
            kept = records["until_ns"] >= self.since_ns
        return np.asarray(records[kept])

    def _fresh_names(self, rings: Mapping[str, Array], came: Array) -> Array:
        """Name who is in these records, and who was and has another name now."""
        met: set[int] = set()
        for ring, records in rings.items():
            fields = records.dtype.names or ()
            if "flow" in fields and ring != FLOWS:
                for thread in (field for field in _THREADS if field in fields):
                    met |= set(records[thread].tolist())
        again = came[np.isin(came["pid"], list(self._named))]
        fresh = [name for pid in met - self._named for name in self._names[pid]]
        self._named |= met
        return np.concatenate([again, *fresh])

    def _note(self, note: dict[str, Any]) -> dict[str, Any] | None:
        """Return what of a note is for the client: counts of its time."""
        match note:
            case {"counters": counted}:
                self._counted |= counted
                before = self._counted_before
                of_now = {n: c - before.get(n, 0) for n, c in counted.items()}
                return {"counters": of_now}
            case {"running": said}:
                kept = {key: said[key] for key in _SAID if key in said}
                self.description = {
                    **kept,
                    **{"state": "running", "name": "", "arguments": [], "folder": None},
                }
        return None
