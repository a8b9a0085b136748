"""A comparison as one document: what JSON, CSV, limits and the text for people read.

In CSV it has one row for each side, group and percentile, and for each throughput and
loss, whose values have columns of their own since these are no times.

A limit that holds only where something is known would pass what was measured too
little. So there are three outcomes: passed, where the whole interval is within the
limit; failed, where it is beyond it; undecided, where the limit lies in it, or where
nothing is known. That each figure of a comparison is within its limit by an interval
of its own is as sure as each of them: no correction for many is needed to pass.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TextIO

import numpy as np
import pandas as pd

from latprof_analysis.compare.effects import CONFIDENCE, FigureChange
from latprof_analysis.compare.judgement import (
    ALPHA,
    Comparison,
    GroupChange,
    detectable,
)
from latprof_analysis.compare.sides import TRANSFER, Figure, Group, Side
from latprof_analysis.csv_cells import guarded
from latprof_analysis.text import duration, percent, percentile_name, plural

_NOT_JUDGED = (
    "a mean, a percentile or a maximum is one number: how far it would scatter is not"
    " in the file, so that the ratio has no interval and no verdict"
)

# What took how long as a whole. A gate and the answer look at these, not at stages: of
# the many stages of two single runs that are alike, some always differ.
WHOLE = ("end_to_end", "response", "operation", "rtt", "latency")


def document(found: Comparison) -> dict[str, Any]:
    """Return a comparison for JSON.

    Times are nanoseconds. ``groups`` has each kind, stage and size that the baseline
    and another side have, ``percentiles`` in it what is judged; ``verdict`` is one of
    slower, faster, same, no evidence, too few (with the reason), mixed. ``detectable``
    is what `detectable` finds for each side. ``loss`` is a share of what was sent;
    ``throughput`` has its own ``unit``.
    """
    baseline, *others = [side.name for side in found.sides]
    groups = [_group(change) for change in found.groups]
    by_side = {name: [g for g in groups if g["side"] == name] for name in others}
    figures = [_figure(found.sides, *key) for key in found.figures]
    seen = {
        name: {percentile_name(p): v for p, v in detectable(found, name).items()}
        for name in others
    }
    loss = [_of_runs(*one, _LOSS_UNITS) for one in found.loss.items()]
    throughput = [_of_runs(*one, _RATE_UNITS) for one in found.throughput.items()]
    if groups:
        answer = [_answer(found, name, by_side[name], seen[name]) for name in others]
    elif figures:
        answer = [_answer_of_figures(baseline, name, figures) for name in others]
    else:
        answer = [_answer_of_rates(baseline, n, [*throughput, *loss]) for n in others]
    return {
        "format": 1,
        "answer": " ".join(answer),
        "baseline": baseline,
        "sides": [_side(side) for side in found.sides],
        "confidence": CONFIDENCE,
        "alpha": ALPHA,
        "correction": found.correction,
        "smallest": found.smallest,
        "drawn": "runs" if found.repeated else "values in the order of time",
        "counts": {name: _verdicts(rows) for name, rows in by_side.items()},
        "detectable": seen,
        "groups": groups,
        "loss": loss,
        "throughput": throughput,
        "figures": figures,
        "setup_differences": {
            name: [difference._asdict() for difference in differences]
            for name, differences in found.setup.items()
        },
        "warnings": found.warnings,
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "runs": list(side.runs),
        "values": sum(run.size for runs in side.series.values() for run in runs),
        "latency": side.latency or None,
        "size_classes": side.size_classes,
    }


def _verdicts(groups: Sequence[dict[str, Any]]) -> Counter[str]:
    return Counter(group["verdict"] for group in groups)


def _named(group: Group) -> dict[str, Any]:
    size = group.size_bytes
    return group._asdict() | {"size_bytes": size if size >= 0 else None}


def _group(change: GroupChange) -> dict[str, Any]:
    return {
        "side": change.side,
        **_named(change.group),
        "verdict": change.verdict,
        "changed_ns": change.changed_ns,
        "percentiles": {
            percentile_name(p): one.as_dict("_ns")
            for p, one in change.percentiles.items()
        },
        "rank": change.rank.as_dict(),
    }


# Of transfers, and of anything else.
_LOSS_UNITS = ("share of datagrams", "share of requests")
_RATE_UNITS = ("bit/s", "round trips/s")


def _of_runs(
    of: tuple[str, Group], change: FigureChange, units: tuple[str, str]
) -> dict[str, Any]:
    values, (side, group) = change.as_dict(), of
    others = ("ratio", "difference", "p", "reason", "p_adjusted", "verdict")
    return {
        "side": side,
        "protocol": group.kind,
        "size_bytes": _named(group)["size_bytes"],
        "unit": units[group.stage != TRANSFER],
        **{
            end: {key: values[end][key] for key in ("value", "n")} for end in ("a", "b")
        },
        **{key: values[key] for key in others},
    }


def _figure(sides: Sequence[Side], group: Group, statistic: str) -> dict[str, Any]:
    """Put a figure of each side beside that of the baseline."""
    values = [
        _merged(statistic, side.figures.get((group, statistic), [])) for side in sides
    ]
    base = values[0][0]
    return {
        "kind": group.kind,
        "size_bytes": _named(group)["size_bytes"],
        "statistic": statistic,
        "sides": {
            side.name: {
                "value_ns": value,
                "count": count,
                "ratio": value / base if base and value is not None else None,
            }
            for side, (value, count) in zip(sides, values, strict=True)
        },
        "reason": _NOT_JUDGED,
    }


def _merged(
    statistic: str, figures: Sequence[Figure]
) -> tuple[float | None, int | None]:
    """Merge figures, where that can be done; of smoothed ones take the median."""
    known = [(float(value), n) for value, n in figures if not pd.isna(value)]
    if not known:
        return None, None
    values, counts = zip(*known, strict=True)
    count = None if pd.isna([*counts]).any() else int(sum(counts))
    if len(values) == 1:
        return values[0], count
    if statistic in ("min", "max"):
        return (min if statistic == "min" else max)(values), count
    if statistic == "smoothed":
        return float(np.median(values)), len(values)
    if statistic == "mean" and count:
        return sum(value * int(n) for value, n in known) / count, count
    return None, count


def size_text(size_bytes: int | None, classes: bool = False) -> str:
    """Write a size, or the class that begins with it; nothing where not known.

    Examples
    --------
    >>> size_text(512), size_text(512, classes=True), size_text(None)
    ('512 B', '512 to 1023 B', '')
    """
    if size_bytes is None:
        return ""
    upto = f" to {2 * size_bytes - 1}" if classes and size_bytes > 1 else ""
    return f"{size_bytes}{upto} B"


def label(kind: str, stage: str, size: str) -> str:
    """Name a group for people.

    Examples
    --------
    >>> label("tcp round trip", "rtt", "18 B"), label("udp reply", "qdisc", "")
    ('tcp round trip 18 B', 'udp reply qdisc')
    """
    shown = "" if stage in ("rtt", "latency") else stage
    return " ".join(part for part in (kind, shown, size) if part)


def _answer_of_figures(
    baseline: str, name: str, figures: Sequence[dict[str, Any]]
) -> str:
    ratios = [figure["sides"][name]["ratio"] for figure in figures]
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return f"Nothing can be told of {name}: it has no figure of {baseline}."
    return (
        f"{name} against {baseline}: {min(known):.3g} to {max(known):.3g} times as"
        f" long in {plural(len(known), 'figure')}; each sums up many latencies, so none"
        " can be judged."
    )


def _answer_of_rates(baseline: str, name: str, rates: Sequence[dict[str, Any]]) -> str:
    """Answer where only throughput and loss are known."""
    found = [one for one in rates if one["side"] == name]
    if not found:
        return f"Nothing can be told of {name}: it has no figure of {baseline}."
    counts = Counter(one["verdict"] for one in found)
    if counts["too few"] == len(found):
        reason = next(one["reason"] for one in found)
        return f"Nothing can be told of {name}: {reason}."
    counted = ", ".join(f"{verdict} in {n}" for verdict, n in counts.items())
    figures = plural(len(found), "figure")
    return f"{name} against {baseline}: {counted} of {figures} of throughput and loss."


def _answer(
    found: Comparison,
    name: str,
    groups: Sequence[dict[str, Any]],
    seen: dict[str, float],
) -> str:
    """Answer in a sentence for a side; `seen` are the changes that would have been.

    Of what took how long as a whole; stages explain that, and have a sentence behind.
    """
    whole = [group for group in groups if group["stage"] in WHOLE] or [*groups]
    stages = [group for group in groups if group not in whole]
    baseline, counts = found.sides[0].name, _verdicts(whole)
    judged = len(whole) - counts["too few"]
    if not judged:
        reasons = [one["reason"] for g in whole for one in g["percentiles"].values()]
        why = next(filter(None, reasons), "no values in common")
        return f"Nothing can be told of {name}: {why}.{_of_stages(stages)}"
    moved = _moved(counts)
    if not moved:
        text = (
            f"No evidence that {name} differs from {baseline}:"
            f" {plural(judged, 'group')}, {counts['same']} the same within"
            f" {100 * found.smallest:g}%, {counts['no evidence']} that tell neither."
        )
        if seen:
            least = ", ".join(f"{percent(share)} in {p}" for p, share in seen.items())
            text += f" A change of {least} would have been seen in 4 of 5 cases."
        return text + _of_stages(stages)
    most = _most(max(whole, key=lambda group: group["changed_ns"]))
    of = plural(judged, "group")
    text = f"{name} against {baseline}: {moved} of {of}; most in {most}."
    text += _of_stages(stages)
    if not found.repeated:
        text += " With one run on each side this may be how runs differ anyway."
    return text


def _moved(counts: Mapping[str, int]) -> str:
    """Count the verdicts that something changed; nothing where none is."""
    moved = [word for word in ("slower", "faster", "mixed") if counts[word]]
    return ", ".join(f"{word} in {counts[word]}" for word in moved)


def _of_stages(stages: Sequence[dict[str, Any]]) -> str:
    counts = _verdicts(stages)
    moved = _moved(counts)
    judged = len(stages) - counts["too few"]
    return f" Of their stages: {moved} of {judged}." if moved else ""


def _most(group: dict[str, Any]) -> str:
    """Name a group with the percentile that changed most."""
    changed = [
        (p, one)
        for p, one in group["percentiles"].items()
        if one["verdict"] in ("slower", "faster")
    ]
    p, one = max(changed, key=lambda found: abs(found[1]["difference"]["value_ns"]))
    before, after = (duration(one[end]["value_ns"], 4) for end in ("a", "b"))
    named = label(group["kind"], group["stage"], size_text(group["size_bytes"]))
    text = f"{named}: {p} {before} to {after}"
    ratio = one["ratio"]
    return f"{text}, {signed_percent(ratio['value'])}" if ratio else text


def signed_percent(ratio: float) -> str:
    """Write a ratio as a change.

    Examples
    --------
    >>> signed_percent(1.1), signed_percent(0.955), signed_percent(7.1)
    ('+10.0%', '-4.5%', 'x7.1')
    """
    return f"x{ratio:.3g}" if ratio >= 2 else f"{100 * (ratio - 1):+.1f}%"


# Of a percentile's columns the place in the document.
_FIGURES = {
    "baseline_ns": ("a", "value_ns"),
    "baseline_n": ("a", "n"),
    "side_ns": ("b", "value_ns"),
    "side_n": ("b", "n"),
    "ratio": ("ratio", "value"),
    "ratio_low": ("ratio", "low"),
    "ratio_high": ("ratio", "high"),
    "difference_ns": ("difference", "value_ns"),
    "difference_low_ns": ("difference", "low_ns"),
    "difference_high_ns": ("difference", "high_ns"),
}
# And those of throughput and loss, in their unit.
_OF_RATES = {
    "baseline_value": ("a", "value"),
    "side_value": ("b", "value"),
    "difference": ("difference", "value"),
    "difference_low": ("difference", "low"),
    "difference_high": ("difference", "high"),
}
_COLUMNS = (
    *("baseline", "side", "kind", "stage", "size_bytes", "figure"),
    *_FIGURES,
    *("p", "p_adjusted", "verdict", "reason"),
    *("unit", *_OF_RATES),
)


def write_csv(document: dict[str, Any], file: TextIO) -> None:
    """Write what was compared; texts from files cannot become formulas."""
    writer = csv.DictWriter(
        file, _COLUMNS, restval="", extrasaction="ignore", lineterminator="\n"
    )
    writer.writeheader()
    readers = (_percentile_rows, _figure_rows, _rate_rows)
    for row in (row for read in readers for row in read(document)):
        row["baseline"] = document["baseline"]
        texts = {key: guarded(v) for key, v in row.items() if isinstance(v, str)}
        writer.writerow(row | texts)


def _percentile_rows(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for group in document["groups"]:
        for name, one in group["percentiles"].items():
            yield {**group, **one, **_found(one, _FIGURES), "figure": name}


def _found(
    figure: dict[str, Any], columns: Mapping[str, tuple[str, str]]
) -> dict[str, Any]:
    return {
        column: (figure[part] or {}).get(key) for column, (part, key) in columns.items()
    }


def _figure_rows(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for row in document["figures"]:
        base, *others = row["sides"].items()
        for name, side in others:
            yield {
                **row,
                "side": name,
                "stage": "latency",
                "figure": row["statistic"],
                "baseline_ns": base[1]["value_ns"],
                "baseline_n": base[1]["count"],
                "side_ns": side["value_ns"],
                "side_n": side["count"],
                "ratio": side["ratio"],
                "verdict": "not judged",
            }


def _rate_rows(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for figure in ("throughput", "loss"):
        for one in document[figure]:
            shown = _found(one, _FIGURES | _OF_RATES)
            yield {**one, **shown, "kind": one["protocol"], "figure": figure}


_NO_TRIPS = "no round trips of a load generator are on both sides"
_ORDER = ("failed", "undecided", "too wide")  # the worst first
# More than so many times as much is no advice.
_MOST_TIMES = 10_000.0


def gate(
    document: dict[str, Any],
    *,
    slower: float | None = None,
    lossier: float | None = None,
    throughput_lower: float | None = None,
    stages: bool = False,
    accept_estimate: bool = False,
) -> dict[str, Any]:
    """Hold a comparison, as `document` gives it, against limits.

    A percentile whose interval is wider than the limit could not pass whatever was
    measured. It is named, and does not decide: unless it is found to be slower, or
    nothing else of its group can decide.

    Parameters
    ----------
    slower, lossier, throughput_lower : float, optional
        By which shares B may be worse: of A's latency; of all requests, so that
        0.01 lets one in a hundred more be lost; of A's rate. None: whatever it is.
    stages : bool
        Look at each stage that was compared, too, not at whole latencies only.
    accept_estimate : bool
        Pass by the estimate, wherever its interval ends.

    Returns
    -------
    dict
        ``outcome``: failed, undecided or passed; ``limits``; ``passed``: what is
        within its limit; ``findings``: all else, the worst first, with value, low and
        high of the ratio, of loss of the difference, None where not known, and
        ``needs``: how many ``values`` of each side, or ``runs``, would decide if the
        change is as it was estimated.
    """
    found: list[dict[str, Any]] = []
    if slower is not None:
        found += _latencies(document["groups"], slower, stages, accept_estimate)
    if lossier is not None:
        limit = _Limit("difference", lossier, "high", accept_estimate)
        found += _rates("loss", document["loss"], limit)
    if throughput_lower is not None:
        limit = _Limit("ratio", 1 - throughput_lower, "low", accept_estimate)
        found += _rates("throughput", document["throughput"], limit)
    findings = [one for one in found if one["outcome"] != "passed"]
    findings.sort(key=lambda finding: _ORDER.index(finding["outcome"]))
    worst = findings[0]["outcome"] if findings else "passed"
    return {
        "outcome": "passed" if worst == "too wide" else worst,
        "limits": {
            "slower": slower,
            "lossier": lossier,
            "throughput_lower": throughput_lower,
        },
        "accept_estimate": accept_estimate,
        "passed": [one for one in found if one["outcome"] == "passed"],
        "findings": findings,
    }


@dataclass(frozen=True)
class _Limit:
    """What an effect is held against, and which end of its interval is the worse."""

    effect: str
    bound: float
    worse: Literal["low", "high"]
    accept_estimate: bool

    def is_beyond(self, value: float) -> bool:
        return value > self.bound if self.worse == "high" else value < self.bound

    def outcome(self, effect: dict[str, float | None], *, is_worse: bool) -> str:
        """Judge by the ends of an interval; `is_worse`: a change was found."""
        ends = [effect[end] for end in ("value", "low", "high")]
        if is_worse and all(end is not None and self.is_beyond(end) for end in ends):
            return "failed"
        deciding = effect["value" if self.accept_estimate else self.worse]
        within = deciding is not None and not self.is_beyond(deciding)
        return "passed" if within else "undecided"

    def is_too_wide(self, ratio: dict[str, float | None]) -> bool:
        """Whether an interval as wide around no change would not be within."""
        value, end = ratio["value"], ratio[self.worse]
        return not value or not end or self.is_beyond(end / value)

    def times(self, effect: dict[str, float | None]) -> float | None:
        """How many times as much would decide if the estimate holds.

        The interval of so many narrows with the root of their number.
        """
        scale = math.log if self.effect == "ratio" else float
        value = effect["value"]
        beyond = value is not None and self.is_beyond(value)
        ends = {"low": "high", "high": "low"}
        end = effect[ends[self.worse] if beyond else self.worse]
        if value is None or end is None:
            return None
        if self.effect == "ratio" and min(value, end, self.bound) <= 0:
            return None
        room = abs(scale(self.bound) - scale(value))
        times = (abs(scale(end) - scale(value)) / room) ** 2 if room else math.inf
        return times if times <= _MOST_TIMES else None


def _finding(
    what: str,
    outcome: str = "undecided",
    of: dict[str, Any] | None = None,
    effect: dict[str, float | None] | None = None,
    *,
    percentile: str = "",
    reason: str | None = None,
    needs: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Describe how a figure stands to its limit; without `of` it is all of them."""
    of, effect = of or {}, effect or {}
    return {
        "outcome": outcome,
        "what": what,
        "side": of.get("side", ""),
        "kind": of.get("kind", of.get("protocol", "")),
        "stage": of.get("stage", ""),
        "size_bytes": of.get("size_bytes"),
        "percentile": percentile,
        **{end: effect.get(end) for end in ("value", "low", "high")},
        "reason": reason or "",
        "needs": needs,
    }


