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
from latprof_analysis.text import NOT_ENOUGH, duration, plural, printable, rate

MOST_ROWS = 20
_MOST_NAMED = 3
_CHANGED = ("slower", "faster", "mixed")
_COLOURS = {"slower": "red", "faster": "green", "mixed": "yellow"}
_COLOURS |= {"more": "red", "less": "green"}
_OUTCOME = {"failed": "bold red", "undecided": "bold yellow", "passed": "green"}
_OUTCOME |= {"too wide": "dim"}
_LIMITS = {
    "slower": "slower by more than",
    "lossier": "more often lost, by more than",
    "throughput_lower": "of a throughput lower by more than",
}
_AGAINST = {
    "failed": "beyond it with the whole interval",
    "undecided": "not known to be within it",
}
_WITHIN = {False: "with the whole interval", True: "by the estimate"}
_ENDS = ("value", "low", "high")
_BITS = "bit/s"
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
    for name, found in document["setup_differences"].items():
        for one in found:
            text = f"{one['key']}: {one['baseline']}, {name}: {one['other']}"
            show_line(console, f"setup differs: {text}", "cyan")
    _show_groups(document, console, everything)
    for one in document["loss"]:
        if one["a"]["value"] or one["b"]["value"]:
            _show_verdict(_loss(one), one, console)
    for one in document["throughput"]:
        if one["ratio"]:
            _show_verdict(_throughput(one), one, console)
    _show_figures(document, console)
    _show_counts(document, console)


def _table(document: dict[str, Any], *more: str) -> Table:
    """Begin a table with a column for each side, the baseline marked."""
    table = Table(box=None, padding=(0, 1, 0, 1), header_style="dim")
    table.add_column("what", overflow="fold")
    sides = [_ending(printable(name)) for name in _names(document)]
    sides[0] += "*"
    for title in (*sides, *more):
        table.add_column(Text(title), justify="right", no_wrap=True)
    return table


def _ending(name: str) -> str:
    """Return the end of a name, where paths differ."""
    return name if len(name) <= _NAME_WIDTH else "..." + name[3 - _NAME_WIDTH :]


def _names(document: dict[str, Any]) -> list[str]:
    return [side["name"] for side in document["sides"]]


def _label(document: dict[str, Any], row: dict[str, Any], stage: str) -> str:
    classes = document["sides"][0]["size_classes"]
    return label(row["kind"], stage, size_text(row["size_bytes"], classes))


def _show_groups(document: dict[str, Any], console: Console, everything: bool) -> None:
    rows = _by_group(document["groups"])
    if not everything:
        rows = [r for r in rows if any(e["verdict"] in _CHANGED for e in r.values())]
        rows.sort(key=lambda row: -max(e["changed_ns"] for e in row.values()))
    if not rows:
        return
    first, *others = judged = _judged(rows)
    pair = len(document["sides"]) == 2
    more = [f"{first} change", *others, "larger"] if pair else []
    table = _table(document, *more)
    few = rows if everything else rows[:MOST_ROWS]
    for row in few:
        table.add_row(*_group_cells(document, row, judged))
    console.print()
    console.print(table)
    show_line(console, f" {LEGEND}", "dim")
    if rest := len(rows) - len(few):
        text = f" {rest} more that changed by less: --all shows them"
        show_line(console, text, "dim")


