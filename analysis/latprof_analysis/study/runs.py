"""The study of run folders, and of the histograms of what was watched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from latprof_analysis.read.operations_csv import read_operations
from latprof_analysis.read.paths import TABLES
from latprof_analysis.read.rows import Rows
from latprof_analysis.read.run_folder import read_documents, read_histograms
from latprof_analysis.read.stories import stories_of_runs
from latprof_analysis.stages import BLANK, LOADED
from latprof_analysis.stats.kernel_histogram import CoarseHistogram
from latprof_analysis.study.analysis import Study
from latprof_analysis.study.bulk import bulk_document
from latprof_analysis.study.findings import Effort, kinds_with_intervals
from latprof_analysis.study.messages import message_figures
from latprof_analysis.study.operations import operation_figures
from latprof_analysis.study.round_trips import trip_figures
from latprof_analysis.study.run_figures import one_way
from latprof_analysis.study.scan import Progress, Scan, rows_of, scan_runs
from latprof_analysis.study.setup import RunSetup, common_setup, setup_of
from latprof_analysis.study.totals import PERCENTILES
from latprof_analysis.study.ways import with_ends, with_ways

# By group, busiest first, then by quantity.
Figures = dict[str, dict[str, dict[str, Any]]]


def histogram_figures(paths: list[Path], notes: list[str]) -> Figures:
    """Return n, mean and percentiles in ns; None where there are too few for one.

    Of all folders together. A percentile is the middle of its bucket, which is at
    most 3.2% wide.
    """
    found: Figures = {}
    for (group, quantity), histogram in read_histograms(paths, notes).items():
        found.setdefault(group, {})[quantity] = _figures(histogram)
    busiest = sorted(found, key=lambda group: -_most(found[group]))
    return {group: found[group] for group in busiest}


def _figures(histogram: CoarseHistogram) -> dict[str, Any]:
    n = histogram.count
    quantiles = {name: histogram.quantile(p) for name, p in PERCENTILES.items()}
    return {
        "n": n,
        "mean_ns": histogram.sum_ns / n if n else None,
        **{f"{k}_ns": None if q is None else round(q) for k, q in quantiles.items()},
    }


def _most(quantities: dict[str, dict[str, Any]]) -> int:
    return max(int(figures["n"]) for figures in quantities.values())


def sampled_notes(documents: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say of which runs the rows are a sample."""
    return [
        f"{name}: its messages and exchanges are a sample of what was watched; the"
        " histograms count all of it, and are what to take percentiles from"
        for name, parts in documents.items()
        if parts.get("run", {}).get("sampled")
    ]


# What must be alike for one line to be of one thing.
_FOR_A_FIT = ("reply_mode", "link")
# Fields that the report shows of each run as they are in its summary.
_OF_A_RUN = (
    "records",
    "lost_records",
    "counters",
    "unmatched",
    "no_exchange",
    "no_exchange_bytes",
    "least_responses_ns",
    "in_flight_bytes",
    "unanswered",
    "handshakes",
    "unread_at_close",
    "path_devices",
    "link_counters",
    "untraced_time",
    "capabilities",
    "cost",
    "hosts",
    "clocks",
)


# What makes a set-up, of run.json: the same from any host, at any time.
_SETUP = {
    "workload": ("plan", "ops", "mesh", "bulk", "command", "server_command"),
    "lab": ("known", "settings"),
}


def by_setup(paths: list[Path]) -> list[list[Path]]:
    """Put runs of the same set-up together, in the order of the first of each.

    Those whose set-up is not known are one group.
    """
    groups: dict[str, list[Path]] = {}
    for path in paths:
        run = read_documents(path, "", []).get("run", {}) if path.is_dir() else {}
        key = json.dumps([_parts(run, name) for name in _SETUP], sort_keys=True)
        groups.setdefault(key, []).append(path)
    return list(groups.values())


