"""Recordings of several hosts, opened: whose they are, and whether they can be joined.

Each is read twice, so that a host is where its recording is and what its header says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from latprof_analysis.read.paths import behind_link
from latprof_analysis.read.result import ReadError
from latprof_analysis.records.host_records import MOST_HOSTS
from latprof_analysis.records.recording import (
    NAME,
    SOURCES,
    Recording,
    RecordLayout,
    Step,
)
from latprof_analysis.text import plural
from numpy.typing import NDArray

from latprof_agent.errors import LatprofError, UsageError
from latprof_agent.live.sample_recording import KIND
from latprof_agent.rebuild.rebuilt import check_fields

# Of a layout: what numbers in records mean, which differs where the probes do.
_WORDS = ("flags", "heads", "endings", "held", "resent")


@dataclass
class JoinedHost:
    """A host, by its recording.

    `counted`, `clocks`, `clock_sources` and `end` are known once it was read: what its
    probes counted, all clocks of the host each second (CLOCKS), by what these were set
    at the begin and at the end, and what its run said in the end.
    """

    number: int
    path: Path
    name: str
    header: dict[str, Any]
    layout: RecordLayout
    counted: dict[str, int] = field(default_factory=dict)
    clocks: list[NDArray[Any]] = field(default_factory=list)
    clock_sources: list[dict[str, Any]] = field(default_factory=list)
    sources: list[dict[str, Any]] = field(default_factory=list)
    running: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] | None = None
    cut_off: bool = False
    records: int = 0

    @property
    def is_live(self) -> bool:
        """Whether it has a sample of what was watched, instead of all messages."""
        return self.header.get("kind") == KIND

    @property
    def identity(self) -> tuple[str, ...]:
        """By which hosts have an order, however they are given."""
        of = self.header["host"]
        return str(of.get("name")), str(of.get("machine")), str(of.get("boot"))

    @property
    def has_sources(self) -> bool:
        """Whether a program of the run's own knew of its messages."""
        return bool(self.sources)

    def steps(
        self, rings: Collection[str] | None = None
    ) -> Iterator[tuple[Step, float]]:
        """Give all steps, each with how much of the file was read then.

        With these rings alone, if some are given.
        """
        recording = Recording(self.path)
        for step in recording.steps(rings):
            yield step, recording.share()
        self.cut_off = recording.cut_off

    def known_clocks(self) -> NDArray[Any]:
        """All readings of the host's clocks, as CLOCKS."""
        return np.concatenate(self.clocks)

    def note(self, note: dict[str, Any]) -> None:
        """Take in what the run said of itself."""
        match note:
            case {"counters": counted}:
                self.counted |= counted
            case {"source": described}:
                self.sources.append(described)
            case {"clock_sources": dict(said)}:
                self.clock_sources.append(said)
            case {"running": running}:
                self.running = running
            case {"run": end}:
                self.end = end
            case {"end": {"run": run}}:  # of what was watched
                self.end = {"description": run}

    @property
    def said(self) -> dict[str, Any]:
        """What its run said of itself last."""
        found: dict[str, Any] = (self.end or {}).get("description") or self.running
        return found

    def as_dict(self) -> dict[str, Any]:
        """For run.json and summary.json."""
        said = self.said
        lost = {n: c for n, c in self.counted.items() if n.startswith("lost_") and c}
        return {
            "name": self.name,
            "recording": str(self.path),
            "kernel": self.header["kernel"],
            "version": self.header["version"],
            "begun_unix_ns": self.header["begun_unix_ns"],
            "state": said.get("state") if self.end else "killed",
            "cut_off": self.cut_off,
            "watched": _watched(said),
            "lost_records": {n.removeprefix("lost_"): c for n, c in lost.items()},
            "capabilities": said.get("capabilities", self.header["capabilities"]),
        }


def _watched(said: dict[str, Any]) -> str | None:
    """Name what the run looked at, where it says so."""
    attached = (said.get("workload") or {}).get("attached") or {}
    return attached.get("to")


