"""Where the time goes: stages by size and by how slow the messages were.

Stages go by the names that the stamps of a message allow; a table has the percentiles
of each with their intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.fit.rounds import Floats
from latprof_analysis.report.parts import (
    Chart,
    Figure,
    Missing,
    Part,
    Spec,
    Table,
    Text,
)
from latprof_analysis.report.percentile_tables import (
    SHOWN,
    Row,
    figures_of,
    percentile_table,
)
from latprof_analysis.report.vega import (
    colour,
    duration_axis,
    duration_expr,
    layer,
    named,
    on_stage_scale,
    stage_hues,
    tooltip,
    written,
)
from latprof_analysis.report.words import bytes_text, duration_text, number, slug
from latprof_analysis.stages import STAGES, STAMPS, merged_name, missing_code
from latprof_analysis.stats.quantiles import rank
from latprof_analysis.study.likely_cause import slowest_sentence, stage_times
from latprof_analysis.study.totals import PERCENTILES

# More sizes than this are put together, as many messages to each.
_MOST_SIZES = 10
_NO_STAGE = "no message tells a stage that took any time"
# Pixels behind the bars, for two short lines.
_ROOM = 84


def named_stages(messages: pd.DataFrame) -> dict[str, Floats]:
    """Return the time of each message in each stage, in ns.

    Where a stamp is missing two stages are one, of which the later has the time:
    here it is shown under both names, ``transit+receive_stack``.

    Parameters
    ----------
    messages : DataFrame, n rows
        Columns of `read.schema`, at least the stamps and the stages.

    Returns
    -------
    dict of str to ndarray, shape (n,)
        In the order of the path; NaN where a message has no such stage.
    """

    def name(stage: str, lacking: int) -> str:
        there = {stamp: not lacking >> i & 1 for i, stamp in enumerate(STAMPS)}
        return merged_name(stage, there)

    def place(name: str) -> tuple[int, str]:
        return STAGES.index(name.rsplit("+", maxsplit=1)[-1]), name

    stamps = {s: messages[f"{s}_ns"].to_numpy("int64", na_value=0) for s in STAMPS}
    times = ((stage, floats(messages[f"{stage}_ns"])) for stage in STAGES)
    found = times_by_name(times, missing_code(stamps), name)
    return {name: found[name] for name in sorted(found, key=place)}


def floats(column: pd.Series) -> Floats:
    """Return a column as floats, shape (n,), NaN where there is none."""
    values: Floats = column.to_numpy("float64", na_value=np.nan)
    return values


def times_by_name(
    times: Iterable[tuple[str, Floats]],
    lacking: NDArray[np.integer],
    name: Callable[[str, int], str],
) -> dict[str, Floats]:
    """Return times, shape (n,), by the names that they have where stamps are missing.

    `lacking` codes which stamps each row lacks; `name` gives the name of a stage
    or part of rows with that code.
    """
    found: dict[str, Floats] = {}
    for part, values in times:
        for code in np.unique(lacking):
            # what has no beginning and no end is none of theirs
            rows = (lacking == code) & ~np.isnan(values)
            if rows.any():
                empty = np.full(len(values), np.nan)
                found.setdefault(name(part, int(code)), empty)[rows] = values[rows]
    return found


def means_by_group(stages: Mapping[str, Floats], group: pd.Categorical) -> pd.DataFrame:
    """Return the mean time in each stage of the messages of each group.

    Parameters
    ----------
    stages : mapping of str to ndarray, shape (n,)
        As of `named_stages`; NaN counts as no time.
    group : Categorical of str, shape (n,)
        To which group each belongs, in the order of its categories.

    Returns
    -------
    DataFrame
        A row for each group and stage: ``group``, ``stage``, ``mean_ns`` (over all
        messages of the group, also those without that stage), ``share``, where it
        ends and begins on a bar of length 1, and ``n``.
    """
    if not stages:
        return pd.DataFrame(columns=["group", "stage", "mean_ns", "share", "n"])
    times = pd.DataFrame(stages).fillna(0.0)
    grouped = times.groupby(group, observed=True, sort=True)
    means = grouped.mean().rename_axis(index="group", columns="stage")
    tidy = means.stack().rename("mean_ns").reset_index()
    tidy["group"] = tidy["group"].astype(str)
    tidy["share"] = means.div(means.sum(axis=1), axis=0).to_numpy().ravel()
    tidy["to_share"] = tidy.groupby("group", sort=False)["share"].cumsum()
    tidy["from_share"] = tidy["to_share"] - tidy["share"]
    tidy["n"] = np.repeat(grouped.size().to_numpy(), len(stages))
    return tidy[tidy["mean_ns"] > 0].reset_index(drop=True)


def by_size(kind: str, messages: pd.DataFrame) -> Figure | Missing:
    """Draw each size's shares of stages; a sender that was not seen gives no size."""
    title = f"{kind}, by size"
    sized = messages[messages["size_bytes"].notna()]
    if sized.empty:
        return Missing(title, "no message tells its size")
    means = means_by_group(named_stages(sized), _size_groups(sized["size_bytes"]))
    if means.empty:
        return Missing(title, _NO_STAGE)
    weight = means["mean_ns"] * means["n"]
    biggest = str(weight.groupby(means["stage"]).sum().idxmax())
    # a size of few messages has a share of its own, which shows nothing of others
    common = means["n"] >= means["n"].max() / 100
    share = share_range(means.loc[common & (means["stage"] == biggest), "share"])
    return Figure(
        name=f"stages-by-size-{slug(kind)}",
        title=f"{title}: {biggest} takes {share} of the time",
        caption="Mean time in each stage, as a share of end to end; at the right the "
        "mean end to end and n. Means have no interval: a few slow messages move them.",
        alt=f"Stacked bars, one for each size of {kind}: "
        f"{biggest} takes {share} of the mean time.",
        data=means,
        charts=[Chart({"share": share_bars(means, "message size", "end to end")})],
        main=True,
    )


