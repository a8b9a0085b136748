"""The agent's server: what it answers, and that no scraper keeps it from others."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import gzip
import http.client
import resource
import shutil
import socket
import ssl
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
from latprof_agent.errors import LatprofError
from latprof_agent.service import states
from latprof_agent.service.metrics import protobuf
from latprof_agent.service.metrics.families import families
from latprof_agent.service.web import bounds, passwords, routes
from latprof_agent.service.web.passwords import PasswordHash
from latprof_agent.service.web.request import MOST_HEADER_BYTES, Answer
from latprof_agent.service.web.server import Limits, Server, ServerThread
from recording import wait_until
from served import read_all, served

QUICK = Limits(connections=8, request_seconds=0.5, idle_seconds=0.5, answer_seconds=1)
# Until Prometheus gives up a scrape.
SOON_SECONDS = 10.0
END = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def one():
    with served() as made:
        yield made


def statuses(text):
    """The status of each answer in what came over a connection."""
    return [int(line.split()[1]) for line in text.splitlines() if line[:5] == b"HTTP/"]


def test_metrics_come_in_the_format_that_is_asked_for(one):
    plain = one.get()
    openmetrics = one.get(accept="application/openmetrics-text;version=1.0.0")

    assert plain.status == 200
    assert plain.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b"latprof_stage_seconds_count{" in plain.text
    assert openmetrics.text.endswith(b"# EOF\n")
    assert "openmetrics-text; version=1.0.0" in openmetrics.headers["Content-Type"]


def test_a_compressed_answer_holds_the_same(one):
    packed = one.get(accept_encoding="deflate, gzip")

    assert packed.headers["Content-Encoding"] == "gzip"
    assert b"latprof_stage_seconds_count{" in gzip.decompress(packed.text)
    assert not one.get(accept_encoding="gzip;q=0").headers["Content-Encoding"]
    dense = one.get(accept_encoding="gzip", accept=protobuf.CONTENT_TYPE)
    assert not dense.headers["Content-Encoding"]
    assert dense.headers["Content-Type"] == protobuf.CONTENT_TYPE


@pytest.mark.parametrize("path", ["/healthz", "/-/ready", "/", "/metrics?x=1"])
def test_every_page_is_there(one, path):
    assert one.get(path).status == 200


def test_the_first_page_links_the_others_and_escapes(one):
    text = one.get("/").text.decode()

    for path in ("metrics", "healthz", "-/ready"):
        assert f'href="{path}"' in text
    assert "&lt;service&gt;" in text


def test_a_connection_is_kept_for_more_requests(one):
    found = http.client.HTTPConnection(one.host, one.port, timeout=20)
    for path in ("/healthz", "/metrics", "/-/ready"):
        found.request("GET", path)
        before = found.sock
        assert found.getresponse().read()
        assert found.sock is before


def test_two_requests_at_once_are_both_answered(one):
    assert statuses(one.send(REQUEST + END)) == [200, 200]


def test_head_has_the_length_and_no_body(one):
    head, whole = one.get("/healthz", "HEAD"), one.get("/healthz")

    assert head.headers["Content-Length"] == whole.headers["Content-Length"] == "3"
    assert head.text == b""


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /other HTTP/1.0\r\n\r\n", 404),
        (b"GET /metrics/../etc HTTP/1.0\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\nab", 405),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 505),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # TLS
        (b"GET\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET http://[/ HTTP/1.0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n : x\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nA: " + b"x" * MOST_HEADER_BYTES + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.0\r\n" + b"A: x\r\n" * MOST_HEADER_BYTES + b"\r\n", 431),
        (b"x" * (1 << 20), 431),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_ends(one, data, status):
    assert statuses(one.send(data)) == [status]
    assert one.get("/healthz").status == 200


def test_a_body_is_never_taken_for_a_request(one):
    hidden = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"

    assert statuses(one.send(head % len(hidden) + hidden)) == [200]


def test_a_request_that_never_ends_is_ended_while_others_are_answered():
    with served(limits=QUICK) as made, made.connect() as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\n")
        begun = time.monotonic()
        while time.monotonic() < begun + 0.3:
            slow.sendall(b"A: x\r\n")
            assert made.get("/healthz").status == 200
        assert read_all(slow) == b""
        assert made.server.refused["slow"] == 1


def test_a_connection_without_a_request_is_ended():
    with served(limits=QUICK) as made, made.connect() as silent:
        assert read_all(silent) == b""
        assert made.server.refused["slow"] == 1


def test_who_does_not_read_is_ended_while_others_are_answered():
    with served(200, limits=QUICK) as made, ExitStack() as stack:
        for _ in range(4):
            deaf = stack.enter_context(made.connect("127.0.0.2"))
            deaf.sendall(REQUEST * 20)
        assert len(made.get().text) > 1_000_000
        wait_until(lambda: made.server.refused["slow"] == 4, "the deaf are ended")


def test_one_hosts_connections_do_not_end_those_of_another():
    with served(limits=QUICK) as made, ExitStack() as stack:
        good = stack.enter_context(made.connect())
        good.sendall(b"GET /healthz HTTP/1.1\r\n")
        for _ in range(3 * QUICK.connections):
            stack.enter_context(made.connect("127.0.0.2"))
        good.sendall(b"Host: localhost\r\nConnection: close\r\n\r\n")
        assert statuses(read_all(good)) == [200]


def test_who_waits_for_an_answer_stays_before_who_had_one():
    with served(limits=Limits(connections=3)) as made, ExitStack() as stack:
        waiting, had = (stack.enter_context(made.connect()) for _ in range(2))
        waiting.sendall(REQUEST[:-2])
        had.sendall(REQUEST)
        wait_until(lambda: had.recv(1 << 16), "an answer")
        for _ in range(2):
            stack.enter_context(made.connect())
        wait_until(lambda: made.server.refused["too_many"] == 1, "one too many")
        waiting.sendall(b"Connection: close\r\n\r\n")
        assert statuses(read_all(waiting)) == [200]


@pytest.mark.thorough
def test_thousands_of_connections_keep_neither_scrapes_nor_measuring():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    connections = min(3000, hard - 200)
    with served(limits=Limits()) as made, ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for i in range(connections):
            one = stack.enter_context(made.connect())
            one.sendall(b"GET /metrics HTTP/1.1\r\n")
            if i % 500 == 0:
                begun = time.monotonic()
                assert made.get().status == 200
                assert time.monotonic() - begun < SOON_SECONDS
        assert made.longest_step < 1.0
        assert made.server.refused["too_many"] > connections - 500


def test_scrapers_at_the_same_time_share_a_state():
    with served() as made:
        for _ in range(5):
            assert made.get().status == 200
        assert made.made <= 2
        made.states._made -= states.FRESH_SECONDS
        assert made.get().status == 200
        assert 2 <= made.made <= 3


# Nothing comes back to the buckets: what is served can be counted.
COUNTED = Limits(requests_per_second=0, own_requests_per_second=0)
CROWD = 60


def test_what_comes_at_once_is_written_once_and_bounded_by_client(monkeypatch):
    written = []

    def write(*words):
        written.append(1)
        return families(*words)

    monkeypatch.setattr(routes, "families", write)
    with served(limits=COUNTED) as made, ExitStack() as stack:
        crowd = [stack.enter_context(made.connect()) for _ in range(CROWD)]
        for one in crowd:
            one.sendall(REQUEST * 30)
        answers = b"".join(read_all(one) for one in crowd)
        # each connection's own, and what their client may have beside
        served_to_all = COUNTED.own_requests * CROWD + COUNTED.requests
        assert answers.count(b"HTTP/1.1 200 ") == served_to_all
        assert made.server.refused["too_many_requests"] == CROWD
        assert made.get().status == 200
        # busy, the machine may take more than the second for which one is kept
        assert len(written) == made.made <= 10


def test_one_clients_requests_do_not_take_those_of_another():
    with served(limits=COUNTED) as made, made.connect() as good:
        for _ in range(2):
            made.send(REQUEST * 30)
        with made.connect("127.0.0.2") as other:
            other.sendall(REQUEST * 20 + END)
            assert statuses(read_all(other)) == [200] * 21
        good.sendall(END)
        assert statuses(read_all(good)) == [200]


def test_a_refused_client_reads_when_it_may_come_again():
    limits = Limits(requests=0, own_requests=0)
    with served(limits=limits) as made:
        refused = made.get()

    assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
    assert refused.headers["Connection"] == "close"


@pytest.mark.parametrize("path", [b"/healthz", b"/metrics", b"/none"])
def test_who_asks_without_end_keeps_nobody_out(path):
    with served() as made, flood(made, REQUEST.replace(b"/metrics", path)):
        wait_until(lambda: made.server.refused["too_many_requests"] > 8, "a flood")
        for _ in range(10):
            assert made.get("/healthz").status == 200
            assert made.get().status == 200


@contextmanager
def flood(made, request):
    """Ask on eight connections without end; who is refused comes again."""
    ended = threading.Event()

    def ask():
        while not ended.is_set():
            with contextlib.suppress(OSError), made.connect() as one:
                one.settimeout(1.0)
                while not ended.is_set():
                    one.sendall(request * 20)

    asking = [threading.Thread(target=ask) for _ in range(8)]
    for thread in asking:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in asking:
            thread.join()


def test_a_bucket_is_filled_again_as_time_goes(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(bounds.time, "monotonic", lambda: now)
    bucket = bounds.Bucket(3, 0.5)

    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    now += 2.0
    assert [bucket.take() for _ in range(2)] == [True, False]
    now += 1000.0
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_of_clients_the_newest_are_known(monkeypatch):
    monkeypatch.setattr(bounds, "_MOST_CLIENTS", 2)
    clients = bounds.Clients(1, 0.0)

    assert [clients.take(name) for name in "aabb"] == [True, False, True, False]
    assert clients.take("c")
    assert [clients.take(name) for name in "cba"] == [False, False, True]


def test_a_host_of_ipv6_has_many_addresses_and_is_one_client():
    first, second, other = map(
        bounds.client_of, ["2001:db8:0:1::1", "2001:db8:0:1:f::", "2001:db8:0:2::1"]
    )
    assert first == second != other
    assert bounds.client_of("::ffff:192.0.2.1") == bounds.client_of("192.0.2.1")
    assert bounds.client_of("192.0.2.1") != bounds.client_of("192.0.2.2")
    assert bounds.client_of("fe80::1%eth0") == bounds.client_of("fe80::2%eth0")


def test_to_answer_takes_no_more_than_a_share_of_a_cpu():
    async def work(_request):
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        return Answer(b"")

    limits = Limits(cpu_share=0.1, cpu_burst_seconds=0.0)
    with served(limits=limits) as made:
        made.server._respond = work
        begun = time.monotonic()
        for _ in range(5):
            assert made.get().status == 200
        # four have been paid for before the last is begun
        assert time.monotonic() - begun >= 4 * 0.02 / limits.cpu_share


def test_a_server_that_rests_ends_when_it_shall():
    with served(limits=Limits(cpu_share=1e-9, cpu_burst_seconds=0.0)) as made:
        made.connect().close()


def test_nobody_asks_nothing_is_made():
    with served() as made:
        wait_until(lambda: made.steps > 5, "some steps")
        assert made.made == 0


def test_a_stuck_monitor_is_told(monkeypatch):
    monkeypatch.setattr(routes, "_STATE_SECONDS", 0.1)
    monkeypatch.setattr(states, "_ALIVE_SECONDS", 0.2)
    with served() as made:
        assert made.get("/healthz").status == 200
        with made.holding:
            assert made.get().status == 503
            wait_until(lambda: made.get("/healthz").status == 503, "told")
            assert made.get("/-/ready").status == 503
        wait_until(lambda: made.get("/healthz").status == 200, "goes on")
        assert made.get().status == 200


def test_before_it_is_ready_there_is_health_and_no_metrics():
    with served() as made:
        made.states.ready = False
        wanted = {"/healthz": 200, "/-/ready": 503, "/metrics": 503}
        assert {path: made.get(path).status for path in wanted} == wanted


def test_ipv6():
    with served(host="::1") as made:
        assert made.get("/healthz").status == 200


@pytest.fixture(scope="module")
def hashed():
    return {"scraper": PasswordHash.of("right: ä")}


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_only_who_knows_the_password_reads_the_metrics(hashed):
    with served(users=hashed) as made:
        assert made.get("/healthz").status == made.get("/-/ready").status == 200
        unknown = made.get()
        assert unknown.status == 401
        assert unknown.headers["WWW-Authenticate"] == 'Basic realm="latprof"'
        for wrong in ("Basic", "Basic ???", "Bearer x", "Basic eA=="):
            assert made.get("/", authorization=wrong).status == 401
        right = basic("scraper", "right: ä")
        assert made.get(authorization=right).status == 200
        assert made.get("/", authorization=right).status == 200


@pytest.mark.parametrize("given", [("scraper", "wrong"), ("other", "right: ä")])
def test_wrong_passwords_cost_an_address_a_second_and_a_known_one_nothing(
    hashed, given, monkeypatch
):
    monkeypatch.setattr(passwords, "_WAIT_SECONDS", 1000.0)
    with served(users=hashed) as made:
        right = basic("scraper", "right: ä")
        assert made.get(authorization=right).status == 200
        assert made.get(authorization=basic(*given)).status == 401
        later = made.get(authorization=basic(*given))
        assert (later.status, later.headers["Retry-After"]) == (429, "1")
        assert made.get(authorization=right).status == 200


def test_a_hash_is_read_as_it_is_written(hashed):
    text = str(hashed["scraper"])

    assert text.startswith("$scrypt$ln=14,r=8,p=5$")
    assert PasswordHash.read(text).fits("right: ä")
    assert not PasswordHash.read(text).fits("right: a")
    assert str(PasswordHash.of("x")) != str(PasswordHash.of("x"))


def test_a_hash_of_passlib_fits():
    # passlib.hash.scrypt's own example, of "password"
    text = (
        "$scrypt$ln=16,r=8,p=1$aM15713r3Xsvxbi31lqr1Q"
        "$nFNh2CVHVjNldFVKDHDlm4CbdRSCdEBsjjJxD+iCs5E"
    )
    assert PasswordHash.read(text).fits("password")


@pytest.mark.parametrize(
    "text",
    [
        "secret",
        "$2b$12$abc",
        "$scrypt$ln=14,r=8,p=5$x$y",
        "$scrypt$ln=30,r=8,p=5$aM15713r3Xsvxbi31lqr1Q$nFNh2CVHVjNldFVKDHDlmw",
        "$scrypt$ln=14,r=0,p=5$aM15713r3Xsvxbi31lqr1Q$nFNh2CVHVjNldFVKDHDlmw",
    ],
)
def test_what_is_no_hash_is_refused_with_the_rule(text):
    with pytest.raises(ValueError, match="must"):
        PasswordHash.read(text)


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """A certificate of 127.0.0.1 and its key, and contexts of both ends."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl here")
    folder = tmp_path_factory.mktemp("tls")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    words += " -subj /CN=latprof -addext subjectAltName=IP:127.0.0.1"
    files = folder / "crt", folder / "key"
    subprocess.run(
        ["openssl", *words.split(), "-out", files[0], "-keyout", files[1]],
        check=True,
        capture_output=True,
    )
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*files)
    return server, ssl.create_default_context(cafile=files[0])


