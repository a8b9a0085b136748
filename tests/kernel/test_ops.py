"""`latprof run ops`: operations on real stores, against what these say."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import uuid
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import redis
from free_ports import free_port
from latprof_agent import session
from latprof_agent.interrupts import Interrupt
from latprof_agent.lab.child import END_SECONDS
from latprof_agent.lab.link import LinkSpec
from latprof_agent.session import RunOptions
from latprof_agent.workload import ops
from latprof_agent.workload.ops import OpsPlan
from latprof_agent.workload.ops_stores import CLEAN_SECONDS
from latprof_analysis import read_samples
from latprof_analysis.read.operations_csv import PARTS
from latprof_process import FIRST, Latprof, kill, run
from proxystore.endpoint.config import EndpointConfig, write_config
from recording import wait_until

PLAIN = ("--rate", "0", "--delay", "0")
OPS = ("run", "ops", "--json")
HOST = "127.0.0.1"
COLUMNS = (
    "backend,op,payload_size_bytes,repeat,total_time_ms,avg_time_ms,min_time_ms,"
    "max_time_ms,avg_bandwidth_mbps"
)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def server():
    """A redis-server of the test's own on loopback, which notes each command."""
    port = free_port()
    words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    words += ["--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    client = redis.Redis(port=port)

    def answers():
        try:
            return client.ping()
        except redis.ConnectionError:
            return False

    wait_until(answers, "redis answers")
    yield client, port
    client.close()
    process.kill()
    process.wait()


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@pytest.fixture
def endpoint(tmp_path, monkeypatch):
    """A ProxyStore endpoint of the test's own on loopback: UUID, port, process."""
    monkeypatch.setenv("PROXYSTORE_HOME", str(tmp_path / "home"))
    port, name = free_port(), "latprof-test"
    config = EndpointConfig(name=name, uuid=str(uuid.uuid4()), host=HOST, port=port)
    write_config(config, str(tmp_path / "home" / name))
    serve = (
        "import sys\n"
        "from proxystore.endpoint.config import read_config\n"
        "from proxystore.endpoint.serve import serve\n"
        "serve(read_config(sys.argv[1]))"
    )
    words = [sys.executable, "-c", serve, str(tmp_path / "home" / name)]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(words, stdout=said, stderr=said)
    wait_until(lambda: listens(port), "the endpoint listens")
    yield config.uuid, port, process
    process.kill()
    process.wait()


def operations(out):
    return pd.read_csv(out / "operations.csv")


def measured(out, **where):
    rows = operations(out).query("phase == 'measured'")
    for name, value in where.items():
        rows = rows[rows[name] == value]
    return rows


def test_a_redis_of_somebody_else_counts_the_same_operations_and_keeps_nothing(
    server, out
):
    client, port = server
    words = ("--payload-sizes=1000,50000", "--rounds=20", f"--out={out}")
    latprof = run(*OPS, f"--redis=127.0.0.1:{port}", *words)

    assert latprof.process.returncode == 0, latprof.err
    rows = operations(out)
    counted = client.info("commandstats")
    for op in ("GET", "SET", "EXISTS"):
        assert counted[f"cmdstat_{op.lower()}"]["calls"] == (rows["op"] == op).sum()
    # and those that leave nothing: one for each size
    assert counted["cmdstat_del"]["calls"] == (rows["op"] == "EVICT").sum() + 2
    assert client.dbsize() == 0
    assert (measured(out).groupby(["op", "payload_size_bytes"]).size() == 20).all()
    assert rows["wrong"].sum() == 0
    summary = json.loads(latprof.out)
    (told,) = summary["ops"]["remarks"]
    assert "counted as many" in told
    # each operation is one exchange, of both whose ends everything was seen; at
    # first the client says who it is, too
    assert (rows.loc[rows["phase"] != "first", "exchanges"] == 1).all()
    assert rows[[*PARTS]].notna().all(axis=None)
    assert (rows[[*PARTS]].sum(axis=1) == rows["time_ns"]).all()
    assert latprof.left() == []


@pytest.mark.timed
def test_a_servers_part_is_not_less_than_what_redis_says_it_worked(server, out):
    client, port = server
    words = ("--payload-sizes=10000000", "--ops=GET", "--rounds=30", f"--out={out}")
    latprof = run(*OPS, f"--redis=127.0.0.1:{port}", *words)

    assert latprof.process.returncode == 0, latprof.err
    noted = reversed(client.slowlog_get(100_000))
    worked_us = [e["duration"] for e in noted if e["command"].startswith(b"GET ")]
    rows = operations(out).query("op == 'GET'")
    assert len(worked_us) == len(rows)
    # redis truncates to whole microseconds
    server_us = (rows["server_ns"] / 1e3).to_numpy()
    assert (server_us >= np.array(worked_us)).all()
    # beside a copy of 10 MB the rest, to read and to begin to write, is little, where
    # nobody else takes the CPU meanwhile
    assert (server_us / np.array(worked_us)).min() <= 1.5


@pytest.mark.timed
def test_a_servers_part_is_that_of_redis_own_latency_statistics(server, out):
    client, port = server
    shares = (25, 50, 75, 100)
    client.config_set("latency-tracking-info-percentiles", " ".join(map(str, shares)))
    words = ("--payload-sizes=10000000", "--rounds=30", f"--out={out}")
    latprof = run(*OPS, f"--redis={HOST}:{port}", *words)

    assert latprof.process.returncode == 0, latprof.err
    rows = operations(out)
    told = client.info("latencystats")
    for op in ("GET", "SET", "EXISTS"):
        name = op.lower()
        server_us = rows[rows["op"] == op]["server_ns"].to_numpy() / 1e3
        (counted,) = client.execute_command("LATENCY HISTOGRAM", name).values()
        assert counted[b"calls"] == len(server_us)
        # no operation was less long in the server than redis worked at it, so not
        # more of them were within a bound of its histogram, which counts up
        for bound_us, within in counted[b"histogram_usec"].items():
            assert (server_us < bound_us).sum() <= within
        worked_us = np.array([*told[f"latency_percentiles_usec_{name}"].values()])
        ours_us = np.percentile(server_us, shares, method="higher")
        # two readings of a clock of whole microseconds; two digits, rounded up
        assert (ours_us >= worked_us / 1.01 - 1).all()


@pytest.mark.timed
def test_the_networks_part_is_that_of_the_link(out):
    rate, delay_s, size = 100e6, 5e-3, 1_000_000
    words = ("--rate=100mbit", "--delay=5ms", "--mtu=1500", "--seed=3")
    words += (f"--payload-sizes={size}", "--ops=GET,SET", "--rounds=5", "--warmup=4")
    latprof = run(*OPS, *words, "--backend=redis,floor", f"--out={out}")

    assert latprof.process.returncode == 0, latprof.err
    # 1448 bytes of payload in a packet of 1500, or with the frame's header 1514
    least_s = 2 * delay_s + 8 * size / 1448 * 1500 / rate
    most_s = 2 * delay_s + 8 * size / 1448 * 1514 / rate
    for backend in ("REDIS", "FLOOR"):
        for op in ("GET", "SET"):
            rows = measured(out, backend=backend, op=op)
            took_s = rows["network_ns"].median() / 1e9
            # 5% for windows that are not open yet, and for the hosts' own work
            assert least_s * 0.99 <= took_s <= 1.05 * most_s, (backend, op)


@pytest.mark.timed
def test_what_a_parser_in_python_takes_is_the_clients_not_the_networks(tmp_path):
    found = {}
    for parser in ("hiredis", "python"):
        out = tmp_path / parser
        # without the pacing of others, which makes a network of its own
        words = ("--payload-sizes=1000000", "--ops=GET", "--rounds=60")
        words = (*words, "--congestion=reno", f"--redis-parser={parser}")
        words = (*words, "--backend=redis", f"--out={out}")
        latprof = run(*OPS, *PLAIN, *words, before=FIRST)
        assert latprof.process.returncode == 0, latprof.err
        # where no other program held them up: there are slow seconds of one run
        found[parser] = measured(out).quantile(0.1, numeric_only=True)
    # 8.0 measured, with redis-py 8.1 and hiredis 3.5
    assert found["python"]["client_ns"] >= 4 * found["hiredis"]["client_ns"]
    more = found["python"] - found["hiredis"]
    assert more["network_ns"] <= 0.25 * more["client_ns"]


def test_the_published_file_is_read_with_the_figures_of_the_run(out):
    words = ("--payload-sizes=1000,10000", "--rounds=5", "--backend=redis,floor")
    latprof = run(*OPS, *PLAIN, *words, f"--out={out}")

    assert latprof.process.returncode == 0, latprof.err
    path = out / "remote_ops.csv"
    assert path.read_text().splitlines()[0] == COLUMNS
    samples = read_samples(path)
    cells = json.loads(latprof.out)["ops"]["cells"]
    told = {
        (f"{cell['backend']} {cell['op']}", cell["payload_size_bytes"]): cell
        for cell in cells
    }
    frame = samples.frame
    assert len(frame) == len(told) == 12
    for row in frame.itertuples():
        size = None if pd.isna(row.size_bytes) else row.size_bytes
        cell = told[row.kind, size]
        assert row.latency_ns == pytest.approx(1e6 * cell["avg_time_ms"], rel=1e-9)
        assert row.count == cell["n"] - 2
    # the benchmark drops the first and the last, whatever they are
    rows = measured(out, backend="REDIS", op="EXISTS").sort_values("start_ns")
    kept_ms = (rows["time_ns"] / 1e6).tolist()[1:-1]
    exists = pd.read_csv(path).query("backend == 'REDIS' and op == 'EXISTS'").iloc[0]
    assert exists["avg_time_ms"] == pytest.approx(sum(kept_ms) / 3)
    assert exists["max_time_ms"] == pytest.approx(max(kept_ms))
    # its mbps are megabytes a second
    get = pd.read_csv(path).query("op == 'GET' and payload_size_bytes == 10000").iloc[0]
    megabytes = 10_000 / 1e6
    assert get["avg_bandwidth_mbps"] == pytest.approx(
        megabytes / (get["avg_time_ms"] / 1e3)
    )


@pytest.mark.thorough
def test_analyze_of_the_folder_says_what_the_run_said(out):
    words = ("--payload-sizes=1000", "--rounds=5", "--backend=redis")
    latprof = run(*OPS, *PLAIN, *words, f"--out={out}")
    again = run("analyze", "--json", str(out))
    report = run("report", str(out))

    assert latprof.process.returncode == again.process.returncode == 0, again.err
    first, then = json.loads(latprof.out)["ops"], json.loads(again.out)["ops"]
    assert then["cells"] == first["cells"]
    assert report.process.returncode == 0, report.err
    assert "Operations" in (out / "report.html").read_text()


def test_operations_on_an_endpoint_of_proxystore_are_right(out):
    words = ("--payload-sizes=1000,2000000", "--rounds=3", "--backend=proxystore")
    latprof = run(*OPS, *PLAIN, *words, f"--out={out}")

    assert latprof.process.returncode == 0, latprof.err
    rows = operations(out)
    assert (measured(out).groupby("op").size() == [3, 3, 6, 6]).all()
    assert rows["wrong"].sum() == 0
    # a request in chunks is one exchange, and all of it was seen
    assert (rows["exchanges"] == 1).all()
    assert (rows[[*PARTS]].sum(axis=1) == rows["time_ns"]).all()
    assert latprof.left() == []


def test_a_given_endpoint_is_found_by_its_uuid(endpoint, out):
    named, _, _ = endpoint
    words = (f"--endpoint={named}", "--payload-sizes=1000", "--rounds=3")
    latprof = run(*OPS, *words, f"--out={out}")

    assert latprof.process.returncode == 0, latprof.err
    rows = operations(out)
    assert set(rows["backend"]) == {"ENDPOINT"}
    assert (measured(out).groupby("op").size() == 3).all()
    assert (rows[[*PARTS]].sum(axis=1) == rows["time_ns"]).all()


@pytest.mark.timed
def test_the_floor_is_that_of_a_ping_pong_of_the_same_sizes(tmp_path):
    ours, theirs = [], []
    for turn in range(5):  # in turns, so that what a machine does is the same for both
        out = tmp_path / f"ops{turn}"
        words = ("--backend=floor", "--ops=GET", "--payload-sizes=1000")
        words = (*words, "--rounds=3000", "--warmup=100", f"--out={out}")
        latprof = run(*OPS, *PLAIN, *words, before=FIRST)
        assert latprof.process.returncode == 0, latprof.err
        ours.append(measured(out)["time_ns"].median())
        out = tmp_path / f"pingpong{turn}"
        words = ("--protocol=tcp", "--sizes=41", "--reply=1009", "--rounds=3000")
        words = (*words, "--warmup=100", f"--out={out}", "--json")
        latprof = run("run", *PLAIN, *words, before=FIRST)
        assert latprof.process.returncode == 0, latprof.err
        theirs.append(pd.read_csv(out / "round_trips.csv")["rtt_ns"].median())
    # there are machines of two speeds, 1.4 apart, for a run or two each
    assert min(ours) <= 1.05 * min(theirs)


def test_a_server_that_is_killed_leaves_what_was_measured(out):
    words = ("--payload-sizes=1000", "--rounds=100000", "--backend=redis,floor")
    latprof = Latprof(*OPS, *PLAIN, *words, f"--out={out}")
    redis_server = latprof.wait_for_child("redis-server")
    latprof.wait_for_rows(out / "exchanges.csv", 200)
    kill(redis_server, signal.SIGKILL)

    assert latprof.finish() == 1
    (line,) = latprof.err.splitlines()
    assert line == (
        "latprof: redis-server failed: it ended with signal 9 (SIGKILL); what was "
        "measured until then is kept"
    )
    kept = measured(out)
    assert len(kept) >= 150
    table = pd.read_csv(out / "remote_ops.csv")
    assert table["repeat"].sum() == len(kept)
    assert set(table["op"]) == {"GET", "SET", "EXISTS", "EVICT"}
    assert json.loads(latprof.out)["state"] == "failed"
    assert latprof.left() == []


def test_an_endpoint_in_the_lab_that_is_killed_leaves_what_was_measured(out):
    words = ("--payload-sizes=1000", "--rounds=100000", "--backend=proxystore")
    latprof = Latprof(*OPS, *PLAIN, *words, f"--out={out}")
    served = latprof.wait_for_child("EndpointConfig")
    latprof.wait_for_rows(out / "exchanges.csv", 100)
    kill(served, signal.SIGKILL)

    assert latprof.finish() == 1
    (line,) = latprof.err.splitlines()
    assert line == (
        "latprof: the endpoint failed: it ended with signal 9 (SIGKILL); what was "
        "measured until then is kept"
    )
    assert len(measured(out)) >= 50
    assert json.loads(latprof.out)["state"] == "failed"
    assert latprof.left() == []


def test_a_given_endpoint_that_dies_is_one_line_and_what_was_measured_is_kept(
    endpoint, out
):
    named, port, process = endpoint
    words = ("--payload-sizes=1000", "--rounds=100000", f"--out={out}")
    latprof = Latprof(*OPS, f"--endpoint={named}", *words)
    latprof.wait_for_rows(out / "exchanges.csv", 100)
    kill(process.pid, signal.SIGKILL)

    assert latprof.finish() == 1
    (line,) = latprof.err.splitlines()
    # between two operations, or in the middle of one
    why = (
        "Remote end closed connection without response|Response ended prematurely|"
        r"IncompleteRead\([^;]*\)|Connection \w+( by peer)?"
    )
    assert re.fullmatch(
        rf"latprof: proxystore failed: ({why}); what was measured until then is kept; "
        rf"cannot remove the keys latprof:\w+:\* from proxystore {HOST}:{port}: "
        "Connection refused; remove them there",
        line,
    )
    kept = measured(out)
    assert len(kept) >= 50
    cells = json.loads(latprof.out)["ops"]["cells"]
    assert sum(cell["n"] for cell in cells) == len(kept)
    assert latprof.left() == []


@pytest.mark.thorough
def test_a_given_endpoint_that_hangs_is_given_up(endpoint, out, monkeypatch):
    named, port, process = endpoint
    monkeypatch.setattr(ops, "STILL_SECONDS", 2.0)
    where = {"endpoint": named, "in_lab": False}
    plan = OpsPlan(("proxystore",), sizes=(1000,), rounds=100_000, **where)
    options = RunOptions(link=LinkSpec(), plan=plan, protocols=("tcp",), out=out)

    def stop_midway(_what, _messages, done, _planned):
        if done > 10:
            kill(process.pid, signal.SIGSTOP)

    outcome = session.run(options, stop_midway, Interrupt())
    line = str(outcome.failure)
    assert line.startswith(f"proxystore failed: {HOST}:{port} did not answer for 2 s;")
    assert f"from proxystore {HOST}:{port}: it did not answer for 5 s" in line
    assert len(operations(out)) >= 10


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["redis", "floor"])
def test_ctrl_c_keeps_what_was_measured(out, backend):
    words = ("--payload-sizes=1000", "--rounds=100000", f"--backend={backend}")
    latprof = Latprof(*OPS, *PLAIN, *words, f"--out={out}")
    latprof.wait_for_rows(out / "exchanges.csv", 200)
    latprof.signal(signal.SIGINT)

    assert latprof.finish() == 0, latprof.err
    summary = json.loads(latprof.out)
    assert summary["state"] == "interrupted"
    kept = measured(out)
    assert len(kept) >= 150
    assert sum(cell["n"] for cell in summary["ops"]["cells"]) == len(kept)
    assert pd.read_csv(out / "remote_ops.csv")["repeat"].sum() == len(kept)
    assert latprof.left() == []


