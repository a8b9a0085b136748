"""The line that sums up a watch when it is over."""

from __future__ import annotations

import math

from latprof_analysis.text import counts, given_duration, percent, plural

from latprof_agent.live.columns import HOLDS, UNKNOWN, held, lost, worst
from latprof_agent.live.figures import figures_of
from latprof_agent.live.rows import Row, ordered, rows_of
from latprof_agent.live.shown import Window
from latprof_agent.monitor.totals import Counted

_COUNTED = {
    "messages sent": Counted.SENT_MESSAGES,
    "exchanges": Counted.EXCHANGES,
    "requests without an answer": Counted.UNANSWERED,
    "messages in no exchange (both ends talk at once)": Counted.NO_TURNS,
    "first exchanges of TLS connections, at most, not counted": Counted.UNCOUNTED,
}


def ending_sentence(window: Window) -> str:
    """Say how much was seen since the zero, and what hurt most."""
    own = window.whole.own
    rows = ordered(rows_of(window.whole, figures_of(window.whole)), "hurt")
    total = {
        what: sum(row.totals.counted[counted] for row in rows)
        for what, counted in _COUNTED.items()
    }
    total |= {
        "packets dropped": sum(row.dropped for row in rows),
        "retransmitted segments": sum(row.resent for row in rows),
    }
    text = f"watched {given_duration(1e9 * own.seconds)}: {plural(len(rows), 'group')}"
    if any(row.totals.error_of_all() > HOLDS for row in rows):
        share = percent(own.coverage_ratio)
        text += f", scaled from {share} of the time"
        total = {what: _held(n, what, rows) for what, n in total.items()}
    text += f", {counts(total)}" if counts(total) else ""
    if rows and rows[0].hurt > 0:
        text += f"; most hurt: {rows[0].name} ({_why(rows[0])})"
    return f"{text}; agent {percent(own.agent_cpu_share)} of a CPU"


def _held(n: int, what: str, rows: list[Row]) -> int:
    """Round a count of all rows to the digits that hold."""
    counted = _COUNTED.get(what)
    if not n or not counted:
        return n
    variance = sum(row.totals.error(counted) ** 2 for row in rows)
    error = math.sqrt(variance) / n
    return int(held(n, error)) if HOLDS < error <= UNKNOWN else n


def _why(row: Row) -> str:
    return f"lost {lost(row)}" if row.worst is None else worst(row)
