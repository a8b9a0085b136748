"""Exchanges of servers and clients that people run, against what they count themselves.

Each pair says how many requests it made, and how long they took; a run and what is
counted live must say the same, or that it is not known.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from free_ports import free_port
from latprof_agent.monitor.totals import Counted, Quantity
from latprof_agent.probes.filter import Filter
from monitored import histogram, monitored
from nginx import nginx, requests_logged
from recording import recording
from talkers import make_certificate
from test_exchanges import need, run, served
from test_what_is_no_exchange import causes_of, exchanges_of, table_of

pytestmark = pytest.mark.thorough

THINK_SECONDS = 0.02
SYSTEM_PYTHON = "/usr/bin/python3"
"""Of the distribution, which has grpcio as a package."""


@dataclass
class Told:
    """What was seen of a port, by a run and live."""

    rows: pd.DataFrame  # of exchanges.csv
    causes: dict  # messages of no exchange, by cause
    counted: dict  # totals, by role

    def live(self, role, counted):
        return self.counted[role].counted[counted]


def asked(command, server, port, folder, *, protocol="tcp"):
    """What a client said, and what was seen of it."""
    watched = Filter(ports=(port,), protocols=(protocol,))
    with (
        served(server, port),
        recording(watched, folder) as recorded,
        monitored(watched) as counted,
    ):
        said = run(command)
    groups = {
        role: counted.group(role=role, service=str(port))
        for role in ("client", "server")
    }
    return said, Told(exchanges_of(recorded), causes_of(recorded), groups)


def has_all(told, count):
    """Each request is one exchange that took as long as its server slept."""
    assert len(told.rows) == count
    assert (told.rows["response_ns"] >= THINK_SECONDS * 1e9).all()
    known = told.rows["server_ns"].dropna()
    assert (known >= THINK_SECONDS * 1e9).all()
    for role in ("client", "server"):
        assert told.live(role, Counted.EXCHANGES) == count, role
    response = histogram(told.counted["client"], Quantity.RESPONSE)
    assert response.sum_ns == pytest.approx(told.rows["response_ns"].sum(), rel=0.01)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def https_of_node(certificate, port, folder):
    need("node")
    script = folder / "server.js"
    script.write_text(
        textwrap.dedent(f"""\
        const https = require('https'), fs = require('fs');
        const read = (name) => fs.readFileSync(name);
        https.createServer(
          {{cert: read('{certificate[0]}'), key: read('{certificate[1]}')}},
          (asked, reply) => setTimeout(
            () => reply.end('x'.repeat(500)), {1000 * THINK_SECONDS + 1})
        ).listen({port}, '127.0.0.1');
        """)
    )
    return ["node", str(script)]


def https_of_go(certificate, port, folder):
    need("go")
    (folder / "main.go").write_text(
        textwrap.dedent(f"""\
        package main

        import ("crypto/tls"; "net/http"; "strings"; "time")

        func main() {{
          answer := func(reply http.ResponseWriter, asked *http.Request) {{
            time.Sleep({int(1e9 * THINK_SECONDS)})
            reply.Write([]byte(strings.Repeat("x", 500)))
          }}
          server := &http.Server{{Addr: "127.0.0.1:{port}",
            Handler: http.HandlerFunc(answer),
            TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){{}}}}
          panic(server.ListenAndServeTLS("{certificate[0]}", "{certificate[1]}"))
        }}
        """)
    )
    program = folder / "server"
    subprocess.run(
        ["go", "build", "-o", program, folder / "main.go"],
        check=True,
        timeout=300,
        env={**os.environ, "HOME": str(folder)},
    )
    return [str(program)]


HTTPS = {"node": https_of_node, "go": https_of_go}


@pytest.mark.parametrize("server", HTTPS)
def test_each_request_of_curl_to_https_is_one_exchange(tmp_path, certificate, server):
    """Each connection has its handshake and tickets, and two requests."""
    need("curl")
    port, connections = free_port(), 10
    url = f"https://127.0.0.1:{port}/"
    curl = f"curl -sk --http1.1 -o /dev/null -o /dev/null {url} {url}"
    command = ["sh", "-c", f"for i in $(seq {connections}); do {curl} || exit; done"]
    started = HTTPS[server](certificate, port, tmp_path)
    _, told = asked(command, started, port, tmp_path)
    has_all(told, 2 * connections)
    handshake = histogram(told.counted["client"], Quantity.TLS_HANDSHAKE)
    assert handshake.count == connections


def test_nginx_with_tls_logs_as_many_as_there_are_exchanges(tmp_path, certificate):
    need("nginx")
    need("wrk")
    port, connections = free_port(), 8
    wrk = ["wrk", "-t1", f"-c{connections}", "-d1", f"https://127.0.0.1:{port}/"]
    server = nginx(tmp_path, port, certificate=certificate)
    said, told = asked(wrk, server, port, tmp_path)
    requests = int(re.search(r"(\d+) requests in", said)[1])
    logged = requests_logged(tmp_path)
    assert requests > 100
    # the last of each connection wrk did not wait for
    for exchanges in (
        len(told.rows),
        told.live("client", Counted.EXCHANGES),
        told.live("server", Counted.EXCHANGES),
    ):
        assert requests - connections <= exchanges <= logged


HAPROXY = """\
global
  maxconn 100
