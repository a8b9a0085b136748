"""Where the time goes: stages by size and by how slow the messages were.

Stages go by the names that the stamps of a message allow; a table has the percentiles
of each with their intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.fit.rounds import Floats
from latprof_analysis.report.parts import Cell, Chart, Figure, Missing, Spec, Table
from latprof_analysis.report.percentile_tables import (
    SHOWN,
    figures_of,
    percentile_cells,
    percentile_table,
)
from latprof_analysis.report.vega import (
    colour,
    duration_expr,
    on_stage_scale,
    stage_scale,
    tooltip,
    top_legend,
    written,
)
from latprof_analysis.report.words import (
    bytes_text,
    duration_text,
    number,
    slug,
)
from latprof_analysis.stages import STAGES, STAMPS, merged_name, missing_code
from latprof_analysis.stats.quantiles import rank
from latprof_analysis.text import percent

BANDS = (0.0, 0.5, 0.9, 0.99, 0.999, 1.0)
# More sizes than this are put together, as many messages to each.
_MOST_SIZES = 10
_NO_STAGE = "no message tells a stage that took any time"
# Pixels behind the bars, for two short lines.
_ROOM = 84


def named_stages(messages: pd.DataFrame) -> dict[str, Floats]:
    """Return the time of each message in each stage, in ns.

    Where a stamp is missing two stages are one, of which the later has the time:
    here it is told under both names, ``transit+receive_stack``.

    Parameters
    ----------
    messages : DataFrame, n rows
        Columns of `read.run_schema`, at least the stamps and the stages.

    Returns
    -------
    dict of str to ndarray, shape (n,)
        In the order of the path; NaN where a message has no such stage.

    Examples
    --------
    >>> stamps = dict.fromkeys((f"{name}_ns" for name in STAMPS), [7])
    >>> stages = dict.fromkeys((f"{name}_ns" for name in STAGES), [1])
    >>> cut = stamps | stages | {"arrive_ns": [pd.NA], "transit_ns": [pd.NA]}
    >>> list(named_stages(pd.DataFrame(cut, dtype="Int64")))[3:]
    ['transit+receive_stack', 'receive_queue']
    """
    stamps = {
        name: messages[f"{name}_ns"].to_numpy("int64", na_value=0) for name in STAMPS
    }
    code = missing_code(stamps)
    found: dict[str, Floats] = {}
    for stage in STAGES:
        times = messages[f"{stage}_ns"].to_numpy("float64", na_value=np.nan)
        for lacking in np.unique(code):
            # a stage that has no beginning and no end is none of theirs
            rows = (code == lacking) & ~np.isnan(times)
            if rows.any():
                there = {name: not lacking >> i & 1 for i, name in enumerate(STAMPS)}
                name = merged_name(stage, there)
                found.setdefault(name, np.full(len(times), np.nan))[rows] = times[rows]
    return dict(sorted(found.items(), key=lambda item: _place(item[0])))


def _place(name: str) -> tuple[int, str]:
    return STAGES.index(name.rsplit("+", maxsplit=1)[-1]), name


def stage_means(messages: pd.DataFrame, group: pd.Series) -> pd.DataFrame:
    """Return the mean time in each stage of the messages of each group.

    Parameters
    ----------
    messages : DataFrame, n rows
        Messages that were seen from end to end.
    group : Series of str, n rows
        To which group each belongs, as an ordered category.

    Returns
    -------
    DataFrame
        A row for each group and stage: ``group``, ``n``, ``stage``, ``mean_ns`` (over
        all messages of the group, also those without that stage), ``share`` and
        where it begins and ends on a bar of length 1.
    """
    return means_by_group(named_stages(messages), group)


def means_by_group(stages: Mapping[str, Floats], group: pd.Series) -> pd.DataFrame:
    """Return what `stage_means` does, of the times in each stage; NaN: none."""
    if not stages:
        return pd.DataFrame(columns=["group", "stage", "mean_ns", "share", "n"])
    times = pd.DataFrame(stages).fillna(0.0)
    grouped = times.groupby(group.array, observed=True, sort=True)
    means, counts = grouped.mean(), grouped.size()
    tidy = means.stack().rename("mean_ns").reset_index()
    tidy.columns = pd.Index(["group", "stage", "mean_ns"])
    tidy["group"] = tidy["group"].astype(str)
    total, n = means.sum(axis=1), counts
    total.index, n.index = total.index.astype(str), n.index.astype(str)
    tidy["share"] = tidy["mean_ns"] / tidy["group"].map(total)
    tidy["to_share"] = tidy.groupby("group", sort=False)["share"].cumsum()
    tidy["from_share"] = tidy["to_share"] - tidy["share"]
    tidy["n"] = tidy["group"].map(n)
    return tidy[tidy["mean_ns"] > 0].reset_index(drop=True)


def by_size(kind: str, messages: pd.DataFrame) -> Figure | Missing:
    """Draw each size's shares of stages; a sender that was not seen tells no size."""
    title = f"{kind}, by size"
    sized = messages[messages["size_bytes"].notna()]
    if sized.empty:
        return Missing(title, "no message tells its size")
    means = stage_means(sized, _size_groups(sized["size_bytes"].astype("int64")))
    if means.empty:
        return Missing(title, _NO_STAGE)
    biggest, share = _biggest(means)
    return Figure(
        name=f"stages-by-size-{slug(kind)}",
        title=f"{title}: {biggest} takes {share_range(share)} of the time",
        caption="Mean time in each stage, as a share of end to end; at the right the "
        "mean end to end and n. Means have no interval: a few slow messages move them.",
        alt=f"Stacked bars, one for each size of {kind}: "
        f"{biggest} takes {share_range(share)} of the mean time.",
        data=means,
        charts=[Chart({"share": share_bars(means, "message size", "end to end")})],
        wide=True,
        main=True,
    )


