"""A study -> the parts of its report, in the order in which a reader asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.fit.rounds import Floats
from latprof_analysis.read.result import concatenated
from latprof_analysis.report.answer import answer, fit_text, link_parts
from latprof_analysis.report.exchanges import exchange_sections
from latprof_analysis.report.fit import fit_parts
from latprof_analysis.report.groups import group_parts, queue_figure
from latprof_analysis.report.key_figures import key_figures
from latprof_analysis.report.latencies import sample_picture, sample_sections
from latprof_analysis.report.loss_parts import loss_groups, loss_model_parts, loss_parts
from latprof_analysis.report.parts import (
    Cell,
    Fold,
    Items,
    Missing,
    Part,
    Report,
    Section,
    Table,
    Text,
)
from latprof_analysis.report.percentile_tables import (
    SHOWN,
    percentile_cells,
    percentile_table,
)
from latprof_analysis.report.picture import first_picture
from latprof_analysis.report.sentences import run_name, setup_title
from latprof_analysis.report.setting import notes_parts, setting_parts
from latprof_analysis.report.setups import one_report
from latprof_analysis.report.slowest import slowest_parts
from latprof_analysis.report.stage_parts import by_percentile, by_size, stage_table
from latprof_analysis.report.tails import ccdf_figure, mode_parts, pieces_figure
from latprof_analysis.report.time import (
    Series,
    level_parts,
    level_rows,
    time_figure,
)
from latprof_analysis.report.words import duration_text, legible, listed, number
from latprof_analysis.study.analysis import Study
from latprof_analysis.study.findings import since_first_read
from latprof_analysis.study.messages import above_usual
from latprof_analysis.study.setup import packets_of
from latprof_analysis.text import printable

# More kinds of messages than this are named, not drawn.
_MOST_KINDS = 4


_OPEN = 3  # groups shown at once
_NOTE = (
    "Each message, exchange or sample of this group was counted. A percentile is the"
    " middle of its bucket, at most 3.2% wide."
)


def build_report(study: Study, title: str) -> Report:
    """Lay out a study as a report; `title` names what was read."""
    if study.setups:
        parts = [build_report(each, _runs_of(each.document)) for each in study.setups]
        return one_report(printable(title), parts, study.document["notes"])
    study = legible(study)
    document = study.document
    kinds = dict(whole_messages(study.messages))
    drawn = dict(list(kinds.items())[:_MOST_KINDS])
    exchanges = exchange_sections(study)
    own = bool(document.get("round_trips"))
    sections = [
        Section("traffic", "All traffic", traffic_parts(document)),
        *(exchanges if not own else []),
        *_message_sections(study, drawn),
        Section("loss", "Loss", _losses(document)),
        Section(
            "slowest",
            "Slowest message",
            slowest_parts(_slowest(study, kinds), document.get("lab")),
        ),
        Section("queue", "Queue at arrival", _queues(drawn), folded=True),
        # of our own generator they say again what its messages and round trips do
        *(replace(section, folded=True) for section in exchanges if own),
        Section("setting", "How it was measured", setting_parts(document), folded=True),
        Section("notes", "What was left out", _notes(study, kinds)),
    ]
    if study.samples is not None:
        sections = [*sample_sections(study), *sections[-2:]]
    return Report(
        title=printable(title),
        subtitle=_subtitle(study, kinds),
        answer=answer(document),
        key_figures=key_figures(document),
        sections=_untold_last(sections),
        warnings=[str(warning) for warning in document.get("warnings") or ()],
        picture=first_picture(document) or sample_picture(study),
    )


def _runs_of(document: dict[str, Any]) -> str:
    names = [run_name(folder, run) for folder, run in document["runs"].items()]
    more = f" and {len(names) - 4} more" if names[4:] else ""
    title = f"{', '.join(names[:4])}{more}"
    return f"{setup_title(document)} ({title})" if document["workload"] else title


def _untold_last(sections: list[Section]) -> list[Section]:
    """Move what cannot be told behind what was found; name its reasons there."""
    found = []
    untold: list[Missing] = []
    for section in sections:
        parts, missing = _split(section.parts)
        found.append(replace(section, parts=parts))
        untold += missing
    if untold:
        notes = found.pop()
        fold = Fold("What could not be told, and why", untold)
        found.append(replace(notes, parts=[*notes.parts, fold]))
    return [section for section in found if section.parts]


def _split(parts: Sequence[Part]) -> tuple[list[Part], list[Missing]]:
    """Return the parts that tell something, and those that say why not."""
    told: list[Part] = []
    untold: list[Missing] = []
    for part in parts:
        if isinstance(part, Missing):
            untold.append(part)
        elif isinstance(part, Fold):
            inner, missing = _split(part.parts)
            untold += missing
            told += [Fold(part.title, inner)] if inner else []
        else:
            told.append(part)
    return told, untold


def whole_messages(messages: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Give the messages that were seen from end to end, by kind, in order of time.

    The kinds are those of which there are most, requests before replies.
    """
    if messages.empty:
        return
    kept = messages["end_to_end_ns"].notna() & (messages["kind"] != "warmup")
    grouped = messages[kept].groupby(["protocol", "kind"], observed=True)
    frequent = grouped.size().nlargest(_MOST_KINDS).index
    left = grouped.size().index.difference(frequent)
    asked = sorted(frequent, key=lambda one: (one[0], one[1] == "reply", one[1]))
    for protocol, kind in [*asked, *left]:
        rows = grouped.get_group((protocol, kind))
        yield f"{protocol} {kind}", rows.sort_values(["run", "read_ns"], kind="stable")


