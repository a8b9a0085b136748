"""Time Warp's latencies A, B, C and D: a table, and three pieces of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from latprof_analysis.report.parts import Fold, Part, Text
from latprof_analysis.report.tables import times_table

if TYPE_CHECKING:  # the agent, which shows the table on a terminal, is to stay small
    import pandas as pd

_COLUMNS = ("p50", "p95", "p99", "p99.9", "max", "mean")
# A is that of the distribution of messages end to end.
_DRAWN = ("B", "C", "D")


def time_warp_tables(document: Mapping[str, Any]) -> Iterator[Part]:
    """Lay out a row for each latency of each kind, what they are, and which are none.

    Where nothing was run, as in a file of other times, there is nothing to say.
    """
    found = document.get("time_warp") or {}
    known = {
        kind: {name: figures for name, figures in latencies.items() if figures["n"]}
        for kind, latencies in (found.get("kinds") or {}).items()
    }
    for kind, latencies in known.items():
        if latencies:
            title = f"{kind}: Time Warp's latencies, A = B + C + D"
            yield times_table(title, "latency", latencies, _COLUMNS)
    for text in _unknown(found) if document.get("workload") else ():
        yield Text(text, quiet=True)
    if any(known.values()):
        meaning = "; ".join(
            f"{name}: {text}" for name, text in found["meaning"].items()
        )
        yield Text(f"{meaning}.", quiet=True)


def _unknown(found: Mapping[str, Any]) -> Iterator[str]:
    """Say of each kind which latencies no message has, and why."""
    for kind, latencies in (found.get("unknown") or {}).items():
        by_reason: dict[str, list[str]] = {}
        for name, why in latencies.items():
            by_reason.setdefault(why, []).append(name)
        for why, names in by_reason.items():
            yield f"{kind}: no {', '.join(names)} ({why})"


def time_warp_parts(
    document: Mapping[str, Any], kinds: Mapping[str, pd.DataFrame]
) -> list[Part]:
    """Add to the tables each latency's fastest 95%, the next 4.9%, its slowest 0.1%."""
    from latprof_analysis.report.tails import pieces_figure
    from latprof_analysis.study.time_warp import latencies_of

    parts = list(time_warp_tables(document))
    for kind, messages in kinds.items() if parts else ():
        latencies = latencies_of(messages)
        known = {name: latencies[name] for name in _DRAWN}
        known = {name: ns[ns >= 0] for name, ns in known.items()}  # none is NaN then
        figures = [
            pieces_figure(f"{kind} {name}", ns, name)
            for name, ns in known.items()
            if ns.size
        ]
        if figures:
            parts.append(Fold(f"{kind}: B, C and D in three pieces", figures))
    return parts
