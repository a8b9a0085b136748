"""Operations on stores: the figures of their cells, and where their time went."""

from __future__ import annotations

import numpy as np
import pytest
from latprof_agent.workload.ops_floor import KEY_BYTES, sizes_of
from latprof_agent.workload.ops_parts import Seen
from latprof_analysis.read.operations_csv import (
    PARTS,
    SCHEMA,
    Operations,
    read_operations,
)
from latprof_analysis.records.exchange_rows import COLUMNS as EXCHANGE_COLUMNS
from latprof_analysis.records.exchange_rows import ExchangeRows
from latprof_analysis.report.ops import ops_parts, ops_sentences
from latprof_analysis.report.overview import overview
from latprof_analysis.report.parts import Table
from latprof_analysis.report.terminal import (
    Terminal,
    fitting,
    table_lines,
    write_parts,
)
from latprof_analysis.stages import BLANK
from latprof_analysis.study.operations import (
    operation_figures,
    ops_rows,
    remote_ops_rows,
)

PORT = 6379
MS = 1_000_000


def made(cells, phase="measured"):
    """Operations of cells: times in ns, by backend, operation and payload."""
    texts = {"backend": [], "op": [], "phase": []}
    numbers = {
        name: []
        for name in ("payload_size_bytes", "wrong", "start_ns", "time_ns", *PARTS)
    }
    for (backend, op, payload), times in cells.items():
        for at, time_ns in enumerate(times):
            row = {"backend": backend, "op": op, "phase": phase}
            for name, text in row.items():
                texts[name].append(text)
            numbers["payload_size_bytes"].append(BLANK if payload is None else payload)
            numbers["wrong"].append(0)
            numbers["start_ns"].append(at)
            numbers["time_ns"].append(time_ns)
            for name, share in zip(PARTS, (0.5, 0.2, 0.1, 0.1, 0.1), strict=True):
                numbers[name].append(round(share * time_ns))
    return Operations(texts, {k: np.array(v, "i8") for k, v in numbers.items()})


def test_the_published_rows_drop_the_first_and_the_last_time():
    times_ns = [9_000_000, 1_000_000, 3_000_000, 2_000_000, 700_000]
    (row,) = remote_ops_rows(made({("REDIS", "GET", 1_000_000): times_ns}))

    # psbench: times_ms[1:-1], and payload / 1e6 / seconds
    kept = [1.0, 3.0, 2.0]
    assert row[:4] == ["REDIS", "GET", 1_000_000.0, 5]
    assert row[4:] == pytest.approx([sum(kept), 2.0, 1.0, 3.0, 500.0])


@pytest.mark.parametrize("n", [1, 2])
def test_the_published_rows_keep_all_of_two_times(n):
    (row,) = remote_ops_rows(made({("REDIS", "EVICT", None): [1e6] * n}))

    assert row[2] is None
    assert row[3:8] == [n, float(n), 1.0, 1.0, 1.0]
    assert row[8] is None


def test_a_cell_has_all_repetitions_and_megabits_that_are_such():
    found = operation_figures(made({("REDIS", "SET", 1_000_000): range(1000, 1101)}))
    (cell,) = found["cells"]

    assert (cell["n"], cell["min_ns"], cell["max_ns"]) == (101, 1000, 1100)
    assert (cell["mean_ns"], cell["p50_ns"], cell["p90_ns"]) == (1050, 1050, 1090)
    assert cell["p99_ns"] is None  # needs 1000
    assert cell["megabits_per_second"] == pytest.approx(8e6 / 1050 * 1e3)
    assert sum(cell["shares"].values()) == pytest.approx(1, abs=1e-3)
    assert cell["shares"]["receive_queue"] == pytest.approx(0.2, abs=1e-3)
    assert len(ops_rows(found)[0]) == 21