def _latency(messages: pd.DataFrame) -> Floats:
    values: Floats = messages["end_to_end_ns"].to_numpy("float64")
    return values


def _message_sections(study: Study, kinds: dict[str, pd.DataFrame]) -> list[Section]:
    return [
        Section("stages", "Where the time goes", _stages(study, kinds)),
        Section("fit", "Fit: D = aS + b", _fits(study)),
        Section(
            "distribution",
            "Distribution",
            _tails(study.document, kinds),
        ),
        Section("time", "Over time", _time(study, kinds)),
    ]


def _stages(study: Study, kinds: dict[str, pd.DataFrame]) -> list[Part]:
    if not kinds:
        return [Missing("Stages", "no message was seen from end to end")]
    told = study.document.get("kinds") or {}
    thinned = bool(study.document.get("thinned"))

    def parts(kind: str, messages: pd.DataFrame) -> list[Part]:
        table = stage_table(kind, messages, told.get(kind), thinned=thinned)
        slow = Fold(f"{kind}, from fast to slow", [by_percentile(kind, messages)])
        return [table, by_size(kind, messages), slow]

    return _first_open({kind: parts(kind, rows) for kind, rows in kinds.items()})


def _first_open(by_kind: dict[str, list[Part]]) -> list[Part]:
    """Show the parts of the first kind; those of the others at a click."""
    (_, shown), *others = by_kind.items()
    folds = [Fold(kind, parts) for kind, parts in others]
    if len(folds) > 1:
        folds = [Fold(f"The same of {listed([kind for kind, _ in others])}", folds)]
    return [*shown, *folds]


def _fits(study: Study) -> list[Part]:
    told = study.document.get("round_trips") or {}
    link, caveats = _split_items(link_parts(study.document))
    by_protocol = {
        protocol: _fit(protocol, figures.get("fit") or {}, study)
        for protocol, figures in told.items()
    }
    if not by_protocol:
        reason = "there are no round trips: the runs had no generator"
        return [*link, Missing("Fit", reason), *caveats]
    return [*link, *_first_open(by_protocol), *caveats]


def _split_items(parts: list[Part]) -> tuple[list[Part], list[Part]]:
    """Fold what qualifies the link's figures."""
    items: list[Part] = [part for part in parts if isinstance(part, Items)]
    shown: list[Part] = [part for part in parts if not isinstance(part, Items)]
    return shown, [Fold("The link each way: what to know", items)] if items else []


def _fit(protocol: str, fit: dict[str, Any], study: Study) -> list[Part]:
    if "model" not in fit:
        reason = fit.get("reason") or (
            "no load generator tells how the responder answered, or the runs differ"
        )
        return [Missing(f"Fit of {protocol}", reason)]
    trips = study.round_trips
    if len(trips):
        trips = trips[(trips["protocol"] == protocol) & trips["rtt_ns"].notna()]
    if trips.empty:
        return [Missing(f"Fit of {protocol}", "no round trip was answered")]
    packets = packets_of(study.document.get("lab"), protocol)
    drawn, *left = fit_parts(protocol, trips, fit, packets)
    told = [*fit_text(protocol, fit), *left]
    return [drawn, Fold(f"{protocol}: figures of the fit, and what it leaves", told)]


def _tails(document: dict[str, Any], kinds: dict[str, pd.DataFrame]) -> list[Part]:
    if not kinds:
        return [Missing("Distributions", "no message was seen from end to end")]
    told, found = document.get("kinds") or {}, document.get("messages") or {}
    by_kind: dict[str, list[Part]] = {}
    for kind, messages in kinds.items():
        groups = group_parts(kind, told.get(kind))
        more = [
            pieces_figure(kind, _latency(messages), "end to end"),
            *mode_parts(kind, (found.get(kind) or {}).get("tail"), "end to end"),
            *groups[1:],
        ]
        by_kind[kind] = [
            ccdf_figure(kind, messages),
            *groups[:1],
            Fold(f"{kind}: body and tail, modes, groups", more),
        ]
    return _first_open(by_kind)


