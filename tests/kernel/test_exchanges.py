"""Exchanges, held against what real servers and their clients count and log."""

from __future__ import annotations

import asyncio
import csv
import io
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pandas as pd
import pytest
from free_ports import free_port
from latprof_agent.probes.filter import Filter
from nginx import nginx, requests_logged
from recording import recording, socket_in, wait_until

pytestmark = pytest.mark.timed

DEADLINE_SECONDS = 60
PARTS = ["request_way_ns", "server_ns", "reply_way_ns"]
# Between a program's reading of a clock and the stamps inside its system calls lie a
# few us; more of a loaded machine's median would be half of all preempted there.
CALL_NS = 100_000


def need(program):
    if not shutil.which(program):
        pytest.skip(f"needs {program}")


def answers(port):
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def served(command, port):
    """A server that answers at its port until the end of the block."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_until(lambda: answers(port), f"{command[0]} answers at {port}")
            yield process
        finally:
            process.terminate()


def tcp_at(port, folder):
    return recording(Filter(ports=(port,), protocols=("tcp",)), folder)


def run(command):
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    ).stdout


def exchanges_of(recorded):
    """exchanges.csv as written; each sums to its response, and nothing was lost."""
    assert recorded.lost() == {}
    rows = pd.read_csv(recorded.folder.path / "exchanges.csv", low_memory=False)
    told = rows.dropna(subset=PARTS)
    assert (told[PARTS].sum(axis=1) == told["response_ns"]).all()
    queue_and_work = told[["server_queue_ns", "server_work_ns"]].sum(axis=1)
    assert (queue_and_work == told["server_ns"]).all()
    stamps = ["request_sent", "request_ready", "request_read", "reply_sent"]
    stamps = told[[f"{stamp}_ns" for stamp in (*stamps, "reply_read")]]
    assert (np.diff(stamps.to_numpy(), axis=1) >= 0).all()
    return rows


@pytest.mark.parametrize("pipeline", [1, 16])
def test_redis_and_its_benchmark_count_and_time_the_same(tmp_path, pipeline):
    need("redis-benchmark")
    n, port, control = 8000, free_port(), tmp_path / "control"
    server = ["redis-server", "--port", str(port), "--save", "", "--unixsocket"]
    benchmark = ["redis-benchmark", "-p", str(port), "-n", str(n), "-t", "get"]

    def commands():
        told = run(["redis-cli", "-s", str(control), "info", "commandstats"])
        return {
            name: int(calls)
            for name, calls in re.findall(r"cmdstat_([^:]+):calls=(\d+)", told)
            if name != "info"
        }

    with served([*server, str(control)], port), tcp_at(port, tmp_path) as recorded:
        told = run([*benchmark, "-c", "50", "-P", str(pipeline), "--csv"])
        counted = commands()
    rows = exchanges_of(recorded)
    assert set(rows["way"]) == {f"redis-benchmark -> redis-server:{port}"}
    # it asks for two settings at once, then sends so many at a time
    assert counted == {"config|get": 2, "get": n}
    assert len(rows) == 1 + n / pipeline
    assert rows["requests"].sum() == len(rows)
    assert recorded.totals.tally.no_exchange == {}
    (log,) = csv.DictReader(io.StringIO(told))
    rows = rows[rows["request_bytes"] == rows["request_bytes"].mode()[0]]
    assert len(rows) == n / pipeline
    # its own clock has whole microseconds, and is read beside the system calls
    p50_ns = float(log["p50_latency_ms"]) * 1e6
    assert rows["response_ns"].median() == pytest.approx(p50_ns, rel=0.02, abs=20_000)
    p99_ns = float(log["p99_latency_ms"]) * 1e6
    told_ns = rows["response_ns"].quantile(0.99)
    assert told_ns == pytest.approx(p99_ns, rel=0.1, abs=50_000)
    # where it had no CPU beside a system call only its own clock went on
    most_ns = 1.01 * float(log["max_latency_ms"]) * 1e6 + 50_000
    assert told_ns <= rows["response_ns"].max() <= most_ns


BUSY = "for i = 1, 3e7 do end"


def test_a_server_that_is_busy_shows_as_the_servers_time(tmp_path):
    """Redis itself says how long it took for a command; no message was slow."""
    need("redis-benchmark")
    port = free_port()
    server = ["redis-server", "--port", str(port), "--save", ""]
    with served(server, port), tcp_at(port, tmp_path) as recorded:
        run(["redis-cli", "-p", str(port), "eval", BUSY, "0"])
        told = run(["redis-cli", "-p", str(port), "info", "commandstats"])
    busy_ns = 1000 * int(re.search(r"cmdstat_eval:calls=1,usec=(\d+)", told)[1])
    rows = exchanges_of(recorded)
    slow = rows.loc[rows["response_ns"].idxmax()]
    assert busy_ns >= 20_000_000
    assert busy_ns <= slow["server_work_ns"] <= 1.02 * busy_ns + CALL_NS
    assert slow["server_work_ns"] >= 0.95 * slow["response_ns"]
    ends = recorded.totals.exchanges.as_dict()[f"tcp redis-cli -> redis-server:{port}"]
    assert ends["slowest"]["server_work_ns"] == slow["server_work_ns"]


@pytest.mark.parametrize("connections", [1, 8])
@pytest.mark.parametrize("keep", [60, 0], ids=["keep-alive", "close"])
def test_nginx_logs_as_many_requests_as_there_are_exchanges(
    tmp_path, connections, keep
):
    need("nginx")
    need("wrk")
    port = free_port()
    timeout = f"keepalive_timeout {keep};"
    server = nginx(tmp_path, port, http=timeout, body="x" * 600)
    wrk = ["wrk", "-t1", f"-c{connections}", "-d1", "--latency"]
    with served(server, port):
        logged = requests_logged(tmp_path)
        with tcp_at(port, tmp_path) as recorded:
            told = run([*wrk, f"http://127.0.0.1:{port}/"])
            ended = requests_logged(tmp_path)
    rows = exchanges_of(recorded)
    assert ended - logged > 100
    # wrk ends without waiting: answers that it never read are no exchanges
    unread = ended - logged - len(rows)
    assert 0 <= unread <= connections
    median = re.search(r"50% +([0-9.]+)(us|ms)", told)
    p50_us = float(median[1]) * {"us": 1, "ms": 1000}[median[2]]
    requests, seconds = re.search(r"(\d+) requests in ([0-9.]+)s", told).groups()
    each_us = 1e6 * float(seconds) / (int(requests) // connections)
    if keep:  # else its time has the connect, too
        response = np.median(as_wrk_counts(rows["response_ns"] / 1000, each_us))
        assert response == pytest.approx(p50_us, rel=0.02, abs=20)


def as_wrk_counts(took_us, each_us):
    """With what wrk adds for requests that a stall kept it from sending."""
    stalls = took_us[took_us >= 2 * each_us]
    added = [np.arange(took - each_us, each_us, -each_us) for took in stalls]
    return np.concatenate([took_us, *added])


def test_memcached_counts_as_many_gets(tmp_path):
    need("memcached")
    port, n = free_port(), 2000
    command = ["memcached", "-p", str(port), "-l", "127.0.0.1", "-u", "nobody", "-t1"]
    took = []
    with (
        served(command, port),
        tcp_at(port, tmp_path) as recorded,
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        client.sendall(b"set k 0 0 5\r\nhello\r\n")
        assert client.recv(100) == b"STORED\r\n"
        for _ in range(n):
            began = time.monotonic_ns()
            client.sendall(b"get k\r\n")
            assert client.recv(1000).endswith(b"END\r\n")
            took.append(time.monotonic_ns() - began)
        client.sendall(b"stats\r\n")
        stats = b""
        while not stats.endswith(b"END\r\n"):
            stats += client.recv(4096)
    gets = int(re.search(rb"cmd_get (\d+)", stats)[1])
    rows = exchanges_of(recorded)
    assert gets == n
    assert len(rows) == n + 2
    of_gets = rows[1:-1]
    assert (of_gets["request_bytes"] == 7).all()
    between = np.array(took) - of_gets["response_ns"].to_numpy()
    assert (between >= 0).all()  # physics: the stamps lie inside the calls
    assert np.median(between) <= CALL_NS


async def _handle(reader, writer, log, seconds):
    while line := await reader.readline():
        began = time.monotonic_ns()
        await asyncio.sleep(seconds[int(line)])
        log.append((int(line), time.monotonic_ns() - began))
        writer.write(line)
        await writer.drain()
    writer.close()


async def _ask(port, numbers, log):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in numbers:
        began = time.monotonic_ns()
        writer.write(f"{number}\n".encode())
        assert int(await reader.readline()) == number
        log.append(time.monotonic_ns() - began)
    writer.close()


def test_an_asyncio_handlers_own_time_is_the_servers(tmp_path):
    """Four clients at once; handlers of 1 to 20 ms, as logged by themselves."""
    seconds = [0.001, 0.005, 0.02]
    handled, asked = [], [[] for _ in range(4)]

    async def all_of_it(port):
        server = await asyncio.start_server(
            lambda r, w: _handle(r, w, handled, seconds), "127.0.0.1", port
        )
        numbers = [i % 3 for i in range(45)]
        async with server:
            await asyncio.gather(*(_ask(port, numbers, log) for log in asked))

    port = free_port()
    with tcp_at(port, tmp_path) as recorded:
        asyncio.run(all_of_it(port))
    rows = exchanges_of(recorded)
    assert len(rows) == len(handled) == 4 * 45
    # in the order of each connection's own bytes
    kinds = (rows["request_last_sequence"] // 2 - 1) % 3
    for kind in range(3):
        logged = [took for number, took in handled if number == kind]
        seen = rows[kinds == kind]["server_work_ns"]
        assert len(seen) == len(logged)
        # event loop and system calls lie between: 2% of 20 ms are 400 us
        excess = seen.median() - np.median(logged)
        assert -CALL_NS <= excess <= 2 * CALL_NS + 0.02 * np.median(logged)
    response = np.sort(rows["response_ns"])
    logged = np.sort(np.concatenate(asked))
    assert np.median(logged - response) <= 3 * CALL_NS
    assert response[-1] <= logged[-1]


def _serve_datagrams(sock, count, log):
    """Answer so many; every hundredth after 15 ms."""
    for i in range(count):
        data, peer = sock.recvfrom(2000)
        began = time.monotonic_ns()
        if i % 100 == 99:
            threading.Event().wait(0.015)
        log.append(time.monotonic_ns() - began)
        sock.sendto(data, peer)


def _asked_in_turn(watched, folder, make_socket, address):
    """600 datagrams of two clients to a server that is not connected, nor they."""
    n, handled, took = 600, [], []
    server = make_socket()
    server.bind((address, 0))
    port = server.getsockname()[1]
    thread = threading.Thread(target=_serve_datagrams, args=(server, n, handled))
    thread.start()
    with recording(watched(port), folder, ("udp",)) as recorded:
        clients = [make_socket() for _ in "ab"]
        for i in range(n):
            client = clients[i % 2]
            client.settimeout(DEADLINE_SECONDS)
            began = time.monotonic_ns()
            client.sendto(b"%d" % i, (address, port))
            assert client.recv(100) == b"%d" % i
            took.append(time.monotonic_ns() - began)
        thread.join()
        for end in (*clients, server):
            end.close()
    rows = exchanges_of(recorded)
    assert len(rows) == n
    assert recorded.totals.tally.no_exchange == {}
    rows = rows.sort_values("reply_sent_ns")
    work, handled = rows["server_work_ns"].to_numpy(), np.array(handled)
    assert (work >= handled).all()
    slow = work > 10_000_000
    assert (np.flatnonzero(slow) == np.arange(99, n, 100)).all()
    assert np.median((work - handled)[slow]) <= 0.02 * np.median(handled[slow])
    return rows, np.array(took)


def test_a_datagram_server_that_sleeps_at_times(tmp_path, make_lab):
    """Each client finds its own answers."""
    lab = make_lab(rate_bps=0, delay_ns=0)

    def watched(_):
        return Filter(netns=(lab.b_inode,), protocols=("udp",))

    def make_socket():
        return socket_in(lab.b_netns, socket.AF_INET, socket.SOCK_DGRAM)

    rows, took = _asked_in_turn(watched, tmp_path, make_socket, lab.b_address)
    between = took - rows["response_ns"].to_numpy()
    assert (between >= 0).all()
    assert np.median(between) <= CALL_NS


def test_of_a_server_alone_its_own_time_is_told(tmp_path):
    """Of its port at its own end only."""

    def watched(port):
        return Filter(local_ports=(port,), protocols=("udp",))

    def make_socket():
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    rows, _ = _asked_in_turn(watched, tmp_path, make_socket, "127.0.0.1")
    assert rows["response_ns"].isna().all()
    assert rows["way"].str.match(r"elsewhere -> \w+:\d+").all()


def pair():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    for end in (client, server):
        end.settimeout(DEADLINE_SECONDS)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, server


def only(recorded):
    """The rows of the one connection, and what was counted of it."""
    counts = {}
    for (_, cause), count in recorded.totals.tally.no_exchange.items():
        counts[cause] = counts.get(cause, 0) + count
    return exchanges_of(recorded), counts


def test_pushes_half_closed_and_talking_at_once_are_none(tmp_path):
    """A greeting, an exchange, both at once, an exchange, a last word."""
    client, server = pair()
    port = server.getsockname()[1]
    with tcp_at(port, tmp_path) as recorded:
        server.sendall(b"220 hello")
        client.recv(100)
        client.sendall(b"first")
        server.recv(100)
        server.sendall(b"answer")
        client.recv(100)
        client.sendall(b"a")  # neither waits for the other
        server.sendall(b"b")
        client.sendall(b"c")
        wait_until(lambda: server.recv(9, socket.MSG_PEEK) == b"ac", "both came")
        server.recv(9)
        server.sendall(b"d")
        wait_until(lambda: client.recv(9, socket.MSG_PEEK) == b"bd", "both came")
        client.recv(9)
        client.sendall(b"second")
        server.recv(100)
        server.sendall(b"answer")
        client.recv(100)
        client.sendall(b"bye")
        client.shutdown(socket.SHUT_WR)
        while server.recv(100):
            continue
        client.close()
        server.close()
    rows, counts = only(recorded)
    # "b" may be the rest of the first answer: nothing of this connection is known
    assert rows.empty
    assert counts == {"pushed without a request": 1, "both sides talked at once": 9}


def test_a_pipeline_is_one_exchange_of_several_requests(tmp_path):
    """The server answers the first request before the second came."""
    client, server = pair()
    port = server.getsockname()[1]
    with tcp_at(port, tmp_path) as recorded:
        for _ in range(3):
            client.sendall(b"first")
            server.recv(5)
            server.sendall(b"one")
            wait_until(lambda: client.recv(3, socket.MSG_PEEK) == b"one", "it came")
            client.sendall(b"second")
            server.recv(6)
            server.sendall(b"two")
            wait_until(lambda: len(client.recv(6, socket.MSG_PEEK)) == 6, "both came")
            client.recv(6)
    rows, counts = only(recorded)
    client.close()
    server.close()
    assert counts == {}
    assert rows["requests"].tolist() == rows["replies"].tolist() == [2, 2, 2]
    assert rows["request_bytes"].tolist() == [11] * 3
    assert rows["pipelined"].tolist() == [1] * 3
    assert rows[PARTS].isna().all(axis=None)
    assert (rows["response_ns"] > 0).all()


def test_the_servers_pauses_within_a_reply_are_told(tmp_path):
    client, server = pair()
    port = server.getsockname()[1]
    paused = []
    with tcp_at(port, tmp_path) as recorded:
        for _ in range(5):
            client.sendall(b"ask")
            server.recv(100)
            server.sendall(b"header")
            client.recv(100)
            began = time.monotonic_ns()
            threading.Event().wait(0.02)
            paused.append(time.monotonic_ns() - began)
            server.sendall(b"body")
            client.recv(100)
    rows, counts = only(recorded)
    client.close()
    server.close()
    assert counts == {}
    assert rows["replies"].tolist() == [2] * 5
    excess = rows["reply_pauses_ns"].to_numpy() - np.array(paused)
    assert (excess >= 0).all()
    assert np.median(excess) <= CALL_NS
    assert (rows["reply_pauses_ns"] <= rows["reply_way_ns"]).all()


def test_messages_that_waited_together_for_a_stopped_server(tmp_path):
    """It is stopped for 100 ms, with 20 requests on their way: one stall."""
    need("redis-server")
    port = free_port()
    with ExitStack() as stack:
        command = ["redis-server", "--port", str(port), "--save", ""]
        server = stack.enter_context(served(command, port))
        recorded = stack.enter_context(tcp_at(port, tmp_path))
        address = ("127.0.0.1", port)
        clients = [
            stack.enter_context(socket.create_connection(address)) for _ in range(20)
        ]
        for stopped in (False, True):
            if stopped:
                server.send_signal(signal.SIGSTOP)
                begin_ns = time.monotonic_ns()
            for client in clients:
                client.sendall(b"PING\r\n")
            if stopped:
                threading.Event().wait(0.1)
                end_ns = time.monotonic_ns()
                server.send_signal(signal.SIGCONT)
            for client in clients:
                assert client.recv(100) == b"+PONG\r\n"
    (stall,) = recorded.totals.stalls.as_list()
    assert (stall["reader_pid"], stall["reader_comm"]) == (server.pid, "redis-server")
    assert stall["messages"] == 20
    assert begin_ns <= stall["from_ns"] <= begin_ns + 20_000_000
    assert end_ns <= stall["until_ns"] <= end_ns + 50_000_000
    rows = exchanges_of(recorded)
    assert (rows["server_queue_ns"] > 80_000_000).sum() == 20
