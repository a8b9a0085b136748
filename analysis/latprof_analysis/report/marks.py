"""What charts are made of: layers of marks, and encodings that tell names apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latprof_analysis.report.parts import Spec
from latprof_analysis.report.vega import stage_scale, top_legend


def layer(kind: str, encoding: Spec, only: str = "", **look: Any) -> Spec:
    """Return marks of one kind, of the rows of which the expression `only` is true."""
    kept = {"transform": [{"filter": only}]} if only else {}
    return {**kept, "mark": {"type": kind, **look}, "encoding": encoding}


def named(field: str, scale: Spec, **more: Any) -> Spec:
    """Return an encoding of names, each of which has its own look."""
    return {"field": field, "type": "nominal", "scale": scale, **more}


def stage_hues(stages: Sequence[str]) -> Spec:
    """Return an encoding of stages, or parts, by their colours, with its legend."""
    return named("stage", stage_scale(stages), legend=top_legend(stages))


def lines_apart(
    field: str,
    names: Sequence[str],
    colours: Sequence[str],
    dashes: Sequence[Sequence[int]],
) -> Spec:
    """Return encodings that tell lines apart by colour, and without it by dashes."""
    legend = top_legend(names, "stroke") | {"symbolSize": 350, "symbolStrokeWidth": 2}
    return {
        "color": named(field, {"domain": names, "range": colours}, legend=legend),
        "strokeDash": named(field, {"domain": names, "range": dashes}),
    }