def _needs(
    one: dict[str, Any], limit: _Limit, effect: dict[str, float | None]
) -> dict[str, int] | None:
    """How many values, or runs, of each side would decide."""
    times = limit.times(effect)
    sides = [side for side in (one["a"], one["b"]) if side]
    if times is None or len(sides) < 2:
        return None
    runs = max(side.get("runs", 1) for side in sides)
    if runs > 1:
        return {"runs": max(runs + 1, math.ceil(times * runs))}
    values = max(side.get("n", 0) for side in sides)
    if not values:
        return None
    digits = 10 ** max(0, len(str(values)) - 2)
    return {"values": math.ceil(times * values / digits) * digits}


def _latencies(
    groups: list[dict[str, Any]], limit: float, stages: bool, accept_estimate: bool
) -> Iterator[dict[str, Any]]:
    wanted = [group for group in groups if stages or group["stage"] in WHOLE]
    if not wanted:
        reason = "no latencies that can be judged are on both sides"
        yield _finding("latency", reason=reason)
    for group in wanted:
        found = [
            _latency(group, p, one, limit, accept_estimate)
            for p, one in group["percentiles"].items()
        ]
        if all(one["outcome"] == "too wide" for one in found):
            found = [{**one, "outcome": "undecided"} for one in found]
            if all(one["value"] is None for one in found):
                found = [{**found[0], "percentile": ""}]
        yield from found