defaults
  mode http
  timeout client 9s
  timeout server 9s
  timeout connect 9s
frontend here
  bind 127.0.0.1:{port} ssl crt {both}
  default_backend there
backend there
  server one 127.0.0.1:{behind} ssl verify none
"""


def test_behind_haproxy_the_exchange_lies_within_its_own(tmp_path, certificate):
    need("haproxy")
    need("curl")
    port, behind, count = free_port(), free_port(), 20
    both = tmp_path / "both.pem"
    both.write_bytes(b"".join(file.read_bytes() for file in map(Path, certificate)))
    settings = tmp_path / "haproxy.cfg"
    settings.write_text(HAPROXY.format(port=port, behind=behind, both=both))
    url = f"https://127.0.0.1:{port}/"
    curl = f"curl -sk --http1.1 -o /dev/null {url}"
    command = ["sh", "-c", f"for i in $(seq {count}); do {curl} || exit; done"]
    watched = Filter(ports=(port, behind), protocols=("tcp",))
    with (
        served(https_of_node(certificate, behind, tmp_path), behind),
        served(["haproxy", "-db", "-f", str(settings)], port),
        recording(watched, tmp_path) as recorded,
        monitored(watched) as counted,
    ):
        run(command)
    rows = exchanges_of(recorded)
    outer, inner = (rows[rows["server_port"] == at] for at in (port, behind))
    assert len(outer) == len(inner) == count
    for (_, of_proxy), (_, of_server) in zip(
        outer.sort_values("request_sent_ns").iterrows(),
        inner.sort_values("request_sent_ns").iterrows(),
        strict=True,
    ):
        assert of_proxy["request_sent_ns"] < of_server["request_sent_ns"]
        assert of_server["reply_read_ns"] < of_proxy["reply_read_ns"]
    for at in (port, behind):
        for role in ("client", "server"):
            group = counted.group(role=role, service=str(at))
            assert group.counted[Counted.EXCHANGES] == count, (at, role)


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_dnsperf_has_as_many_answers_from_unbound(tmp_path, protocol):
    """Several queries at once of one socket: paired by identification."""
    need("unbound")
    need("dnsperf")
    port, count, names = free_port(), 2000, tmp_path / "names"
    names.write_text("a.test A\n")
    (tmp_path / "conf").write_text(
        f"server:\n interface: 127.0.0.1@{port}\n do-daemonize: no\n"
        f' username: ""\n chroot: ""\n pidfile: "{tmp_path}/pid"\n use-syslog: no\n'
        ' local-zone: "a.test." static\n local-data: "a.test. A 10.1.2.3"\n'
        "remote-control:\n control-enable: no\n"
    )
    command = ["dnsperf", "-m", protocol, "-s", "127.0.0.1", "-p", str(port)]
    command += ["-d", str(names), "-n", str(count), "-c", "2", "-q", "10"]
    server = ["unbound", "-d", "-c", str(tmp_path / "conf")]
    said, told = asked(command, server, port, tmp_path, protocol=protocol)
    assert f"Queries completed:    {count} " in said
    mean_ns, least_ns, most_ns = (
        1e9 * float(seconds)
        for seconds in re.search(
            r"Average Latency \(s\): +([\d.]+) \(min ([\d.]+), max ([\d.]+)\)", said
        ).groups()
    )
    response = told.rows["response_ns"]
    assert len(response) == count
    # it reads its clock before it sends, and behind the read
    assert response.mean() <= mean_ns + 1000
    assert response.max() <= most_ns + 1000
    assert np.percentile(response, 5) <= mean_ns
    assert least_ns > 0
    if protocol == "udp":
        assert told.live("client", Counted.EXCHANGES) == count
        assert told.live("server", Counted.EXCHANGES) == count
    else:  # live it is no exchange where both talk at once, and said to be none
        both = told.live("client", Counted.NO_TURNS)
        assert both + told.live("client", Counted.EXCHANGES) >= 0.9 * count
        # but those before the first window, which are exchanges
        assert told.live("client", Counted.EXCHANGES) <= 0.05 * count


GRPC = """\
import sys, time
from concurrent.futures import ThreadPoolExecutor
import grpc

