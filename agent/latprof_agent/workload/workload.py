"""What a session asks of a workload, and what it gives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from latprof_agent.capture.capture import Capture
from latprof_agent.interrupts import Interrupt
from latprof_agent.lab.lab import Lab
from latprof_agent.probes.filter import Filter
from latprof_agent.recorder import Recorder
from latprof_agent.sinks import round_trip_rows
from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_agent.sinks.run_files import RunFolder
from latprof_agent.sinks.run_totals import RunTotals

Progress = Callable[[str, int, float, float], None]  # what, messages, done, planned


@dataclass(frozen=True)
class RunContext:
    """What a workload finds when it begins: who records it, and who waits for it."""

    capture: Capture
    recorder: Recorder
    folder: RunFolder
    totals: RunTotals
    protocols: tuple[str, ...]
    lab: Lab | None
    interrupt: Interrupt
    progress: Progress
    say_running: Callable[[], None]  # that it has begun, in run.json

    def expect(self, totals: RoundTripTotals, *, loaded: bool = False) -> None:
        """Round trips of a protocol will come: sum them up there."""
        self.totals.expect(totals, loaded=loaded)
        self.recorder.note(round_trips=totals.described(), loaded=loaded)


Look = Callable[[int], None]  # with the bytes that came until now; may raise


class OtherEnd:
    """Another host of a run, which may have recorded its half."""

    kind = ""  # its file is called by it
    numbered = False  # also where it is the only one

    def described(self) -> dict[str, Any]:
        """For run.json, which one it is."""
        raise NotImplementedError

    def fetch(
        self, write: Callable[[bytes], object], most_bytes: int, look: Look
    ) -> None:
        """Take its recording; raises LendError where there is none to be had."""
        raise NotImplementedError


class Workload:
    """Something whose messages a session follows; what plans make derives from it.

    `runs` has the result of each program that it ran, or of each part.
    """

    endless = False  # Ctrl-C is how it ends
    may_see_nothing = False  # then it is a result, too

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []

    def watched(self, protocols: tuple[str, ...]) -> Filter:
        """Which sockets are its own."""
        raise NotImplementedError

    def make_ready(self, interrupt: Interrupt, progress: Progress) -> None:
        """Wait for what it needs, before anything is recorded; what runs already."""

    def follow(self, scene: RunContext) -> None:
        """Run it until it is over, or asked to end, and record it meanwhile."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        """What run.json says of it, beside `runs`."""
        return {}

    def figures(self) -> dict[str, Any]:
        """Sections of summary.json that only this kind of workload has."""
        return {}

    def write(self, folder: RunFolder) -> None:
        """Leave files in the run folder that only this kind of workload has."""

    def other_ends(self) -> Sequence[OtherEnd]:
        """Other hosts that it had, made before any of them is talked to."""
        return ()

    def close(self) -> None:
        """End what is left of it."""


class Plan:
    """What was asked for, checked; opened once the lab, if any, is there."""

    kind = ""  # as the forms of `run` name it
    in_lab = True
    hosts = 2  # of the lab
    round_trip_columns = round_trip_rows.COLUMNS  # of round_trips.csv

    def notice(self) -> str:
        """What whoever waits should know; mostly nothing."""
        return ""

    def check_host(self) -> None:
        """Refuse what this host cannot do, before anything is made."""

    def open(self, lab: Lab | None) -> Workload:
        """Make it; nothing of it runs before `follow`."""
        raise NotImplementedError
