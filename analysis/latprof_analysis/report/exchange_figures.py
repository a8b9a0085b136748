"""Exchanges drawn: where the response goes, its percentiles, and it over time.

Their parts sum to the response, row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.fit.rounds import Floats
from latprof_analysis.read.result import concatenated
from latprof_analysis.report.parts import (
    Chart,
    Figure,
    Fold,
    Missing,
    Part,
    Section,
    Spec,
    Table,
    Text,
)
from latprof_analysis.report.percentile_tables import SHOWN, Row, percentile_table
from latprof_analysis.report.response_parts import parts_shown
from latprof_analysis.report.sentences import ends_of, exchange_notes
from latprof_analysis.report.stage_parts import (
    floats,
    means_by_group,
    percentile_bands,
    share_bars,
    times_by_name,
)
from latprof_analysis.report.time import time_figure
from latprof_analysis.report.vega import (
    colour,
    duration_axis,
    duration_expr,
    layer,
    named,
    tooltip,
    top_legend,
    written,
)
from latprof_analysis.report.words import duration_text, number, slug
from latprof_analysis.stages import (
    APART,
    EXCHANGE_STAMPS,
    INNER_PARTS,
    SUMMANDS,
    WORK_PARTS,
    part_label,
    part_order,
    parts_present,
)
from latprof_analysis.stats.quantiles import samples_needed
from latprof_analysis.study.analysis import Study
from latprof_analysis.study.messages import above_usual
from latprof_analysis.text import NS_PER_SECOND

# Of more ways the largest are drawn.
_MOST_WAYS = 4
_MOST_ROWS = 12
_TAIL = 0.99
_MOST_IN_NAME = 40
_SHAPES = {
    "p50": "circle",
    "p90": "square",
    "p99": "triangle-up",
    "p99.9": "diamond",
    "max": "triangle-right",
}


def summed_parts(exchanges: pd.DataFrame) -> dict[str, Floats]:
    """Return the time of each exchange in parts of which none holds another, in ns.

    What the server waited and worked stands apart where that is known, the waits for
    a CPU apart from the others, and its pauses apart from the reply's way. Parts that
    are one for want of a stamp have the names of both.

    Parameters
    ----------
    exchanges : DataFrame, n rows
        Columns of `read.schema`, of exchanges whose response has its parts.

    Returns
    -------
    dict of str to ndarray, shape (n,)
        By the words for people, in the order of the path; NaN where there is none.
    """
    missing = np.zeros(len(exchanges), np.int64)
    for bit, stamp in enumerate(EXCHANGE_STAMPS):
        missing |= exchanges[f"{stamp}_ns"].isna().to_numpy().astype(np.int64) << bit

    def name(part: str, code: int) -> str:
        names = {column: name for name, column in parts_present(code)}
        return names[f"{part}_ns"]

    found = times_by_name(_apart(exchanges), missing, name)
    return {part_label(name, ""): found[name] for name in sorted(found, key=part_order)}


def _apart(exchanges: pd.DataFrame) -> Iterator[tuple[str, Floats]]:
    """Give the parts with what is within them taken off."""
    of = {name: floats(exchanges[f"{name}_ns"]) for name in (*SUMMANDS, *INNER_PARTS)}
    split = ~np.isnan(of["server_queue"]) & ~np.isnan(of["server_work"])
    known = split & ~np.isnan(of["server_cpu"])
    within = {name: np.nan_to_num(of[name]) for name in INNER_PARTS}
    yield "request_way", of["request_way"]
    queue = of["server_queue"] - within["server_wakeup"]
    yield "server_queue", np.where(split, queue, np.nan)
    yield "server_wakeup", np.where(split, of["server_wakeup"], np.nan)
    yield "server_work", np.where(split & ~known, of["server_work"], np.nan)
    for name in WORK_PARTS:
        yield name, np.where(known, of[name], np.nan)
    yield "server", np.where(split, np.nan, of["server"])
    yield "reply_way", of["reply_way"] - within["reply_pauses"] - within["client_queue"]
    yield "reply_pauses", of["reply_pauses"]
    yield "client_queue", of["client_queue"] - within["client_wakeup"]
    yield "client_wakeup", of["client_wakeup"]


def exchange_sections(study: Study) -> list[Section]:
    """Lay out exchanges; nothing where there are none."""
    ways = study.document.get("exchanges") or {}
    if not ways:
        return []
    parts: list[Part] = []
    several = {name: f for name, f in ways.items() if f["exchanges"] > 1}
    timed = {name: f for name, f in several.items() if "response" in f["parts"]}
    if timed:
        parts.append(percentiles_figure(timed))
    for i, (name, figures) in enumerate(islice(several.items(), _MOST_WAYS), 1):
        of_way = _way_parts(i, name, figures, study)
        parts += of_way if i == 1 else [Fold(ends_of(name), of_way)]
    if left := ", ".join(map(ends_of, islice(several, _MOST_WAYS, None))):
        parts.append(Text(f"Fewer exchanges, not drawn: {left}.", quiet=True))
    if single := ", ".join(_single(n, f) for n, f in ways.items() if n not in several):
        parts.append(Text(f"One exchange each: {single}.", quiet=True))
    return [Section("exchanges", "Exchanges", parts)]


def _single(name: str, figures: Mapping[str, Any]) -> str:
    """Name a way of one exchange, and what that took where it is known."""
    whole = figures["parts"].get("response") or {}
    took_ns = whole.get("max_ns")
    return ends_of(name) + (f" {duration_text(took_ns)}" if took_ns else "")


def _rows(exchanges: pd.DataFrame, name: str) -> pd.DataFrame:
    if exchanges.empty:
        return exchanges
    protocol, _, way = name.partition(" ")
    mine = (exchanges["protocol"] == protocol) & (exchanges["way"] == way)
    return exchanges[mine & ~exchanges["kind"].isin(APART)]


def _way_parts(
    place: int, name: str, figures: dict[str, Any], study: Study
) -> list[Part]:
    rows = _rows(study.exchanges, name)
    parts: list[Part] = [part_table(name, figures, rows)]
    whole, slow = _whole(rows), _whole(_rows(study.slow_exchanges, name))
    if whole.empty:
        return parts
    # names of ways may be alike but for what no file name can have
    file = f"{place}-{slug(name)[:_MOST_IN_NAME]}"
    parts.append(bands_figure(name, whole, f"exchange-parts-{file}"))
    every = concatenated([one for one in (whole, slow) if len(one)])
    timed = every[every["request_sent_ns"].notna()]
    if timed.empty:
        reason = "no exchange has the time at which it began"
        return [*parts, Missing(f"{ends_of(name)} over time", reason)]
    return [*parts, response_figure(name, timed, f"exchange-time-{file}")]


def _whole(rows: pd.DataFrame) -> pd.DataFrame:
    """Return those of which the response and all its parts are known."""
    if rows.empty:
        return rows
    return rows[rows["response_ns"].notna() & rows["reply_way_ns"].notna()]


def part_table(name: str, figures: dict[str, Any], rows: pd.DataFrame) -> Table:
    """Show each part's percentiles with their intervals, and its share."""
    table_rows: list[Row] = []
    for part, values in parts_shown(figures["parts"]).items():
        times = None  # of parts that are one in some rows there are none
        if f"{part}_ns" in rows:
            times = floats(rows[f"{part}_ns"].dropna())
        # what a page would swallow at the beginning of a cell
        label = part_label(part, "\N{EM SPACE}")
        table_rows.append(
            ([label], values | {"share": values["share_of_response"]}, times)
        )
    notes = [f" {note[:1].upper()}{note[1:]}." for note in exchange_notes(figures)]
    return percentile_table(
        f"{ends_of(name)}: {number(figures['exchanges'])} exchanges",
        ["part", *SHOWN, "slowest", "share", "n"],
        table_rows,
        "Request's way, server and reply's way sum to the response; what is further "
        "in is a part of what stands before. Below each percentile its 95% interval, "
        f"which allows for exchanges that depend on their neighbours.{''.join(notes)}",
    )