def _parts(run: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the set-up in a part of run.json, where that is whole.

    A plan's seed differs between repeats, which are of one set-up.
    """
    part = run.get(name)
    known = part if isinstance(part, dict) else {}
    return {key: _without_seed(known.get(key) or None) for key in _SETUP[name]}


def _without_seed(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    return {key: value for key, value in part.items() if key != "seed"}


def study_setups(
    paths: list[Path],
    *,
    effort: Effort,
    stories: bool = False,
    progress: Progress | None = None,
    dask: str | None = None,
) -> Study:
    """Study run folders; those of different set-ups each by themselves."""
    groups = by_setup(paths) if len(paths) > 1 else [paths]
    studies = [
        study_runs(group, effort=effort, stories=stories, progress=progress, dask=dask)
        for group in groups
    ]
    if len(studies) == 1:
        return studies[0]
    note = (
        f"runs of {len(studies)} set-ups, each studied by itself; --pool takes them"
        " together"
    )
    document = {
        "format": 1,
        "setups": [study.document for study in studies],
        "notes": [note],
        "warnings": [],
        "skipped_rows": 0,
        "skipped": [],
    }
    return Study(document, setups=studies)


def study_runs(
    paths: list[Path],
    *,
    effort: Effort,
    stories: bool = False,
    progress: Progress | None = None,
    dask: str | None = None,
) -> Study:
    """Read run folders and say what they hold; arguments as of `analyze`."""
    scan = scan_runs(paths, progress=progress, dask=dask)
    messages, stretch, slow = (
        with_ends(scan.rows[name], scan.messages.level)
        for name in ("messages", "stretch", "slow_messages")
    )
    notes = [*scan.notes, *sampled_notes(scan.documents)]
    setups = _setups(scan, notes)
    setup, differences = common_setup(setups)
    one_thing = not any(d.startswith(_FOR_A_FIT) for d in differences)
    alike = one_thing and len(setups) == len(scan.documents)
    run = next(iter(scan.documents.values()), {}).get("run") if alike else None
    kinds, thinned = kinds_with_intervals(scan.messages), _thinned(scan)
    trips = trip_figures(scan, setup, run, effort=effort)
    meshes = _said(scan, "mesh")
    document = {
        "format": 1,
        "runs": {name: _run(scan, name, setups.get(name)) for name in scan.documents},
        "differences": differences,
        "workload": _workload(run or {}),
        "lab": run and run.get("lab"),
        "known": run and (run.get("lab") or {}).get("known"),
        "mesh": next(iter(meshes.values()), None) if len(scan.documents) == 1 else None,
        "meshes": meshes if len(scan.documents) > 1 else {},
        "exchanges": scan.exchanges.as_dict(),
        "kinds": kinds,
        "time_warp": scan.messages.time_warp(),
        "one_way": one_way(kinds, run and run.get("lab")),
        "round_trips": trips,
        "fit": next((t["fit"] for t in trips.values() if t["fit"]), None),
        "loggp": next((t["loggp"] for t in trips.values() if t["loggp"]), None),
        "slowest": scan.messages.slowest,
        "histograms": histogram_figures(paths, notes),
        "warmup_messages": scan.messages.warmup,
        "train_messages": scan.messages.trains,
        "loaded_messages": scan.messages.loaded,
        "warmup_exchanges": scan.exchanges.warmup,
        "missing_stamps": {k: v for k, v in scan.messages.missing.items() if v},
        "stamps_backwards": scan.messages.backwards + scan.exchanges.backwards,
        "thinned": thinned or None,
        **message_figures(
            messages,
            stretch,
            scan.lost,
            setup,
            effort=effort,
            every=_every(thinned),
        ),
        "notes": notes,
        "skipped_rows": scan.skipped_rows,
        "skipped": [str(row) for row in scan.skipped],
    }
    document |= _own_sections(scan, paths, notes)
    document["warnings"] = _warnings(scan, differences, one_thing)
    level = scan.exchanges.level
    rows = {
        "messages": messages,
        "round_trips": _alone(scan.rows["round_trips"]),
        "slow_messages": slow,
        "exchanges": with_ways(scan.rows["exchanges"], level),
        "slow_exchanges": with_ways(scan.rows["slow_exchanges"], level),
    }
    why = stories_of_runs(paths, notes) if stories else None
    return Study(document, rows, stories=why)


def _own_sections(scan: Scan, paths: list[Path], notes: list[str]) -> dict[str, Any]:
    """Return what workloads of their own say, of all runs that were read.

    Operations are taken together, each single one being there. Transfers and what a
    load adds are shown of each run, by its name where there are several.
    """
    found: dict[str, Any] = {}
    if (operations := read_operations(paths, notes)) is not None:
        found["ops"] = operation_figures(operations) | {"remarks": _remarks(scan)}
    if (transfers := _transfers(scan)) is not None:
        found["bulk"] = bulk_document(transfers)
    if load := _load(scan):
        found["load"] = load
    return found


def _said(scan: Scan, section: str) -> dict[str, Any]:
    """Return by run a section that its summary.json has."""
    summaries = {
        name: documents.get("summary", {}) for name, documents in scan.documents.items()
    }
    return {name: one[section] for name, one in summaries.items() if one.get(section)}


def _remarks(scan: Scan) -> list[str]:
    """Return what runs say of their operations, with the name of each of several."""
    n = len(scan.documents)
    together = [f"operations of {n} runs are taken together"] if n > 1 else []
    return together + [
        f"run {name}: {remark}" if together else remark
        for name, one in _said(scan, "ops").items()
        for remark in one.get("remarks", ())
    ]


def _transfers(scan: Scan) -> list[dict[str, Any]] | None:
    """Return the parts and searches of all runs; None where no run was to have any."""
    mark = len(scan.documents) > 1
    workloads = {
        name: (documents.get("run", {}).get("workload") or {})
        for name, documents in scan.documents.items()
    }
    if not any(workload.get("bulk") for workload in workloads.values()):
        return None
    return [
        {
            key: documents | ({"run": name} if mark else {})
            for key, documents in one.items()
        }
        for name, workload in workloads.items()
        for run in workload.get("runs", ())
        if (one := {key: run[key] for key in ("bulk", "search") if key in run})
    ]


def _load(scan: Scan) -> dict[str, Any] | None:
    """Return what runs reported of their load; of several each protocol of each run."""
    loads = _said(scan, "load")
    if len(scan.documents) == 1:
        return next(iter(loads.values()), None)
    if not loads:
        return None
    rates = {load["rate_bps"] for load in loads.values()}
    return {
        "asked": list(
            dict.fromkeys(one for of in loads.values() for one in of["asked"])
        ),
        "open_loop": all(load["open_loop"] for load in loads.values()),
        "rate_bps": rates.pop() if len(rates) == 1 else None,
        "protocols": {
            f"{protocol}, run {name}": figures
            for name, load in loads.items()
            for protocol, figures in load["protocols"].items()
        },
    }


def _alone(rows: Rows) -> Rows:
    """Return the round trips that are no part of a train, and beside no load."""
    kept = (rows.numbers["train"] == BLANK) & ~rows.are("phase", LOADED)
    return rows if kept.all() else rows.take(np.flatnonzero(kept))


def _workload(run: Mapping[str, Any]) -> Any:
    """What was run, where run.json is whole in that."""
    found = run.get("workload") or {}
    if not {"plan", "command"} <= found.keys():
        return None
    own = any(map(found.get, ("plan", "ops", "mesh", "bulk")))
    known = own or any(found["command"])
    return found if known or (found.get("attached") and "runs" in found) else None


def _every(thinned: dict[str, Any]) -> int:
    """Of how many messages one was kept."""
    messages = thinned.get("messages")
    return max(2, round(messages["of"] / messages["drawn"])) if messages else 1


def _thinned(scan: Scan) -> dict[str, Any]:
    """Of how many rows those are drawn from which tails and fits of stages come."""
    found = {}
    for table in TABLES:
        rows = scan.rows[table]
        count = rows_of(scan.row_counts, table)
        if len(rows) < count:
            found[table] = {"drawn": len(rows), "of": count}
    if "messages" in found:
        found["messages"]["without_gaps"] = len(scan.rows["stretch"])
    return found


def _setups(scan: Scan, notes: list[str]) -> dict[str, RunSetup]:
    """How each run was made, as far as its run.json says it."""
    found = {}
    for name, documents in scan.documents.items():
        try:
            found[name] = setup_of(documents["run"])
        except KeyError:
            pass  # noted by the reader
        except ValueError as error:
            notes.append(f"{name}: {error}; no fit of its round trips")
    return found


def _run(scan: Scan, name: str, setup: RunSetup | None) -> dict[str, Any]:
    run = scan.documents[name].get("run", {})
    summary = scan.documents[name].get("summary", {})
    return {
        **{key: summary[key] for key in _OF_A_RUN if key in summary},
        "name": str(run.get("name", "")),
        "clock": str(run.get("clock", "")),
        "host": setup.host if setup else "",
        "kernel": setup.kernel if setup else "",
        "state": str(run.get("state", "not told")),
        "messages": scan.row_counts.get((name, "messages"), 0),
        "round_trips": scan.row_counts.get((name, "round_trips"), 0),
        "exchanges": scan.row_counts.get((name, "exchanges"), 0),
    }


def _warnings(scan: Scan, differences: list[str], one_thing: bool) -> list[str]:
    """What runs said of themselves, and what stands against taking them together."""
    found = []
    for name, documents in scan.documents.items():
        own = documents.get("summary", {}).get("warnings", [])
        found += [f"{name}: {warning}" for warning in own]
    if not one_thing:
        found.append(
            "no fit over all runs, since they differ in what a line depends on "
            f"({'; '.join(differences)}): analyze them one by one"
        )
    return found
