"""A comparison as one document: what JSON, CSV and the text for people are made of.

In CSV it has one row for each side, group and percentile.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from latprof_analysis.compare.effects import CONFIDENCE
from latprof_analysis.compare.judgement import (
    ALPHA,
    Comparison,
    GroupChange,
    Judged,
    JudgedTrips,
    Verdict,
    detectable,
)
from latprof_analysis.compare.sides import Side
from latprof_analysis.csv_cells import guarded
from latprof_analysis.text import duration, percent, percentile_name, plural

_LOSS = {"slower": "more", "faster": "less"}


def document(found: Comparison) -> dict[str, Any]:
    """Return a comparison for JSON.

    Times are nanoseconds. ``groups`` has each kind, stage and size that the baseline
    and another side have, ``percentiles`` in it what is judged; ``verdict`` is one of
    slower, faster, same, no evidence, too few (with the reason), mixed. ``detectable``
    is what `detectable` tells of each side.

    Examples
    --------
    >>> import numpy as np
    >>> from latprof_analysis.compare import Side, compare_sides
    >>> from latprof_analysis.compare.sides import Group
    >>> rtt = Group("tcp round trip", "rtt", 64)
    >>> values = np.random.default_rng(1).exponential(1e5, 1000)
    >>> sides = [Side(name, (name,), series={rtt: [factor * values]})
    ...          for name, factor in (("before", 1.0), ("after", 1.3))]
    >>> report = document(compare_sides(sides))
    >>> report["groups"][0]["percentiles"]["p50"]["verdict"], report["counts"]
    ('slower', {'after': {'slower': 1}})
    """
    names = [side.name for side in found.sides]
    groups = [_group(change) for change in found.groups]
    seen = {name: detectable(found, name) for name in names[1:]}
    return {
        "format": 1,
        "answer": _answer(found, seen),
        "baseline": names[0],
        "sides": [_side(side) for side in found.sides],
        "confidence": CONFIDENCE,
        "alpha": ALPHA,
        "correction": found.correction,
        "smallest": found.smallest,
        "drawn": "runs" if found.repeated else "values in the order of time",
        "counts": _counts(found),
        "detectable": {
            name: {percentile_name(p): share for p, share in shares.items()}
            for name, shares in seen.items()
        },
        "groups": groups,
        "loss": [_trips(one, _LOSS) for one in found.loss],
        "throughput": [_trips(one, {}) for one in found.throughput],
        "figures": [row.by_side(names) for row in found.figures],
        "setup_differences": {
            name: [difference.as_dict() for difference in differences]
            for name, differences in found.setup.items()
        },
        "warnings": list(found.warnings),
    }


def _side(side: Side) -> dict[str, Any]:
    values = sum(run.size for runs in side.series.values() for run in runs)
    return {
        "name": side.name,
        "runs": list(side.runs),
        "values": values,
        "latency": side.latency or None,
        "size_classes": side.size_classes,
    }


def _counts(found: Comparison) -> dict[str, dict[str, int]]:
    return {
        side.name: dict(Counter(c.verdict for c in found.groups if c.side == side.name))
        for side in found.sides[1:]
    }


def _group(change: GroupChange) -> dict[str, Any]:
    group = change.group
    return {
        "side": change.side,
        "kind": group.kind,
        "stage": group.stage,
        "size_bytes": group.size_bytes if group.size_bytes >= 0 else None,
        "verdict": change.verdict,
        "changed_ns": change.changed_ns,
        "percentiles": {
            percentile_name(judged.change.p): _judged(judged)
            for judged in change.percentiles
        },
        "rank": {**change.rank.as_dict(), "p_adjusted": change.rank_p_adjusted},
    }


def _judged(judged: Judged) -> dict[str, Any]:
    change = judged.change
    return {
        "a": change.a.as_dict() if change.a else None,
        "b": change.b.as_dict() if change.b else None,
        "ratio": change.ratio.as_dict() if change.ratio else None,
        "difference": change.difference.as_dict("_ns") if change.difference else None,
        "p": change.p_value,
        "p_adjusted": judged.p_adjusted,
        "verdict": judged.verdict,
        "reason": change.reason,
    }


def _trips(one: JudgedTrips, words: dict[str, str]) -> dict[str, Any]:
    return {
        "side": one.side,
        "protocol": one.protocol,
        **one.change.as_dict(),
        "p_adjusted": one.p_adjusted,
        "verdict": words.get(one.verdict, one.verdict),
    }


def size_text(size_bytes: int | None, classes: bool = False) -> str:
    """Write a size, or the class that begins with it; nothing where not known.

    Examples
    --------
    >>> size_text(512), size_text(512, classes=True), size_text(-1)
    ('512 B', '512 to 1023 B', '')
    """
    if size_bytes is None or size_bytes < 0:
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


Detectable = dict[float, float]  # by percentile the share that would have been seen


def _answer(found: Comparison, seen: dict[str, Detectable]) -> str:
    """Answer in a sentence for each side."""
    others = enumerate(found.sides[1:], 1)
    if not found.groups:
        return " ".join(_answer_of_figures(found, i) for i, _ in others)
    return " ".join(_answer_of(found, i, seen[side.name]) for i, side in others)


def _answer_of_figures(found: Comparison, i: int) -> str:
    names = [side.name for side in found.sides]
    ratios = [row.ratios[i] for row in found.figures]
    told = [ratio for ratio in ratios if ratio is not None]
    if not told:
        return f"Nothing can be told of {names[i]}: it has no figure of {names[0]}."
    return (
        f"{names[i]} against {names[0]}: {min(told):.3g} to {max(told):.3g} times as"
        f" long in {plural(len(told), 'figure')}; each sums up many latencies, so none"
        " can be judged."
    )


def _answer_of(found: Comparison, i: int, seen: Detectable) -> str:
    name, baseline = found.sides[i].name, found.sides[0].name
    changes = [change for change in found.groups if change.side == name]
    counts = Counter(change.verdict for change in changes)
    judged = len(changes) - counts["too few"]
    if not judged:
        return f"Nothing can be told of {name}: {_first_reason(changes)}."
    words: tuple[Verdict, ...] = ("slower", "faster", "mixed")
    moved = [word for word in words if counts[word]]
    if not moved:
        return (
            f"No evidence that {name} differs from {baseline}:"
            f" {plural(judged, 'group')}, {counts['same']} the same within"
            f" {100 * found.smallest:g}%, {counts['no evidence']} that tell neither."
            f"{_seen(seen)}"
        )
    parts = [f"{word} in {counts[word]}" for word in moved]
    most = max(changes, key=lambda change: change.changed_ns)
    text = (
        f"{name} against {baseline}: {', '.join(parts)} of"
        f" {plural(judged, 'group')}; most in {_most(most)}."
    )
    if not found.repeated:
        text += " With one run on each side this may be how runs differ anyway."
    return text


def _seen(shares: Detectable) -> str:
    """Say how small a change would have been seen."""
    told = [f"{percent(share)} in {percentile_name(p)}" for p, share in shares.items()]
    if not told:
        return ""
    return f" A change of {', '.join(told)} would have been seen in 4 of 5 cases."


def _first_reason(changes: Sequence[GroupChange]) -> str:
    reasons = [j.change.reason for c in changes for j in c.percentiles]
    return next((reason for reason in reasons if reason), "no values in common")


def _most(change: GroupChange) -> str:
    judged = max(
        (one for one in change.percentiles if one.verdict in ("slower", "faster")),
        key=lambda one: abs(
            one.change.difference.value if one.change.difference else 0
        ),
    )
    moved, size = judged.change, change.group.size_bytes
    named = label(change.group.kind, change.group.stage, size_text(size))
    text = f"{named}: {percentile_name(moved.p)} "
    if moved.a and moved.b:
        text += f"{duration(moved.a.value, 4)} to {duration(moved.b.value, 4)}"
    if moved.ratio:
        text += f", {signed_percent(moved.ratio.value)}"
    return text


def signed_percent(ratio: float) -> str:
    """Write a ratio as a change.

    Examples
    --------
    >>> signed_percent(1.1), signed_percent(0.955), signed_percent(7.1)
    ('+10.0%', '-4.5%', 'x7.1')
    """
    return f"x{ratio:.3g}" if ratio >= 2 else f"{100 * (ratio - 1):+.1f}%"


COLUMNS = (
    *("baseline", "side", "kind", "stage", "size_bytes", "figure"),
    *("baseline_ns", "baseline_n", "side_ns", "side_n"),
    *("ratio", "ratio_low", "ratio_high"),
    *("difference_ns", "difference_low_ns", "difference_high_ns"),
    *("p", "p_adjusted", "verdict", "reason"),
)


def write_csv(document: dict[str, Any], file: TextIO) -> None:
    """Write what was compared; texts from files cannot become formulas."""
    writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for row in (*_groups(document), *_figures(document)):
        texts = {key: guarded(v) for key, v in row.items() if isinstance(v, str)}
        writer.writerow(row | texts)


def _groups(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for group in document["groups"]:
        for name, figures in group["percentiles"].items():
            a, b = figures["a"] or {}, figures["b"] or {}
            ratio, difference = figures["ratio"] or {}, figures["difference"] or {}
            yield {
                "baseline": document["baseline"],
                **{key: group[key] for key in ("side", "kind", "stage", "size_bytes")},
                "figure": name,
                "baseline_ns": a.get("value_ns"),
                "baseline_n": a.get("n"),
                "side_ns": b.get("value_ns"),
                "side_n": b.get("n"),
                "ratio": ratio.get("value"),
                "ratio_low": ratio.get("low"),
                "ratio_high": ratio.get("high"),
                "difference_ns": difference.get("value_ns"),
                "difference_low_ns": difference.get("low_ns"),
                "difference_high_ns": difference.get("high_ns"),
                **{key: figures[key] for key in ("p", "p_adjusted", "verdict")},
                "reason": figures["reason"],
            }


def _figures(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    names = [side["name"] for side in document["sides"]]
    for row in document["figures"]:
        base = row["sides"][names[0]]
        for name in names[1:]:
            side = row["sides"][name]
            yield {
                "baseline": names[0],
                "side": name,
                "kind": row["kind"],
                "stage": "latency",
                "size_bytes": row["size_bytes"],
                "figure": row["statistic"],
                "baseline_ns": base["value_ns"],
                "baseline_n": base["count"],
                "side_ns": side["value_ns"],
                "side_n": side["count"],
                "ratio": side["ratio"],
                "verdict": "not judged",
                "reason": row["reason"],
            }