def test_tls(certified):
    server, client = certified
    with served(tls=server) as made:
        answer = made.get(tls=client)
        assert answer.status == 200
        assert len(answer.text) > 3 << 16  # in several pieces
        assert made.get("/healthz", tls=client).text == b"ok\n"


@pytest.mark.parametrize("ending", ["unwrap", "close"])
def test_whoever_ends_tls_first_is_no_failure_of_ours(certified, caplog, ending):
    server, client = certified
    with served(tls=server) as made:
        with client.wrap_socket(made.connect(), server_hostname="127.0.0.1") as one:
            one.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            while not one.recv(1 << 16).endswith(b"ok\n"):
                pass
            getattr(one, ending)()
        assert made.get("/healthz", tls=client).status == 200
    gc.collect()  # a task's failure is told when nobody can ask for it any more
    assert caplog.messages == []


def test_who_never_shakes_hands_is_ended_while_others_are_answered(certified):
    server, client = certified
    with served(tls=server, limits=QUICK) as made, ExitStack() as stack:
        silent = [
            stack.enter_context(made.connect()) for _ in range(3 * QUICK.connections)
        ]
        assert made.get("/healthz", tls=client).status == 200
        assert [read_all(one) for one in silent] == [b""] * len(silent)
        assert made.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")[:5] != b"HTTP/"
        assert made.get("/healthz", tls=client).status == 200