def by_percentile(kind: str, messages: pd.DataFrame) -> Figure | Missing:
    """Draw the shares of stages of the fast and of the slow messages."""
    title = f"{kind}, from fast to slow"
    bands = percentile_bands(floats(messages["end_to_end_ns"]))
    means = means_by_group(named_stages(messages), bands)
    if means.empty:
        return Missing(title, _NO_STAGE)
    last = means[means["group"] == means["group"].iloc[-1]]
    biggest = last.loc[last["share"].idxmax()]
    share = f"{100 * biggest['share']:.0f}%"
    text = f"{biggest['stage']} is {share} of the slowest ({biggest['group']})"
    return Figure(
        name=f"stages-by-percentile-{slug(kind)}",
        title=f"{title}: {text}",
        caption="Messages in the order of their end to end, cut at its percentiles. "
        "Slow ones are often simply large: compare with the sizes.",
        alt=f"Stacked bars, one for each band of percentiles of {kind}: {text}.",
        data=means,
        charts=[Chart({"share": share_bars(means, "percentiles", "end to end")})],
        main=True,
    )


def percentile_bands(times: Floats) -> pd.Categorical:
    """Show for each value, shape (n,), between which percentiles of all it lies."""
    between = [f"{low} to {high}" for low, high in pairwise(SHOWN)]
    names = [f"up to {SHOWN[0]}", *between, f"above {SHOWN[-1]}"]
    ends = [rank(PERCENTILES[name], times.size) for name in SHOWN]
    position = np.empty(times.size, np.int64)
    position[np.argsort(times, kind="stable")] = np.arange(1, times.size + 1)
    codes = np.searchsorted(ends, position)
    return pd.Categorical.from_codes(codes, categories=names, ordered=True)


