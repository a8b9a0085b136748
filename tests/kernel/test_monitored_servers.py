"""Live counts of real servers, held against what they count themselves."""

from __future__ import annotations

import csv
import io
import re
import socket

import numpy as np
import pytest
from free_ports import free_port
from latprof_agent.monitor.totals import Counted, Quantity
from latprof_agent.probes.filter import Filter
from monitored import LAST_DATAGRAMS, histogram, monitored, need_quantity
from nginx import nginx, requests_logged
from test_exchanges import CALL_NS, need, run, served

pytestmark = pytest.mark.timed

BUCKET = 1 / 32


@pytest.mark.parametrize("pipeline", [1, 16])
def test_redis_counts_the_same_messages_exchanges_and_bytes(tmp_path, pipeline):
    need("redis-benchmark")
    n, port, control = 20_000, free_port(), tmp_path / "control"
    server = ["redis-server", "--port", str(port), "--save", "", "--unixsocket"]
    benchmark = ["redis-benchmark", "-p", str(port), "-n", str(n), "-t", "get"]

    def told(section):
        return run(["redis-cli", "-s", str(control), "info", section])

    def traffic():
        text = told("stats")
        return [
            int(re.search(rf"total_net_{way}_bytes:(\d+)", text)[1])
            for way in ("input", "output")
        ]

    watched = Filter(ports=(port,), protocols=("tcp",))
    with served([*server, str(control)], port), monitored(watched) as counted:
        before = traffic()
        asked = traffic()[1] - before[1], traffic()[0] - before[0]
        before = traffic()
        said = run([*benchmark, "-c", "50", "-P", str(pipeline), "--csv"])
        after = traffic()

    exchanges = 1 + n // pipeline  # it asks for two settings at once first
    client, at_server = (
        counted.group(role=role, service=str(port)) for role in ("client", "server")
    )
    for group in (client, at_server):
        assert group.counted[Counted.EXCHANGES] == exchanges
    assert client.counted[Counted.SENT_MESSAGES] == exchanges
    assert at_server.counted[Counted.RECEIVED_MESSAGES] == exchanges
    # what asking took of its own is the least that the counters can tell apart
    received = after[0] - before[0] - at_server.counted[Counted.RECEIVED_BYTES]
    sent = after[1] - before[1] - at_server.counted[Counted.SENT_BYTES]
    assert 0 <= received <= 2 * asked[1] + 200
    assert 0 <= sent <= 2 * asked[0]

    (log,) = csv.DictReader(io.StringIO(said))
    response = histogram(client, Quantity.RESPONSE)
    for p in (50, 95, 99):
        told_ns = float(log[f"p{p}_latency_ms"]) * 1e6
        assert response.quantile(p / 100) == pytest.approx(
            told_ns, rel=0.02 + BUCKET, abs=20_000
        ), p


def test_nginx_answers_as_many_as_are_counted(tmp_path):
    need("nginx")
    need("wrk")
    port = free_port()
    server = nginx(tmp_path, port)
    watched = Filter(ports=(port,), protocols=("tcp",))
    with served(server, port), monitored(watched) as counted:
        told = run(
            ["wrk", "-t", "1", "-c", "20", "-d", "2", f"http://127.0.0.1:{port}/"]
        )
    answered = requests_logged(tmp_path)
    at_server = counted.group(role="server", service=str(port))
    assert answered > 1000, told
    assert at_server.counted[Counted.EXCHANGES] == answered
    assert at_server.counted[Counted.RECEIVED_MESSAGES] == answered
    assert at_server.counted[Counted.SENT_MESSAGES] == answered
    served_ns = histogram(at_server, Quantity.SERVER)
    assert served_ns.quantile(0.5) < 10 * CALL_NS


def messages_and_exchanges(group):
    """Messages sent, messages received, exchanges."""
    names = (Counted.SENT_MESSAGES, Counted.RECEIVED_MESSAGES, Counted.EXCHANGES)
    return [group.counted[name] for name in names]


def memcached_stats(port):
    """What memcached counts, and in how many bytes it tells so."""
    told = b""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"stats\r\n")
        while not told.endswith(b"END\r\n"):
            told += client.recv(4096)
    stats = {name: int(n) for name, n in re.findall(rb"STAT (\w+) (\d+)\r", told)}
    return stats, len(told)