def by_percentile(kind: str, messages: pd.DataFrame) -> Figure | Missing:
    """Draw the shares of stages of the fast and of the slow messages."""
    title = f"{kind}, from fast to slow"
    bands = percentile_bands(messages["end_to_end_ns"].to_numpy("float64"))
    means = stage_means(messages, pd.Series(bands))
    if means.empty:
        return Missing(title, _NO_STAGE)
    last = means[means["group"] == means["group"].iloc[-1]]
    biggest = last.loc[last["share"].idxmax()]
    text = (
        f"{biggest['stage']} is {100 * biggest['share']:.0f}% of the slowest "
        f"({biggest['group']})"
    )
    bars = share_bars(means, "percentiles", "end to end")
    return Figure(
        name=f"stages-by-percentile-{slug(kind)}",
        title=f"{title}: {text}",
        caption="Messages in the order of their end to end, cut at its percentiles. "
        "Slow ones are often simply large: compare with the sizes.",
        alt=f"Stacked bars, one for each band of percentiles of {kind}: {text}.",
        data=means,
        charts=[Chart({"share": bars})],
        wide=True,
        main=True,
    )


def percentile_bands(end_to_end_ns: np.ndarray) -> pd.Categorical:
    """Tell for each value between which percentiles of all it lies.

    Examples
    --------
    >>> list(percentile_bands(np.array([9.0, 1.0, 2.0, 3.0])))
    ['p50 to p90', 'up to p50', 'up to p50', 'p50 to p90']
    """
    n = end_to_end_ns.size
    position = np.empty(n, np.int64)
    position[np.argsort(end_to_end_ns, kind="stable")] = np.arange(1, n + 1)
    ends = [rank(p, n) for p in BANDS[1:-1]] + [n]
    names = ["up to p50"]
    names += [f"p{100 * a:g} to p{100 * b:g}" for a, b in pairwise(BANDS[1:-1])]
    names += [f"above p{100 * BANDS[-2]:g}"]
    codes = np.searchsorted(ends, position)
    return pd.Categorical.from_codes(codes, categories=names, ordered=True)


def _size_groups(sizes: pd.Series) -> pd.Series:
    """Name the sizes, or ranges of them where there are many."""
    found = np.unique(sizes)
    if found.size <= _MOST_SIZES:
        codes = np.searchsorted(found, sizes)
        names = [bytes_text(size) for size in found]
    else:
        at = np.linspace(0, 1, _MOST_SIZES + 1)
        edges = np.unique(np.quantile(sizes, at, method="lower"))
        codes = np.clip(
            np.searchsorted(edges, sizes, side="right") - 1, 0, edges.size - 2
        )
        last = [*(edges[1:-1] - 1), edges[-1]]
        names = [
            f"{number(a)} to {bytes_text(b)}" for a, b in zip(edges, last, strict=False)
        ]
    return pd.Series(pd.Categorical.from_codes(codes, categories=names, ordered=True))


def _biggest(means: pd.DataFrame) -> tuple[str, pd.Series]:
    """Return the stage that takes most over all messages, and its shares.

    A size of few messages has a share of its own, which tells nothing of others.
    """
    weight = means["mean_ns"] * means["n"]
    biggest = str(weight.groupby(means["stage"]).sum().idxmax())
    common = means["n"] >= means["n"].max() / 100
    return biggest, means.loc[common & (means["stage"] == biggest), "share"]


def share_range(share: pd.Series) -> str:
    """Write the least and the largest of some shares.

    Examples
    --------
    >>> share_range(pd.Series([0.25, 0.5])), share_range(pd.Series([0.5]))
    ('25 to 50%', '50%')
    """
    low, high = (f"{100 * value:.0f}" for value in (share.min(), share.max()))
    return f"{low}%" if low == high else f"{low} to {high}%"


@dataclass(frozen=True)
class End:
    """What stands behind the bar of a group: two lines."""

    first: str
    second: str


def _mean_ends(means: pd.DataFrame) -> dict[str, End]:
    """Return for each group its mean and n."""
    rows = means.groupby("group", sort=False).agg(
        mean_ns=("mean_ns", "sum"), n=("n", "first")
    )
    return {
        str(name): End(duration_text(mean_ns), f"n {number(n)}")
        for name, mean_ns, n in rows.itertuples()
    }


