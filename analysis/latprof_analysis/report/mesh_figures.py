"""A mesh in the report: its tables, and a heat map of its pairs by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from latprof_analysis.report.mesh_text import (
    mesh_parts,
    meshes_of,
    pair_tables,
    size_text,
)
from latprof_analysis.report.parts import Chart, Figure, Fold, Part, Spec
from latprof_analysis.report.vega import (
    colour,
    duration_expr,
    named,
    tooltip,
    written,
)
from latprof_analysis.report.words import duration_text, slug
from latprof_analysis.text import percent

_Figures = Mapping[str, Any]
# Cells narrower than this hold no text.
_MOST_WRITTEN = 10
_CELL_PIXELS = 34


def mesh_figures(document: _Figures) -> list[Part]:
    """Lay out the mesh of each run."""
    return [
        part
        for run, mesh in meshes_of(document)
        if mesh["cells"] or mesh["knees"]
        for part in _of_run(mesh, run)
    ]


def _of_run(mesh: _Figures, run: str) -> list[Part]:
    """Lay out tables and sentences, then a picture of pairs for each size."""
    cells, hosts = mesh["cells"], mesh["hosts"]
    senders = hosts[:1] if mesh.get("star") else hosts
    maps = [_heat_map(cell, senders, hosts, run) for cell in cells if cell["pairs"]]
    # the size whose links are the fullest is drawn at once
    open_at = (
        max(range(len(maps)), key=lambda i: cells[i]["utilisation"] or i) if maps else 0
    )
    shown = maps[open_at : open_at + 1]
    others = [*maps[:open_at], *maps[open_at + 1 :]]
    parts = [*mesh_parts(mesh, run), *shown]
    of = f"run {run}: " if run else ""
    if others:
        parts.append(Fold(f"{of}Pairs, of the other sizes", others))
    return [*parts, Fold(f"{of}Pairs in figures", [*pair_tables(mesh)])]


def _heat_map(
    cell: _Figures, senders: Sequence[str], hosts: Sequence[str], run: str
) -> Figure:
    """Draw the median round trip from each host to each other."""
    data = pd.DataFrame(
        [
            {
                "source": pair["source"],
                "destination": pair["destination"],
                "p50_ns": pair["p50_ns"],
                "max_ns": pair["max_ns"],
                "sent": pair["sent"],
                "lost": pair["lost"],
            }
            for pair in cell["pairs"]
        ]
    )
    size = size_text(cell)
    title = _finding(size, cell["pairs"]) + (f", run {run}" if run else "")
    return Figure(
        name=f"mesh-pairs-{slug(size)}" + (f"-{slug(run)}" if run else ""),
        title=title,
        caption="Median round trip from when a message was due, by who sent it (rows) "
        f"and who answered (columns); n {cell['sent']}, each pair alike. The scale is "
        "linear and begins at 0.",
        alt=f"Heat map of {len(data)} pairs of hosts. {title}.",
        data=data,
        charts=[Chart({"linear": _spec(senders, hosts)}, size)],
    )


def _finding(size: str, pairs: Sequence[_Figures]) -> str:
    """Say between which hosts it took least and most, and what was lost."""
    timed = [pair for pair in pairs if pair["p50_ns"] is not None]
    lost, sent = (sum(pair[name] for pair in pairs) for name in ("lost", "sent"))
    text = f"{percent(lost / sent)} lost" if lost else "none lost"
    if not timed:
        return f"{size}: {text}"
    least, most = (
        pick(timed, key=lambda pair: float(pair["p50_ns"])) for pick in (min, max)
    )
    ends = [
        f"{duration_text(pair['p50_ns'])} ({pair['source']} to {pair['destination']})"
        for pair in (least, most)
    ]
    return f"{size}: median round trips from {ends[0]} to {ends[1]}, {text}"


def _spec(senders: Sequence[str], hosts: Sequence[str]) -> Spec:
    texts = written(
        text=duration_expr("datum.p50_ns"), longest=duration_expr("datum.max_ns")
    )
    rows, columns = ({"domain": list(names)} for names in (senders, hosts))
    level = {"labelAngle": 0}
    ends = {
        "y": named("source", rows, title="from", sort=None),
        "x": named("destination", columns, title="to", sort=None, axis=level),
    }
    shade = {
        "field": "p50_ns",
        "type": "quantitative",
        "title": "median",
        # a colour of the theme is a name, of which no scale can be made
        "scale": {"zero": True, "range": [0, 1]},
        "legend": {"orient": "top", "labelExpr": duration_expr("datum.value")},
    }
    tip = tooltip(
        {
            "source": "from",
            "destination": "to",
            "text": "median",
            "longest": "longest",
            "sent": "messages",
            "lost": "lost",
        }
    )
    layers: list[Spec] = [
        {
            "mark": {"type": "rect", "fill": colour("mark"), "stroke": colour("grid")},
            "encoding": {**ends, "fillOpacity": shade, "tooltip": tip},
        }
    ]
    if len(hosts) <= _MOST_WRITTEN:
        words = {"field": "text", "type": "nominal"}
        look = {"type": "text", "fontSize": 10, "stroke": colour("card")}
        layers += [
            {
                "mark": {**look, "strokeWidth": 3, "strokeJoin": "round"},
                "encoding": {**ends, "text": words},
            },
            {
                "mark": {"type": "text", "fontSize": 10, "fill": colour("ink")},
                "encoding": {**ends, "text": words},
            },
        ]
    return {
        "height": max(120, _CELL_PIXELS * len(senders)),
        "transform": texts,
        "layer": layers,
    }
