"""What a run's summary and the terminal say beside its figures."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from halves import DRAIN_NS, LAYOUT, RECEIVER, SENDER, batch_of, record
from latprof_agent.sinks.run_totals import RunTotals
from latprof_agent.sinks.summary import summarize
from latprof_analysis.records.joiner import RANGE_KEEP_NS, UNREAD_AT_CLOSE, Joiner
from latprof_analysis.records.message_rows import MESSAGE, messages_of
from latprof_analysis.report.depth import depth
from latprof_analysis.report.terminal import write_parts
from rich.console import Console

XMIT = {"quantity": "xmit", "state": "exact", "reason": "", "remedy": ""}
DESCRIPTION = {
    "state": "done",
    "name": "",
    "failure": None,
    "folder": "x",
    "kernel": "6.1",
    "workload": {"plan": None, "command": ["true"], "runs": []},
    "lab": None,
    "counters": {},
    "unmatched": {},
    "unread_at_close": 0,
    "path_devices": [],
    "link_counters": None,
    "capabilities": [XMIT],
}
COST = {
    "agent_cpu_seconds": 0.1,
    "wall_seconds": 1.0,
    "agent_cpu_share": 0.1,
    "agent_peak_bytes": 10**6,
}


@pytest.fixture
def summary_of():
    """Sum up a run without messages, of which this was told."""
    totals = RunTotals()
    totals.tally = replace(totals.tally, probe_cost={"probes_cpu_share": 0.01})
    return lambda **told: summarize(totals, DESCRIPTION | told, COST)


def shown(summary: dict) -> str:
    console = Console(file=io.StringIO(), width=200)
    write_parts(depth(summary), console)
    return console.file.getvalue()


def test_datagrams_unread_at_close_are_a_line_of_their_own(summary_of):
    summary = summary_of(unread_at_close=63)
    assert summary["unread_at_close"] == 63
    (line,) = [x for x in shown(summary).splitlines() if x.startswith("unread")]
    assert line.startswith("unread at close: 63 datagrams")
    assert "unread" not in shown(summary_of())


def test_where_xmit_was_taken_is_shown_though_it_is_exact(summary_of):
    text = "xmit (udp): at wg0 (wireguard); what is below it counts as transit"
    summary = summary_of(capabilities=[XMIT | {"taken": [text]}])
    assert shown(summary).splitlines().count(text) == 1
    assert "xmit" not in shown(summary_of())


@pytest.mark.parametrize("sender_here", [True, False])
def test_a_datagram_unread_at_close_is_a_row_that_arrived_and_was_not_read(sender_here):
    sides = (SENDER, RECEIVER) if sender_here else (RECEIVER,)
    records = [record("flows", 0, 0, flow=1, side=side, protocol=17) for side in sides]
    if sender_here:
        values = {"send_ns": 8, "queue_ns": 9, "xmit_ns": 10}
        records.append(record("sent_messages", 10, 0, flow=1, key=7, end=1, **values))
    # read_ns is when the socket was closed
    values = {"arrive_ns": 20, "ready_ns": 30, "read_ns": 40, "pid": 5}
    values["flags"] = LAYOUT.flags["RECORD_UNREAD"]
    records.append(record("received_ranges", 40, 0, flow=1, key=7, **values))
    joiner, rows = Joiner(LAYOUT), []
    for batch, at_ns in (
        (records, DRAIN_NS),
        ([], DRAIN_NS + 2 * RANGE_KEEP_NS),
        ([], DRAIN_NS + 4 * RANGE_KEEP_NS),
    ):
        pairs = joiner.feed(batch_of(batch), at_ns)
        made = messages_of(joiner, pairs, lambda flows: np.full(len(flows), MESSAGE))
        made.set_created(np.zeros(len(made), "i8"))
        rows += [made.row(i) for i in range(len(made))]
    (row,) = rows
    assert (row["arrive_ns"], row["ready_ns"], row["read_ns"]) == (20, 30, None)
    assert row["reader_pid"] is row["end_to_end_ns"] is None
    assert joiner.unmatched[UNREAD_AT_CLOSE] == 1
    alone = {} if sender_here else {"received, sender not seen": 1}
    assert joiner.unmatched == alone | {UNREAD_AT_CLOSE: 1}
