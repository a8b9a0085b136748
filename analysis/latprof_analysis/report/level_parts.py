"""Changes of level: marks upon the line of time, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import pandas as pd

from latprof_analysis.report.marks import duration_expr, tooltip, written
from latprof_analysis.report.parts import Cell, Part, Spec, Table, Text
from latprof_analysis.report.theme import colour
from latprof_analysis.report.words import duration_text, number
from latprof_analysis.study.levels import SMALLEST_STEP, alike, large_changes, step_ns
from latprof_analysis.text import percent, plural

# More changes of level than this are counted, not told one by one.
_MOST_TOLD = 12


def level_rows(figures: dict[str, Any] | None) -> pd.DataFrame:
    """Return levels and large changes as rows beside those of `over_time`.

    Parameters
    ----------
    figures : dict or None
        Of one kind of messages, as `message_figures` has them.

    Returns
    -------
    DataFrame
        ``role``: level or change. Of a level ``t_s`` and ``to_s`` are its ends and
        ``latency_ns``, ``min_ns`` and ``max_ns`` its median with its interval, above
        the median of all messages; of a change ``t_s`` is its place, ``from_s`` and
        ``to_s`` the interval of that, and ``before_ns`` and ``latency_ns`` are the
        levels on both sides. Where only the order is known, ``t_s`` counts values
        from 1.
        Empty where nothing changed by much.
    """
    levels = _levels(figures)
    large = large_changes(levels, usual_ns(figures))
    if not large:
        return pd.DataFrame()
    usual = usual_ns(figures) or 0.0
    rows = [
        {
            "role": "level",
            "t_s": part.get("from_s", part["first"] + 1),
            "to_s": part.get("to_s", part["last"] + 1),
            "latency_ns": usual + level["value"],
            "min_ns": _above(usual, level["low"]),
            "max_ns": _above(usual, level["high"]),
            "messages": level["n"],
            "run": part.get("run", ""),
        }
        for level in levels["levels"]
        for part in level["spans"]
    ]
    every = _every(figures)
    rows += [
        {
            "role": "change",
            "t_s": change.get("t_s", change["index"] * every + 1),
            "from_s": change.get("low_s", change["low"] * every + 1),
            "to_s": change.get("high_s", change["high"] * every + 1),
            "before_ns": usual + change["before"]["value"],
            "latency_ns": usual + change["after"]["value"],
            "messages": change["before"]["n"] + change["after"]["n"],
            "run": change.get("run", ""),
        }
        for change in large
    ]
    return pd.DataFrame(rows)


def usual_ns(figures: dict[str, Any] | None) -> float | None:
    """Return the median of all messages: what levels are drawn above."""
    tail = (figures or {}).get("tail") or {}
    value = (tail.get("percentiles") or {}).get("p50", {}).get("value_ns")
    return None if value is None else float(value)


def _above(usual: float, end: float | None) -> float | None:
    return None if end is None else usual + end


def _levels(figures: dict[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = ((figures or {}).get("time") or {}).get("level_changes", {})
    return found


def _every(figures: dict[str, Any] | None) -> int:
    return int(((figures or {}).get("time") or {}).get("every", 1))


def level_parts(groups: Mapping[str, dict[str, Any] | None]) -> list[Part]:
    """Tell the changes of level of each group, or that there were none."""
    parts: list[Part] = []
    for name, figures in groups.items():
        if figures and _levels(figures):
            parts += _of_group(name, figures)
    return parts


def _of_group(name: str, figures: dict[str, Any]) -> list[Part]:
    levels = _levels(figures)
    if "changes" not in levels:
        text = f"{name}: changes of level not told: {levels['reason']}."
        return [Text(text, quiet=True)]
    large = large_changes(levels, usual_ns(figures))
    small = len(levels["changes"]) - len(large)
    told = []
    if not levels["changes"]:
        told.append(f"no evidence that the level changed, n {number(levels['n'])}")
    if small:
        told.append(
            f"{plural(small, 'change')} of level below {percent(SMALLEST_STEP)} of the "
            "median"
        )
    if large and alike(levels):
        told.append(
            "neighbours are alike here (a queue), which looks like changes of level: "
            "believe the large ones"
        )
    quiet = [Text(f"{name}: {'; '.join(told)}.", quiet=True)] if told else []
    return [*([_table(name, large, figures)] if large else []), *quiet]


def _table(name: str, large: list[dict[str, Any]], figures: dict[str, Any]) -> Table:
    usual, every = usual_ns(figures) or 0.0, _every(figures)
    by_step = sorted(large, key=lambda change: -abs(step_ns(change)))[:_MOST_TOLD]
    shown = sorted(by_step, key=lambda change: int(change["index"]))
    runs = {change.get("run", "") for change in shown}
    rows: list[list[str | Cell]] = [
        [
            _place(change, every, several=len(runs) > 1),
            _level(change["before"], usual),
            _level(change["after"], usual),
            f"{'+' if step_ns(change) > 0 else '-'}"
            f"{duration_text(abs(step_ns(change)))}",
        ]
        for change in shown
    ]
    more = ""
    if len(shown) < len(large):
        more = f", the {len(shown)} largest of {len(large)}"
    note = (
        "Medians of the messages between two changes, each held against the median of "
        f"its size and told above {duration_text(usual)}, the median of all; below "
        "them, and below the place, 95% intervals. That of the place is for small "
        "steps, and holds more often for large ones."
    )
    title = f"{name}: {plural(len(large), 'change')} of level{more}"
    return Table(title, ["when", "from", "to", "step"], rows, note)


def _place(change: dict[str, Any], every: int, *, several: bool) -> Cell:
    low, at, high = (change[key] * every for key in ("low", "index", "high"))
    values = f"message {number(low + 1)} to {number(high + 1)}"
    if "t_s" not in change:
        return Cell(f"message {number(at + 1)}", values)
    text = f"{change['t_s']:.4g} s"
    if several:
        text = f"{change['run']}, {text}"
    if change["low_s"] is None or change["high_s"] is None:
        return Cell(text, f"{values}, in several runs")
    return Cell(text, f"{change['low_s']:.4g} to {change['high_s']:.4g} s; {values}")


def _level(median: dict[str, Any], usual: float) -> Cell:
    low, high = _above(usual, median["low"]), _above(usual, median["high"])
    interval = f"{duration_text(low)} to {duration_text(high)}, n {number(median['n'])}"
    return Cell(duration_text(usual + median["value"]), interval)


def level_layers(x: Spec, y: Spec, roles: Set[str]) -> list[Spec]:
    """Return the marks of levels and changes, over those of messages.

    `roles` are those of which there are rows.
    """
    levels = [_level_line(x, y)] if "level" in roles else []
    return [*levels, *(_change_layers(x) if "change" in roles else [])]


def _change_layers(x: Spec) -> list[Spec]:
    shade: Spec = {
        "mark": {
            "type": "rect",
            "color": colour("muted"),
            "opacity": 0.2,
            "clip": True,
        },
        "encoding": {"x": x | {"field": "from_s"}, "x2": {"field": "to_s"}},
    }
    seen = {"color": colour("ink"), "strokeDash": [4, 3], "strokeWidth": 1.5}
    # wider than what is seen, so that it can be pointed at
    pointed = {"strokeWidth": 12, "opacity": 0}
    rules: list[Spec] = [
        {"mark": {"type": "rule", "clip": True, **look}, "encoding": {"x": x}}
        for look in (seen, pointed)
    ]
    return [_telling(layer) for layer in (shade, *rules)]


def _telling(layer: Spec) -> Spec:
    """Let a layer of changes say what changed."""
    between = (
        "isValid(datum.from_s) && isValid(datum.to_s) ? "
        "format(datum.from_s, '.6~r') + ' to ' + format(datum.to_s, '.6~r') : "
        "'in several runs'"
    )
    texts = written(
        left=duration_expr("datum.before_ns"),
        reached=duration_expr("datum.latency_ns"),
        between=between,
    )
    titles = {
        "when": "level changed at",
        "between": "95% interval",
        "left": "from",
        "reached": "to",
    }
    return {
        "transform": [{"filter": "datum.role === 'change'"}, *texts],
        **layer,
        "encoding": layer["encoding"] | {"tooltip": tooltip(titles)},
    }


def _level_line(x: Spec, y: Spec) -> Spec:
    return {
        "transform": [{"filter": "datum.role === 'level'"}],
        "mark": {
            "type": "rule",
            "color": colour("ink"),
            "strokeWidth": 3,
            "strokeCap": "butt",
            "clip": True,
        },
        "encoding": {
            "x": x,
            "x2": {"field": "to_s"},
            "y": {"field": "latency_ns", **y},
            "tooltip": tooltip(
                {
                    "when": "level from",
                    "took": "median",
                    "least": "interval from",
                    "most": "to",
                    "messages": "messages",
                }
            ),
        },
    }
