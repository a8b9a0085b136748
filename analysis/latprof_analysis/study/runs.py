"""The study of run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from latprof_analysis.readers.run_folder import Runs, read_runs
from latprof_analysis.run_figures import one_way
from latprof_analysis.run_setup import RunSetup, common_setup, setup_of
from latprof_analysis.stages import BLANK
from latprof_analysis.study import Study
from latprof_analysis.study.messages import message_figures
from latprof_analysis.study.round_trips import trip_figures
from latprof_analysis.totals import MessageTotals

# What must be alike for one line to be of one thing.
_FOR_A_FIT = ("reply_mode", "link")
# What the report shows of each run as the run told it.
_TOLD_BY_A_RUN = (
    "records",
    "lost_records",
    "counters",
    "unmatched",
    "link_counters",
    "hidden_from_tracing",
    "capabilities",
    "cost",
)


def study_runs(paths: list[Path], *, thorough: bool) -> Study:
    """Read run folders and say what they hold; arguments as of `analyze`."""
    runs = read_runs(paths)
    notes = list(runs.notes)
    setups = _setups(runs, notes)
    setup, differences = common_setup(setups)
    one_thing = not any(d.startswith(_FOR_A_FIT) for d in differences)
    told = len(setups) == len(runs.documents) and one_thing
    run = next(iter(runs.documents.values())).get("run") if told else None
    totals = MessageTotals()
    totals.add(_FrameRows(runs.messages))
    kinds = totals.as_dict()
    trips = trip_figures(runs.round_trips, setup, run, thorough=thorough)
    document = {
        "format": 1,
        "runs": {name: _run(runs, name, setups.get(name)) for name in runs.documents},
        "differences": differences,
        "workload": run and run.get("workload"),
        "lab": run and run.get("lab"),
        "known": run and (run.get("lab") or {}).get("known"),
        "kinds": kinds,
        "one_way": one_way(kinds, run and run.get("lab")),
        "round_trips": trips,
        "fit": next((t["fit"] for t in trips.values() if t["fit"]), None),
        "warmup_messages": totals.warmup,
        "missing_stamps": {k: v for k, v in totals.missing.items() if v},
        "stamps_backwards": totals.backwards,
        **message_figures(runs.messages, setup, thorough=thorough),
        "slowest": totals.slowest,
        "notes": notes,
        "skipped_rows": runs.skipped_rows,
        "skipped": [str(row) for row in runs.skipped],
    }
    document["warnings"] = _warnings(runs, differences, one_thing)
    return Study(document, runs.messages, runs.round_trips)


def _setups(runs: Runs, notes: list[str]) -> dict[str, RunSetup]:
    """How each run was made, as far as its run.json tells it."""
    found = {}
    for name, documents in runs.documents.items():
        try:
            found[name] = setup_of(documents["run"])
        except KeyError:
            pass  # noted by the reader
        except ValueError as error:
            notes.append(f"{name}: {error}; no fit of its round trips")
    return found


def _run(runs: Runs, name: str, setup: RunSetup | None) -> dict[str, Any]:
    run = runs.documents[name].get("run", {})
    summary = runs.documents[name].get("summary", {})
    return {
        **{key: summary[key] for key in _TOLD_BY_A_RUN if key in summary},
        "clock": str(run.get("clock", "")),
        "host": setup.host if setup else "",
        "kernel": setup.kernel if setup else "",
        "state": str(run.get("state", "not told")),
        "messages": int((runs.messages["run"] == name).sum()),
        "round_trips": int((runs.round_trips["run"] == name).sum()),
    }


def _warnings(runs: Runs, differences: list[str], one_thing: bool) -> list[str]:
    """What runs said of themselves, and what stands against taking them together."""
    found = []
    for name, documents in runs.documents.items():
        told = documents.get("summary", {}).get("warnings", [])
        found += [f"{name}: {warning}" for warning in told]
    if not one_thing:
        found.append(
            "no fit over all runs, since they differ in what a line depends on "
            f"({'; '.join(differences)}): analyze them one by one"
        )
    return found


class _FrameRows:
    """Interim."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        self.numbers = {}
        self.texts = {}
        for name in frame.columns:
            if isinstance(frame[name].dtype, pd.CategoricalDtype):
                cat = frame[name].cat
                self.texts[name] = cat.codes.to_numpy("int32"), list(cat.categories)
            else:
                self.numbers[name] = frame[name].to_numpy("int64", na_value=BLANK)

    def __len__(self) -> int:
        return len(self.frame)

    def row(self, i: int) -> dict[str, Any]:
        row = self.frame.iloc[i]
        return {
            k: None if pd.isna(v) else (v if isinstance(v, str) else int(v))
            for k, v in row.items()
        }
