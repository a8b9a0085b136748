"""The report as one HTML file: no request leaves it, no text in it runs.

Each figure's table stands in the page once, as CSV text: the figure is drawn from
it, and it is what a click on its link saves. A policy in the page allows the
scripts of this file by their hashes and nothing else.
"""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from latprof_analysis.csv_cells import csv_text
from latprof_analysis.report.parts import (
    Cell,
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
from latprof_analysis.report.vega import (
    CONFIG,
    LEGEND_ROOM,
    inline_data,
    script_bundle,
    style_sheet,
)

# A table with more rows than this is at hand as CSV only.
_SHOWN_ROWS = 40
_FOOT = (
    "<footer><p>Made by latprof; this file is whole in itself and asks nothing of "
    "a network.</p></footer>"
)


def html_page(report: Report) -> str:
    """Write a report as a page."""
    bundle, page = script_bundle(), _resource("page.js")
    drawings = "".join(_drawing(figure) for figure in report.figures())
    shared = _json_script("shared", {"config": CONFIG, "legend": LEGEND_ROOM})
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8">{_policy([bundle, page])}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape(report.title)}: latprof report</title>"
        f"<style>{style_sheet()}{_resource('page.css')}</style></head>\n"
        f"<body>{_head(report)}<main>{_answer(report)}"
        + "".join(_section(section) for section in report.sections)
        + f"</main>{_FOOT}{drawings}{shared}{_packed(bundle)}"
        f"<script>{page}</script></body></html>\n"
    )


def _policy(scripts: Iterable[str]) -> str:
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{_base64(digest)}'" for digest in digests)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">'


def _packed(script: str) -> str:
    """Write a script as gzip in base64: a third of its size; the page unpacks it."""
    # the same input makes the same page, whenever it is made
    packed = _base64(gzip.compress(script.encode(), mtime=0))
    return f'<script type="text/plain" id="vega">{packed}</script>\n'


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _json_script(name: str, value: object) -> str:
    # no text in a script element can end it, nor begin a comment in it
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028")
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def _drawing(figure: Figure) -> str:
    charts = [{"scales": chart.scales} for chart in figure.charts]
    drawing = {"data": inline_data(figure), "charts": charts, "alt": figure.alt}
    return _json_script(f"drawing-{figure.name}", drawing)


def _head(report: Report) -> str:
    links = "".join(
        f'<a href="#{section.name}">{escape(section.title)}</a>'
        for section in report.sections
    )
    return (
        '<a class="skip" href="#answer">Skip to the answer</a><header>'
        '<p class="brand">latprof report</p>'
        '<button id="theme" type="button" hidden>Dark</button>'
        f"<h1>{escape(report.title)}</h1>"
        f'<p class="subtitle">{escape(report.subtitle)}</p>'
        f'<nav aria-label="Sections">{links}</nav></header>'
    )


def _answer(report: Report) -> str:
    lines = "".join(f"<p>{escape(text)}</p>" for text in report.answer)
    picture = _figure(report.picture) if report.picture else ""
    figures = "".join(
        f"<div><dt>{escape(one.label)}</dt><dd><b>{escape(one.value)}</b>"
        f"<span>{escape(one.under)}</span></dd></div>"
        for one in report.key_figures
    )
    if figures:
        figures = f'<dl class="key">{figures}</dl>'
    warnings = "".join(f"<li>{escape(text)}</li>" for text in report.warnings)
    if warnings:
        warnings = f'<ul class="warnings" aria-label="Warnings">{warnings}</ul>'
    return (
        f'<section id="answer" aria-label="Answer"><div class="first">'
        f'<div class="lead">{lines}</div>{picture}</div>{figures}{warnings}'
        "<noscript><p>Figures need JavaScript; the tables do not.</p></noscript>"
        "</section>"
    )


def _section(section: Section) -> str:
    if section.folded:
        fold = _fold(Fold(section.title, section.parts))
        return f'<section id="{section.name}" class="folded">{fold}</section>'
    parts = "".join(map(_part, section.parts))
    return (
        f'<section id="{section.name}"><h2>{escape(section.title)}</h2>'
        f'<div class="parts">{parts}</div></section>'
    )