def _latency(
    group: dict[str, Any],
    percentile: str,
    one: dict[str, Any],
    limit: float,
    accept_estimate: bool,
) -> dict[str, Any]:
    if one["p_adjusted"] is None:
        reason = one["reason"] or "too few values"
        return _finding(
            "latency", "too wide", group, None, percentile=percentile, reason=reason
        )
    is_worse = one["verdict"] == "slower"
    if not one["ratio"]:
        # more than nothing is above any share of it
        held = _Limit("difference", 0.0, "high", accept_estimate)
        ends = zip(("value", "low", "high"), one["difference"].values(), strict=True)
        outcome = held.outcome(dict(ends), is_worse=is_worse)
        reason = "the baseline has 0"
        return _finding(
            "latency", outcome, group, None, percentile=percentile, reason=reason
        )
    held = _Limit("ratio", 1 + limit, "high", accept_estimate)
    outcome = held.outcome(one["ratio"], is_worse=is_worse)
    needs = None
    if outcome == "undecided":
        needs = _needs(one, held, one["ratio"])
        if not is_worse and held.is_too_wide(one["ratio"]):
            outcome = "too wide"
    return _finding(
        "latency", outcome, group, one["ratio"], percentile=percentile, needs=needs
    )


def _rates(
    what: str, rates: list[dict[str, Any]], limit: _Limit
) -> Iterator[dict[str, Any]]:
    if not rates:
        yield _finding(what, reason=_NO_TRIPS)
    for one in rates:
        effect = one[limit.effect]
        if effect is None:
            yield _finding(what, "undecided", one, reason=one["reason"])
            continue
        is_worse = one["verdict"] in ("slower", "more")
        outcome = limit.outcome(effect, is_worse=is_worse)
        needs = _needs(one, limit, effect) if outcome == "undecided" else None
        reason = one["reason"] if outcome != "passed" else None
        yield _finding(what, outcome, one, effect, reason=reason, needs=needs)
