"""Send calls of one message of the generator become one row, whenever they come."""

from __future__ import annotations

import os
from itertools import pairwise

import numpy as np
import pytest
from latprof_agent.workload.generator_log import GeneratorLog, log_in
from latprof_analysis.records.joiner import FOREVER
from latprof_analysis.records.message_rows import (
    COLUMNS,
    FAR_PORTS,
    KINDS,
    PORTS,
    REPLY,
    REQUEST,
    TEXTS,
    WARMUP,
    Messages,
)
from latprof_analysis.records.whole_messages import WholeMessages
from latprof_analysis.stages import BLANK, STAGES

PORT, CLIENT_PORT = 5201, 40_000
FIELDS = (
    *("sequence", "size_bytes", "reply_bytes", "intended_ns", "created_ns", "sent_ns"),
    *("received_ns", "reply_created_ns", "request_end", "reply_end", "flags", "train"),
)
WARMUP_FLAG = 1


def call(end, size, at_ns=1000, flow=7, kind=REQUEST, **values):
    """What the probes tell of one send call; its stamps are 10 ns apart."""
    stamps = ("send_ns", "queue_ns", "xmit_ns", "arrive_ns", "ready_ns", "read_ns")
    there = {name: at_ns + 10 * i for i, name in enumerate(stamps)}
    ports = {"source_port": CLIENT_PORT, "destination_port": PORT}
    if kind == REPLY:
        ports = {"source_port": PORT, "destination_port": CLIENT_PORT}
    row = {"sequence": end, "size_bytes": size, "packets": 2, "retransmits": 0}
    return ports | there | row | {"flow": flow, "kind": kind} | values


def rows_of(*calls):
    """Rows as the joiner gives them."""
    numbers = {
        name: np.array([c.get(name, BLANK) for c in calls], "i8")
        for name in COLUMNS
        if name not in TEXTS
    }
    # nothing translates between these
    for near, far in zip(PORTS, FAR_PORTS, strict=False):
        numbers[far] = numbers[near]
    texts = {name: (np.zeros(len(calls), "i4"), [""]) for name in TEXTS}
    texts["protocol"] = (np.zeros(len(calls), "i4"), ["tcp", "udp"])
    texts["kind"] = (np.array([c["kind"] for c in calls], "i4"), KINDS)
    names = [c.get("sender_comm", "load") for c in calls]
    words = sorted(set(names))
    texts["sender_comm"] = (np.array([*map(words.index, names)], "i4"), words)
    ends = numbers["sequence"]
    flows = np.array([c["flow"] for c in calls], "u8")
    return Messages(numbers, texts, (flows, ends - numbers["size_bytes"], ends))


def log_of(folder, *round_trips):
    """A generator's log; a round trip is (request_end, size, fields)."""
    path = folder / "log"
    if not path.exists():
        path.write_text(" ".join(FIELDS) + "\n")
    made = np.zeros(len(round_trips), [(name, "<u8") for name in FIELDS])
    for i, (end, size, fields) in enumerate(round_trips):
        told = {"request_end": end, "size_bytes": size, "received_ns": 5000} | fields
        for name, value in told.items():
            made[name][i] = value
    with path.open("ab") as file:
        file.write(made.tobytes())
    return path


def generator_log(folder, *round_trips):
    path = log_of(folder, *round_trips)
    descriptor = os.open(path, os.O_RDONLY)
    log = GeneratorLog(log_in(descriptor), "tcp", PORT, open_loop=True, agreed=False)
    log.read()
    return log


def whole_of(log):
    def spans_of(rows):
        mine, spans = log.spans_of(rows)
        assert mine.tolist() == list(range(len(rows)))
        return spans

    return WholeMessages(spans_of)


def given(whole, until_ns=0):
    """Last byte and size of each row that is given."""
    rows = whole.take(until_ns)
    if rows is None:
        return []
    pairs = zip(rows.numbers["sequence"], rows.numbers["size_bytes"], strict=True)
    return [(int(end), int(size)) for end, size in pairs]


def test_a_message_has_the_send_of_its_first_call_and_all_else_of_its_last(tmp_path):
    whole = whole_of(generator_log(tmp_path, (300, 300, {})))
    first = call(100, 100, 1000, sender_pid=5, sender_comm="a", wakeup_ns=1, hops=1)
    last = call(300, 200, 9000, sender_pid=6, sender_comm="b", wakeup_ns=7, hops=2)
    whole.add(rows_of(last, first))
    rows = whole.take(0)
    rows.set_retransmits(np.array([3]))
    rows.set_created(np.array([400]))
    row = rows.row(0)
    assert len(rows) == 1
    assert (row["size_bytes"], row["packets"], row["retransmits"]) == (300, 4, 3)
    assert (row["send_ns"], row["sender_pid"], row["sender_comm"]) == (1000, 5, "a")
    later = ("queue_ns", "xmit_ns", "arrive_ns", "ready_ns", "read_ns")
    assert [row[name] for name in later] == [9010, 9020, 9030, 9040, 9050]
    assert (row["wakeup_ns"], row["hops"], row["sequence"]) == (7, 2, 300)
    assert sum(row[f"{stage}_ns"] for stage in STAGES) == row["end_to_end_ns"]
    assert row["end_to_end_ns"] == 9050 - 400
    assert [int(column[0]) for column in rows.retransmit_range] == [7, 0, 300]


