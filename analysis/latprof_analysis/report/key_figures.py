"""The numbers that the answer rests on: how long it takes, what the link carries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from latprof_analysis.report.answer import best_fit, fixed_delay
from latprof_analysis.report.parts import KeyFigure
from latprof_analysis.report.percentile_tables import SHOWN, percentile_cells
from latprof_analysis.report.sentences import ends_of
from latprof_analysis.report.words import number
from latprof_analysis.text import rate, rate_span

_MOST = 3
_Figures = Mapping[str, Any]
_Named = Iterator[tuple[str, _Figures]]


def key_figures(document: dict[str, Any]) -> list[KeyFigure]:
    """Return the numbers that the answer rests on, each with what qualifies it.

    Times are of every protocol, way or kind, those of which there are most; the link
    is told by the estimate that is the surest (`answer.best_fit`).
    """
    names, told = _told(document)
    if len(names) == 1:
        return [*_of_one(names[0], told[0]), *_link(document)]
    shown = islice(filter(None, map(_of_several, names, told)), _MOST)
    return [*shown, *_link(document)]


def _told(document: dict[str, Any]) -> tuple[list[str], list[_Figures]]:
    """Return what a reader asks for first, by name, as histograms counted it."""
    for name, of in _ASKED.items():
        told = (document.get(name) or {}).items()
        found = dict(one for key, figures in told for one in of(key, figures))
        if found:
            return list(found), list(found.values())
    return [], []


def _round_trips(protocol: str, told: _Figures) -> _Named:
    ends = (told.get("tail") or {}).get("percentiles") or {}
    sure = {
        f"{name}_{end}_ns": one[f"{end}_ns"]
        for name, one in ends.items()
        for end in ("low", "high")
    }
    yield f"{protocol} round trips", {**told.get("rtt", {}), **sure}


def _responses(name: str, told: _Figures) -> _Named:
    yield f"{ends_of(name)}, response", told["parts"].get("response", {})


def _messages(kind: str, told: _Figures) -> _Named:
    yield f"{kind}, end to end", told["stages"].get("end_to_end", {})


def _samples(name: str, told: _Figures) -> _Named:
    for kind, one in told.items() if name == "kinds" else ():
        for size, figures in (one.get("sizes") or {}).items():
            yield f"{kind}, {size} B" if size[0].isdigit() else kind, figures


_ASKED: Mapping[str, Callable[[str, Any], _Named]] = {
    "round_trips": _round_trips,
    "exchanges": _responses,
    "kinds": _messages,
    "samples": _samples,
}


def _of_one(name: str, figures: _Figures) -> Iterator[KeyFigure]:
    """Give each percentile of what is alone."""
    n = f"n {number(figures.get('n', 0))}"
    for label, cell in zip(SHOWN, percentile_cells(figures), strict=True):
        if figures.get(f"{label}_ns") is not None:
            under = f"95%: {cell.under}; {n}" if cell.under else n
            yield KeyFigure(f"{name}, {label}", cell.text, under)


def _of_several(name: str, figures: _Figures) -> KeyFigure | None:
    """Return the median, and below it the farthest percentile that is told."""
    found = list(_of_one(name, figures))
    if not found:
        return None
    median, last = found[0], found[-1]
    *interval, n = median.under.split("; ")
    far = last.label.removeprefix(f"{name}, ")
    slow = [f"{far} {last.value}"] if last is not median else []
    return KeyFigure(median.label, median.value, "; ".join([*interval, *slow, n]))


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