def bands_figure(name: str, rows: pd.DataFrame, file: str) -> Figure:
    """Draw the shares of parts of the fast and of the slow exchanges."""
    response = floats(rows["response_ns"])
    parts = summed_parts(rows)
    means = means_by_group(parts, percentile_bands(response))
    text = _tail_sentence(parts, response)
    # bars are of stages; the table calls them parts
    bars = share_bars(means, "percentiles", "response")
    bars["transform"] = [*written(stage="datum.part"), *bars["transform"]]
    ends = ends_of(name)
    return Figure(
        name=file,
        title=f"{ends}: {text}",
        caption="Exchanges in the order of their response, cut at its percentiles: "
        "mean time in each part as a share; at the right the mean response and n. "
        "Means have no interval: a few slow exchanges move them.",
        alt=f"Stacked bars, one for each band of percentiles of {ends}: {text}.",
        data=means.rename(columns={"stage": "part"}),
        charts=[Chart({"share": bars})],
        main=True,
    )


def _tail_sentence(parts: Mapping[str, Floats], response: Floats) -> str:
    """Say what takes most time in the slowest 1%, and at the median."""
    usual = _largest(parts, response <= np.quantile(response, 0.5))
    if response.size < samples_needed(_TAIL):
        return f"of the faster half's time {usual}"
    slow = _largest(parts, response >= np.quantile(response, _TAIL))
    return f"of the slowest 1%'s time {slow}, of the faster half's {usual}"