def _with_slow(study: Study, kinds: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Add the slowest messages, which a thinned study keeps apart."""
    if study.slow_messages.empty:
        return kinds
    every = concatenated([study.messages, study.slow_messages])
    whole = dict(whole_messages(every))
    return {kind: whole[kind] for kind in kinds}


def _time(study: Study, kinds: dict[str, pd.DataFrame]) -> list[Part]:
    found = study.document.get("messages") or {}
    series: dict[str, Series] = {}
    placed = set()
    for kind, messages in _with_slow(study, kinds).items():
        t_s = since_first_read(messages)
        latency = _latency(messages)
        above = above_usual(messages["size_bytes"].fillna(0), latency)
        timed = ~np.isnan(t_s)
        if timed.any():
            series[kind] = Series(t_s[timed], above[timed], latency[timed])
        if timed.all():
            placed.add(kind)
    if not series:
        return [Missing("Over time", "no message has the time at which it was read")]
    levels = {kind: found.get(kind) for kind in series}
    # elsewhere only the order of levels is known
    rows = {kind: level_rows(levels[kind]) for kind in series if kind in placed}
    return [time_figure(series, "end to end", rows), *level_parts(levels)]


def _losses(document: dict[str, Any]) -> list[Part]:
    return [*loss_parts(document), *loss_model_parts(loss_groups(document))]


def _queues(kinds: dict[str, pd.DataFrame]) -> list[Part]:
    by_kind: dict[str, list[Part]] = {}
    for kind, messages in kinds.items():
        rows = messages[["queue_bytes_at_arrival", "receive_queue_ns"]].dropna()
        queue, wait = (rows[name].to_numpy("float64") for name in rows)
        by_kind[kind] = (
            [queue_figure(kind, queue, wait)]
            if len(rows)
            else [Missing(f"{kind}: queue at arrival", "no message tells its queue")]
        )
    return _first_open(by_kind) if by_kind else []


def _slowest(study: Study, kinds: dict[str, pd.DataFrame]) -> dict[str, Any] | None:
    """Return the slowest message, from the rows where the document has none."""
    told = study.document.get("slowest")
    if told or not kinds:
        return told or None
    rows = [rows.loc[rows["end_to_end_ns"].idxmax()] for rows in kinds.values()]
    slowest = max(rows, key=lambda row: int(row["end_to_end_ns"]))
    return {name: None if pd.isna(value) else value for name, value in slowest.items()}


def _notes(study: Study, kinds: dict[str, pd.DataFrame]) -> list[Part]:
    document = study.document
    notes = [str(note) for note in document.get("notes") or ()]
    notes += [f"runs differ in {one}" for one in document.get("differences") or ()]
    thinned = (document.get("thinned") or {}).get("messages")
    if thinned:
        notes.append(
            f"figures draw {number(len(study.messages))} messages, evenly taken of "
            f"{number(thinned['of'])}, and in the time line "
            "the slowest, too; tables count all. What needs neighbours, such as "
            f"trains, is of the first {number(thinned['without_gaps'])}"
        )
    left = list(kinds)[_MOST_KINDS:]
    if left:
        notes.append(f"kinds that are not drawn, being rarer: {', '.join(left)}")
    skipped = [str(row) for row in document.get("skipped") or ()]
    return notes_parts(notes, skipped, document.get("skipped_rows") or 0)


def _subtitle(study: Study, kinds: dict[str, pd.DataFrame]) -> str:
    told = []
    runs = study.document.get("runs") or {}
    if len(runs) > 1:
        told.append(f"{len(runs)} runs")
    hosts = sorted({one["host"] for one in runs.values() if one.get("host")})
    if hosts:
        told.append(f"host {', '.join(hosts)}")
    kernels = {one["kernel"] for one in runs.values() if one.get("kernel")}
    kernels |= (
        {str(study.document["kernel"])} if study.document.get("kernel") else set()
    )
    if kernels:
        told.append(f"Linux {', '.join(sorted(kernels))}")
    if kinds:
        told.append(f"{number(sum(map(len, kinds.values())))} messages end to end")
    return " · ".join(told)


def traffic_parts(document: Mapping[str, Any]) -> list[Part]:
    """Return a table for each group; those of quieter groups at a click."""
    groups = document.get("histograms") or {}
    tables = {group: _table(group, found) for group, found in groups.items()}
    shown = list(tables.values())[:_OPEN]
    folded = [Fold(group, [table]) for group, table in list(tables.items())[_OPEN:]]
    told = [Text("Messages and exchanges below are a sample of it.", quiet=True)]
    return [*told, *shown, *folded] if tables else []


def _table(group: str, quantities: Mapping[str, Any]) -> Table:
    rows: list[list[str | Cell]] = [
        [
            quantity,
            *percentile_cells(figures),
            duration_text(figures["mean_ns"]),
            number(figures["n"]),
        ]
        for quantity, figures in quantities.items()
    ]
    return percentile_table(group, ("quantity", *SHOWN, "mean", "n"), rows, _NOTE)
