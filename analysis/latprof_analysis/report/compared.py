"""A comparison for people: the answer, what changed, and the rest as a count.

Takes the document only; computes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from latprof_analysis.compare.document import label, signed_percent, size_text
from latprof_analysis.report.terminal import show_line, shown
from latprof_analysis.text import NOT_ENOUGH, duration, plural, printable

MOST_ROWS = 20
_CHANGED = ("slower", "faster", "mixed")
_COLOURS = {"slower": "red", "faster": "green", "mixed": "yellow"}
_COLOURS |= {"more": "red", "less": "green"}
_OUTCOME = {"failed": "bold red", "undecided": "bold yellow", "passed": "green"}
_LIMITS = {
    "slower": "slower by more than",
    "lossier": "more often lost, by more than",
    "throughput_lower": "of a throughput lower by more than",
}
_ENDS = ("value", "low", "high")
_UNCHANGED = "~"
_NAME_WIDTH = 24
LEGEND = (
    "* baseline. Changes that were found, p50 with its 95% interval; ~: none found,"
    " or below the smallest that matters; -: too few values; larger: how often a value"
    " exceeds one of the baseline (50%: no tendency)"
)


def show(document: dict[str, Any], console: Console, *, everything: bool) -> None:
    """Print a comparison; `everything`: also what did not change."""
    if document.get("gate"):
        _show_gate(document["gate"], console)
    show_line(console, document["answer"], "bold")
    for warning in document["warnings"]:
        show_line(console, f"warning: {warning}", "yellow")
    _show_setup(document["setup_differences"], console)
    _show_groups(document, console, everything)
    _show_loss(document, console)
    _show_throughput(document, console)
    _show_figures(document, console)
    _show_counts(document, console)


def _table(first: str, sides: Sequence[str], *more: str) -> Table:
    """Begin a table with a column for each side, the baseline marked."""
    table = Table(box=None, padding=(0, 1, 0, 1), header_style="dim")
    table.add_column(first, overflow="fold")
    for i, name in enumerate(sides):
        title = _ending(printable(name)) + ("*" if i == 0 else "")
        table.add_column(Text(title), justify="right", no_wrap=True)
    for title in more:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _ending(name: str) -> str:
    """Return the end of a name, where paths differ."""
    return name if len(name) <= _NAME_WIDTH else "..." + name[3 - _NAME_WIDTH :]


def _names(document: dict[str, Any]) -> list[str]:
    return [side["name"] for side in document["sides"]]


def _show_setup(differences: dict[str, list[dict[str, str]]], console: Console) -> None:
    for name, found in differences.items():
        for one in found:
            text = f"{one['key']}: {one['baseline']}, {name}: {one['other']}"
            show_line(console, f"setup differs: {text}", "cyan")


def _show_groups(document: dict[str, Any], console: Console, everything: bool) -> None:
    rows = _by_group(document["groups"])
    wanted = [
        row
        for row in rows
        if everything or any(entry["verdict"] in _CHANGED for entry in row.values())
    ]
    if not everything:
        wanted.sort(key=lambda row: -max(e["changed_ns"] for e in row.values()))
    if not wanted:
        return
    names = _names(document)
    pair = len(names) == 2
    first, *others = _told(wanted)
    table = _table(
        "what", names, *([f"{first} change", *others, "larger"] if pair else [])
    )
    console.print()
    shown = wanted if everything else wanted[:MOST_ROWS]
    classes = document["sides"][0]["size_classes"]
    for row in shown:
        _add_group(table, row, names, [first, *others], classes)
    console.print(table)
    show_line(console, f" {LEGEND}", "dim")
    if len(shown) < len(wanted):
        rest = len(wanted) - len(shown)
        show_line(
            console, f" {rest} more that changed by less: --all shows them", "dim"
        )


def _by_group(groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the entries of all sides for one group together."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for entry in groups:
        key = (entry["kind"], entry["stage"], entry["size_bytes"])
        rows.setdefault(key, {})[entry["side"]] = entry
    return list(rows.values())


def _told(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the first percentile, and the others where any could be judged."""
    judged = [entry["percentiles"] for row in rows for entry in row.values()]
    first, *others = judged[0]
    return [first] + [
        p
        for p in others
        if any(figures[p]["verdict"] != "too few" for figures in judged)
    ]