def test_what_one_call_lacks_is_missing_and_not_guessed(tmp_path):
    whole = whole_of(generator_log(tmp_path, (300, 300, {})))
    first = call(100, 100, 1000, send_ns=0)
    whole.add(rows_of(first, call(300, 200, 9000, packets=BLANK, arrive_ns=0)))
    row = whole.take(0)
    row.set_created(np.zeros(1, "i8"))
    row = row.row(0)
    assert (row["send_ns"], row["packets"], row["arrive_ns"]) == (None, None, None)
    assert row["end_to_end_ns"] is None
    assert row["receive_stack_ns"] == 20  # transit is in it


def test_a_message_waits_for_its_last_call(tmp_path):
    whole = whole_of(generator_log(tmp_path, (300, 300, {}), (400, 100, {})))
    whole.add(rows_of(call(100, 100), call(400, 100)))
    assert given(whole) == [(400, 100)]
    whole.add(rows_of(call(250, 150, sender_comm="other")))
    assert given(whole) == []
    whole.add(rows_of(call(300, 50)))
    assert given(whole) == [(300, 300)]
    assert whole.take(FOREVER) is None


def test_calls_wait_until_the_log_tells_of_their_message(tmp_path):
    log = generator_log(tmp_path, (300, 300, {}))
    whole = whole_of(log)
    whole.add(rows_of(call(300, 300), call(350, 50), call(500, 150)))
    assert given(whole, 10**15) == [(300, 300)]
    log_of(tmp_path, (500, 200, {}))
    log.read()
    assert given(whole) == [(500, 200)]


def test_calls_of_a_message_that_lacks_one_are_given_as_they_are_once_it_is_over(
    tmp_path,
):
    log = generator_log(tmp_path, (300, 300, {"received_ns": 5000}))
    whole = whole_of(log)
    whole.add(rows_of(call(100, 100), call(300, 100)))
    assert given(whole, 4999) == []
    assert given(whole, 5000) == [(100, 100), (300, 100)]


def test_at_the_end_all_calls_are_given(tmp_path):
    unanswered = (300, 300, {"received_ns": 0})
    whole = whole_of(generator_log(tmp_path, unanswered))
    whole.add(rows_of(call(100, 100), call(400, 100)))
    assert given(whole, 10**15) == []
    assert given(whole, FOREVER) == [(100, 100), (400, 100)]


def test_calls_of_other_flows_and_of_two_messages_are_not_united(tmp_path):
    whole = whole_of(generator_log(tmp_path, (100, 100, {}), (300, 200, {})))
    merged = call(200, 150)  # a full FIFO: the end of one, the beginning of the next
    whole.add(rows_of(call(50, 50), merged, call(100, 50, flow=8), call(300, 100)))
    assert given(whole) == [(200, 150)]
    assert sorted(given(whole, FOREVER)) == [(50, 50), (100, 50), (300, 100)]


def test_a_half_without_a_sender_is_no_part_of_a_message(tmp_path):
    whole = whole_of(generator_log(tmp_path, (300, 300, {})))
    whole.add(rows_of(call(100, 100), call(300, 200), call(300, BLANK)))
    assert sorted(given(whole, FOREVER)) == [(300, BLANK), (300, 300)]


def test_replies_are_whole_by_their_own_offsets(tmp_path):
    trip = (300, 300, {"reply_end": 90, "reply_bytes": 90, "reply_created_ns": 800})
    log = generator_log(tmp_path, trip)
    whole = whole_of(log)
    whole.add(rows_of(call(40, 40, kind=REPLY), call(90, 50, kind=REPLY)))
    rows = whole.take(0)
    assert rows.numbers["size_bytes"].tolist() == [90]
    _, created, _ = log.created_of(rows)
    assert created.tolist() == [800]


def test_each_call_of_a_warm_up_is_of_the_warm_up(tmp_path):
    fields = {"flags": WARMUP_FLAG, "created_ns": 500}
    log = generator_log(tmp_path, (300, 300, fields), (400, 100, {"created_ns": 600}))
    rows = rows_of(call(100, 100), call(300, 200), call(400, 100))
    _, created, kinds = log.created_of(rows)
    assert kinds.tolist() == [WARMUP, WARMUP, REQUEST]
    assert created.tolist() == [0, 500, 600]


@pytest.mark.parametrize("seed", range(5))
def test_any_cut_into_calls_and_batches_gives_each_message_once(tmp_path, seed):
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 500, 200)
    ends = np.cumsum(sizes)
    cuts = random.choice(int(ends[-1]), 400, replace=False)
    bounds = np.unique(np.r_[0, ends, cuts])
    calls = [call(int(b), int(b - a)) for a, b in pairwise(bounds)]
    order = random.permutation(len(calls))
    trips = [(int(e), int(s), {}) for e, s in zip(ends, sizes, strict=True)]
    whole = whole_of(generator_log(tmp_path, *trips))
    found = []
    for part in np.array_split(order, 17):
        whole.add(rows_of(*(calls[i] for i in part)))
        found += given(whole)
    assert sorted(found) == [(end, size) for end, size, _ in trips]
    assert whole.take(FOREVER) is None
