"""A study -> the parts of its report, in the order in which a reader asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pandas as pd

from latprof_analysis.read.result import concatenated
from latprof_analysis.report.answer import answer, fit_text, link_parts
from latprof_analysis.report.bulk_picture import bulk_sections
from latprof_analysis.report.clock_figures import clock_sections
from latprof_analysis.report.exchange_figures import exchange_sections
from latprof_analysis.report.first_screen import first_picture, key_figures
from latprof_analysis.report.fit import fit_parts
from latprof_analysis.report.groups import group_parts, queue_figure
from latprof_analysis.report.latencies import sample_picture, sample_sections
from latprof_analysis.report.link import said_by_trains
from latprof_analysis.report.load_parts import load_sections
from latprof_analysis.report.loss_parts import loss_groups, loss_model_parts, loss_parts
from latprof_analysis.report.mesh_figures import mesh_figures
from latprof_analysis.report.ops import ops_sections
from latprof_analysis.report.parts import (
    Figure,
    Fold,
    Items,
    Missing,
    Part,
    Report,
    Section,
    Table,
    Text,
)
from latprof_analysis.report.percentile_tables import SHOWN, Row, percentile_table
from latprof_analysis.report.sentences import first_names, run_name, setup_title
from latprof_analysis.report.setting import setting_parts
from latprof_analysis.report.stage_parts import (
    by_percentile,
    by_size,
    floats,
    slowest_parts,
    stage_table,
)
from latprof_analysis.report.story_parts import story_sections
from latprof_analysis.report.sweep_parts import sweep_tables
from latprof_analysis.report.tails import ccdf_figure, mode_parts, pieces_figure
from latprof_analysis.report.time import level_parts, level_rows, time_figure
from latprof_analysis.report.time_warp_table import time_warp_parts
from latprof_analysis.report.train_parts import train_parts
from latprof_analysis.report.words import legible, listed, number
from latprof_analysis.stages import APART
from latprof_analysis.study.analysis import Study
from latprof_analysis.study.findings import since_first_read
from latprof_analysis.study.messages import above_usual
from latprof_analysis.study.setup import packets_of
from latprof_analysis.text import printable

# More kinds of messages than this are named, not drawn.
_MOST_KINDS = 4
_OPEN = 3  # groups shown at once
_NO_MESSAGE = "no message was seen from end to end"
_ONE_MESSAGE = "of no kind more than one message was seen from end to end"
# What was seen from end to end, by kind.
_Kinds = Mapping[str, pd.DataFrame]


def build_report(study: Study, title: str) -> Report:
    """Lay out a study as a report; `title` names what was read."""
    report = _report(study, title)
    sweeps = legible(Study({"sweeps": study.document.get("sweeps") or ()})).document
    if not sweeps["sweeps"]:
        return report
    parts = [part for sweep in sweeps["sweeps"] for part in sweep_tables(sweep)]
    return replace(
        report, sections=[Section("sweep", "The sweep", parts), *report.sections]
    )


def _report(study: Study, title: str) -> Report:
    if study.setups:
        parts = [_report(each, _runs_of(each.document)) for each in study.setups]
        return _of_setups(printable(title), parts, study.document["notes"])
    study = legible(study)
    document = study.document
    kinds = dict(whole_messages(study.messages))
    of_samples = study.samples is not None
    setting = setting_parts(document)
    sections = [
        *(sample_sections(study) if of_samples else _run_sections(study, kinds)),
        Section("setting", "How it was measured", setting, folded=True),
        Section("notes", "What was left out", _notes(study, kinds)),
    ]
    return Report(
        title=printable(title),
        subtitle=_subtitle(study, kinds),
        answer=answer(document),
        key_figures=key_figures(document),
        sections=_missing_last(sections),
        warnings=[str(warning) for warning in document.get("warnings") or ()],
        picture=first_picture(document) or sample_picture(study),
    )


def _run_sections(study: Study, kinds: _Kinds) -> list[Section]:
    document = study.document
    drawn = _drawn(kinds)
    none = _ONE_MESSAGE if kinds else _NO_MESSAGE
    exchanges = exchange_sections(study)
    own = bool(document.get("round_trips"))
    losses = [*loss_parts(document), *loss_model_parts(loss_groups(document))]
    slowest = slowest_parts(_slowest(study, kinds), document.get("lab"))
    return [
        *ops_sections(document),
        *bulk_sections(document),
        *load_sections(document),
        *clock_sections(document, study.messages),
        Section("traffic", "All traffic", _traffic(document)),
        *(exchanges if not own else []),
        Section("mesh", "The mesh", mesh_figures(document)),
        Section("stages", "Where the time goes", _stages(document, drawn, none)),
        Section("fit", "Fit: D = aS + b", _fits(study)),
        Section("distribution", "Distribution", _tails(document, drawn, none)),
        Section("time", "Over time", _time(study, drawn)),
        Section("loss", "Loss", losses),
        Section("slowest", "Slowest message", slowest),
        *story_sections(study.stories),
        Section("queue", "Queue at arrival", _queues(drawn), folded=True),
        Section(
            "time-warp",
            "Time Warp's latencies",
            time_warp_parts(document, drawn) if _is_time_warp(document) else [],
            folded=True,
        ),
        # of our own generator they say again what its messages and round trips do
        *(replace(section, folded=True) for section in exchanges if own),
    ]


def _drawn(kinds: _Kinds) -> dict[str, pd.DataFrame]:
    """Return the kinds that have figures: the most frequent, of more than a message."""
    several = ((kind, rows) for kind, rows in kinds.items() if len(rows) > 1)
    return dict(islice(several, _MOST_KINDS))


def _is_time_warp(document: Mapping[str, Any]) -> bool:
    """Whether messages waited for acknowledgements, as in that experiment alone."""
    plan = (document.get("workload") or {}).get("plan") or {}
    return bool(plan.get("max_acks"))


def _runs_of(document: dict[str, Any]) -> str:
    names = [run_name(folder, run) for folder, run in document["runs"].items()]
    title = first_names(names)
    return f"{setup_title(document)} ({title})" if document["workload"] else title


def _of_setups(title: str, reports: Sequence[Report], notes: Sequence[str]) -> Report:
    """Put the reports of set-ups together; all names become those of one page."""
    answers, figures, sections, warnings = [*notes], [], [], []
    for place, report in enumerate(reports, 1):
        name, mark = f"set-up {place}", f"setup-{place}"
        answers += [f"{name}, {report.title}: {text}" for text in report.answer]
        figures += [replace(k, label=f"{k.label}, {name}") for k in report.key_figures]
        warnings += [f"{name}: {text}" for text in report.warnings]
        picture = [report.picture] if report.picture else []
        first = [Section("picture", report.title, picture)] if picture else []
        sections += [
            replace(
                section,
                name=f"{mark}-{section.name}",
                title=f"{section.title}: {name}",
                parts=[_marked(part, mark) for part in section.parts],
            )
            for section in (*first, *report.sections)
        ]
    subtitle = "; ".join(report.subtitle for report in reports)
    return Report(title, subtitle, answers, figures, sections, warnings)


def _marked(part: Part, mark: str) -> Part:
    """Name a figure's files and place by its set-up."""
    if isinstance(part, Figure):
        return replace(part, name=f"{mark}-{part.name}")
    if isinstance(part, Fold):
        return replace(part, parts=[_marked(inner, mark) for inner in part.parts])
    return part


