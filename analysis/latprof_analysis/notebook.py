"""What a notebook shows of what was read: one table, and one small picture of it.

Plain HTML and SVG, without a script, a style sheet or anything from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.stages import APART, MODEL
from latprof_analysis.stats.quantiles import samples_needed
from latprof_analysis.text import counted, duration, printable

if TYPE_CHECKING:
    import pandas as pd

Times = NDArray[np.float64]

_MOST = 6  # distributions of a picture, and as many colours
_COLOURS = tuple(stage.colours[0] for stage in MODEL)
_WIDTH, _HEIGHT, _LEFT, _BELOW = 480, 220, 36, 22
_POINTS = 201
_CELL = "padding:2px 10px;text-align:right;white-space:nowrap"


@dataclass(frozen=True)
class Picture:
    """A picture that a notebook shows by itself; `svg` is its text."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg


def times_by_kind(frame: pd.DataFrame, kind: str, time: str) -> dict[str, Times]:
    """Return the times of each kind of row, in ns, of rows that have one.

    What stands in no figure, as of the warm-up, is left out.
    """
    found: dict[str, Times] = {}
    if kind in frame and time in frame:
        timed = frame[[kind, time]].dropna()
        for name, rows in timed.groupby(kind, observed=True):
            if name not in APART:
                found[str(name)] = rows[time].to_numpy(float)
    return found


def page(title: str, rows: Sequence[Sequence[str]], picture: Picture | None) -> str:
    """Return a title, a table whose first row is its head, and a picture below."""
    head, *others = rows
    lines = [_row("th", head), *(_row("td", one) for one in others)]
    table = f"<table>{''.join(lines)}</table>" if others else ""
    drawn = picture.svg if picture else ""
    return f"<div><p>{_text(title)}</p>{table}{drawn}</div>"


def figures(of: Mapping[str, Times], lost: Mapping[str, int | None]) -> list[list[str]]:
    """Return the rows of a table: of each kind how many, median, p99, maximum.

    A percentile stands where it has an upper bound, as in a run's figures.
    """
    rows = [["kind", "n", "lost", "p50", "p99", "max"]]
    for name, times in of.items():
        missing = lost.get(name)
        p50, p99 = (
            duration(_quantile(times, p)) if len(times) >= samples_needed(p) else ""
            for p in (0.5, 0.99)
        )
        rows.append(
            [
                name,
                f"{len(times):,}",
                "" if missing is None else f"{missing:,}",
                p50,
                p99,
                duration(float(times.max())),
            ]
        )
    return rows


def distributions(of: Mapping[str, Times]) -> Picture | None:
    """Draw which share of the values of each kind took at most so long.

    The axis of times is logarithmic. None where no value is above 0.
    """
    first = dict(sorted(of.items(), key=lambda one: -len(one[1]))[:_MOST])
    above = {n: t for n, t in first.items() if (t > 0).any()}
    if not above:
        return None
    least = min(times[times > 0].min() for times in above.values())
    low, high = np.log10(least), np.log10(max(times.max() for times in above.values()))
    if high - low < 0.1:
        low, high = low - 0.05, high + 0.05
    marks = [_axes(low, high)]
    for i, (name, times) in enumerate(above.items()):
        shares = np.linspace(0, 1, min(_POINTS, len(times) + 1))
        each = np.quantile(times, shares, method="inverted_cdf")
        at = np.log10(np.maximum(each, least))  # a time of 0 begins at the axis
        x, y = _x(at, low, high), _y(shares)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        marks.append(
            f'<polyline fill="none" stroke="{_COLOURS[i]}" stroke-width="1.5" '
            f'points="{points}"/>'
            f'<text x="{_LEFT + 6}" y="{16 + 13 * i}" fill="{_COLOURS[i]}">'
            f"{_text(name, 40)}</text>"
        )
    rest = len(of) - len(above)
    if rest > 0:
        marks.append(
            f'<text x="{_LEFT + 6}" y="{16 + 13 * len(above)}">and '
            f"{counted(rest, 'kind')} more</text>"
        )
    return Picture(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="sans-serif" font-size="11" fill="#555" role="img" '
        'style="background:#fff"><title>share of values that took at most so long'
        f"</title>{''.join(marks)}</svg>"
    )


def _axes(low: float, high: float) -> str:
    """Draw a line for 0, 50 and 100%, and one for each power of ten, or both ends."""
    marks = [_line(_LEFT, y, _WIDTH, y) for y in _y(np.array([0, 0.5, 1]))]
    marks += [
        f'<text x="0" y="{y + 4:.1f}">{share}</text>'
        for share, y in zip(
            ("0", "50%", "100%"), _y(np.array([0, 0.5, 1])), strict=True
        )
    ]
    tens = np.arange(np.ceil(low), np.floor(high) + 1)
    ends = tens if len(tens) > 1 else np.array([low, high])
    for at, x in zip(ends, _x(ends, low, high), strict=True):
        marks.append(_line(x, 8, x, _HEIGHT - _BELOW))
        anchor = "end" if x > _WIDTH - 30 else "middle"
        marks.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">'
            f"{duration(10**at)}</text>"
        )
    return "".join(marks)


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'
    )


def _x(at: Times, low: float, high: float) -> Times:
    return _LEFT + 4 + (at - low) / (high - low) * (_WIDTH - _LEFT - 12)


def _y(shares: Times) -> Times:
    return 8 + (1 - shares) * (_HEIGHT - _BELOW - 8)


def _quantile(times: Times, p: float) -> float:
    return float(np.quantile(times, p, method="inverted_cdf"))


def _row(cell: str, texts: Iterable[str]) -> str:
    cells = (f'<{cell} style="{_CELL}">{_text(one)}</{cell}>' for one in texts)
    return f"<tr>{''.join(cells)}</tr>"


def _text(text: str, width: int = 200) -> str:
    return escape(printable(text, width))