def _add_group(
    table: Table,
    row: dict[str, Any],
    names: Sequence[str],
    judged: Sequence[str],
    classes: bool,
) -> None:
    entry = next(iter(row.values()))
    named = size_text(entry["size_bytes"], classes)
    first = judged[0]
    base = entry["percentiles"][first]["a"]
    cells = [
        shown(label(entry["kind"], entry["stage"], named)),
        shown(duration(base["value_ns"]) if base else NOT_ENOUGH),
    ]
    if len(names) == 2:
        percentiles = entry["percentiles"]
        other = percentiles[first]["b"]
        cells.append(shown(duration(other["value_ns"]) if other else NOT_ENOUGH))
        cells.append(_change(percentiles[first], interval=True))
        cells += [_change(percentiles[p], interval=False) for p in judged[1:]]
        cells.append(shown(f"{100 * entry['rank']['larger']['value']:.0f}%"))
    else:
        cells += [_beside(row.get(name), first) for name in names[1:]]
    table.add_row(*cells)


def _beside(entry: dict[str, Any] | None, first: str) -> Text:
    """Write a side's value and its change, where many sides stand in a row."""
    figures = entry["percentiles"][first] if entry else None
    if not figures or not figures["b"]:
        return Text(NOT_ENOUGH)
    change = _change(figures, interval=False)
    return Text(f"{duration(figures['b']['value_ns'])} ").append_text(change)


def _change(figures: dict[str, Any], *, interval: bool) -> Text:
    verdict, ratio = figures["verdict"], figures["ratio"]
    if verdict not in _CHANGED:
        return Text(NOT_ENOUGH if verdict == "too few" else _UNCHANGED, style="dim")
    if not ratio:
        text = f"{duration(figures['difference']['value_ns'])} more"
    else:
        text = signed_percent(ratio["value"])
        text += f" [{_bounds(ratio)}]" if interval else ""
    return Text(text, style=_COLOURS[verdict])


def _bounds(ratio: dict[str, float | None]) -> str:
    ends = ratio["low"], ratio["high"]
    if ratio["value"] is not None and ratio["value"] >= 2:
        return ", ".join("" if end is None else f"{end:.3g}" for end in ends)
    return ", ".join("" if end is None else f"{100 * (end - 1):.1f}" for end in ends)


def _show_loss(document: dict[str, Any], console: Console) -> None:
    for one in document["loss"]:
        a, b = (
            f"{100 * one[side]['value']:.3g}% of {one[side]['n']}"
            for side in ("a", "b")
        )
        text = f"{one['protocol']} requests lost: {a}*, {one['side']} {b}: "
        change = one["difference"]
        if change["low"] is not None:
            points = [100 * change[end] for end in ("value", "low", "high")]
            text += "{:+.2g} points [{:.2g}, {:.2g}], ".format(*points)
        if one["a"]["value"] or one["b"]["value"]:
            _show_verdict(text, one, console)


def _show_throughput(document: dict[str, Any], console: Console) -> None:
    for one in document["throughput"]:
        if not one["ratio"]:
            continue
        a, b = (f"{one[side]['value']:.4g}/s" for side in ("a", "b"))
        change = f"{signed_percent(one['ratio']['value'])} [{_bounds(one['ratio'])}]"
        text = f"{one['protocol']} round trips: {a}*, {one['side']} {b}: {change}, "
        _show_verdict(text, one, console)


def _show_verdict(text: str, one: dict[str, Any], console: Console) -> None:
    """Print a line that ends with a verdict, and its reason."""
    reason = f" ({one['reason']})" if one["reason"] else ""
    line = Text(f" {printable(text)}").append(
        one["verdict"], style=_COLOURS.get(one["verdict"], "")
    )
    console.print(line.append(printable(reason)))


