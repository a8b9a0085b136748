"""A run folder of live traffic: histograms of all of it, rows of the sample."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from latprof_analysis.calling_user import User
from latprof_analysis.records.exchange_rows import ExchangeRows
from latprof_analysis.records.message_rows import Messages
from latprof_analysis.stats.kernel_histogram import CoarseHistogram

from latprof_agent.capture.cost import AgentCost
from latprof_agent.errors import LatprofError
from latprof_agent.live.histogram_rows import COLUMNS, Histograms, histogram_rows
from latprof_agent.monitor.totals import Group, Quantity, Totals
from latprof_agent.sinks.run_description import described
from latprof_agent.sinks.run_files import TABLES, RunFolder
from latprof_agent.sinks.sink import Sink

OPTION = "--record"
RUNNING = "running"
# Windows are put together: twenty busy groups then make two megabytes a minute.
INTERVAL_NS = 60_000_000_000
_TABLES = {
    "messages": TABLES["messages"],
    "exchanges": TABLES["exchanges"],
    "histograms": COLUMNS,
}


@dataclass(frozen=True)
class Description:
    """What was watched: the filter in words, and what groups are kept apart by."""

    watched: str
    by: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    name: str = ""


class Keeps(Protocol):
    """Who keeps what the folder is made from."""

    def describe(self, run: dict[str, Any]) -> None:
        """Keep what is said of a run that goes on."""

    def add_histograms(
        self, found: Histograms, begin_ns: int, end_ns: int, totals: Totals
    ) -> None:
        """Keep what came between; `totals` are those since the start."""

    def end(self, totals: Totals, **what: Any) -> None:
        """Keep what is said of a run that is over."""


class LiveFolder(Sink):
    """Takes windows and sampled rows from `start` to `finish`.

    Raises UsageError where the folder cannot be made, StoreError where a document
    cannot be written. Where a table cannot, `failure` says so, and who watches ends
    with it; what had no room is written by `finish` as far as it goes then.
    """

    def __init__(self, path: Path | None, user: User | None = None) -> None:
        """Make the folder, as `RunFolder` does."""
        self._folder = RunFolder(path, user=user, tables=_TABLES, option=OPTION)
        self._windows = _none()
        self._begin_ns = 0
        self._end_ns = 0
        self._written: dict[str, int] = {"messages": 0, "exchanges": 0}
        self._keeps: Keeps | None = None

    def open_recording(self) -> Callable[[bytes], None]:
        """Make the file of the recording, and give what writes to its end."""
        return self._folder.open_recording()

    def keep(self, keeps: Keeps) -> None:
        """Have all that comes kept, before `start`."""
        self._keeps = keeps

    @property
    def path(self) -> Path:
        """Where it was made."""
        return self._folder.path

    @property
    def failure(self) -> LatprofError | None:
        """Why it takes no more."""
        return self._folder.failure

    def start(self, description: Description) -> None:
        """Say what is watched; a folder without more was ended by force."""
        self._description = description
        self._cost = AgentCost()
        run = self._describe(RUNNING, Totals())
        if self._keeps:
            self._keeps.describe(run)
        self._folder.write_json("run.json", run)

    def add_window(self, window: Totals, now: Totals) -> None:
        """Take what came since the window before; `now` is since the start."""
        if not self._begin_ns:
            self._begin_ns = window.t_ns - int(window.own.seconds * 1e9)
        self._end_ns = window.t_ns
        for group, totals in window.groups.items():
            for quantity, histogram in totals.histograms.items():
                self._windows[group, quantity] += histogram
        if self._end_ns - self._begin_ns >= INTERVAL_NS:
            self._write_histograms(now)

    def add_messages(self, rows: Messages) -> None:
        """Take rows of the sample; nothing in them will change."""
        self._folder.add_messages(rows)
        self._written["messages"] += len(rows)

    def add_exchanges(self, rows: ExchangeRows) -> None:
        """Take exchanges of the sample."""
        self._folder.add_exchanges(rows)
        self._written["exchanges"] += len(rows)

    def finish(
        self,
        totals: Totals,
        more: dict[str, Any] | None = None,
        failure: BaseException | None = None,
    ) -> dict[str, Any]:
        """Write what is left, and the documents; returns summary.json.

        `totals` are of the whole time, whose last window came before. `more` goes
        into summary.json, too; `failure` is what ended it, if something did.
        """
        try:
            self._write_histograms(totals)
            self._folder.free_logs()
            failure = failure or self._folder.failure
            run = self._describe("failed" if failure else "done", totals)
            run["failure"] = str(failure) if failure else None
            cost = self._cost.as_dict()
            if self._keeps:
                self._keeps.end(totals, run=run, cost=cost)
            return self.write(run, totals, more or {}, cost)
        finally:
            self.close()

    def write(
        self,
        run: dict[str, Any],
        totals: Totals,
        more: dict[str, Any],
        cost: dict[str, Any],
        warnings: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Write the documents of a run that is over; return summary.json."""
        summary = self._summary(run, totals, cost) | more
        summary["warnings"] += warnings
        self._folder.write_json("run.json", run)
        self._folder.write_json("summary.json", summary)
        self._folder.finish_tables()  # last: the documents need the room more
        return summary

    def write_parquet(self) -> None:
        """Write the tables as Parquet, too."""
        self._folder.write_parquet()

    def close(self) -> None:
        """Close all files, as `finish` does."""
        self._folder.close()

    @property
    def sampled(self) -> dict[str, int]:
        """How many rows were written, by table."""
        return dict(self._written)

    def remove(self) -> None:
        """Leave nothing of it: nothing was watched."""
        self._folder.remove()

    def _write_histograms(self, now: Totals) -> None:
        found, begin_ns, end_ns = self._windows, self._begin_ns, self._end_ns
        if self._keeps:
            self._keeps.add_histograms(found, begin_ns, end_ns, now)
        self.add_histograms(found, begin_ns, end_ns)
        self._windows, self._begin_ns = _none(), 0

    def add_histograms(self, found: Histograms, begin_ns: int, end_ns: int) -> None:
        """Write what came between these times."""
        self._folder.add_histograms(histogram_rows(found, begin_ns, end_ns))

    def _describe(self, state: str, totals: Totals) -> dict[str, Any]:
        description = self._description
        workload = {
            "plan": None,
            "command": [],
            "server_command": "",
            "user": None,
            "attached": {"to": description.watched},
            # how long it took is known when it is over
            "runs": [] if state == RUNNING else [{"seconds": totals.own.seconds}],
        }
        return described(
            self._folder,
            state,
            name=description.name,
            arguments=description.arguments,
            workload=workload,
            lab=None,
            capabilities=totals.capabilities,
        ) | {"sampled": self.sampled, "by": list(description.by)}

    def _summary(
        self, run: dict[str, Any], totals: Totals, cost: dict[str, Any]
    ) -> dict[str, Any]:
        own = totals.own
        same = ("format", "state", "name", "failure", "folder", "kernel", "workload")
        return {
            **{key: run[key] for key in (*same, "lab", "sampled", "by")},
            "coverage_ratio": own.coverage_ratio,
            "lost_records": own.lost_records,
            "unmatched": own.unmatched,
            "capabilities": totals.capabilities,
            "cost": cost | {"probes_cpu_share": own.probes_cpu_share},
            "warnings": [
                f"lost {n} records of {ring.replace('_', ' ')}: their ring buffer was "
                "full, so rows of the sample may be missing; histograms count all"
                for ring, n in own.lost_records.items()
                if n
            ],
        }


def _none() -> defaultdict[tuple[Group, Quantity], CoarseHistogram]:
    return defaultdict(CoarseHistogram)
