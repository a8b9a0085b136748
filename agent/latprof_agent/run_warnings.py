"""What a reader of a run's figures must know before trusting them."""

from __future__ import annotations

from typing import Any

_FALLS_BEHIND = 0.95  # of the offered load


def warnings_of(summary: dict[str, Any]) -> list[str]:
    """Sentences about a summary; none where nothing is wrong."""
    found = [
        f"{n} {ring.replace('_', ' ')} found no room in their ring, so rows are "
        "missing or incomplete; use a larger --ring-bytes"
        for ring, n in summary["lost_records"].items()
        if n
    ]
    if summary["stamps_backwards"]:
        found.append(
            f"{summary['stamps_backwards']} stages were negative and are left out; "
            "please report it with the run folder"
        )
    if summary["state"] == "interrupted":
        found.append("the run was interrupted: the figures are of the time until then")
    for protocol, figures in summary["round_trips"].items():
        found += _of_round_trips(protocol, figures)
    return found


def _of_round_trips(protocol: str, figures: dict[str, Any]) -> list[str]:
    found = []
    if figures["corrupt"]:
        found.append(f"{protocol}: {figures['corrupt']} replies were not as sent")
    offered, achieved = figures["offered_per_second"], figures["achieved_per_second"]
    if offered and achieved and achieved < _FALLS_BEHIND * offered:
        found.append(
            f"{protocol}: the sender fell behind its schedule: {achieved:.4g}/s of "
            f"{offered:.4g}/s; use a longer --interval, --spin, or more CPUs"
        )
    fit = figures["fit"]
    if fit and fit["model"] != "line":
        found.append(f"{protocol}: no bandwidth from the fit: {fit['reason']}")
    return found