def _show_figures(document: dict[str, Any], console: Console) -> None:
    if not document["figures"]:
        return
    names = _names(document)
    console.print()
    table = _table("what", names)
    for row in document["figures"]:
        size = size_text(row["size_bytes"], document["sides"][0]["size_classes"])
        cells = [shown(f"{label(row['kind'], '', size)} {row['statistic']}")]
        for i, name in enumerate(names):
            side = row["sides"][name]
            text = duration(side["value_ns"])
            if i and side["ratio"] is not None:
                text += f" {signed_percent(side['ratio'])}"
            cells.append(shown(text))
        table.add_row(*cells)
    console.print(table)
    show_line(
        console, f" * baseline. Not judged: {document['figures'][0]['reason']}", "dim"
    )


def _show_counts(document: dict[str, Any], console: Console) -> None:
    if any(document["counts"].values()):
        console.print()
    for name, counts in document["counts"].items():
        if not counts:
            continue
        text = ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items()))
        show_line(
            console, f"{name}: {plural(sum(counts.values()), 'group')}: {text}", "dim"
        )
    if any(document["counts"].values()):
        text = f"corrected for many comparisons: {document['correction']};"
        text += f" smallest change that matters: {100 * document['smallest']:g}%;"
        show_line(console, f"{text} drawn: {document['drawn']}", "dim")


def _show_gate(gate: dict[str, Any], console: Console) -> None:
    """Say whether the limits held, and what stands against it."""
    outcome, findings = gate["outcome"], gate["findings"]
    limits = [
        f"{_LIMITS[name]} {100 * share:g}%"
        for name, share in gate["limits"].items()
        if share is not None
    ]
    counts = Counter(finding["outcome"] for finding in findings)
    told = {
        "failed": f"{counts['failed']} beyond it with the whole interval",
        "undecided": f"{counts['undecided']} not known to be within it",
    }
    some = ", ".join(told[word] for word in told if counts[word])
    limit = " or ".join(limits)
    text = f"{outcome}: {some or 'nothing'}" + (f" ({limit})" if some else f" {limit}")
    show_line(console, text, _OUTCOME[outcome])
    judged = [one for one in findings if one["value"] is not None]
    for finding in judged[:MOST_ROWS]:
        show_line(console, f" {_finding(finding)}", _OUTCOME[finding["outcome"]])
    if len(judged) > MOST_ROWS:
        show_line(console, f" and {len(judged) - MOST_ROWS} more: --json has all")
    if unknown := [one for one in findings if one["value"] is None]:
        named = ", ".join(filter(None, map(_named, unknown[:MOST_ROWS])))
        more = len(unknown) - MOST_ROWS
        also = f" and {more} more" if more > 0 else ""
        text = f" undecided, since nothing can be told: {named or 'anything'}{also}"
        show_line(console, f"{text}: {unknown[0]['reason']}", _OUTCOME["undecided"])
    console.print()


def _named(finding: dict[str, Any]) -> str:
    """Name what a finding is of."""
    what = finding["what"]
    named = finding["kind"] if what == "latency" else f"{finding['kind']} {what}"
    group = label(named, finding["stage"], size_text(finding["size_bytes"]))
    return " ".join(filter(None, (finding["side"], group, finding["percentile"])))


def _finding(finding: dict[str, Any]) -> str:
    text = f"{finding['outcome']}: {_named(finding)}"
    if finding["what"] == "loss":
        points = [100 * finding[e] for e in _ENDS if finding[e] is not None]
        text += f" {points[0]:+.3g} points"
        text += " [{:.3g}, {:.3g}]".format(*points[1:]) if len(points) == 3 else ""
    else:
        text += f" {signed_percent(finding['value'])} [{_bounds(finding)}]"
    return f"{text}: {finding['reason']}" if finding["reason"] else text