def given(port, out, **asked):
    """What a run on a redis-server that is there already is asked for."""
    asked = {"backends": ("redis",), "redis": (HOST, port), "sizes": (1000,)} | asked
    plan = OpsPlan(in_lab=False, **asked)
    return RunOptions(link=LinkSpec(), plan=plan, protocols=("tcp",), out=out)


@pytest.mark.thorough
def test_a_redis_of_somebody_else_that_hangs_is_given_up(server, out, monkeypatch):
    client, port = server
    pid = client.info("server")["process_id"]
    monkeypatch.setattr(ops, "STILL_SECONDS", 2.0)

    def stop_midway(_what, _messages, done, _planned):
        if done > 200:
            kill(pid, signal.SIGSTOP)

    outcome = session.run(given(port, out, rounds=100_000), stop_midway, Interrupt())
    line = str(outcome.failure)
    assert line.startswith(f"redis failed: {HOST}:{port} did not answer for 2 s; what ")
    assert "what was measured until then is kept" in line
    assert outcome.summary["state"] == "failed"
    assert len(measured(out)) >= 150
    kill(pid, signal.SIGCONT)
    assert_named_in(line, client)


def assert_named_in(line, client):
    """Keys are left, and a line says whose they are."""
    (prefix,) = re.findall(r"the keys (latprof:\w+:)\* from redis ", line)
    kept = client.keys()
    assert kept
    assert all(key.startswith(prefix.encode()) for key in kept)


