"""Foreign programs under `latprof run -- COMMAND`: Redis and iperf3 keep the count."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pandas as pd
import pytest
from free_ports import free_port
from latprof_analysis import analyze

LATPROF = [sys.executable, "-m", "latprof_agent", "run", "--quiet", "--json"]
DEADLINE_SECONDS = 120

BURST = 13  # datagrams of 1000 bytes that 100 Mbit/s are in a ms
REDIS = "redis-server --port {port} --bind 127.0.0.1 --save '' --daemonize yes"
LAB_REDIS = "redis-server --port 6379 --bind 0.0.0.0 --protected-mode no --save ''"
# the server's own count, without the connections of redis-cli itself
BENCHMARK = """\
redis-benchmark -h {host} -p {port} -q -c 5 -n {n} -P {pipeline} -t set,get >&2
redis-cli -h {host} -p {port} info stats > {info}
"""


def _need(program):
    if not shutil.which(program):
        pytest.skip(f"needs {program}")


def _run(options, command, folder):
    """One `latprof run`; what it said, and the rows it wrote."""
    done = subprocess.run(
        [*LATPROF, *options, "--out", folder, "--", *command],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert {ring: n for ring, n in summary["lost_records"].items() if n} == {}
    return summary, pd.read_csv(folder / "messages.csv", low_memory=False)


@pytest.mark.parametrize("pipeline", [1, 16])
@pytest.mark.parametrize("in_lab", [True, False], ids=["lab", "no-lab"])
def test_redis_counts_the_same_requests_and_bytes(tmp_path, pipeline, in_lab):
    _need("redis-benchmark")
    n, port = 4000, 6379 if in_lab else free_port()
    host = "{server}" if in_lab else "127.0.0.1"
    words = {"host": host, "port": port, "n": n, "pipeline": pipeline}
    script = BENCHMARK.format(info=tmp_path / "info", **words)
    if in_lab:
        options = ["--rate", "0", "--delay", "0", "--server", LAB_REDIS]
    else:
        options = ["--no-lab"]
        ready = f"until redis-cli -p {port} ping >&2; do :; done"
        script = f"{REDIS.format(port=port)} >&2\n{ready}\n{script}"
    _, rows = _run(
        [*options, "--protocol", "tcp"], ["sh", "-c", script], tmp_path / "run"
    )

    info = dict(re.findall(r"(\w+):(\w+)", (tmp_path / "info").read_text()))
    requests = rows[(rows["destination_port"] == port)]
    benchmark = requests[requests["sender_comm"] == "redis-benchmark"]
    # the first asks for the configuration; each other is a pipeline's worth
    assert len(benchmark) == 1 + 2 * n // pipeline
    # the last of redis-cli asks for these counts: counted, its answer is not
    assert requests["size_bytes"].sum() == int(info["total_net_input_bytes"])
    replies = rows[rows["source_port"] == port]
    answer = replies.sort_values("send_ns")["size_bytes"].iloc[-1]
    assert replies["size_bytes"].sum() - answer == int(info["total_net_output_bytes"])
    assert requests["reader_comm"].unique().tolist() == ["redis-server"]
    assert requests["end_to_end_ns"].notna().all()
    found = analyze(tmp_path / "run").document
    ways = {f"tcp {way}" for way in rows["way"].unique()}
    assert ways == set(found["kinds"]) == set(found["messages"])
    assert f"tcp redis-benchmark -> redis-server:{port}" in ways
    assert f"tcp redis-server:{port} -> redis-benchmark" in ways


def _iperf3(options, in_lab, tmp_path):
    """iperf3's own report, and the rows of its traffic but for the control."""
    _need("iperf3")
    port, report = 5201 if in_lab else free_port(), tmp_path / "report.json"
    server = f"iperf3 -s -1 -p {port}"
    client = f"iperf3 -c %s -p {port} --json {options} > {report}"
    if in_lab:
        shape = ["--rate", "0", "--delay", "0", "--server", server]
        words = ["sh", "-c", client % "{server}"]
        summary, rows = _run(shape, words, tmp_path / "run")
    else:
        listens = f"grep -q ':{port:04X} [0:]* 0A' /proc/net/tcp6 /proc/net/tcp"
        ready = f"until {listens}; do :; done"
        script = f"{server} -D; {ready}; {client % '127.0.0.1'}"
        words = ["sh", "-c", script]
        summary, rows = _run(["--no-lab"], words, tmp_path / "run")
    found = json.loads(report.read_text())
    assert "error" not in found
    (data,) = (c["local_port"] for c in found["start"]["connected"])
    return found["end"], rows[rows["source_port"] == data], _unseen(summary)


def _unseen(summary):
    """Datagrams at most that this kernel hid: iperf3 sends a burst each ms.

    Untraced time that begins in one burst may last into the next.
    """
    untraced = summary["untraced_time"]
    bursts = 2 * untraced["periods"] + 1000 * untraced["seconds"]
    return BURST * bursts


def _gaps(data):
    """Unread datagrams before the last that was read: all that iperf3 can miss."""
    unread = data[data["read_ns"].isna()]["sequence"]
    return (unread < data[data["read_ns"].notna()]["sequence"].max()).sum()


@pytest.mark.parametrize("in_lab", [True, False], ids=["lab", "no-lab"])
def test_iperf3_counts_the_same_bytes_over_tcp(tmp_path, in_lab):
    end, rows, _ = _iperf3("-n 50M", in_lab, tmp_path)

    cookie = 37  # names the test at the start of the stream
    assert rows["size_bytes"].sum() == end["sum_sent"]["bytes"] + cookie
    assert rows["sequence"].max() == rows["size_bytes"].sum()
    # the client ends without waiting for the server to read on: it counts bytes of
    # a message that it did not read to its end
    read = rows[rows["read_ns"].notna()]["sequence"].max() - cookie
    received = end["sum_received"]["bytes"]
    assert received - rows["size_bytes"].max() < read <= end["sum_sent"]["bytes"]


@pytest.mark.thorough
@pytest.mark.parametrize("in_lab", [True, False], ids=["lab", "no-lab"])
def test_iperf3_counts_the_same_datagrams_over_udp(tmp_path, in_lab):
    end, rows, unseen = _iperf3("-u -b 100M -t 1 -l 1000", in_lab, tmp_path)

    data = rows[(rows["protocol"] == "udp") & (rows["size_bytes"] == 1000)]
    assert 0 <= end["sum"]["packets"] - len(data) <= unseen
    assert abs(_gaps(data) - end["sum"]["lost_packets"]) <= unseen


@pytest.mark.thorough
def test_iperf3_loses_what_a_full_queue_dropped(tmp_path):
    _need("iperf3")
    report = tmp_path / "report.json"
    client = f"iperf3 -c {{server}} --json -u -b 40M -t 1 -l 1000 > {report}"
    shape = ["--qdisc", "tbf", "--rate", "20mbit", "--queue", "30000"]
    shape += ["--server", "iperf3 -s -1"]
    summary, rows = _run(shape, ["sh", "-c", client], tmp_path / "run")

    end = json.loads(report.read_text())["end"]["sum"]
    data = rows[(rows["protocol"] == "udp") & (rows["size_bytes"] == 1000)]
    unseen = _unseen(summary)
    assert 0 <= end["packets"] - len(data) <= unseen
    assert end["lost_packets"] > 0
    assert abs(_gaps(data) - end["lost_packets"]) <= unseen
    (qdisc,) = summary["link_counters"]["a"]["qdiscs"]
    blank = data["xmit_ns"].isna().sum()
    assert abs(blank - qdisc["dropped_packets"]) <= unseen
