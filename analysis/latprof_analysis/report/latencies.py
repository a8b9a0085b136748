"""The report of files that hold latencies alone, without stamps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.csv_cells import guarded
from latprof_analysis.fit.wire import Packets
from latprof_analysis.read.result import Losses, Samples
from latprof_analysis.report.answer import fit_text
from latprof_analysis.report.fit import fit_parts, size_figure, size_points
from latprof_analysis.report.groups import sizes_figure
from latprof_analysis.report.loss_parts import loss_model_parts
from latprof_analysis.report.parts import (
    Figure,
    Fold,
    Missing,
    Part,
    Section,
    Table,
    Text,
)
from latprof_analysis.report.percentile_tables import SHOWN, Row, percentile_table
from latprof_analysis.report.stage_parts import floats
from latprof_analysis.report.tables import bucket_parts, transfer_parts
from latprof_analysis.report.tails import mode_parts, pieces_figure, sample_ccdf_figure
from latprof_analysis.report.time import BY_PLACE, level_parts, level_rows, time_figure
from latprof_analysis.report.words import bytes_text, duration_text, number
from latprof_analysis.study.analysis import Study
from latprof_analysis.study.messages import above_usual
from latprof_analysis.study.samples import size_groups

_MOST_KINDS = 6
_MOST_ROWS = 60
_NO_SIZE = "not told"
_Kinds = Mapping[str, pd.DataFrame]
_Figures = Mapping[str, dict[str, Any]]


def sample_sections(study: Study) -> list[Section]:
    """Lay out what can be said of latencies alone."""
    assert study.samples is not None
    frame, kinds = study.samples.frame, _kinds(study.samples)
    # under the names that the report has for kinds
    found = (study.document.get("samples") or {}).get("kinds") or {}
    by_kind = {guarded(str(kind)): figures for kind, figures in found.items()}
    what = str(study.document.get("latency") or "latency")
    given = frame[frame["statistic"] != "each"]
    sizes = [*_sizes(by_kind, what), *bucket_parts(found), *_given(given)]
    losses = {kind: figures.get("loss") for kind, figures in by_kind.items()}
    lost = {kind: loss for kind, loss in losses.items() if loss and loss["model"]}
    no_stages = Missing("Stages", "these files hold latencies, and no stamps of stages")
    sizes = sizes or [Missing("Latency", "no row holds one")]
    return [
        Section("stages", "Where the time goes", [no_stages]),
        Section("transfers", "What was transferred", transfer_parts(study.document)),
        Section("sizes", "Latency by kind and size", sizes),
        Section("fit", "Fit: D = aS + b", _fits(kinds, by_kind)),
        Section("distribution", "Distribution", _tails(kinds, by_kind)),
        Section("time", "In the order of the file", _order(kinds, by_kind)),
        Section(
            "loss", "Loss", [_losses(study.samples.losses), *loss_model_parts(lost)]
        ),
    ]


def sample_picture(study: Study) -> Figure | None:
    """Draw how many latencies took at least how long; none of statistics alone."""
    kinds = {} if study.samples is None else _kinds(study.samples)
    groups = {kind: floats(rows["latency_ns"]) for kind, rows in kinds.items()}
    return sample_ccdf_figure(groups, "latency") if groups else None


def _kinds(samples: Samples) -> _Kinds:
    """Return the single latencies that are any, of the most frequent kinds."""
    frame = samples.frame
    each = frame[(frame["statistic"] == "each") & ~frame["lost"]]
    each = each[np.isfinite(each["latency_ns"]) & (each["latency_ns"] >= 0)]
    counts = each["kind"].value_counts()
    names = list(counts[counts > 0].index[:_MOST_KINDS])
    return {guarded(str(name)): each[each["kind"] == name] for name in names}


def _sizes(by_kind: _Figures, what: str) -> list[Part]:
    rows: list[Row] = [
        ([kind, f"{size} B" if size[0].isdigit() else size], figures, None)
        for kind, found in by_kind.items()
        for size, figures in (found.get("sizes") or {}).items()
        if figures["n"]
    ]
    title = f"Latency by kind and size{_first(rows)}"
    note = f"{what}. 95% intervals, for latencies that do not depend on each other."
    columns = ["kind", "size", *SHOWN, "slowest", "n"]
    table = percentile_table(title, columns, rows[:_MOST_ROWS], note)
    return [table] if rows else []


def _first(rows: Sequence[Any]) -> str:
    if len(rows) <= _MOST_ROWS:
        return ""
    return f", the first {_MOST_ROWS} of {number(len(rows))}"


def _given(given: pd.DataFrame) -> list[Part]:
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
    return [Table(title, columns, rows[:_MOST_ROWS], note)] if rows else []


def _fits(kinds: _Kinds, by_kind: _Figures) -> list[Part]:
    parts: list[Part] = []
    for kind, rows in kinds.items():
        fit = by_kind.get(kind, {}).get("fit") or {}
        sized = rows[rows["size_bytes"].notna()]
        if "model" in fit:
            # as round trips, in the order of the file
            trips = sized.rename(columns={"latency_ns": "rtt_ns"})
            trips = trips.assign(sent_ns=np.arange(len(trips)))
            parts += fit_text(kind, fit)
            parts += fit_parts(kind, trips, fit, Packets())
            continue
        reason = str(fit.get("reason") or "a line needs latencies of several sizes")
        parts.append(Missing(f"Fit of {kind}", reason))
        if sized["size_bytes"].nunique() > 1:
            sizes = floats(sized["size_bytes"])
            parts.append(
                size_figure(kind, size_points(sizes, floats(sized["latency_ns"])), fit)
            )
    return parts or [Missing("Fit", "a line needs single latencies of several sizes")]


def _tails(kinds: _Kinds, by_kind: _Figures) -> list[Part]:
    parts: list[Part] = []
    for kind, rows in kinds.items():
        figures = by_kind.get(kind, {})
        more = mode_parts(kind, figures.get("tail"), "latency")
        more += sizes_figure(kind, figures.get("sizes") or {}, "latency")
        folded = [Fold(f"{kind}: modes and sizes", more)] if parts and more else more
        parts += [pieces_figure(kind, floats(rows["latency_ns"]), "latency"), *folded]
    return parts or [Missing("Distributions", "these files hold no single latencies")]


def _order(kinds: _Kinds, by_kind: _Figures) -> list[Part]:
    if not kinds:
        return []
    series = {}
    for kind, rows in kinds.items():
        latency = floats(rows["latency_ns"])
        above = above_usual(pd.Series(size_groups(rows["size_bytes"])[1]), latency)
        series[kind] = pd.DataFrame({"above_ns": above, "latency_ns": latency})
        series[kind]["t_s"] = np.arange(1.0, len(rows) + 1)
    levels = {kind: by_kind.get(kind) for kind in kinds}
    marks = {kind: level_rows(figures) for kind, figures in levels.items()}
    return [time_figure(series, "latency", marks, BY_PLACE), *level_parts(levels)]


def _losses(losses: Mapping[str, Losses]) -> Part:
    if not losses:
        return Missing("Lost", "these files do not say what was lost")
    if not any(each.lost for each in losses.values()):
        return Text(f"None of {number(sum(o.sent for o in losses.values()))} was lost.")
    rows = [[k, number(each.lost), number(each.sent)] for k, each in losses.items()]
    return Table("Lost, by kind", ["kind", "lost", "of"], rows)
