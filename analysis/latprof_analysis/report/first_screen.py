"""The first screen: a picture of where each kind's time goes, and the key figures.

They are drawn from the document, as the tables of the terminal are, and from no rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pandas as pd

from latprof_analysis.report.answer import best_fit, fixed_delay
from latprof_analysis.report.mesh_text import meshes_of, size_text
from latprof_analysis.report.ops import ops_key_figures
from latprof_analysis.report.parts import Chart, Figure, KeyFigure
from latprof_analysis.report.percentile_tables import SHOWN, percentile_cells
from latprof_analysis.report.response_parts import parts_apart
from latprof_analysis.report.sentences import ends_of
from latprof_analysis.report.stage_parts import share_bars, share_range
from latprof_analysis.report.words import duration_text, listed, number
from latprof_analysis.stages import MODEL
from latprof_analysis.text import rate, rate_span

# More bars than this are no picture; the rest is counted.
_MOST_BARS = 8
_WITHIN = ("wakeup", "end_to_end")
_FIRST, *_OTHERS = [stage for stage in MODEL if stage.about]
_ABOUT = [f"{_FIRST.name} is {_FIRST.about}", *(f"{s.name} {s.about}" for s in _OTHERS)]
_WORDS = f"{', '.join(_ABOUT)}."
_MOST_FIGURES = 3
_TITLES = {"end to end": "Messages, by stage", "response": "Responses, by part"}
_Figures = Mapping[str, Any]
# By name: the share of each stage or part, and the figures of the whole.
_Bars = Mapping[str, tuple[dict[str, float], _Figures]]


def first_picture(document: _Figures) -> Figure | None:
    """Draw a bar for each kind of messages; none where no stage is known.

    Of other programs' traffic with exchanges those of the responses stand above.
    """
    groups = {"end to end": _kinds(document)}
    if not document.get("round_trips"):
        groups = {"response": _ways(document), **groups}
    drawn = {whole: _most(bars) for whole, bars in groups.items() if bars}
    if not drawn:
        return None
    rows = [
        {"whole": whole, **row}
        for whole, bars in drawn.items()
        for name, bar in bars.items()
        for row in _rows(name, *bar)
    ]
    data = pd.DataFrame(rows)
    text = _finding(data[data["whole"] == next(iter(drawn))])
    charts = []
    for whole, bars in drawn.items():
        ends = {name: _behind(figures) for name, (_, figures) in bars.items()}
        spec = share_bars(data[data["whole"] == whole], "of", whole, ends)
        spec["transform"].insert(0, {"filter": f"datum.whole === '{whole}'"})
        charts.append(Chart({"share": spec}, _TITLES[whole] if len(drawn) > 1 else ""))
    left = sum(len(groups[whole]) - len(bars) for whole, bars in drawn.items())
    more = f" {left} rarer ones are not drawn." if left else ""
    return Figure(
        name="picture",
        title=text,
        caption=f"Shares of all time, and at the right median and p99, of all that "
        f"were counted.{more} {_WORDS}",
        alt=f"Stacked bars of {listed(list(drawn))}. {text}.",
        data=data,
        charts=charts,
        main=True,
    )


def _most(bars: _Bars) -> _Bars:
    """Return those of which there are most, in the order in which they stand."""
    by_count = sorted(bars, key=lambda name: -bars[name][1]["n"])[:_MOST_BARS]
    return {name: bar for name, bar in bars.items() if name in by_count}


def _kinds(document: _Figures) -> _Bars:
    bars = {}
    for kind, figures in (document.get("kinds") or {}).items():
        stages = figures["stages"]
        whole = stages.get("end_to_end") or {}
        shares = {
            name: one["share_of_end_to_end"] or 0
            for name, one in stages.items()
            if name not in _WITHIN
        }
        if whole.get("n") and any(shares.values()):
            bars[kind] = shares, whole
    return bars


def _ways(document: _Figures) -> _Bars:
    bars = {}
    for name, figures in (document.get("exchanges") or {}).items():
        parts = figures["parts"]
        apart = parts_apart(parts)
        # of a client whose server was not seen the response is all that is known
        if apart and parts.get("response", {}).get("n"):
            bars[ends_of(name)] = apart, parts["response"]
    return bars


def _rows(
    name: str, shares: Mapping[str, float], whole: _Figures
) -> Iterator[dict[str, Any]]:
    end, total = 0.0, sum(shares.values())
    for stage, share in shares.items():
        begin, end = end, end + share / total
        yield {
            "group": name,
            "stage": stage,
            "mean_ns": share * whole["mean_ns"] if whole.get("mean_ns") else None,
            "share": share,
            "to_share": end,
            "from_share": begin,
            "n": whole["n"],
        }


def _behind(figures: _Figures) -> tuple[str, str]:
    """Return the two lines that stand behind a bar."""
    p50, p99 = figures.get("p50_ns"), figures.get("p99_ns")
    n = f"n {number(figures['n'])}"
    if p50 is None:
        return n, ""
    second = n if p99 is None else f"p99 {duration_text(p99)}"
    return f"p50 {duration_text(p50)}", second


def _finding(data: pd.DataFrame) -> str:
    """Say which stage takes most, of each group or of all of them."""
    largest = data.loc[data.groupby("group", sort=False)["share"].idxmax()]
    if largest["stage"].nunique() == 1:
        share = share_range(largest["share"])
        return f"Where the time goes: {share} is {largest['stage'].iloc[0]}"
    most = largest.head(3).itertuples()
    texts = [f"{one.share:.0%} of a {one.group} is {one.stage}" for one in most]
    return f"Where the time goes: {', '.join(texts)}"


def key_figures(document: dict[str, Any]) -> list[KeyFigure]:
    """Return the numbers that the answer rests on, each with what qualifies it.

    Times are of every protocol, way or kind, those of which there are most; the link
    is shown by the estimate that is the surest (`answer.best_fit`).
    """
    asked = next(filter(None, _asked(document)), {})
    alone = len(asked) == 1
    found = (one for item in asked.items() for one in _of_percentiles(*item, alone))
    return [*(found if alone else islice(found, _MOST_FIGURES)), *_link(document)]


def _asked(document: _Figures) -> Iterator[dict[str, _Figures]]:
    """Give by name what histograms counted: what a reader asks for first is first."""
    yield dict(ops_key_figures(document))
    if meshes := meshes_of(document):
        yield dict(_of_cells(meshes))
        return
    yield {
        f"{protocol} round trips": {**one.get("rtt", {}), **_intervals(one)}
        for protocol, one in (document.get("round_trips") or {}).items()
    }
    yield {
        f"{ends_of(name)}, response": one["parts"].get("response", {})
        for name, one in (document.get("exchanges") or {}).items()
    }
    yield {
        f"{kind}, end to end": one["stages"].get("end_to_end", {})
        for kind, one in (document.get("kinds") or {}).items()
    }
    yield {
        f"{kind}, {size} B" if size[0].isdigit() else kind: figures
        for kind, one in ((document.get("samples") or {}).get("kinds") or {}).items()
        for size, figures in (one.get("sizes") or {}).items()
    }


def _of_cells(meshes: Sequence[tuple[str, _Figures]]) -> Iterator[tuple[str, _Figures]]:
    """Give round trips by size: those of all hold the trials of a search, too."""
    for run, mesh in meshes:
        begin = f"run {run}, " if run else ""
        for cell in mesh["cells"]:
            name = f"{begin}{mesh['protocol']} {size_text(cell)}, from when due"
            yield name, cell["intended"]


def _intervals(trips: _Figures) -> dict[str, float | None]:
    """Return the intervals of round trips, which allow for dependence."""
    return {
        f"{name}_{end}_ns": one[f"{end}_ns"]
        for name, one in ((trips.get("tail") or {}).get("percentiles") or {}).items()
        if name != "reason"
        for end in ("low", "high")
    }


def _of_percentiles(name: str, figures: _Figures, alone: bool) -> Iterator[KeyFigure]:
    """Give each percentile of what is alone; else the median, with the farthest."""
    cells = zip(SHOWN, percentile_cells(figures), strict=True)
    known = [(p, cell) for p, cell in cells if figures.get(f"{p}_ns") is not None]
    n, far = f"n {number(figures.get('n', 0))}", ""
    if len(known) > 1 and not alone:
        far = f"{known[-1][0]} {known[-1][1].text}"
    for p, cell in known if alone else known[:1]:
        sure = f"95%: {cell.under}" if cell.under else ""
        under = "; ".join(filter(None, (sure, far, n)))
        yield KeyFigure(f"{name}, {p}", cell.text, under)


def _link(document: dict[str, Any]) -> list[KeyFigure]:
    quantity, fit = best_fit(document)
    found, within = fit.get("bandwidth_bits_per_second"), fit.get("link_rate_range")
    if not found:
        return []
    n = f"n {number(fit['n'])}"
    if within:
        value = rate_span(within["low"], within["high"])
        first = KeyFigure("the link's own rate", value, f"by {quantity}; {n}")
    else:
        interval = rate_span(found["low"], found["high"])
        under = f"95%: {interval}, by {quantity}; {n}"
        first = KeyFigure("bandwidth", rate(found["value"]), under)
    value, interval = fixed_delay(fit)
    return [first, KeyFigure("fixed delay", value, f"{interval}; {n}")]