def started_on(port, out, *words):
    """A run on somebody's redis, in the middle of what it measures."""
    words = ("--rounds=1000000", "--ops=GET,SET", f"--out={out}", *words)
    latprof = Latprof(*OPS, f"--redis={HOST}:{port}", *words)
    latprof.wait_for_rows(out / "exchanges.csv", 100)
    return latprof


@pytest.mark.thorough
def test_after_ctrl_c_in_a_long_operation_nothing_stays_in_the_store(server, out):
    client, port = server
    latprof = started_on(port, out, "--payload-sizes=1000")
    # until after the client is ended, and before the store is given up
    pause_seconds = END_SECONDS + CLEAN_SECONDS / 2
    client.client_pause(int(1000 * pause_seconds), all=False)  # what writes
    assert client.dbsize() == 1
    latprof.signal(signal.SIGINT)

    assert latprof.finish() == 0, latprof.err
    assert client.dbsize() == 0
    assert json.loads(latprof.out)["state"] == "interrupted"
    assert latprof.left() == []


@pytest.mark.thorough
def test_a_set_that_was_on_its_way_does_not_come_after_the_keys_were_removed(
    server, out
):
    client, port = server
    pid = client.info("server")["process_id"]
    latprof = started_on(port, out, "--payload-sizes=10000000")
    kill(pid, signal.SIGSTOP)
    (first,) = latprof.children("ops_client")
    latprof.signal(signal.SIGINT)
    latprof.wait_for(
        lambda: set(latprof.children("ops_client")) - {first}, "another removes keys"
    )
    kill(pid, signal.SIGCONT)

    assert latprof.finish() == 0, latprof.err
    assert client.dbsize() == 0