def share_bars(
    means: pd.DataFrame, title: str, whole: str, ends: Mapping[str, End] | None = None
) -> Spec:
    """Draw a stacked bar for each group: shares of the mean of the whole.

    Behind each stand `ends`; without them its mean and n.
    """
    stages = list(dict.fromkeys(means["stage"]))
    groups = list(dict.fromkeys(means["group"]))
    rows = [
        {"group": group, "first": end.first, "second": end.second}
        for group, end in (ends or _mean_ends(means)).items()
    ]
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
            _stacks(stages, title, whole),
            _names_on_bars(stages, title),
            *(
                _at_the_end(rows, line, dy)
                for line, dy in (("first", -7), ("second", 7))
            ),
        ],
        "encoding": {
            "y": {
                "field": "group",
                "type": "nominal",
                "sort": groups,
                "title": None,
                "axis": {
                    # the name of a way is long: its ends stand in two lines
                    "labelExpr": "split(replace(datum.label, ' -> ', '|-> '), '|')",
                    "labelOffset": -6 if any(" -> " in name for name in groups) else 0,
                    "labelLimit": 150,
                    "domain": False,
                    "ticks": False,
                },
            }
        },
        "resolve": {"scale": {"color": "independent"}},
    }


def _stacks(stages: list[str], title: str, whole: str) -> Spec:
    return {
        "mark": {"type": "bar", "stroke": colour("card"), "strokeWidth": 1},
        "encoding": {
            "x": {
                "field": "from_share",
                "type": "quantitative",
                "title": f"share of the mean {whole}",
                "scale": {
                    "domain": [0, 1],
                    "nice": False,
                    "range": [0, {"expr": f"width - {_ROOM}"}],
                },
                "axis": {
                    "format": ".0%",
                    "values": [0, 0.25, 0.5, 0.75, 1],
                    "grid": False,
                    "domain": False,
                },
            },
            "x2": {"field": "to_share"},
            "color": {
                "field": "stage",
                "type": "nominal",
                "scale": stage_scale(stages),
                "legend": top_legend(stages),
            },
            "tooltip": _told(title),
        },
    }


def _at_the_end(rows: list[dict[str, str]], line: str, dy: int) -> Spec:
    mark = {"type": "text", "align": "left", "dx": 6, "dy": dy, "aria": False}
    if line == "second":
        mark |= {"fontSize": 11, "color": colour("muted")}
    return {
        "data": {"values": rows},
        "mark": mark,
        "encoding": {"x": {"datum": 1}, "text": {"field": line}},
    }


def _told(title: str) -> list[Spec]:
    return tooltip(
        {"group": title, "stage": "stage", "mean": "mean", "part": "share", "n": "n"}
    )


def _names_on_bars(stages: list[str], title: str) -> Spec:
    """Write a stage's name and share on its bar, or the share where there is room."""
    room = f"(datum.to_share - datum.from_share) * (width - {_ROOM})"
    named = {"test": f"{room} > 7 * length(datum.label)", "field": "label"}
    return {
        "mark": {"type": "text", "aria": False},
        "encoding": {
            "x": {"field": "middle", "type": "quantitative"},
            "text": {"condition": named, "field": "percent"},
            # the name lies on the bar: who points at it points at both
            "tooltip": _told(title),
            "opacity": {"condition": {"test": f"{room} > 30", "value": 1}, "value": 0},
            "color": {
                "field": "stage",
                "type": "nominal",
                "scale": on_stage_scale(stages),
                "legend": None,
            },
        },
    }


def stage_table(
    kind: str, messages: pd.DataFrame, told: dict[str, Any] | None, *, thinned: bool
) -> Table:
    """Tell each stage's percentiles, its slowest, its share and its n.

    `told` are the figures of all messages: `messages` may be a part of them.
    """
    whole = messages["end_to_end_ns"].to_numpy("float64")
    times = named_stages(messages)
    for name in ("wakeup", "end_to_end"):
        times[name] = messages[f"{name}_ns"].to_numpy("float64", na_value=np.nan)
    figures = (told or {}).get("stages") or {}
    rows = [
        _row(name, some[~np.isnan(some)], figures.get(name) or {}, float(whole.sum()))
        for name, some in times.items()
        if not np.isnan(some).all()
    ]
    part = " Intervals are those of the messages that are drawn." if thinned else ""
    n = number((told or {}).get("messages") or len(messages))
    return percentile_table(
        f"{kind}: {n} messages",
        ["stage", *SHOWN, "slowest", "share", "n"],
        rows,
        "Below each percentile its 95% interval, which allows for messages that depend "
        f"on their neighbours.{part} wakeup is part of receive_queue.",
    )


def _row(
    stage: str, values: Floats, told: dict[str, Any], whole_ns: float
) -> list[str | Cell]:
    figures = told or figures_of(values)
    share = figures.get("share_of_end_to_end")
    if share is None and whole_ns > 0:
        share = float(values.sum()) / whole_ns
    return [
        f"of which {stage}" if stage == "wakeup" else stage,
        *percentile_cells(figures, values),
        duration_text(float(figures["max_ns"])),
        percent(share),
        number(figures["n"]),
    ]
