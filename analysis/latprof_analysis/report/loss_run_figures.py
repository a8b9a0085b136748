"""Run lengths of losses, and of what arrived between: seen, and by models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from latprof_analysis.report.marks import (
    SWITCH,
    number_axis,
    tooltip,
    top_legend,
    written,
)
from latprof_analysis.report.parts import Chart, Figure, Part, Spec, Text
from latprof_analysis.report.theme import colour
from latprof_analysis.report.words import listed, number, slug

# On the first, geometric runs are a straight line.
_SCALES = ("semi-log", "log-log", "linear")
_SEEN = "observed"
_INDEPENDENT = "independent"
_OUTCOMES = {"lost": "lost in a row", "arrived": "arrived between two losses"}


def run_rows(loss: Mapping[str, Any]) -> pd.DataFrame:
    """Return how many runs are at least how long: as seen, and by models.

    Returns
    -------
    DataFrame
        ``outcome``: lost or arrived; ``model``: observed, the chosen one, and
        independent; ``packets``; ``share`` of the runs that are at least so long;
        ``low`` and ``high`` of what was observed; ``n`` runs.
    """
    best = loss["model"]["best"]
    rows = []
    for outcome, seen in loss["runs"].items():
        for name in dict.fromkeys((_SEEN, best, _INDEPENDENT)):
            for row in seen["lengths"]:
                observed = name == _SEEN
                share = row["share" if observed else name]
                ends = (row["low"], row["high"]) if observed else (None, None)
                rows.append((outcome, name, row["packets"], share, *ends, seen["n"]))
    columns = ["outcome", "model", "packets", "share", "low", "high", "n"]
    return pd.DataFrame(rows, columns=columns)


def loss_run_parts(name: str, loss: Mapping[str, Any]) -> list[Part]:
    """Draw the run lengths of a group that has a model; `loss` as of `losses`."""
    data, best = run_rows(loss), str(loss["model"]["best"])
    # how good a fit is does not show in a single length
    several = data.groupby("outcome")["packets"].nunique() > 1
    outcomes = [one for one in _OUTCOMES if several.get(one, False)]
    if not outcomes:
        text = f"{name}: all runs of loss have the same length, so none is drawn."
        return [Text(text, quiet=True)]
    names = list(dict.fromkeys((_SEEN, best, _INDEPENDENT)))
    models = listed([one for one in names if one != _SEEN])
    # what models have below that was not to be seen
    least = (data.groupby("outcome")["low"].min() / 2).to_dict()
    counts = {one: loss["runs"][one]["n"] for one in outcomes}
    figure = Figure(
        name=f"loss-runs-{slug(name)}",
        title=f"{name}: how long runs are, seen and by the {best} model",
        caption="Share of runs that are at least so long; points with their 95% "
        "interval (Clopper and Pearson, thinned) are what was seen, lines what a model "
        f"has: {models}. What arrived before the first loss and after the last is no "
        "run.",
        alt=f"Run lengths of {name}, lost and arrived, against the models {models}.",
        data=data[data["outcome"].isin(outcomes)].reset_index(drop=True),
        charts=[
            Chart(
                {scale: _spec(one, names, least[one], scale) for scale in _SCALES},
                f"{_OUTCOMES[one]}: n {number(counts[one])} runs",
            )
            for one in outcomes
        ],
        wide=True,
    )
    return [figure]


def _spec(outcome: str, names: list[str], least: float, scale: str) -> Spec:
    across, up = SWITCH[scale]
    whole = "datum.value % 1 ? '' : format(datum.value, ',')"
    x = {"field": "packets", **number_axis(_OUTCOMES[outcome], across, labelExpr=whole)}
    share_format = "~%" if up == "linear" else ".3~%"
    y = number_axis("share of runs at least so long", up, format=share_format)
    y["scale"] |= {"domainMin": least if up == "log" else 0}
    texts = written(
        seen="format(datum.share, '.4~%')",
        range="isValid(datum.low) ? format(datum.low, '.3~%') + ' to ' + "
        "format(datum.high, '.3~%') : 'a model'",
    )
    return {
        "height": 240,
        "transform": [
            {"filter": f"datum.outcome === '{outcome}' && datum.share > 0"},
            *texts,
        ],
        "layer": [
            _model_lines(names, x, y),
            _seen_range(x, y),
            _seen_points(x, y),
        ],
    }


def _model_lines(names: list[str], x: Spec, y: Spec) -> Spec:
    models = [name for name in names if name != _SEEN]
    colours = [colour("mark-2"), colour("muted")][: len(models)]
    dashes = [[1, 0], [6, 4]][: len(models)]
    model = {"field": "model", "type": "nominal"}
    legend = top_legend(models, "stroke") | {"symbolSize": 350, "symbolStrokeWidth": 2}
    return {
        "transform": [{"filter": f"datum.model !== '{_SEEN}'"}],
        "mark": {"type": "line", "strokeWidth": 2, "clip": True},
        "encoding": {
            "x": x,
            "y": {"field": "share", **y},
            "color": {
                **model,
                "scale": {"domain": models, "range": colours},
                "legend": legend,
            },
            "strokeDash": {**model, "scale": {"domain": models, "range": dashes}},
        },
    }


def _seen_range(x: Spec, y: Spec) -> Spec:
    return {
        "transform": [{"filter": f"datum.model === '{_SEEN}'"}],
        "mark": {"type": "rule", "color": colour("mark"), "strokeWidth": 1.2},
        "encoding": {"x": x, "y": {"field": "low", **y}, "y2": {"field": "high"}},
    }


def _seen_points(x: Spec, y: Spec) -> Spec:
    return {
        "transform": [{"filter": f"datum.model === '{_SEEN}'"}],
        "mark": {
            "type": "point",
            "filled": True,
            "size": 40,
            "opacity": 1,
            "color": colour("mark"),
        },
        "encoding": {
            "x": x,
            "y": {"field": "share", **y},
            "tooltip": tooltip(
                {
                    "packets": "at least, in a row",
                    "seen": "share of runs",
                    "range": "95% interval",
                    "n": "runs",
                }
            ),
        },
    }