def answer(request, context):
    time.sleep({think})
    return request

call = grpc.unary_unary_rpc_method_handler(answer)
server = grpc.server(ThreadPoolExecutor(8))
server.add_generic_rpc_handlers(
    (grpc.method_handlers_generic_handler("a.A", {{"call": call}}),))
server.add_insecure_port("127.0.0.1:{port}")
server.start()
server.wait_for_termination()
"""
GRPC_CLIENT = """\
from concurrent.futures import ThreadPoolExecutor
import grpc

channel = grpc.insecure_channel("127.0.0.1:{port}")
call = channel.unary_unary("/a.A/call")
with ThreadPoolExecutor(4) as calls:
    print(sum(len(got) for got in calls.map(call, [b"x" * 50] * {count})))
"""


def test_grpc_has_no_exchange_and_says_why(tmp_path):
    if subprocess.run([SYSTEM_PYTHON, "-Ic", "import grpc"], check=False).returncode:
        pytest.skip("needs grpcio")
    port, count = free_port(), 100
    for name, text in (("server", GRPC), ("client", GRPC_CLIENT)):
        made = text.format(port=port, think=THINK_SECONDS, count=count)
        (tmp_path / f"{name}.py").write_text(made)
    server, client = (
        [SYSTEM_PYTHON, "-I", str(tmp_path / f"{name}.py")]
        for name in ("server", "client")
    )
    said, told = asked(client, server, port, tmp_path)
    assert int(said) == 50 * count
    assert not len(told.rows)
    assert set(told.causes) <= {"HTTP/2: both sides talk at once", "closing"}
    for role in ("client", "server"):
        assert told.live(role, Counted.EXCHANGES) == 0
        assert told.live(role, Counted.NO_TURNS) > 0


QUIC = """\
import asyncio, time
from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.quic.configuration import QuicConfiguration

read, took_ns = 0, []

class End(QuicConnectionProtocol):
    def datagram_received(self, data, address):
        global read
        read += 1
        super().datagram_received(data, address)

async def answer(reader, writer):
    asked = await reader.read()
    await asyncio.sleep({think})
    writer.write(asked)
    writer.write_eof()

async def ask(client):
    began_ns = time.monotonic_ns()
    reader, writer = await client.create_stream()
    writer.write(b"x" * 50)
    writer.write_eof()
    answer = await reader.read()
    took_ns.append(time.monotonic_ns() - began_ns)
    return answer

async def main():
    of_server = QuicConfiguration(is_client=False, alpn_protocols=["echo"])
    of_server.load_cert_chain({chain!r}, {key!r})
    handle = lambda *ends: asyncio.ensure_future(answer(*ends))
    server = await serve("127.0.0.1", {port}, configuration=of_server,
                         create_protocol=End, stream_handler=handle)
    of_client = QuicConfiguration(alpn_protocols=["echo"], verify_mode=0)
    answers = 0
    for _ in range({connections}):
        async with connect("127.0.0.1", {port}, configuration=of_client,
                           create_protocol=End, local_port=0) as client:
            answers += sum([len(await ask(client)) for _ in range({count})])
    await asyncio.sleep(0.5)  # for what ends the last connection
    server.close()
    print(answers, read, min(took_ns))

asyncio.run(main())
"""


def test_quic_has_each_datagram_no_exchange_and_a_bound(tmp_path, certificate):
    port, count, connections = free_port(), 15, 4
    script = tmp_path / "quic.py"
    made = {"port": port, "count": count, "connections": connections}
    chain, key = map(str, certificate)
    script.write_text(QUIC.format(think=THINK_SECONDS, chain=chain, key=key, **made))
    watched = Filter(ports=(port,), protocols=("udp",))
    with recording(watched, tmp_path) as recorded, monitored(watched) as counted:
        said = run([sys.executable, str(script)])
    answers, read, fastest_ns = map(int, said.split())
    assert answers == 50 * count * connections
    assert not len(exchanges_of(recorded))
    messages = table_of(recorded, "messages")
    assert messages["read_ns"].notna().sum() == read
    cause = "QUIC: both sides talk at once"
    assert causes_of(recorded) == {cause: len(messages)}
    bounds = recorded.totals.tally.least_responses_ns
    assert all(0 < least_ns <= fastest_ns for least_ns in bounds.values())
    for role in ("client", "server"):
        found = counted.group(role=role, service=str(port)).counted
        assert found[Counted.EXCHANGES] == 0
        assert found[Counted.NO_TURNS] > 0