def _largest(parts: Mapping[str, Floats], rows: np.ndarray) -> str:
    sums = {name: float(np.nansum(times[rows])) for name, times in parts.items()}
    most = max(sums, key=lambda name: sums[name])
    whole = sum(sums.values())
    return f"{100 * sums[most] / whole:.0f}% is {most}" if whole else "is none"


def percentiles_figure(ways: Mapping[str, dict[str, Any]]) -> Figure:
    """Draw the percentiles of the response, a line for each way."""
    shown = {
        ends_of(name): figures["parts"]["response"]
        for name, figures in islice(ways.items(), _MOST_ROWS)
    }
    rows = [
        (way, label, response[f"{label}_ns"], response["n"])
        for way, response in shown.items()
        for label in _SHAPES
    ]
    columns = ["way", "percentile", "response_ns", "n"]
    data = pd.DataFrame(rows, columns=columns).dropna()
    worst = data.loc[data["response_ns"].idxmax()]
    text = f"the longest took {duration_text(float(worst['response_ns']))}"
    left = len(ways) - len(shown)
    drawn = list(dict.fromkeys(data["way"]))
    return Figure(
        name="exchange-responses",
        title=f"Response by way: {text}, {worst['way']}",
        caption="Percentiles of the response, from the first send of a request to the "
        "last byte of its reply read, of all exchanges; one is left out where there "
        "are too few for it. Intervals stand in the table."
        + (f" {left} more ways are not drawn." if left else ""),
        alt=f"Percentiles of the response, a line for each way; {text}.",
        data=data,
        charts=[Chart({"log": _dots(way, data["response_ns"])}, way) for way in drawn],
    )


def _dots(way: str, response: pd.Series) -> Spec:
    """Draw the percentiles of one way, along the axis that all ways share."""
    x = duration_axis("response", "log")
    ends = [float(response.min()), float(response.max())]
    x |= {"scale": x["scale"] | {"domain": ends, "padding": 8}}
    names = list(_SHAPES)
    shapes = {"domain": names, "range": [*_SHAPES.values()]}
    encoding = {
        "color": {"value": colour("mark")},
        "shape": named("percentile", shapes, legend=top_legend(names)),
        "tooltip": tooltip({"percentile": "", "took": "response", "n": "n"}),
    }
    return {
        "height": 24,
        "transform": [
            {"filter": {"field": "way", "equal": way}},
            *written(took=duration_expr("datum.response_ns")),
        ],
        "encoding": {"x": {"field": "response_ns", **x}},
        "layer": [
            {"mark": {"type": "line", "color": colour("edge"), "aria": False}},
            layer("point", encoding, filled=True, size=80, opacity=1),
        ],
    }


def response_figure(name: str, rows: pd.DataFrame, file: str) -> Figure:
    """Draw the response over time; points by the part that is the largest.

    `rows` are exchanges that all have the time at which they began.
    """
    sent = rows["request_sent_ns"].astype("int64")
    first = sent.groupby(rows["run"], observed=True).transform("min")
    response = floats(rows["response_ns"])
    size = rows["request_bytes"].fillna(0) + rows["reply_bytes"].fillna(0)
    parts = pd.DataFrame(summed_parts(rows)).fillna(0.0)
    series = pd.DataFrame(
        {
            "t_s": ((sent - first) / NS_PER_SECOND).to_numpy("float64"),
            "above_ns": above_usual(size, response),
            "latency_ns": response,
            "part": parts.columns[parts.to_numpy().argmax(axis=1)],
        }
    )
    return time_figure({ends_of(name): series}, "response", name=file)