def open_hosts(folders: Sequence[Path], *, one_boot: bool = False) -> list[JoinedHost]:
    """Open the recordings of run folders, or recordings by their paths.

    With `one_boot` they may be of one host, as of its namespaces.
    Raises UsageError where they are none of several hosts, ReadError where one cannot
    be read by this version.
    """
    if not 2 <= len(folders) <= MOST_HOSTS:
        raise UsageError(
            f"FOLDER: must be 2 to {MOST_HOSTS} run folders, one of each host, got "
            f"{len(folders)}"
        )
    hosts = [_opened(number, folder) for number, folder in enumerate(folders)]
    for one, other in combinations(hosts, 2):
        _check_pair(one, other, one_boot=one_boot)
    _name_apart(hosts)
    return hosts


def _opened(number: int, given: Path) -> JoinedHost:
    folder = behind_link(given)
    path = folder / NAME if folder.is_dir() else folder
    if folder.is_dir() and not path.exists():
        raise LatprofError(
            f"cannot join {given}: it has no {NAME}; runs without probes, with "
            "--no-recording, or of older versions have none"
        )
    recording = Recording(path)
    check_fields(recording)
    header = recording.header
    try:
        name = str(header["host"]["name"])
        _ = header["kernel"], header["begun_unix_ns"], header["capabilities"]
    except (KeyError, TypeError) as error:
        raise ReadError(path, f"its header has no {error}") from error
    said = [header[SOURCES]] if isinstance(header.get(SOURCES), dict) else []
    return JoinedHost(number, path, name, header, recording.layout, clock_sources=said)


def _check_pair(one: JoinedHost, other: JoinedHost, *, one_boot: bool) -> None:
    if one.path.samefile(other.path):
        raise UsageError(
            f"FOLDER: {one.path} was given twice; give one folder of each host"
        )
    boots = [host.header["host"].get("boot") for host in (one, other)]
    if boots[0] and boots[0] == boots[1] and not one_boot:
        raise UsageError(
            f"FOLDER: {one.path} and {other.path} are of one host ({one.name}, since "
            "the same boot), whose clock is one; give one folder of each host"
        )
    live, whole = (one, other) if one.is_live else (other, one)
    if live.is_live != whole.is_live:
        raise UsageError(
            f"FOLDER: {live.path} is a sample of what was watched, and {whole.path} "
            "has all messages of a run; give folders of one kind"
        )
    for words in _WORDS:
        theirs = getattr(one.layout, words), getattr(other.layout, words)
        if any(theirs[1].get(n, value) != value for n, value in theirs[0].items()):
            raise ReadError(
                other.path,
                f"latprof {other.header['version']} recorded other {words} than "
                f"{one.header['version']} did in {one.path}; record both hosts by one "
                "version",
            )


def _name_apart(hosts: Sequence[JoinedHost]) -> None:
    """Give hosts of the same name numbers."""
    names = [host.name for host in hosts]
    for host in hosts:
        if names.count(host.name) > 1:
            host.name = f"{host.name} ({host.number + 1})"


def reference_of(hosts: Sequence[JoinedHost], wanted: str | None) -> int:
    """Choose the host on whose clock all stamps will be.

    The one of that name; else the only one with a load generator, whose log has times
    of its own, and else the first. Raises UsageError where no host has that name.
    """
    if wanted is not None:
        for host in hosts:
            if wanted in (host.name, str(host.path), str(host.path.parent)):
                return host.number
        names = ", ".join(host.name for host in hosts)
        raise UsageError(f"--reference: must be one of {names}, got {wanted!r}")
    measuring = [host.number for host in hosts if host.has_sources]
    return measuring[0] if len(measuring) == 1 else 0


def said_of_wall_clocks(hosts: Sequence[JoinedHost]) -> str:
    """Say by their wall clocks when hosts recorded, if not at the same time."""
    spans = []
    for host in hosts:
        clocks = host.known_clocks()
        spans.append(
            (int(clocks["realtime_ns"].min()), int(clocks["realtime_ns"].max()))
        )
    if max(begin for begin, _ in spans) <= min(end for _, end in spans):
        return ""
    apart = max(begin for begin, _ in spans) - min(end for _, end in spans)
    return (
        f"by their wall clocks {plural(len(hosts), 'recording')} do not overlap: "
        f"{apart / 1e9:.1f} s lie between them"
    )
