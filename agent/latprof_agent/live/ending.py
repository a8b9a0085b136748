"""What a watch tells in one line when it is over."""

from __future__ import annotations

from latprof_analysis.text import counts, given_duration, percent, plural

from latprof_agent.live.columns import lost, worst
from latprof_agent.live.figures import figures_of
from latprof_agent.live.rows import Row, ordered, rows_of
from latprof_agent.live.shown import Window
from latprof_agent.monitor.totals import Counted


def ending_sentence(window: Window) -> str:
    """Say how much was seen since the zero, and what hurt most."""
    own = window.whole.own
    rows = ordered(rows_of(window.whole, figures_of(window.whole)), "hurt")
    total = {
        what: sum(row.totals.counted[counted] for row in rows)
        for what, counted in (
            ("messages sent", Counted.SENT_MESSAGES),
            ("exchanges", Counted.EXCHANGES),
            ("requests without an answer", Counted.UNANSWERED),
            ("messages in no exchange (both ends talk at once)", Counted.NO_TURNS),
        )
    }
    total |= {
        "packets dropped": sum(row.dropped for row in rows),
        "segments sent again": sum(row.resent for row in rows),
    }
    told = f"watched {given_duration(1e9 * own.seconds)}: {plural(len(rows), 'group')}"
    told += f", {counts(total)}" if counts(total) else ""
    if rows and rows[0].hurt > 0:
        told += f"; most hurt: {rows[0].name} ({_why(rows[0])})"
    return f"{told}; agent {percent(own.agent_cpu_share)} of a CPU"


def _why(row: Row) -> str:
    return f"lost {lost(row)}" if row.worst is None else worst(row)
