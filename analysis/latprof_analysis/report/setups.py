"""The report of runs of several set-ups: that of each, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from latprof_analysis.report.parts import Figure, Fold, Part, Report, Section


def one_report(title: str, reports: Sequence[Report], notes: Sequence[str]) -> Report:
    """Put the reports of set-ups together; all names become those of one page."""
    answers, figures, sections, warnings = [*notes], [], [], []
    for place, report in enumerate(reports, 1):
        name, mark = f"set-up {place}", f"setup-{place}"
        answers += [f"{name}, {report.title}: {text}" for text in report.answer]
        figures += [replace(k, label=f"{k.label}, {name}") for k in report.key_figures]
        if report.picture:
            first = Section("picture", report.title, [report.picture])
            sections.append(_named(first, name, mark))
        sections += [_named(section, name, mark) for section in report.sections]
        warnings += [f"{name}: {text}" for text in report.warnings]
    return Report(
        title=title,
        subtitle="; ".join(report.subtitle for report in reports),
        answer=answers,
        key_figures=figures,
        sections=sections,
        warnings=warnings,
    )


def _named(section: Section, name: str, mark: str) -> Section:
    parts = [_marked(part, mark) for part in section.parts]
    title = f"{section.title}: {name}"
    return replace(section, name=f"{mark}-{section.name}", title=title, parts=parts)


def _marked(part: Part, mark: str) -> Part:
    """Tell a figure's files and place apart from those of other set-ups."""
    if isinstance(part, Figure):
        return replace(part, name=f"{mark}-{part.name}")
    if isinstance(part, Fold):
        return replace(part, parts=[_marked(inner, mark) for inner in part.parts])
    return part
