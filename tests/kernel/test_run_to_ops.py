"""`latprof run ops --to`: the floor of the way to another host."""

from __future__ import annotations

import json
import signal
import subprocess

import numpy as np
import pandas as pd
import pytest
from elsewhere import PORT, at, child_of, echo, started_echo, turned
from latprof_agent.workload.ops_floor import sizes_of
from latprof_process import Latprof, kill, run
from recording import wait_until

OPS = ("run", "ops", "--json", "--quiet")
ROUNDS, WARMUP = 10, 2
WORDS = ("--payload-sizes=1000,100000", f"--rounds={ROUNDS}", f"--warmup={WARMUP}")
CELLS = [
    *(("GET", 1000), ("GET", 100_000), ("SET", 1000), ("SET", 100_000)),
    *(("EXISTS", None), ("EVICT", None)),
]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "run"


def measured(out, backend):
    rows = pd.read_csv(out / "operations.csv")
    return rows[(rows["phase"] == "measured") & (rows["backend"] == backend)]


def test_the_responder_counts_the_same_operations_and_their_bytes(make_lab, out):
    lab = make_lab()
    words = ("--bind", lab.b_address, "--port", PORT + 1)
    with turned(lab), echo(*words, within=at(lab, "b")) as (_, served):
        to = f"--to={lab.b_address}"
        latprof = run(*OPS, to, *WORDS, f"--out={out}", before=at(lab, "a"))
    assert latprof.process.returncode == 0, latprof.err
    each = ROUNDS + WARMUP
    assert served["sessions"] == len(CELLS)
    assert served["messages"] == each * len(CELLS)
    # of requests
    assert served["bytes"] == each * sum(sizes_of(*cell)[0] for cell in CELLS)
    rows = pd.read_csv(out / "operations.csv")
    assert len(rows) == each * len(CELLS)
    assert rows["wrong"].sum() == 0
    every = measured(out, "FLOOR").groupby(["op", "payload_size_bytes"], dropna=False)
    assert (every.size() == ROUNDS).all()
    assert len(every) == len(CELLS)
    # each is one exchange, of which this end alone was seen
    assert (rows["exchanges"] == 1).all()
    assert rows["client_ns"].notna().all()
    assert rows["network_ns"].isna().all()
    # what is sent in the time of a measured operation is no warm-up, and all else is
    sent = pd.read_csv(out / "messages.csv").dropna(subset="send_ns")
    begun = rows.sort_values("start_ns").reset_index()
    at_ns = np.searchsorted(begun["start_ns"], sent["send_ns"], "right") - 1
    of = begun.loc[np.maximum(at_ns, 0)].reset_index()
    inside = sent["send_ns"].to_numpy() <= of["start_ns"] + of["time_ns"]
    of_measured = inside & (at_ns >= 0) & (of["phase"] == "measured")
    assert ((sent["kind"] == "message").to_numpy() == of_measured).all()
    assert (sent["kind"] == "message").sum() >= ROUNDS * len(CELLS)
    told = json.loads((out / "run.json").read_text())["workload"]["ops"]
    assert (told["to"], told["address"]) == (lab.b_address, lab.b_address)


@pytest.mark.thorough
@pytest.mark.timed
def test_its_time_is_that_of_the_link(make_lab, out):
    rate, delay_s, size = 100e6, 5e-3, 1_000_000
    lab = make_lab(rate_bps=int(rate), delay_ns=int(1e9 * delay_s))
    with echo("--bind", lab.b_address, within=at(lab, "b")) as (port, _):
        words = (f"--to={lab.b_address}:{port}", f"--payload-sizes={size}", "--ops=GET")
        words = (*words, "--rounds=5", "--warmup=4", f"--out={out}")
        latprof = run(*OPS, *words, before=at(lab, "a"))
    assert latprof.process.returncode == 0, latprof.err
    # 1448 bytes of payload in a packet of 1500, or with the frame's header 1514; each
    # operation opens no connection, but its window has to grow again after no pause
    least_s = 2 * delay_s + 8 * size / 1448 * 1500 / rate
    most_s = 2 * delay_s + 8 * size / 1448 * 1514 / rate
    took_s = measured(out, "FLOOR")["time_ns"].median() / 1e9
    assert least_s * 0.99 <= took_s <= 1.05 * most_s


def test_a_redis_there_and_the_floor_of_the_same_way_stand_side_by_side(make_lab, out):
    lab = make_lab()
    words = ["redis-server", "--bind", lab.b_address, "--save", ""]
    words += ["--protected-mode", "no"]
    server = lab.start("b", words, stdout=subprocess.DEVNULL)
    client = ["redis-cli", "-h", lab.b_address, "ping"]

    def answers():
        asked = lab.start("a", client, stdout=subprocess.PIPE, text=True)
        return asked.communicate()[0] == "PONG\n"

    wait_until(answers, "redis answers")
    with echo("--bind", lab.b_address, within=at(lab, "b")) as (port, _):
        latprof = run(
            *OPS,
            *(f"--to={lab.b_address}:{port}", f"--redis={lab.b_address}"),
            *(*WORDS, f"--out={out}"),
            before=at(lab, "a"),
        )
    server.kill()
    assert latprof.process.returncode == 0, latprof.err
    for backend in ("REDIS", "FLOOR"):
        rows = measured(out, backend)
        assert len(rows) == ROUNDS * len(CELLS)
        assert (rows["exchanges"] == 1).all()
    (told,) = json.loads(latprof.out)["ops"]["remarks"]
    assert "counted as many" in told


def test_a_responder_that_does_not_take_it_is_one_line(make_lab, out):
    lab = make_lab()
    there = ("--bind", lab.b_address, "--workloads", "bulk")
    with echo(*there, within=at(lab, "b")) as (port, _):
        to = f"--to={lab.b_address}:{port}"
        latprof = run(*OPS, to, *WORDS, f"--out={out}", before=at(lab, "a"))
    assert latprof.process.returncode == 1
    (line,) = latprof.err.splitlines()
    assert "does not serve this workload" in line


def test_a_responder_that_dies_is_one_line_and_what_was_measured_is_kept(make_lab, out):
    lab = make_lab()
    there = ("--bind", lab.b_address)
    with started_echo(*there, within=at(lab, "b")) as (process, port):
        words = (
            "--ops=SET",
            "--payload-sizes=1000",
            "--rounds=1000000",
            f"--out={out}",
        )
        to = f"--to={lab.b_address}:{port}"
        latprof = Latprof(*OPS, to, *words, before=at(lab, "a"))
        latprof.wait_for_rows(out / "messages.csv", 1000)
        kill(child_of(process), signal.SIGKILL)
        assert latprof.finish() == 1
    (line,) = latprof.err.splitlines()
    assert line.startswith("latprof: ")
    (cell,) = json.loads(latprof.out)["ops"]["cells"]
    assert cell["n"] > 100
    assert len(measured(out, "FLOOR")) == cell["n"]