def test_a_server_that_is_ended_before_it_began_ends(monkeypatch):
    began, run = threading.Event(), ServerThread._run
    monkeypatch.setattr(ServerThread, "_run", lambda self: began.wait() and run(self))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = ServerThread(Server(listener, respond=None))
        thread.start()
        ending = threading.Thread(target=thread.stop, daemon=True)
        ending.start()
        ending.join(0.2)  # it waits
        began.set()
        ending.join(20)
        assert not ending.is_alive()


def test_a_connection_that_comes_as_the_server_ends_is_no_error():
    errors = []

    async def serve_and_end(listener):
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        task = loop.create_task(Server(listener, respond=None).serve())
        await asyncio.sleep(0.05)
        with socket.create_connection(listener.getsockname()):
            loop.call_soon(task.cancel)  # both are seen in one round of the loop
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await asyncio.sleep(0)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(serve_and_end(listener))
    assert errors == []


def test_a_server_that_an_error_has_ended_is_seen():
    def fails(_):
        raise AssertionError

    server = Server(socket.create_server(("127.0.0.1", 0)), fails)
    server.serve = lambda: fails(None)
    thread = ServerThread(server)
    thread.start()
    thread._thread.join()
    with pytest.raises(LatprofError, match="the web server has ended: AssertionError"):
        thread.check()
    thread.stop()