def _missing_last(sections: list[Section]) -> list[Section]:
    """Move what is not known behind what was found; name its reasons there."""
    missing: list[Missing] = []
    found = [replace(one, parts=_known(one.parts, missing)) for one in sections]
    if missing:
        fold = Fold("What is not known, and why", missing)
        found[-1] = replace(found[-1], parts=[*found[-1].parts, fold])
    return [section for section in found if section.parts]


def _known(parts: Sequence[Part], missing: list[Missing]) -> list[Part]:
    """Return the parts with results; those that say why not go to `missing`."""
    known: list[Part] = []
    for part in parts:
        if isinstance(part, Missing):
            missing.append(part)
        elif isinstance(part, Fold):
            inner = _known(part.parts, missing)
            known += [Fold(part.title, inner)] if inner else []
        else:
            known.append(part)
    return known


def whole_messages(messages: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Give the messages that were seen from end to end, by kind, in order of time.

    The kinds are those of which there are most, requests before replies.
    """
    if messages.empty:
        return
    kept = messages["end_to_end_ns"].notna() & ~messages["kind"].isin(APART)
    grouped = messages[kept].groupby(["protocol", "kind"], observed=True)
    frequent = grouped.size().nlargest(_MOST_KINDS).index
    left = grouped.size().index.difference(frequent)
    asked = sorted(frequent, key=lambda one: (one[0], one[1] == "reply", one[1]))
    for protocol, kind in [*asked, *left]:
        rows = grouped.get_group((protocol, kind))
        yield f"{protocol} {kind}", rows.sort_values(["run", "read_ns"], kind="stable")


def _traffic(document: Mapping[str, Any]) -> list[Part]:
    """Return a table for each group; those of quieter groups at a click."""
    note = (
        "Each message, exchange or sample of this group was counted. A percentile is "
        "the middle of its bucket, at most 3.2% wide."
    )
    columns = ("quantity", *SHOWN, "mean", "n")
    tables: list[Part] = []
    for group, quantities in (document.get("histograms") or {}).items():
        rows: list[Row] = [
            ([name], figures, None) for name, figures in quantities.items()
        ]
        table = percentile_table(group, columns, rows, note)
        tables.append(Fold(group, [table]) if len(tables) >= _OPEN else table)
    note_of_rows = Text("Messages and exchanges below are a sample of it.", quiet=True)
    return [note_of_rows, *tables] if tables else []


def _stages(document: Mapping[str, Any], kinds: _Kinds, none: str) -> list[Part]:
    figures = document.get("kinds") or {}
    thinned = bool(document.get("thinned"))
    return _first_open(
        {
            kind: [
                stage_table(kind, rows, figures.get(kind), thinned=thinned),
                by_size(kind, rows),
                Fold(f"{kind}, from fast to slow", [by_percentile(kind, rows)]),
            ]
            for kind, rows in kinds.items()
        },
        Missing("Stages", none),
    )


def _first_open(by_kind: dict[str, list[Part]], *none: Part) -> list[Part]:
    """Show the parts of the first kind, those of the others at a click; else `none`."""
    if not by_kind:
        return [*none]
    (_, shown), *others = by_kind.items()
    folds = [Fold(kind, parts) for kind, parts in others]
    if len(folds) > 1:
        folds = [Fold(f"The same of {listed([kind for kind, _ in others])}", folds)]
    return [*shown, *folds]


def _fits(study: Study) -> list[Part]:
    shown: list[Part] = []
    items: list[Part] = []
    for part in link_parts(study.document):
        (items if isinstance(part, Items) else shown).append(part)
    caveats = [Fold("The link each way: what to know", items)] if items else []
    by_protocol = {
        protocol: _fit(protocol, figures.get("fit") or {}, study)
        for protocol, figures in (study.document.get("round_trips") or {}).items()
    }
    none = Missing("Fit", "there are no round trips: the runs had no generator")
    trains = {
        protocol: train_parts(protocol, found)
        for protocol, found in said_by_trains(study.document).items()
    }
    return [*shown, *_first_open(by_protocol, none), *caveats, *_first_open(trains)]


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
    parts = [*fit_text(protocol, fit), *left]
    return [drawn, Fold(f"{protocol}: figures of the fit, and what it leaves", parts)]


def _tails(document: dict[str, Any], kinds: _Kinds, none: str) -> list[Part]:
    figures, found = document.get("kinds") or {}, document.get("messages") or {}
    by_kind: dict[str, list[Part]] = {}
    for kind, messages in kinds.items():
        groups = group_parts(kind, figures.get(kind))
        more = [
            pieces_figure(kind, floats(messages["end_to_end_ns"]), "end to end"),
            *mode_parts(kind, (found.get(kind) or {}).get("tail"), "end to end"),
            *groups[1:],
        ]
        by_kind[kind] = [
            ccdf_figure(kind, messages),
            *groups[:1],
            Fold(f"{kind}: body and tail, modes, groups", more),
        ]
    return _first_open(by_kind, Missing("Distributions", none))


def _time(study: Study, kinds: _Kinds) -> list[Part]:
    every: _Kinds = kinds
    if len(study.slow_messages):
        # a thinned study keeps the slowest apart
        both = concatenated([study.messages, study.slow_messages])
        every = dict(whole_messages(both))
    found = study.document.get("messages") or {}
    series: dict[str, pd.DataFrame] = {}
    rows: dict[str, pd.DataFrame] = {}
    for kind in kinds:
        messages = every[kind]
        latency = floats(messages["end_to_end_ns"])
        above = above_usual(messages["size_bytes"].fillna(0), latency)
        read = pd.DataFrame({"above_ns": above, "latency_ns": latency})
        read["t_s"] = since_first_read(messages)
        timed = read["t_s"].notna()
        if timed.any():
            series[kind] = read[timed].reset_index(drop=True)
        if timed.all():  # elsewhere only the order of levels is known
            rows[kind] = level_rows(found.get(kind))
    if not series:
        return [Missing("Over time", "no message has the time at which it was read")]
    levels = {kind: found.get(kind) for kind in series}
    return [time_figure(series, "end to end", rows), *level_parts(levels)]


def _queues(kinds: _Kinds) -> list[Part]:
    by_kind: dict[str, list[Part]] = {}
    for kind, messages in kinds.items():
        rows = messages[["queue_bytes_at_arrival", "receive_queue_ns"]].dropna()
        queue, wait = (rows[name].to_numpy("float64") for name in rows)
        missing = Missing(f"{kind}: queue at arrival", "no message tells its queue")
        by_kind[kind] = [queue_figure(kind, queue, wait) if len(rows) else missing]
    return _first_open(by_kind)


def _slowest(study: Study, kinds: _Kinds) -> dict[str, Any] | None:
    """Return the slowest message, from the rows where the document has none."""
    known = study.document.get("slowest")
    if known or not kinds:
        return known or None
    rows = [rows.loc[rows["end_to_end_ns"].idxmax()] for rows in kinds.values()]
    slowest = max(rows, key=lambda row: int(row["end_to_end_ns"]))
    return {name: None if pd.isna(value) else value for name, value in slowest.items()}


def _notes(study: Study, kinds: _Kinds) -> list[Part]:
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
    drawn = _drawn(kinds)
    left = [kind for kind in kinds if kind not in drawn]
    if left:
        notes.append(f"kinds that are not drawn, being rarer: {', '.join(left)}")
    parts: list[Part] = [Items(notes)] if notes else []
    if skipped_rows := document.get("skipped_rows"):
        skipped = [[str(row)] for row in document.get("skipped") or ()]
        shown = f", of which {number(len(skipped))} are told" if skipped else ""
        title = f"{number(skipped_rows)} rows were left out{shown}"
        parts.append(Table(title, ["row and reason"], skipped))
    return parts


def _subtitle(study: Study, kinds: _Kinds) -> str:
    runs = study.document.get("runs") or {}
    hosts = {one["host"] for one in runs.values() if one.get("host")}
    documents = (study.document, *runs.values())
    kernels = {str(one["kernel"]) for one in documents if one.get("kernel")}
    n = sum(map(len, kinds.values()))
    texts = (
        f"{len(runs)} runs" if len(runs) > 1 else "",
        f"host {', '.join(sorted(hosts))}" if hosts else "",
        f"Linux {', '.join(sorted(kernels))}" if kernels else "",
        f"{number(n)} messages end to end" if kinds else "",
    )
    return " · ".join(filter(None, texts))
