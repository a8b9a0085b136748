"""The report of files that hold latencies alone, without stamps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.csv_cells import guarded
from latprof_analysis.fit.rounds import Floats
from latprof_analysis.fit.wire import Packets
from latprof_analysis.read.result import Samples
from latprof_analysis.report.answer import fit_text
from latprof_analysis.report.fit import fit_parts, size_figure
from latprof_analysis.report.groups import sizes_figure
from latprof_analysis.report.loss_parts import loss_model_parts
from latprof_analysis.report.parts import (
    Cell,
    Figure,
    Fold,
    Missing,
    Part,
    Section,
    Table,
    Text,
)
from latprof_analysis.report.percentile_tables import (
    SHOWN,
    percentile_cells,
    percentile_table,
)
from latprof_analysis.report.tails import (
    mode_parts,
    pieces_figure,
    sample_ccdf_figure,
)
from latprof_analysis.report.time import (
    BY_PLACE,
    Series,
    level_parts,
    level_rows,
    time_figure,
)
from latprof_analysis.report.transfers import COLUMNS, JITTER, TITLE, transfer_rows
from latprof_analysis.report.words import bytes_text, duration_text, number
from latprof_analysis.study.analysis import Study
from latprof_analysis.study.messages import above_usual
from latprof_analysis.study.samples import size_groups

_MOST_KINDS = 6
_MOST_ROWS = 60
_NO_SIZE = "not told"


def sample_sections(study: Study) -> list[Section]:
    """Lay out what can be said of latencies alone."""
    assert study.samples is not None
    frame, each = study.samples.frame, _each(study.samples)
    what = str(study.document.get("latency") or "latency")
    no_stages = Missing("Stages", "these files hold latencies, and no stamps of stages")
    return [
        Section("stages", "Where the time goes", [no_stages]),
        Section("transfers", "What was transferred", _transfers(study)),
        Section("sizes", "Latency by kind and size", _sizes(study, frame, what)),
        Section("fit", "Fit: D = aS + b", _fits(study, each)),
        Section(
            "distribution",
            "Distribution",
            _tails(each, what, _found(study)),
        ),
        Section("time", "In the order of the file", _order(each, _found(study))),
        Section("loss", "Loss", [_losses(frame), *_loss_models(study)]),
    ]


def _transfers(study: Study) -> list[Part]:
    rows: list[list[str | Cell]] = [[*row] for row in transfer_rows(study.document)]
    return [Table(TITLE, ["direction", *COLUMNS], rows, JITTER)] if rows else []


def sample_picture(study: Study) -> Figure | None:
    """Draw how many latencies took at least how long; none of statistics alone."""
    if study.samples is None:
        return None
    groups = {kind: _latency(of) for kind, of in _kinds(_each(study.samples)).items()}
    return sample_ccdf_figure(groups, "latency") if groups else None


def _each(samples: Samples) -> pd.DataFrame:
    """Return the single latencies that are any."""
    frame = samples.frame
    each = frame[(frame["statistic"] == "each") & ~frame["lost"]]
    return each[np.isfinite(each["latency_ns"]) & (each["latency_ns"] >= 0)]


def _found(study: Study) -> dict[str, dict[str, Any]]:
    """Return the findings by kind, under the names that the report has for kinds."""
    kinds = (study.document.get("samples") or {}).get("kinds") or {}
    return {guarded(str(kind)): figures for kind, figures in kinds.items()}


def _kinds(each: pd.DataFrame) -> dict[str, pd.DataFrame]:
    counts = each["kind"].value_counts()
    names = list(counts[counts > 0].index[:_MOST_KINDS])
    return {guarded(str(name)): each[each["kind"] == name] for name in names}


def _latency(rows: pd.DataFrame) -> Floats:
    values: Floats = rows["latency_ns"].to_numpy("float64")
    return values


def _sizes(study: Study, frame: pd.DataFrame, what: str) -> list[Part]:
    rows = [
        [
            kind,
            f"{size} B" if size[0].isdigit() else size,
            *percentile_cells(figures),
            duration_text(figures["max_ns"]),
            number(figures["n"]),
        ]
        for kind, found in _found(study).items()
        for size, figures in (found.get("sizes") or {}).items()
        if figures["n"]
    ]
    parts: list[Part] = []
    if rows:
        title = f"Latency by kind and size{_first(rows)}"
        note = f"{what}. 95% intervals, for latencies that do not depend on each other."
        columns = ["kind", "size", *SHOWN, "slowest", "n"]
        parts.append(percentile_table(title, columns, rows[:_MOST_ROWS], note))
    parts += _given(frame[frame["statistic"] != "each"])
    return parts or [Missing("Latency", "no row holds one")]


def _first(rows: list[Any]) -> str:
    if len(rows) <= _MOST_ROWS:
        return ""
    return f", the first {_MOST_ROWS} of {number(len(rows))}"


def _given(given: pd.DataFrame) -> list[Part]:
    if given.empty:
        return []
    rows = []
    for row in given.itertuples():
        value = None if pd.isna(row.latency_ns) else float(row.latency_ns)
        size = _NO_SIZE if pd.isna(row.size_bytes) else bytes_text(row.size_bytes)
        count = "not told" if pd.isna(row.count) else number(row.count)
        what = str(row.statistic)
        rows.append([str(row.kind), size, what, duration_text(value), count])
    columns = ["kind", "size", "statistic", "value", "n"]
    title = f"What the files give instead of single latencies{_first(rows)}"
    note = "As the files have them; they tell no interval."
    return [Table(title, columns, rows[:_MOST_ROWS], note)]


def _fits(study: Study, each: pd.DataFrame) -> list[Part]:
    told = _found(study)
    parts: list[Part] = []
    for kind, rows in _kinds(each).items():
        fit = (told.get(kind) or {}).get("fit") or {}
        sized = rows[rows["size_bytes"].notna()]
        if "model" in fit:
            parts += fit_text(kind, fit)
            parts += fit_parts(kind, _as_trips(sized), fit, Packets())
            continue
        reason = str(fit.get("reason") or "a line needs latencies of several sizes")
        parts.append(Missing(f"Fit of {kind}", reason))
        if sized["size_bytes"].nunique() > 1:
            sizes = sized["size_bytes"].to_numpy("float64")
            parts.append(size_figure(kind, sizes, _latency(sized), fit))
    return parts or [Missing("Fit", "a line needs single latencies of several sizes")]


def _as_trips(rows: pd.DataFrame) -> pd.DataFrame:
    """Return latencies as round trips, in the order of the file."""
    columns = {"size_bytes": rows["size_bytes"], "rtt_ns": rows["latency_ns"]}
    return pd.DataFrame(columns | {"sent_ns": np.arange(len(rows))})


def _tails(
    each: pd.DataFrame, what: str, found: dict[str, dict[str, Any]]
) -> list[Part]:
    kinds = _kinds(each)
    if not kinds:
        return [Missing("Distributions", "these files hold no single latencies")]
    groups = {kind: _latency(rows) for kind, rows in kinds.items()}
    parts: list[Part] = []
    for i, (kind, values) in enumerate(groups.items()):
        figures = found.get(kind) or {}
        parts.append(pieces_figure(kind, values, "latency"))
        more = mode_parts(kind, figures.get("tail"), "latency")
        more += sizes_figure(kind, figures.get("sizes") or {}, "latency")
        parts += [Fold(f"{kind}: modes and sizes", more)] if i and more else more
    return parts


def _order(each: pd.DataFrame, found: dict[str, dict[str, Any]]) -> list[Part]:
    kinds = _kinds(each)
    if not kinds:
        return []
    series = {
        kind: Series(
            np.arange(1.0, len(rows) + 1),
            above_usual(pd.Series(size_groups(rows["size_bytes"])[1]), _latency(rows)),
            _latency(rows),
        )
        for kind, rows in kinds.items()
    }
    levels = {kind: found.get(kind) for kind in series}
    rows = {kind: level_rows(figures) for kind, figures in levels.items()}
    return [time_figure(series, "latency", rows, BY_PLACE), *level_parts(levels)]


def _loss_models(study: Study) -> list[Part]:
    losses = {kind: figures.get("loss") for kind, figures in _found(study).items()}
    lost = {kind: loss for kind, loss in losses.items() if loss and loss["model"]}
    return loss_model_parts(lost)


def _losses(frame: pd.DataFrame) -> Part:
    lost = frame.groupby("kind", observed=True)["lost"].agg(["sum", "size"])
    if not int(lost["sum"].sum()):
        return Text(f"None of {number(len(frame))} rows is marked as lost.")
    rows = [
        [str(kind), number(row["sum"]), number(row["size"])]
        for kind, row in lost.iterrows()
    ]
    return Table("Lost, by kind", ["kind", "lost", "of"], rows)