def test_after_a_client_that_died_nothing_stays_in_the_store(server, out):
    client, port = server
    latprof = started_on(port, out, "--payload-sizes=1000")
    kill(latprof.children("ops_client")[0], signal.SIGKILL)

    assert latprof.finish() == 1
    (line,) = latprof.err.splitlines()
    assert line == (
        "latprof: the client of redis failed: it ended with signal 9 (SIGKILL); what "
        "was measured until then is kept"
    )
    assert client.dbsize() == 0


@pytest.mark.thorough
def test_keys_that_cannot_be_removed_are_named(server, out):
    client, port = server
    pid = client.info("server")["process_id"]
    latprof = started_on(port, out, "--payload-sizes=1000")
    kill(pid, signal.SIGSTOP)
    latprof.signal(signal.SIGINT)

    assert latprof.finish() == 1
    (line,) = latprof.err.splitlines()
    kill(pid, signal.SIGCONT)
    assert line.startswith("latprof: cannot remove the keys latprof:")
    assert f"from redis {HOST}:{port}: it did not answer for 5 s; remove them" in line
    assert_named_in(line, client)
    assert len(measured(out)) >= 50
    assert latprof.left() == []


@contextmanager
def slow_relay(port, piece_bytes, pause_seconds):
    """A port behind which a server's replies come in pieces, and all else at once."""
    over = threading.Event()

    def forward(source, sink, size, pause):
        while data := source.recv(size):
            sink.sendall(data)
            over.wait(pause)
        sink.shutdown(socket.SHUT_WR)

    with (
        socket.create_server((HOST, 0)) as listener,
        socket.create_connection((HOST, port)) as theirs,
    ):

        def serve():
            ours, _ = listener.accept()
            with ours:
                up = threading.Thread(target=forward, args=(ours, theirs, 1 << 20, 0))
                up.start()
                forward(theirs, ours, piece_bytes, pause_seconds)
                up.join()

        relay = threading.Thread(target=serve)
        relay.start()
        yield listener.getsockname()[1]
        over.set()
        relay.join()


