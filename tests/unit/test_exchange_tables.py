"""Exchanges of a run folder: read, summed up, and said to people."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from exchange_rows import exchange, write_exchanges
from latprof_analysis import cli
from latprof_analysis.read import batches, cells, detect, read_runs, read_samples
from latprof_analysis.read.run_folder import write_parquet
from latprof_analysis.read.schema import EXCHANGES
from latprof_analysis.report.response_parts import shares_sentence
from latprof_analysis.report.sentences import exchange_sentence, exchange_sentences
from latprof_analysis.report.tables import exchange_parts
from latprof_analysis.report.terminal import write_parts
from latprof_analysis.study.analysis import analyze
from latprof_analysis.study.exchange_totals import ExchangeTotals
from latprof_analysis.study.scan import scan_runs
from made_runs import messages, write_table
from message_rows import MessageRows
from rich.console import Console

REDIS = "redis-benchmark -> redis-server:7777"
DNS = "dig -> dnsd:53"


def made(n, seed=1, **values):
    """Exchanges whose parts are drawn at random."""
    gaps = np.random.default_rng(seed).integers(1_000, 50_000, (n, 4))
    sent = 10**12 + 10**6 * np.arange(n)
    stamps = sent[:, None] + np.c_[np.zeros(n, int), gaps.cumsum(axis=1)]
    return [exchange(tuple(row), **values) for row in stamps.tolist()]


def made_folder(path):
    """A run folder of messages alone."""
    path.mkdir()
    write_table(path / "messages.csv", messages(40))
    return path


@pytest.fixture
def folder(tmp_path):
    """A run folder: redis of 2000 exchanges, one of them slow, and a few of a DNS."""
    made_folder(tmp_path / "run")
    stall = 200_500_000
    at = 5 * 10**12
    slow = exchange(
        (at, at + 200_000, at + 250_000, at + 200_000 + stall, at + 201_000_000),
        way=REDIS,
        server_comm="redis-server",
    )
    rows = [*made(1_999, way=REDIS), slow]
    rows += made(30, 2, way=DNS, protocol="udp")
    rows += made(5, 3, way=REDIS, kind="warmup")
    write_exchanges(tmp_path / "run" / "exchanges.csv", rows)
    return tmp_path / "run"


def test_percentiles_and_shares_are_those_of_a_groupby(folder):
    found = analyze(folder).document["exchanges"]
    rows = pd.read_csv(folder / "exchanges.csv")
    rows = rows[rows["kind"] == "exchange"]
    assert list(found) == [f"tcp {REDIS}", f"udp {DNS}"]  # most exchanges first
    for (protocol, way), group in rows.groupby(["protocol", "way"]):
        figures = found[f"{protocol} {way}"]
        assert figures["exchanges"] == figures["timed"] == len(group)
        assert figures["request_bytes"] == group["request_bytes"].sum()
        whole = group["response_ns"].sum()
        for part, values in figures["parts"].items():
            exact = group[f"{part}_ns"]
            assert values["n"] == len(group)
            assert values["max_ns"] == exact.max()
            assert values["share_of_response"] == pytest.approx(exact.sum() / whole)
            # half a bucket is 0.4%
            median = np.quantile(exact, 0.5, method="inverted_cdf")
            assert values["p50_ns"] == pytest.approx(median, rel=0.004)
        slowest = group.loc[group["response_ns"].idxmax()]
        assert figures["slowest"]["request_sent_ns"] == slowest["request_sent_ns"]
        assert figures["slowest"]["server_pid"] == 812
    assert found[f"udp {DNS}"]["parts"]["response"]["p90_ns"] is None  # of 30


@pytest.mark.parametrize("how", ["pieces", "column by column", "parquet"])
def test_figures_are_the_same_however_exchanges_are_read(folder, monkeypatch, how):
    expected = scan_runs(folder)
    if how == "pieces":
        monkeypatch.setattr(batches, "PIECE_BYTES", 60_000)
    elif how == "column by column":
        monkeypatch.setattr(cells, "_is_odd", lambda data, columns: True)
    else:
        write_parquet(folder)
        (folder / "exchanges.csv").unlink()
    found = scan_runs(folder)
    assert json.dumps(found.exchanges.as_dict()) == json.dumps(
        expected.exchanges.as_dict()
    )
    for name in ("exchange_rows", "slow_exchange_rows"):
        one, other = (getattr(part, name) for part in (found, expected))
        pd.testing.assert_frame_equal(one, other, check_categorical=False)


def test_exchanges_are_read_cell_by_cell_from_csv_and_parquet(folder):
    read_csv = read_runs(folder).exchanges
    write_parquet(folder)
    (folder / "exchanges.csv").unlink()
    read_parquet = read_runs(folder).exchanges
    pd.testing.assert_frame_equal(read_csv, read_parquet, check_categorical=False)
    assert len(read_csv) == 2_035
    assert read_csv["reply_pauses_ns"].isna().all()


def test_a_file_of_exchanges_by_itself_is_known_by_its_columns(tmp_path):
    path = tmp_path / "some.csv"
    rows = made(40, way=REDIS)
    write_exchanges(path, [*rows, exchange((None, 1, 2, 3, None), way=REDIS)])
    assert detect(path) == "exchanges"
    samples = read_samples(path)
    assert samples.frame["latency_ns"].tolist() == [r["response_ns"] for r in rows]
    assert set(samples.frame["kind"]) == {REDIS}
    found = analyze(path).document["exchanges"][f"tcp {REDIS}"]
    assert (found["exchanges"], found["timed"]) == (41, 40)


def test_a_folder_without_exchanges_stays_as_it_was(tmp_path, capsys):
    folder = made_folder(tmp_path / "run")
    assert analyze(folder).document["exchanges"] == {}
    assert read_runs(folder).exchanges.empty
    assert cli.main(["analyze", str(folder)]) == 0
    assert "exchange" not in capsys.readouterr().out


def test_messages_with_and_without_their_way_are_read(tmp_path):
    header, row = "protocol,kind,size_bytes,send_ns", "tcp,message,64,1000"
    for name, way in (("new", ",way"), ("old", "")):
        (tmp_path / name).mkdir()
        cell = ",a -> b:1" if way else ""
        text = f"{header}{way}\n{row}{cell}\n"
        (tmp_path / name / "messages.csv").write_text(text)
    runs = read_runs([tmp_path / "new", tmp_path / "old"])
    ways = runs.messages["way"]
    assert ways.dropna().tolist() == ["a -> b:1"]
    assert ways.isna().tolist() == [False, True]
    assert not [note for note in runs.notes if "not known" in note]


def test_analyze_begins_with_a_sentence_for_each_way(folder, capsys):
    assert cli.main(["analyze", str(folder)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("run: 40 messages, 0 round trips, 2,035 exchanges")
    where = "max 201 ms, of which 200 ms in redis-server (pid 812)"
    begin, _, rest = text.partition(where)
    assert f"{REDIS}, 2,000 exchanges: response p50" in begin
    assert " stage " in rest
    assert " stage " not in begin


SLOW = {
    "request_sent_ns": 1,
    "request_way_ns": 1_000,
    "server_ns": 1_000,
    "reply_way_ns": 1_000,
    "server_queue_ns": 100,
    "server_comm": "srv",
    "server_pid": 8,
}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"server_ns": 9_000}, "of which 9.00 us in srv (pid 8)"),
        ({"server_ns": 9_000, "server_pid": None}, "of which 9.00 us in srv"),
        (
            {"server_ns": 9_000, "server_comm": None},
            "of which 9.00 us in the server (pid 8)",
        ),
        (
            {"server_ns": 9_000, "server_queue_ns": 8_000},
            "of which 9.00 us in srv (pid 8), not yet read",
        ),
        (
            {
                "server_ns": 9_000,
                "server_queue_ns": 8_000,
                "server_wakeup_ns": 7_000,
            },
            "of which 9.00 us in srv (pid 8), waiting for a CPU",
        ),
        (
            {"reply_way_ns": 9_000, "reply_pauses_ns": 8_500},
            "of which 9.50 us in srv (pid 8)",
        ),
        (
            {"request_way_ns": 9_000, "retransmits": 1},
            "of which 9.00 us in the request's way (sent again)",
        ),
        ({"reply_way_ns": 9_000}, "of which 9.00 us in the reply's way"),
        (
            {"reply_way_ns": 9_000, "client_queue_ns": 8_000},
            "of which 8.00 us in the client, not yet read",
        ),
        (
            {
                "reply_way_ns": 9_000,
                "client_queue_ns": 8_000,
                "client_wakeup_ns": 5_000,
            },
            "of which 8.00 us in the client, waiting for a CPU",
        ),
        *(
            (
                {"server_ns": 9_000, "server_work_ns": 8_500, part: 7_000},
                f"of which 9.00 us in srv (pid 8), {words}",
            )
            for part, words in (
                ("server_cpu_ns", "on a CPU"),
                ("server_cpu_wait_ns", "waiting for a CPU"),
                ("server_sleep_ns", "asleep"),
            )
        ),
        (
            {"request_way_ns": None, "server_ns": 9_000},
            "of which 9.00 us in the request's way and srv (pid 8)",
        ),
        (
            {"request_way_ns": None, "server_ns": None, "reply_way_ns": None},
            "its parts not known",
        ),
        ({"pipelined": 1}, "answered before its request was whole"),
    ],
)
def test_the_sentence_says_where_the_slowest_spent_its_time(changed, told):
    response = {"p50_ns": None, "p99_ns": None, "max_ns": 11_000}
    figures = {
        "exchanges": 3,
        "parts": {"response": response},
        "slowest": SLOW | changed,
    }
    said = exchange_sentence("tcp cli -> srv:1", figures)
    assert said == f"cli -> srv:1, 3 exchanges: response max 11.0 us, {told}"


def figures_of(rows):
    """The figures of these exchanges, by way."""
    totals = ExchangeTotals()
    totals.add(MessageRows(rows, EXCHANGES))
    return totals.as_dict()


def test_where_the_client_was_not_seen_the_server_is_told():
    rows = [exchange((None, 20, 30, 70, None), way="elsewhere -> srv:80")] * 20
    ((name, figures),) = figures_of(rows).items()
    assert exchange_sentence(name, figures) == (
        "elsewhere -> srv:80, 20 exchanges: server p50 50 ns, max 50 ns "
        "(the client's end was not seen)"
    )


def test_of_many_ways_the_largest_are_told_and_the_others_counted():
    rows = [
        row
        for i in range(9)
        for row in made(20 - i, i, way=f"cli{i} -> srv:80", protocol="udp")
    ]
    said = exchange_sentences({"exchanges": figures_of(rows)})
    assert [line.split(",")[0] for line in said[:6]] == [
        f"cli{i} -> srv:80 (udp)" for i in range(6)
    ]
    assert said[6:] == ["and 3 more, 39 exchanges"]


def screen(exchanges, width=80):
    console = Console(file=io.StringIO(), width=width)
    write_parts(list(exchange_parts({"exchanges": exchanges})), console)
    return console.file.getvalue()


def test_tables_fit_80_columns_and_have_no_empty_one():
    many = made(2_000, way=REDIS, reply_pauses_ns=7, server_wakeup_ns=900)
    lines = screen(figures_of(many)).splitlines()
    assert max(map(len, lines)) <= 80
    table = lines[next(i for i, line in enumerate(lines) if " part " in line) :]
    assert table[0].split() == ["part", "p50", "p95", "p99", "max", "share", "n"]
    labels = [re.split(r" {2,}", line.strip())[0] for line in table[1:9]]
    assert labels == [
        "response",
        "request's way",
        "server",
        "not yet read",
        "waiting for CPU",
        "not yet answered",
        "reply's way",
        "server paused",
    ]
    few = screen(figures_of(made(20, way=REDIS)))
    assert "p50" in few
    assert "p99" not in few
    assert " - " not in few


def test_pipelining_is_said_and_counted_by_sends():
    rows = made(10, way=REDIS, requests=16)
    rows += [exchange((1, None, None, None, 90), way=REDIS, pipelined=1)] * 2
    text = screen(figures_of(rows))
    sends = 10 * 16 + 2
    assert f"exchanges of several requests: {sends / 12:.3g} in one on average" in text
    assert f"{sends} in all, counted by sends" in " ".join(text.split())
    assert "pipelined: 2 of 12 were answered before" in text


def test_a_hostile_name_of_a_way_does_nothing_to_the_screen():
    text = screen(figures_of(made(20, way="\x1b[2J[bold]x -> y:1")))
    assert "\x1b" not in text
    assert "[bold]x" in text


def _parts(**shares):
    return {name: {"share_of_response": share} for name, share in shares.items()}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        # of the server's the parts, as the largest may be within it
        (
            _parts(response=1.0, server=0.9, server_queue=0.7, server_wakeup=0.6)
            | _parts(server_work=0.2, request_way=0.05, reply_way=0.05),
            "60.0% waiting for CPU, 20.0% not yet answered",
        ),
        # what its thread did is known of three quarters
        (
            _parts(response=1.0, server=0.9, server_work=0.8, server_cpu=0.25)
            | _parts(server_sleep=0.4, reply_way=0.1),
            "40.0% asleep, 25.0% on CPU, 15.0% not yet answered",
        ),
        (
            _parts(response=1.0, reply_way=0.97, server=0.03)
            | _parts(client_queue=0.8, client_wakeup=0.75),
            "75.0% client waiting for CPU, 17.0% reply's way",
        ),
        (_parts(response=1.0, reply_way=0.97, server=0.03), "97.0% reply's way"),
        # none of many is worth a word
        (_parts(response=1.0, server=0.05, request_way=0.04), ""),
        (_parts(response=1.0), ""),
    ],
)
def test_the_parts_that_took_most_of_all_time_are_said(parts, text):
    assert shares_sentence(parts) == text
