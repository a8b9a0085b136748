"""Names that a host is asked by: another site's page must not read our answers."""

from __future__ import annotations

import pytest
from latprof_agent.service.web.hosts import own_names
from latprof_agent.service.web.request import MOST_HEADER_BYTES, host_of
from served import served

NAMED = "node7.example.org"


@pytest.fixture(scope="module")
def one():
    with served(hosts=[NAMED, "node7"]) as made:
        yield made


def status(one, text):
    """The status of the answer to lines of a request."""
    answer = one.send("\r\n".join([*text, "Connection: close", "", ""]).encode())
    return int(answer.split()[1])


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:9989",
        "agent.localhost",
        NAMED,
        f"{NAMED}:9989",
        f"{NAMED.upper()}.:9989",
        "node7",
        "127.0.0.1",
        "127.0.0.1:80",
        "[::1]:9989",
        "[fe80::1%eth0]",
        "192.0.2.1:9989",  # of a NAT, or of a container's host
    ],
)
def test_what_is_an_address_or_a_name_of_ours_is_answered(one, host):
    for path in ("/", "/metrics"):
        assert one.get(path, host=host).status == 200
    assert status(one, [f"GET http://{host}/metrics HTTP/1.1", "Host: x"]) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9989",
        f"{NAMED}.evil.example",
        f"evil.{NAMED}",
        "node7.evil.example",
        "localhost.evil.example",
        "evillocalhost",
        "127.0.0.1.evil.example",
        "1.0.0.127.in-addr.arpa",
        "127.1",
    ],
)
def test_another_name_is_refused_with_what_to_put_where(one, host):
    name = host.partition(":")[0]
    for path in ("/", "/metrics", "/none", "/stories/x"):
        refused = one.get(path, host=host)
        assert refused.status == 421
        assert refused.text.decode() == (
            f"421 Misdirected Request: {name} is no name of this host; if it is one, "
            f'put hosts = ["{name}"] into the configuration\n'
        )
    assert one.server.refused["misdirected_request"]


def test_a_whole_url_goes_before_the_header(one):
    evil = ["GET http://evil.example/metrics HTTP/1.1", "Host: localhost"]
    assert status(one, evil) == 421
    assert status(one, ["GET https://localhost/metrics HTTP/1.1", "Host: e.com"]) == 200
    assert (
        status(one, ["GET //evil.example/metrics HTTP/1.1", "Host: localhost"]) == 404
    )


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["Host: localhost", "Host: localhost"],
        ["Host: evil.example", "host: localhost"],
        ["Host:"],
        ["Host: a b"],
        ["Host: localhost,evil.example"],
        ["Host: user@localhost"],
        ["Host: localhost/"],
        ["Host: localhost:port"],
        ["Host: [::1"],
        ["Host: ::1"],
        ["Host: <script>"],
        ["Host: " + "a" * (MOST_HEADER_BYTES // 2) + "/"],
    ],
)
def test_what_names_no_host_is_no_request(one, lines):
    assert status(one, ["GET /metrics HTTP/1.1", *lines]) == 400
    assert status(one, ["GET /healthz HTTP/1.1", *lines]) == 400


@pytest.mark.parametrize("target", ["metrics", "*", "ftp://localhost/", "localhost:80"])
def test_what_is_neither_path_nor_url_is_no_request(one, target):
    assert status(one, [f"GET {target} HTTP/1.1", "Host: localhost"]) == 400


def test_before_http_1_1_no_host_need_be_named(one):
    assert status(one, ["GET /metrics HTTP/1.0"]) == 200
    assert status(one, ["GET /metrics HTTP/1.0", "Host: evil.example"]) == 421


def test_health_is_for_whoever_asks_by_any_name(one):
    for path in ("/healthz", "/-/ready"):
        assert one.get(path, host="balancer.example").status == 200


def test_our_names_are_our_own_and_those_beside_it_in_etc_hosts(tmp_path):
    file = tmp_path / "hosts"
    file.write_bytes(
        b"127.0.0.1 localhost\n127.0.1.1\tNode7.Example.org node7 # other\n"
        b"192.0.2.1 evil.example # node7\n192.0.2.2\n\n\xff node7.b\n"
        b"2001:db8::7 node7-v6.example.org node7\n"
    )
    names = {"node7", "node7.example.org", "node7-v6.example.org"}

    assert set(own_names("Node7", file)) == names
    assert set(own_names("other", file)) == {"other"}
    assert set(own_names("node7", tmp_path / "none")) == {"node7"}


def test_a_host_has_one_form():
    assert host_of("A.b.:1") == host_of("a.B") == "a.b"
    assert host_of("[2001:DB8::1]:80") == "2001:db8::1"
