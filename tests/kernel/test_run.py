"""`latprof run` as a user runs it: what it prints, what it leaves, what it tells."""

from __future__ import annotations

import json
import signal
import time
from threading import Event

import pandas as pd
import pytest
from latprof_agent.sinks.round_trip_rows import COLUMNS as ROUND_TRIP_COLUMNS
from latprof_analysis.records.exchange_rows import COLUMNS as EXCHANGE_COLUMNS
from latprof_analysis.records.message_rows import COLUMNS
from latprof_analysis.stages import STAGES
from latprof_process import FIRST, Latprof, kill, run, screen_of

PLAIN = ("--rate", "0", "--delay", "0")


def refuse(text: str) -> None:
    raise AssertionError(f"not JSON: {text}")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "run"


@pytest.mark.timed
def test_a_stop_of_200_ms_shows_in_the_p99_of_an_open_loop(out):
    words = ("--protocol", "tcp", "--sizes", "64", "--interval", "1ms")
    words = (*PLAIN, *words, "--duration=5", "--json", f"--out={out}")
    latprof = Latprof("run", *words, before=FIRST)
    responder = latprof.wait_for_child(" echo ")
    latprof.wait_for_rows(out / "round_trips.csv", 1000)
    kill(responder, signal.SIGSTOP)
    stopped_ns = time.monotonic_ns()
    Event().wait(0.2)  # the cause itself: so long it shall stand still
    kill(responder, signal.SIGCONT)
    continued_ns = time.monotonic_ns()

    assert latprof.finish() == 0, latprof.err
    rows = pd.read_csv(out / "round_trips.csv")
    assert len(rows) == pytest.approx(5000, abs=5)  # sent on time, come what may
    # What was due within the stop waits for its rest, so its times are spread
    # evenly from 0 to 200 ms; the worst 1% of 5000 are the longest 50 of them,
    # which makes a p99 of 150 ms. All others are taken as they are, since other
    # programs may stop this one, too.
    within = rows["intended_ns"].between(stopped_ns, continued_ns)
    truth_ns = rows["rtt_ns"].where(~within, continued_ns - rows["intended_ns"])
    p99_ms = rows["rtt_ns"].quantile(0.99) / 1e6
    assert p99_ms == pytest.approx(truth_ns.quantile(0.99) / 1e6, rel=0.1)
    others_ms = rows["rtt_ns"][~within].quantile(0.99) / 1e6
    if others_ms < 10:  # nothing else stood still
        assert p99_ms == pytest.approx(150, rel=0.1)
    summary = json.loads(latprof.out)
    shown_ms = summary["round_trips"]["tcp"]["rtt"]["p99_ns"] / 1e6
    low_ms, high_ms = (
        rows["rtt_ns"].quantile(0.99, interpolation=end) / 1e6
        for end in ("lower", "higher")
    )
    # the histogram's buckets are of 0.4%
    assert 0.996 * low_ms <= shown_ms <= 1.004 * high_ms
    assert latprof.left() == []


def test_json_is_one_document_and_the_same_as_summary_json(out):
    latprof = run("run", "--rounds=30", "--json", f"--out={out}")

    assert latprof.process.returncode == 0, latprof.err
    shown = json.loads(latprof.out, parse_constant=refuse)
    stored = json.loads((out / "summary.json").read_text(), parse_constant=refuse)
    assert shown == stored
    assert latprof.err == ""  # no terminal, so no progress bar either
    for estimate in ("bandwidth_bits_per_second", "fixed_delay_seconds"):
        assert {"value", "low", "high", "n"} == set(shown["fit"][estimate])
    assert (shown["fit"]["model"], shown["fit"]["factor"]) == ("line", 2)
    for protocol in ("tcp", "udp"):
        trips = shown["round_trips"][protocol]
        counts = [figures["n"] for figures in trips["sizes"].values()]
        assert max(counts) <= 30
        # on a busy machine the reply to a datagram may come when it counts as lost
        assert not trips["lost"] or protocol == "udp"
        assert sum(counts) + trips["lost"] == trips["sent"] == 30 * len(counts)
        for kind in ("request", "reply"):
            stages = shown["kinds"][f"{protocol} {kind}"]["stages"]
            assert {"send_queue", "qdisc", "receive_queue", "end_to_end"} <= set(stages)
            assert stages["end_to_end"]["p50_ns"] > 1_000_000
    assert latprof.left() == []


