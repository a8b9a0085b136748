"""Exchanges of the sample: both ends' records, as rows of exchanges.csv."""

from __future__ import annotations

import numpy as np
from halves import DRAIN_NS, LAYOUT, announced, batch_of
from latprof_agent.live.live_folder import Description, LiveFolder
from latprof_agent.monitor.totals import Own, Totals
from latprof_agent.monitor.turns import Turns
from latprof_analysis import read_runs
from latprof_analysis.records.joiner import Joiner
from latprof_analysis.study.analysis import analyze

CLIENT, SERVER = LAYOUT.roles["client"], LAYOUT.roles["server"]
FLOW, UNKNOWN = 5, 77


def turn(role, flow=FLOW, end=100, **values):
    made = np.zeros(1, LAYOUT.rings["turns"])
    for name, value in {"role": role, "flow": flow, "end": end, **values}.items():
        made[name] = value
    return made


def exchange(begin, end, flow=FLOW):
    """Sent at `begin`, there 10 later, answered 5 after that, read 8 after that."""
    return [
        turn(CLIENT, flow, end, send_ns=begin, xmit_ns=begin + 1,
             arrive_ns=begin + 22, read_ns=begin + 23, pid=7),
        turn(SERVER, flow, end, arrive_ns=begin + 9, ready_ns=begin + 10,
             send_ns=begin + 15, xmit_ns=begin + 16, pid=8),
    ]  # fmt: skip


def rows_of(*exchanges):
    joiner = Joiner(LAYOUT)
    flows = [announced(side, flow=FLOW) for side in (1, 2)]
    joiner.feed(batch_of([]) | {"flows": np.concatenate(flows)}, DRAIN_NS)
    turns = Turns(LAYOUT.rings["turns"], SERVER)
    records = np.concatenate([record for both in exchanges for record in both])
    return turns.add(records).rows(joiner)


def test_a_row_has_the_stamps_of_both_ends_and_its_parts_sum_to_the_response():
    rows = rows_of(exchange(1000, 100), exchange(2000, 200))
    assert len(rows) == 2
    first = rows.row(0)
    parts = [first[f"{name}_ns"] for name in ("request_way", "server", "reply_way")]
    assert parts == [10, 5, 8]
    assert first["response_ns"] == 23
    assert (first["request_sent_ns"], first["request_ready_ns"]) == (1000, 1010)
    assert (first["client_pid"], first["server_pid"]) == (7, 8)
    assert (first["request_last_sequence"], first["protocol"]) == (100, "tcp")
    for unknown in ("retransmits", "request_bytes", "requests", "server_queue_ns",
                    "request_read_ns", "reply_pauses_ns", "pipelined"):  # fmt: skip
        assert first[unknown] is None


def test_a_stamp_that_is_missing_makes_no_time_up():
    client, server = exchange(1000, 100)
    client["send_ns"] = 0
    (row,) = [rows_of([client, server]).row(0)]
    assert row["response_ns"] is row["request_way_ns"] is None
    assert (row["server_ns"], row["reply_way_ns"]) == (5, 8)


def test_a_flow_that_nobody_knows_has_no_row():
    assert len(rows_of(exchange(1000, 100, UNKNOWN))) == 0
    assert len(rows_of(exchange(1000, 100, UNKNOWN), exchange(2000, 100))) == 1


def test_a_recording_gives_them_back(tmp_path):
    rows = rows_of(*(exchange(1000 * n, 100 * n) for n in range(1, 50)))
    folder = LiveFolder(tmp_path / "run")
    folder.start(Description("port 80", ("service",)))
    folder.add_exchanges(rows)
    folder.finish(Totals(own=Own(seconds=1)))
    found = read_runs(tmp_path / "run")
    assert found.skipped_rows == 0
    assert found.exchanges["response_ns"].tolist() == [23] * 49
    (figures,) = analyze(tmp_path / "run").document["exchanges"].values()
    assert figures["parts"]["response"]["n"] == 49