def _part(part: Part) -> str:
    match part:
        case Text():
            quiet = ' class="quiet"' if part.quiet else ""
            return f"<p{quiet}>{escape(part.text)}</p>"
        case Items():
            items = "".join(f"<li>{escape(item)}</li>" for item in part.items)
            return f"<ul>{items}</ul>"
        case Missing():
            title, reason = escape(part.title), escape(part.reason)
            return f'<p class="missing"><b>{title}</b> not told: {reason}</p>'
        case Table():
            return _table(part)
        case Figure():
            return _figure(part)
        case Fold():
            return _fold(part)


def _fold(part: Fold) -> str:
    parts = "".join(map(_part, part.parts))
    return (
        f'<details class="fold"><summary>{escape(part.title)}</summary>'
        f'<div class="parts">{parts}</div></details>'
    )


def _table(part: Table) -> str:
    note = _about(part.note) if part.note else ""
    kind = "scroll" if part.numeric else "scroll texts"
    rows = _rows(part.columns, part.rows, part.title, kind)
    return f'<div class="card wide"><h3>{escape(part.title)}</h3>{rows}{note}</div>'


def _rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Cell]],
    label: str,
    kind: str = "scroll",
) -> str:
    """Write rows that can be scrolled where they are wider than their place."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(
        f'<tr><th scope="row">{_cell(row[0])}</th>'
        + "".join(f"<td>{_cell(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<p class="hint" hidden>more to the right →</p><div class="{kind}" '
        f'tabindex="0" role="region" aria-label="{escape(label)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return escape(cell)
    under = f"<small>{escape(cell.under)}</small>" if cell.under else ""
    return f"{escape(cell.text)}{under}"


def _figure(figure: Figure) -> str:
    charts = "".join(
        '<div class="chart">'
        + (f"<h4>{escape(chart.title)}</h4>" if chart.title else "")
        + f'<div class="view" role="img" aria-label="{escape(figure.alt)}"></div></div>'
        for chart in figure.charts
    )
    stacked = " stacked" if figure.zooms else ""
    return (
        f'<figure class="card wide" id="{figure.name}">'
        f"<h3>{escape(figure.title)}</h3>{_tools(figure)}"
        f'<div class="charts{stacked}">{charts}</div>'
        f"{_about(figure.caption, _data(figure))}</figure>"
    )


def _about(caption: str, more: str = "") -> str:
    """Fold in what explains a figure or a table; on paper it is open."""
    return (
        '<details class="about"><summary>How to read it</summary>'
        f'<p class="caption">{escape(caption)}</p>{more}</details>'
    )


def _tools(figure: Figure) -> str:
    scales = list(figure.charts[0].scales) if figure.charts else []
    made = ""
    if len(scales) > 1:
        radios = "".join(
            f'<label><input type="radio" name="scale-{figure.name}" value="{scale}"'
            f"{' checked' if scale == scales[0] else ''}><span>{scale}</span></label>"
            for scale in scales
        )
        made += f'<fieldset class="switch"><legend>Scale</legend>{radios}</fieldset>'
    if figure.zooms:
        buttons = "".join(
            f'<button type="button" data-zoom="{way}" aria-label="{label}">'
            f"{sign}</button>"
            for way, label, sign in (
                ("in", "Zoom in", "+"),
                ("out", "Zoom out", "−"),
                ("back", "Earlier", "←"),
                ("on", "Later", "→"),
                ("all", "Show all", "all"),
            )
        )
        made += (
            f'<div class="zoom" role="group" aria-label="Zoom">{buttons}'
            "<span>or drag across a figure</span></div>"
        )
    return f'<div class="tools">{made}</div>' if made else ""


def _data(figure: Figure) -> str:
    link = (
        f'<button type="button" class="csv" data-figure="{figure.name}">'
        f"CSV, {len(figure.data)} rows</button>"
    )
    if len(figure.data) > _SHOWN_ROWS:
        return f'<div class="data">{link}</div>'
    columns, *rows = csv.reader(csv_text(figure.data).splitlines())
    table = _rows(columns, rows, "Data")
    return (
        f'<div class="data">{link}<details><summary>as a table</summary>{table}'
        "</details></div>"
    )