@pytest.mark.thorough
def test_a_slow_answer_of_which_bytes_still_come_is_waited_for(
    server, out, monkeypatch
):
    _, port = server
    # five times as long as nothing at all may come
    size, piece_bytes, pause_seconds = 1_000_000, 40_000, 0.4
    monkeypatch.setattr(ops, "STILL_SECONDS", 2.0)
    with slow_relay(port, piece_bytes, pause_seconds) as slow:
        asked = {"ops": ("GET",), "sizes": (size,), "rounds": 1, "warmup_rounds": 0}
        outcome = session.run(given(slow, out, **asked), lambda *_: None, Interrupt())
    assert outcome.failure is None
    (took_ns,) = measured(out)["time_ns"]
    assert took_ns / 1e9 >= 0.8 * pause_seconds * size / piece_bytes
    assert measured(out)["wrong"].sum() == 0


def test_a_server_that_refuses_is_told_in_its_words(server, out):
    client, port = server
    client.config_set("maxmemory", "3mb")
    words = ("--payload-sizes=1000,10000000", f"--out={out}")
    latprof = run(*OPS, f"--redis=127.0.0.1:{port}", *words)

    assert latprof.process.returncode == 1
    (line,) = latprof.err.splitlines()
    assert line.startswith("latprof: redis failed: ")
    assert "maxmemory" in line
    assert "use smaller --payload-sizes" in line
    client.config_set("maxmemory", "0")
    client.config_set("requirepass", "secret")
    latprof = run(*OPS, f"--redis=127.0.0.1:{port}", *words[:1], f"--out={out}-2")

    assert latprof.process.returncode == 1
    (line,) = latprof.err.splitlines()
    assert "Authentication required" in line
    assert "name a server that wants none" in line