def test_memcached_counts_the_same_messages_exchanges_and_bytes():
    need("memcached")
    need("memcaslap")
    n, port, control = 20_000, free_port(), free_port()
    server = ["memcached", "-u", "nobody", "-t", "1", "-l"]
    server += [f"127.0.0.1:{port},127.0.0.1:{control}"]
    load = ["memcaslap", "-s", f"127.0.0.1:{port}", "-T", "1", "-c", "8"]
    load += ["-x", str(n), "-X", "100", "-S", "1h"]

    watched = Filter(ports=(port,), protocols=("tcp",))
    with served(server, port), monitored(watched) as counted:
        before, told_bytes = memcached_stats(control)
        said = run(load)
        after, _ = memcached_stats(control)

    now = {name: after[name] - before[name] for name in after}
    requests = now[b"cmd_get"] + now[b"cmd_set"]
    assert requests == n
    # to ask it takes bytes, too: it knows of those it has read, and has sent before
    received = now[b"bytes_read"] - len("stats\r\n")
    sent = now[b"bytes_written"] - told_bytes
    ends = {
        role: counted.group(role=role, service=str(port))
        for role in ("client", "server")
    }
    for role, bytes_ in (
        ("client", (received, sent)),
        ("server", (sent, received)),
    ):
        found = ends[role].counted
        assert messages_and_exchanges(ends[role]) == [requests] * 3, role
        assert (found[Counted.SENT_BYTES], found[Counted.RECEIVED_BYTES]) == bytes_

    total = said[said.rindex("Total Statistics") :]
    mean_us = int(re.search(r"Avg: +(\d+)", total)[1])
    response = histogram(ends["client"], Quantity.RESPONSE)
    assert response.sum_ns / response.count == pytest.approx(
        1000 * mean_us, rel=0.02, abs=20_000
    )


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_dnsmasq_is_asked_as_often_as_it_logs_and_dig_waits_as_long(
    reachable, protocol
):
    need("dnsmasq")
    need("dig")
    if protocol == "udp":
        need_quantity(LAST_DATAGRAMS)
    n, port, log = 400, free_port(), reachable / "log"
    server = ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null"]
    server += ["--pid-file=", "--user=root", "--no-resolv", "--no-hosts"]
    server += [f"--port={port}", "--listen-address=127.0.0.1", "--bind-interfaces"]
    server += ["--address=/a.test/10.1.2.3", "--log-queries", f"--log-facility={log}"]
    names = reachable / "names"
    names.write_text("a.test A\n" * n)
    dig = ["dig", "-u", "+noall", "+stats", f"+{'no' * (protocol == 'udp')}tcp"]
    dig += ["-p", str(port), "@127.0.0.1", "-f", str(names)]

    watched = Filter(ports=(port,), protocols=(protocol,))
    with served(server, port), monitored(watched) as counted:
        said = run(dig)

    asked = log.read_text().count(" query[A] a.test from 127.0.0.1")
    took_ns = 1000 * np.array(re.findall(r"Query time: (\d+) usec", said), "i8")
    size = sum(map(int, re.findall(r"MSG SIZE +rcvd: (\d+)", said)))
    assert asked == len(took_ns) == n
    for role in ("client", "server"):
        group = counted.group(role=role, service=str(port), protocol=protocol)
        assert messages_and_exchanges(group) == [asked] * 3, role
    client = counted.group(role="client", service=str(port))
    # over TCP, a message begins with its length
    head = 2 * (protocol == "tcp")
    assert client.counted[Counted.RECEIVED_BYTES] == size + head * n
    response = histogram(client, Quantity.RESPONSE)
    # physics: both stamps lie between dig's two readings of its clock, in whole us
    assert response.sum_ns <= took_ns.sum() + 1000 * n
    for p in (0.5, 0.9):
        told_ns = np.quantile(took_ns, p)
        found_ns = response.quantile(p)
        assert (1 - BUCKET - 0.02) * told_ns - 20_000 <= found_ns
        assert found_ns <= (1 + BUCKET) * told_ns + 1000
