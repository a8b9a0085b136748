"""A comparison as CSV: one row for each side, group and percentile."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any, TextIO

from latprof_analysis.csv_cells import guarded

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
        writer.writerow({key: _safe(value) for key, value in row.items()})


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        return guarded(value)
    return "" if value is None else value


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