def test_the_files_have_their_columns_and_one_row_for_each_message(out):
    latprof = run("run", *PLAIN, "--rounds=20", "--sizes=18,5000", f"--out={out}")

    assert latprof.process.returncode == 0, latprof.err
    assert sorted(p.name for p in out.iterdir()) == [
        "exchanges.csv",
        *("messages.csv", "other_turns.csv"),
        *("recording.arrows.zst", "round_trips.csv"),
        "run.json",
        "summary.json",
    ]
    messages = pd.read_csv(out / "messages.csv")
    trips = pd.read_csv(out / "round_trips.csv")
    assert tuple(messages.columns) == COLUMNS
    assert tuple(trips.columns) == ROUND_TRIP_COLUMNS
    assert trips.groupby(["protocol", "size_bytes"]).size().tolist() == [20] * 4
    # the generator's own round trips are exchanges, too
    exchanges = pd.read_csv(out / "exchanges.csv")
    assert tuple(exchanges.columns) == EXCHANGE_COLUMNS
    asked = exchanges[exchanges["kind"] == "exchange"]
    assert asked.groupby(["protocol", "request_bytes"]).size().tolist() == [20] * 4
    measured = messages[messages["kind"] != "warmup"]
    rows = measured.groupby(["protocol", "kind", "size_bytes"]).size()
    assert rows.tolist() == [20] * 8
    parts = measured[[f"{stage}_ns" for stage in STAGES]].fillna(0).sum(axis=1)
    assert (parts == measured["end_to_end_ns"]).all()


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_the_first_screen_is_one_at_any_width(tmp_path, columns):
    words = () if columns == 100 else ("--rounds=12",)  # as by default at 100
    status, lines = screen_of(
        "run", *words, "--out=here", columns=columns, cwd=tmp_path
    )

    assert status == 0, lines
    assert max(map(len, lines)) <= columns
    heads = next(line for line in lines if line.startswith("stage")).split()
    assert heads.count("p50") == 4  # request and reply of both protocols
    (answer,) = [x for x in lines if x.startswith("udp: ")]
    assert "of the time in" in answer
    assert "response p50" in answer
    assert lines[-1] == "next: latprof report here"
    if columns == 100:
        assert len(lines) <= 40, lines
        assert heads.count("p99") == 4  # of 1000 messages or more
        assert "p99" in answer
        assert not [line for line in lines if " - " in line]


def test_all_has_every_figure_in_80_columns(out):
    latprof = run("run", "--all", "--rounds=12", f"--out={out}")

    assert latprof.process.returncode == 0, latprof.err
    lines = latprof.out.splitlines()
    tables = [line for line in lines if line.startswith(" ") and ": " not in line]
    assert max(map(len, tables)) <= 80
    for text in (
        "tcp request: 84 messages, all seen from end to end",
        "udp round trips: response time",
        "bandwidth, tcp",
        "100 Mbit/s",
        "2 ms + hosts",
        "transit of 18 B, udp reply",
        "slowest message, ",
        "emulator ab: ",
        "partial: ",
        "overhead: probes",
        f"folder: {out}",
    ):
        assert text in latprof.out
    assert "Traceback" not in latprof.err


def test_without_probes_the_same_run_has_round_trips_only(out):
    latprof = run("run", "--no-probes", "--rounds=12", "--json", f"--out={out}")

    assert latprof.process.returncode == 0, latprof.err
    summary = json.loads(latprof.out)
    assert summary["kinds"] == {}
    udp = summary["round_trips"]["udp"]
    # on a busy machine one may take too long, which is lost
    assert (udp["sent"], udp["rtt"]["n"] + udp["lost"]) == (84, 84)
    assert len((out / "messages.csv").read_text().splitlines()) == 1


@pytest.mark.timed  # what takes too long is lost, too
def test_a_lost_datagram_is_lost_and_stalls_nothing(out):
    words = ("--protocol", "udp", "--loss", "0.1", "--sizes", "64", "--rounds", "300")
    latprof = run("run", *words, "--json", f"--out={out}")

    assert latprof.process.returncode == 0, latprof.err
    summary = json.loads(latprof.out)
    figures = summary["round_trips"]["udp"]
    rows = pd.read_csv(out / "round_trips.csv")
    lost = rows["lost"] == 1
    assert figures["lost"] == lost.sum() > 0
    assert rows[lost]["rtt_ns"].isna().all()
    assert figures["rtt"]["n"] == 300 - lost.sum()
    # each lost packet lost one round trip: warm-up's among them
    emulator = summary["link_counters"]["emulator"]
    dropped = sum(emulator[way]["dropped_loss"] for way in ("ab", "ba"))
    assert figures["lost"] <= dropped <= figures["lost"] + 5