def _size_groups(sizes: pd.Series) -> pd.Categorical:
    """Name the sizes, or ranges of them where there are many."""
    found = np.unique(sizes)
    if found.size <= _MOST_SIZES:
        codes = np.searchsorted(found, sizes)
        names = [bytes_text(size) for size in found]
    else:
        at = np.linspace(0, 1, _MOST_SIZES + 1)
        edges = np.unique(np.quantile(sizes, at, method="lower"))
        codes = np.searchsorted(edges, sizes, side="right") - 1
        codes = np.clip(codes, 0, edges.size - 2)
        ranges = zip(edges, [*(edges[1:-1] - 1), edges[-1]], strict=False)
        names = [f"{number(low)} to {bytes_text(high)}" for low, high in ranges]
    return pd.Categorical.from_codes(codes, categories=names, ordered=True)


def share_range(share: pd.Series) -> str:
    """Write the least and the largest of some shares.

    Examples
    --------
    >>> share_range(pd.Series([0.25, 0.5])), share_range(pd.Series([0.5]))
    ('25 to 50%', '50%')
    """
    low, high = (f"{100 * value:.0f}" for value in (share.min(), share.max()))
    return f"{low}%" if low == high else f"{low} to {high}%"


def share_bars(
    means: pd.DataFrame,
    title: str,
    whole: str,
    ends: Mapping[str, tuple[str, str]] | None = None,
) -> Spec:
    """Draw a stacked bar for each group: shares of the mean of the whole.

    Behind each stand the two lines of `ends`; without them its mean and n.
    """
    stages = list(dict.fromkeys(means["stage"]))
    groups = list(dict.fromkeys(means["group"]))
    if ends is None:
        by_group = means.groupby("group", sort=False)
        wholes = by_group.agg(mean_ns=("mean_ns", "sum"), n=("n", "first")).itertuples()
        ends = {
            name: (duration_text(mean), f"n {number(n)}") for name, mean, n in wholes
        }
    rows = [
        {"group": group, "first": first, "second": second}
        for group, (first, second) in ends.items()
    ]
    hover = tooltip(
        {"group": title, "stage": "stage", "mean": "mean", "part": "share", "n": "n"}
    )
    return {
        "height": 36 * len(groups),
        "transform": written(
            mean=duration_expr("datum.mean_ns"),
            part="format(datum.share, '.2%')",
            middle="(datum.from_share + datum.to_share) / 2",
            percent="format(datum.share, '.0%')",
            label="datum.stage + ' ' + datum.percent",
        ),
        "layer": [
            _stacks(stages, whole, hover),
            _names_on_bars(stages, hover),
            _at_the_end(rows, "first", -7),
            _at_the_end(rows, "second", 7, fontSize=11, color=colour("muted")),
        ],
        "encoding": {"y": _group_axis(groups)},
        "resolve": {"scale": {"color": "independent"}},
    }


def _group_axis(groups: list[str]) -> Spec:
    # the name of a way is long: its ends stand in two lines
    axis = {
        "labelExpr": "split(replace(datum.label, ' -> ', '|-> '), '|')",
        "labelOffset": -6 if any(" -> " in name for name in groups) else 0,
        "labelLimit": 150,
        "domain": False,
        "ticks": False,
    }
    shown: Spec = {"field": "group", "type": "nominal", "sort": groups}
    return {**shown, "title": None, "axis": axis}


def _stacks(stages: list[str], whole: str, hover: list[Spec]) -> Spec:
    room = {"expr": f"width - {_ROOM}"}
    ticks = {"format": ".0%", "values": [0, 0.25, 0.5, 0.75, 1]}
    across = {
        "field": "from_share",
        "type": "quantitative",
        "title": f"share of the mean {whole}",
        "scale": {"domain": [0, 1], "nice": False, "range": [0, room]},
        "axis": {**ticks, "grid": False, "domain": False},
    }
    encoding = {
        "x": across,
        "x2": {"field": "to_share"},
        "color": stage_hues(stages),
        "tooltip": hover,
    }
    return layer("bar", encoding, stroke=colour("card"), strokeWidth=1)


def _at_the_end(rows: list[dict[str, str]], line: str, dy: int, **look: Any) -> Spec:
    encoding = {"x": {"datum": 1}, "text": {"field": line}}
    mark = layer("text", encoding, align="left", dx=6, dy=dy, aria=False, **look)
    return {"data": {"values": rows}, **mark}