def test_operations_without_probes_are_latencies(capsys):
    section = operation_figures(made({("REDIS", "GET", 1_000_000): [MS] * 9}))
    found = {"kinds": {}, "round_trips": {}, "notes": [], "warnings": []}
    write_parts(overview(found | {"ops": section | {"remarks": []}}), Terminal())
    shown = capsys.readouterr().out
    assert "REDIS: 9 operations, none wrong" in shown
    assert "no latencies" not in shown


def test_what_is_not_measured_is_in_no_cell():
    warm = operation_figures(made({("R", "GET", 1): [5, 6]}, phase="warmup"))
    first = operation_figures(made({("R", "GET", 1): [5]}, phase="first"))

    assert (warm["cells"], warm["warmup"]) == ([], 2)
    assert (first["cells"], first["warmup"]) == ([], 0)
    assert first["first"] == [{"backend": "R", "op": "GET", "time_ns": 5}]


def test_the_floor_has_the_sizes_of_redis_protocol():
    def resp(*words):
        return b"*%d\r\n" % len(words) + b"".join(
            b"$%d\r\n%s\r\n" % (len(word), word) for word in words
        )

    key = b"k" * KEY_BYTES
    for size in (1, 999, 1000, 123_456):
        name, data = key + str(size).encode(), bytes(size)
        reply = b"$%d\r\n%s\r\n" % (size, data)
        assert sizes_of("GET", size) == (
            len(resp(b"GET", name)),
            max(18, len(reply)),  # a header of ours has 18 bytes
        )
        assert sizes_of("SET", size)[0] == len(resp(b"SET", name, data))
    assert sizes_of("EXISTS", None) == (len(resp(b"EXISTS", key + b"none")), 18)
    assert sizes_of("EVICT", None) == (len(resp(b"DEL", key + b"none")), 18)


def exchange(**numbers):
    """One exchange on PORT; what is not told is BLANK."""
    given = {"server_port": PORT, "retransmits": 0, "reply_pauses_ns": 0, **numbers}
    names = [n for n in EXCHANGE_COLUMNS if n.endswith(("_ns", "_port", "retransmits"))]
    return ExchangeRows(
        {name: np.array([given.get(name, BLANK)], "i8") for name in names}, {}
    )


class Replies:
    """Rows of replies: when each could be read, and was."""

    def __init__(self, *times):
        ready, read = zip(*times, strict=True)
        self.numbers = {
            "source_port": np.full(len(times), PORT),
            "ready_ns": np.array(ready, "i8"),
            "read_ns": np.array(read, "i8"),
        }


def parts(seen, start_ns, end_ns):
    columns = (np.array([value], "i8") for value in (PORT, start_ns, end_ns))
    return {name: int(values[0]) for name, values in seen.parts_of(*columns).items()}


WHOLE = {
    "request_sent_ns": 1100,
    "reply_sent_ns": 1600,
    "reply_read_ns": 2000,
    "request_way_ns": 200,
    "server_queue_ns": 50,
    "server_work_ns": 250,
    "reply_way_ns": 400,
    "reply_pauses_ns": 30,
    "response_ns": 900,
}


def test_five_parts_sum_to_the_time_of_an_operation():
    seen = Seen()
    seen.watch(PORT)
    seen.add_exchanges(exchange(**WHOLE))
    # two that wait at once are one wait: 1700 to 1900; and one more of 20
    seen.add_messages(Replies((1700, 1800), (1750, 1900), (1980, 2000)))
    found = parts(seen, 1000, 2050)

    assert found["client_ns"] == 1050 - 900
    assert found["client_queue_ns"] == 220
    assert found["network_ns"] == 200 + 400 - 30 - 220
    assert (found["server_queue_ns"], found["server_ns"]) == (50, 250 + 30)
    assert sum(found[name] for name in PARTS) == 1050


def test_of_a_server_that_nobody_saw_only_the_clients_part_is_known():
    seen = Seen()
    seen.watch(PORT)
    told = ("request_sent_ns", "reply_read_ns", "response_ns")
    seen.add_exchanges(exchange(**{name: WHOLE[name] for name in told}))
    found = parts(seen, 1000, 2050)

    assert (found["client_ns"], found["response_ns"]) == (150, 900)
    assert {found[name] for name in PARTS[1:]} == {BLANK}