def test_a_missing_redis_server_is_told_in_a_line(out, tmp_path):
    nowhere = tmp_path / "bin"
    nowhere.mkdir()
    latprof = run(*OPS, f"--out={out}", env={**os.environ, "PATH": str(nowhere)})

    assert latprof.process.returncode == 1
    (line,) = latprof.err.splitlines()
    assert line.startswith("latprof: cannot run redis-server: not found; install ")
    assert not out.exists()


@pytest.mark.parametrize(
    ("backend", "module", "wanted"),
    [
        ("proxystore", "proxystore", "latprof[proxystore]"),
        ("proxystore", "quart", "latprof[proxystore]"),
        ("redis", "hiredis", "latprof[redis]"),
    ],
)
def test_a_missing_package_is_told_in_a_line(out, tmp_path, backend, module, wanted):
    # as Python has it where a package is not there
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.modules[{module!r}] = None\n"
    )
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    latprof = run(*OPS, f"--backend={backend}", f"--out={out}", env=env)

    assert latprof.process.returncode == 1
    (line,) = latprof.err.splitlines()
    assert line == (
        f"latprof: cannot run the client of {backend}: no Python package {module}; "
        f"run `{sys.executable} -m pip install '{wanted}'`, or leave {backend} out of "
        "--backend"
    )
    assert not out.exists()