def _by_group(groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the entries of all sides for one group together."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for entry in groups:
        key = (entry["kind"], entry["stage"], entry["size_bytes"])
        rows.setdefault(key, {})[entry["side"]] = entry
    return list(rows.values())


def _judged(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the first percentile, and the others where any could be judged."""
    judged = [entry["percentiles"] for row in rows for entry in row.values()]
    first, *others = judged[0]
    return [first] + [
        p
        for p in others
        if any(figures[p]["verdict"] != "too few" for figures in judged)
    ]


def _group_cells(
    document: dict[str, Any], row: dict[str, Any], judged: Sequence[str]
) -> list[Text]:
    """Write a group: of two sides all that was judged, of more a change each."""
    entry = next(iter(row.values()))
    first, *others = judged
    percentiles = entry["percentiles"]
    name = _label(document, entry, entry["stage"])
    cells = [shown(name), _value(percentiles[first]["a"])]
    if len(document["sides"]) > 2:
        sides = _names(document)[1:]
        return [*cells, *(_beside(row.get(side), first) for side in sides)]
    return [
        *cells,
        _value(percentiles[first]["b"]),
        _change(percentiles[first], interval=True),
        *(_change(percentiles[p], interval=False) for p in others),
        shown(f"{100 * entry['rank']['larger']['value']:.0f}%"),
    ]


def _value(quantile: dict[str, Any] | None) -> Text:
    return shown(duration(quantile["value_ns"]) if quantile else NOT_ENOUGH)


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
    """Write the ends of a ratio as `signed_percent` writes its value."""
    value, *ends = (ratio[end] for end in _ENDS)
    if value is not None and value >= 2:
        return ", ".join("" if end is None else f"{end:.3g}" for end in ends)
    return ", ".join("" if end is None else f"{100 * (end - 1):.1f}" for end in ends)


def _loss(one: dict[str, Any]) -> str:
    a, b = (
        f"{100 * one[side]['value']:.3g}% of {one[side]['n']}" for side in ("a", "b")
    )
    what = one["unit"].removeprefix("share of ")
    text = f"{_of(one)} {what} lost: {a}*, {one['side']} {b}: "
    change = one["difference"]
    if change["low"] is None:
        return text
    points = [100 * change[end] for end in _ENDS]
    return text + "{:+.2g} points [{:.2g}, {:.2g}], ".format(*points)


def _throughput(one: dict[str, Any]) -> str:
    a, b = (_rate(one[side]["value"], one["unit"]) for side in ("a", "b"))
    change = signed_percent(one["ratio"]["value"])
    if one["ratio"]["low"] is not None:
        change += f" [{_bounds(one['ratio'])}]"
    done = "received" if one["unit"] == _BITS else "round trips"
    return f"{_of(one)} {done}: {a}*, {one['side']} {b}: {change}, "


def _of(one: dict[str, Any]) -> str:
    return " ".join(filter(None, (one["protocol"], size_text(one["size_bytes"]))))


def _rate(value: float, unit: str) -> str:
    return rate(value) if unit == _BITS else f"{value:.4g}/s"


def _show_verdict(text: str, one: dict[str, Any], console: Console) -> None:
    """Print a line that ends with a verdict, and its reason."""
    reason = f" ({one['reason']})" if one["reason"] else ""
    verdict = shown(one["verdict"], _COLOURS.get(one["verdict"], ""))
    console.print(shown(f" {text}") + verdict + shown(reason))


def _show_figures(document: dict[str, Any], console: Console) -> None:
    if not document["figures"]:
        return
    table = _table(document)
    for row in document["figures"]:
        cells = [shown(f"{_label(document, row, '')} {row['statistic']}")]
        for i, name in enumerate(_names(document)):
            side = row["sides"][name]
            text = duration(side["value_ns"])
            if i and side["ratio"] is not None:
                text += f" {signed_percent(side['ratio'])}"
            cells.append(shown(text))
        table.add_row(*cells)
    console.print()
    console.print(table)
    reason = document["figures"][0]["reason"]
    show_line(console, f" * baseline. Not judged: {reason}", "dim")


def _show_counts(document: dict[str, Any], console: Console) -> None:
    counted = {name: counts for name, counts in document["counts"].items() if counts}
    if not counted:
        return
    console.print()
    for name, counts in counted.items():
        text = ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items()))
        groups = plural(sum(counts.values()), "group")
        show_line(console, f"{name}: {groups}: {text}", "dim")
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
    reasons = [
        f"{counts[word]} {why}" for word, why in _AGAINST.items() if counts[word]
    ]
    limit = " or ".join(limits)
    if reasons:
        some = f"{', '.join(reasons)} ({limit})"
    else:
        within = _WITHIN[gate["accept_estimate"]]
        some = f"nothing {limit}, {within}: {_passed(gate['passed'])}"
    show_line(console, f"{outcome}: {some}", _OUTCOME[outcome])
    deciding = [one for one in findings if one["outcome"] != "too wide"]
    judged = [one for one in deciding if one["value"] is not None]
    for finding in judged[:MOST_ROWS]:
        show_line(console, f" {_finding(finding)}", _OUTCOME[finding["outcome"]])
    if len(judged) > MOST_ROWS:
        show_line(console, f" and {len(judged) - MOST_ROWS} more: --json has all")
    if unknown := [one for one in deciding if one["value"] is None]:
        named = ", ".join(filter(None, map(_named, unknown[:MOST_ROWS])))
        more = len(unknown) - MOST_ROWS
        also = f" and {more} more" if more > 0 else ""
        text = f" undecided, since nothing can be told: {named or 'anything'}{also}"
        show_line(console, f"{text}: {unknown[0]['reason']}", _OUTCOME["undecided"])
    _show_too_wide([one for one in findings if one["outcome"] == "too wide"], console)
    console.print()


def _passed(passed: list[dict[str, Any]]) -> str:
    """Say on what a gate passes: which percentiles, and of which groups."""
    percentiles: dict[str, set[str]] = {}
    for one in passed:
        named = _named({**one, "percentile": ""})
        percentiles.setdefault(named, set()).add(one["percentile"])
    alike: dict[str, list[str]] = {}
    for named, of in percentiles.items():
        alike.setdefault(", ".join(sorted(of, key=_number)), []).append(named)
    return "; ".join(
        f"{of} of {_some(groups)}" if of else _some(groups)
        for of, groups in alike.items()
    )


def _some(groups: list[str]) -> str:
    more = len(groups) - _MOST_NAMED
    also = f" and {more} more" if more > 0 else ""
    return ", ".join(groups[:_MOST_NAMED]) + also


def _number(percentile: str) -> float:
    return float(percentile.removeprefix("p") or 0)


def _show_too_wide(findings: list[dict[str, Any]], console: Console) -> None:
    """Name what could not decide, each percentile once, with what would."""
    of: dict[str, list[dict[str, Any]]] = {}
    for one in findings:
        of.setdefault(one["percentile"], []).append(one)
    for percentile, some in of.items():
        groups = f"{percentile} of {plural(len(some), 'group')}"
        text = f" does not decide: {groups}: {_why_wide(some)}"
        show_line(console, text, _OUTCOME["too wide"])


def _why_wide(findings: list[dict[str, Any]]) -> str:
    reason = next((one["reason"] for one in findings if one["reason"]), "")
    if reason:
        return reason
    widest = max(findings, key=lambda one: one["high"] or 0)
    why = f"up to {signed_percent(widest['value'])} [{_bounds(widest)}]"
    why += ", an interval wider than the limit"
    return why + _would_decide(widest["needs"])


def _would_decide(needs: dict[str, int] | None) -> str:
    if not needs:
        return ""
    (what, count), *_ = needs.items()
    return f"; about {count:,} {what} on each side would decide if it is as estimated"


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
    text += f": {finding['reason']}" if finding["reason"] else ""
    return text + _would_decide(finding["needs"])
