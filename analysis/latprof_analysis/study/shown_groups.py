"""Tails, and what the order of time tells, of groups of latencies, for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from latprof_analysis.show import plain_table, show_line, shown
from latprof_analysis.study.levels import SMALLEST_STEP, alike, large_changes
from latprof_analysis.text import NOT_ENOUGH, duration, percent, plural

_TOLD = 5  # change points one by one


def show_tails(groups: dict[str, dict[str, Any]], console: Console) -> None:
    """Show percentiles with intervals, the three pieces, and modes.

    `groups` are by name what `message_figures` and `trip_figures` give.
    """
    if not groups:
        return
    title = "tails: percentiles with their 95% intervals, open where n is too small"
    table = plain_table(console, title, ("", "", "value", "interval"), ("n",))
    for name, figures in groups.items():
        first = name
        for p, figure in figures["tail"]["percentiles"].items():
            if figure["value_ns"] is not None:
                value, interval = duration(figure["value_ns"]), _interval(figure)
                table.add_row(shown(first), p, value, interval, str(figure["n"]))
                first = ""
    if table.row_count:
        console.print(table)
    for name, figures in groups.items():
        tail = figures["tail"]
        show_line(console, f" {name}: {_pieces(tail)}", "dim")
        if modes := _modes(tail["modes"]):
            of = f", messages of {tail['modes_of']} bytes" if tail["modes_of"] else ""
            show_line(console, f" {name}{of}: {modes}")


def _interval(figure: dict[str, Any]) -> str:
    low, high = (
        NOT_ENOUGH if figure[end] is None else duration(figure[end])
        for end in ("low_ns", "high_ns")
    )
    return f"[{low}, {high}]"


def _pieces(tail: dict[str, Any]) -> str:
    if not isinstance(tail["pieces"], list):
        return str(tail["pieces"]["reason"])
    return "; ".join(
        f"{piece['name']} {duration(piece['low_ns'])} to {duration(piece['high_ns'])}"
        for piece in tail["pieces"]
        if piece["count"]
    )


def _modes(modes: dict[str, Any]) -> str:
    """Name modes where there is more than one."""
    found = modes.get("modes", [])
    if len(found) < 2:
        return ""
    told = ", ".join(
        f"{mode['name']} at {duration(mode['value'])} ({percent(mode['share'])}"
        f"{_longer(mode)})"
        for mode in found
    )
    return f"{len(found)} modes: {told}"


def _longer(mode: dict[str, Any]) -> str:
    """Say where a mode takes longer than the one below it, if that is known."""
    longer = mode.get("longer_in")
    if not longer:
        return ""
    return f", {duration(longer['by_ns'])} more in {longer['stage']}"


def show_order(groups: dict[str, dict[str, Any]], console: Console) -> None:
    """Show what the order of time tells: dependence, change points, loss, queues."""
    told = {name: _order_sentences(figures) for name, figures in groups.items()}
    if any(told.values()):
        show_line(console, "\nin the order of time", "bold")
    for name, sentences in told.items():
        for i, sentence in enumerate(sentences):
            if not i:
                show_line(console, f" {name}")
            show_line(console, f"   {sentence}", "dim")


def _order_sentences(figures: dict[str, Any]) -> list[str]:
    found = [_dependence(figures["time"]["autocorrelation"])]
    found += _changes(figures["time"]["level_changes"], _median(figures["tail"]))
    if "delay_variation" in figures:
        found.append(_variation(figures["delay_variation"]))
    if "queueing" in figures:
        found.append(_queueing(figures["queueing"]))
    if "loss" in figures:
        found.append(_loss(figures["loss"]))
    return [sentence for sentence in found if sentence]


def _median(tail: dict[str, Any]) -> float | None:
    median = tail["percentiles"].get("p50", {}).get("value_ns")
    return None if median is None else float(median)


def _dependence(correlation: dict[str, Any]) -> str:
    if "reason" in correlation:
        return ""
    n, worth = correlation["n"], correlation["n_effective"]
    text = f"correlation of neighbours {correlation['lag_1']:.2f}"
    if worth < n / 2:
        text += f": {n} values tell as much as {worth:.0f} independent ones"
    return text


def _changes(levels: dict[str, Any], median_ns: float | None) -> list[str]:
    """Tell the changes of level that are of any size beside the median."""
    large = large_changes(levels, median_ns)
    found = [
        f"level changed at value {change['index']} [{change['low']}, "
        f"{change['high']}]: {_signed(change['before'])} to {_signed(change['after'])}"
        " beside the median of its size"
        for change in large[:_TOLD]
    ]
    if len(large) > _TOLD:
        found.append(f"and {plural(len(large) - _TOLD, 'more change')} of level")
    if large and alike(levels):
        found.append(
            "neighbours are alike here (a queue), which looks like changes of level: "
            "believe the large ones"
        )
    small = len(levels.get("changes", [])) - len(large)
    if small:
        least = percent(SMALLEST_STEP)
        found.append(f"{plural(small, 'change')} of level below {least} of the median")
    return found


def _signed(quantile: dict[str, Any]) -> str:
    value = quantile["value"]
    return ("+" if value >= 0 else "-") + duration(abs(value))


def _variation(variation: dict[str, Any]) -> str:
    told = []
    for name in ("ipdv", "pdv"):
        percentiles = variation[name].get("percentiles", {})
        median = percentiles.get("p50", {}).get("value_ns")
        if median is not None:
            told.append(f"{name.upper()} {duration(median)} p50")
    if not told:
        return ""
    size = variation["size_bytes"]
    return f"{', '.join(told)} ({variation['of']} of messages of {size} bytes)"


def _queueing(queue: dict[str, Any]) -> str:
    if "reason" in queue or queue["slope"] is None:
        return ""
    rank = queue["rank_correlation"]
    low, high = queue["slope_low"], queue["slope_high"]
    return (
        f"each byte that waited before it: {queue['slope']:.3g} ns [{low:.3g}, "
        f"{high:.3g}] more in receive_queue; rank correlation {rank:.2f}"
    )


def _loss(loss: dict[str, Any]) -> str:
    share = loss["share"]
    if "lost" not in share or not share["lost"]:
        return ""
    text = f"lost {share['lost']} of {share['n']}: {percent(share['value'])}"
    if share["low"] is not None:
        text += f" [{percent(share['low'])}, {percent(share['high'])}]"
    episodes = loss["episodes"]
    text += f" in {plural(episodes['count'], 'episode')}, the longest "
    text += str(episodes["longest"])
    if loss["model"] and loss["model"].get("best"):
        text += f"; model by BIC: {loss['model']['best']}"
    return text