def test_an_exchange_outside_an_operations_time_is_none_of_it():
    seen = Seen()
    seen.watch(PORT)
    seen.add_exchanges(exchange(**WHOLE))
    seen.add_exchanges(exchange(**WHOLE | {"server_port": PORT + 1}))

    assert parts(seen, 1101, 2050)["exchanges"] == 0
    assert parts(seen, 1101, 2050)["client_ns"] == BLANK
    assert parts(seen, 1100, 2050)["exchanges"] == 1


def lines(document, width):
    (table,) = [part for part in ops_parts(document) if isinstance(part, Table)]
    return table_lines(fitting(table, width), width)


def test_the_table_stands_in_80_columns_with_three_backends():
    cells = {
        (backend, op, payload): [1_000_000] * 3
        for backend in ("REDIS", "ENDPOINT", "FLOOR")
        for op, payload in (("EXISTS", None), ("GET", 10_000_000), ("SET", 1000))
    }
    document = {"ops": operation_figures(made(cells))}
    text = lines(document, 80)

    assert max(map(len, text)) <= 80
    assert [line.split()[0] for line in text[2::2]] == ["GET", "SET", "EXISTS"]
    # network, server, client, receive queue under each average
    assert text[3].split() == ["20/10/50/20"] * 3
    wide = lines({"ops": operation_figures(made(cells))}, 200)
    assert wide[2].split()[:7] == [
        "GET",
        "10000000",
        "1.000",
        "20%",
        "10%",
        "50%",
        "20%",
    ]


def test_a_sentence_says_where_most_of_the_time_went():
    document = {"ops": operation_figures(made({("REDIS", "GET", 9): [1000] * 4}))}

    (told,) = ops_sentences(document)
    assert told == (
        "REDIS: 4 operations, none wrong; 50.0% of their time in client, 20.0% in "
        "network"
    )


def test_a_sentence_says_how_far_above_the_floor():
    cells = {
        ("REDIS", "GET", 9): [3000] * 5,
        ("REDIS", "SET", 9): [8000] * 5,
        ("FLOOR", "GET", 9): [1000] * 5,
        ("FLOOR", "SET", 9): [4000] * 5,
    }
    redis, floor = ops_sentences({"ops": operation_figures(made(cells))})

    assert "p50 2 to 3 times the floor's" in redis
    assert "times" not in floor


def written(folder, **changed):
    """A folder with an operation whose parts sum to its time, and one that differs."""
    right = dict.fromkeys(SCHEMA.names, 0) | {"backend": "R", "op": "GET"}
    right |= {"phase": "measured", "time_ns": 15}
    right |= dict(zip(PARTS, (1, 2, 3, 4, 5), strict=True))
    rows = [right, right, right | changed]
    lines = [SCHEMA.names, *([row[name] for name in SCHEMA.names] for row in rows)]
    folder.mkdir()
    text = "".join(",".join(map(str, line)) + "\n" for line in lines)
    (folder / "operations.csv").write_text(text)
    return folder


def test_an_operation_whose_parts_are_not_its_time_is_left_out(tmp_path):
    notes = []
    assert len(read_operations([written(tmp_path / "a")], notes).texts["op"]) == 3
    assert notes == []
    found = read_operations([written(tmp_path / "b", time_ns=16)], notes)
    assert len(found.texts["op"]) == 2
    (note,) = notes
    assert note.startswith("b: 1 operation left out, such as ")
    assert "its parts do not sum to time_ns" in note
    # where one is not known there is no sum
    found = read_operations([written(tmp_path / "c", time_ns=16, server_ns="")], notes)
    assert len(found.texts["op"]) == 3


def test_a_folder_without_operations_has_none(tmp_path):
    assert read_operations([tmp_path], []) is None