def _names_on_bars(stages: list[str], hover: list[Spec]) -> Spec:
    """Write a stage's name and share on its bar, or the share where there is room."""
    room = f"(datum.to_share - datum.from_share) * (width - {_ROOM})"
    whole = {"test": f"{room} > 7 * length(datum.label)", "field": "label"}
    encoding = {
        "x": {"field": "middle", "type": "quantitative"},
        "text": {"condition": whole, "field": "percent"},
        # the name lies on the bar: who points at it points at both
        "tooltip": hover,
        "opacity": {"condition": {"test": f"{room} > 30", "value": 1}, "value": 0},
        "color": named("stage", on_stage_scale(stages), legend=None),
    }
    return layer("text", encoding, aria=False)


def stage_table(
    kind: str,
    messages: pd.DataFrame,
    figures_of_all: dict[str, Any] | None,
    *,
    thinned: bool,
) -> Table:
    """Show each stage's percentiles, its slowest, its share and its n.

    `figures_of_all` are of all messages: `messages` may be a part of them.
    """
    figures_of_all = figures_of_all or {}
    times = named_stages(messages)
    for name in ("wakeup", "end_to_end"):
        times[name] = floats(messages[f"{name}_ns"])
    whole_ns = float(times["end_to_end"].sum())
    rows: list[Row] = []
    for name, every in times.items():
        values = every[~np.isnan(every)]
        if values.size:
            figures = (figures_of_all.get("stages") or {}).get(name) or figures_of(
                values
            )
            share = figures.get("share_of_end_to_end")
            if share is None and whole_ns > 0:
                share = float(values.sum()) / whole_ns
            label = f"of which {name}" if name == "wakeup" else name
            rows.append(([label], figures | {"share": share}, values))
    part = " Intervals are those of the messages that are drawn." if thinned else ""
    return percentile_table(
        f"{kind}: {number(figures_of_all.get('messages') or len(messages))} messages",
        ["stage", *SHOWN, "slowest", "share", "n"],
        rows,
        "Below each percentile its 95% interval, which allows for messages that depend "
        f"on their neighbours.{part} wakeup is part of receive_queue.",
    )


def slowest_parts(
    row: dict[str, Any] | None, lab: dict[str, Any] | None = None
) -> list[Part]:
    """Say where the slowest message spent its time, on the link of a lab if any."""
    if not row or not row.get("end_to_end_ns"):
        reason = "no message was seen from end to end"
        return [Missing("The slowest message", reason)]
    # as on a terminal but for micro
    text = slowest_sentence(row, lab).replace(" us", " µs")
    sentence = f"{text[0].upper()}{text[1:]}."
    times = stage_times(row)
    if not times:
        return [Text(sentence), Missing("Its stages", "none of its stages is told")]
    data = pd.DataFrame(times.items(), columns=["stage", "time_ns"])
    data["to_ns"] = data["time_ns"].cumsum()
    data["from_ns"] = data["to_ns"] - data["time_ns"]
    most = data.loc[data["time_ns"].idxmax()]
    share = f"{100 * float(most['time_ns']) / row['end_to_end_ns']:.0f}%"
    axis = duration_axis("time since the message was made or sent", grid=False)
    encoding = {
        "x": {"field": "from_ns", **axis},
        "x2": {"field": "to_ns"},
        "color": stage_hues(list(times)),
        "tooltip": tooltip({"stage": "stage", "took": "time"}),
    }
    bar = layer("bar", encoding, stroke=colour("card"), strokeWidth=1)
    texts = written(took=duration_expr("datum.time_ns"))
    figure = Figure(
        name="slowest",
        title=f"The slowest message spent {share} of its time in {most['stage']}",
        caption="One message, from the first stamp to the last; its stages sum to its "
        "end to end exactly. One message, so there is no interval.",
        alt=sentence,
        data=data,
        charts=[Chart({"linear": {"height": 56, "transform": texts, **bar}})],
        main=True,
    )
    return [Text(sentence), figure]
