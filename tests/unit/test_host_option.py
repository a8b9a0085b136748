"""HOST[:PORT]: each form that is read, and what is none."""

from __future__ import annotations

import argparse

import pytest
from latprof_agent.cli.host_option import host_and_port

read = host_and_port(7107)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("host", "host", 7107),
        ("a-b.example.org:1", "a-b.example.org", 1),
        ("192.0.2.7:65535", "192.0.2.7", 65535),
        ("2001:db8::7", "2001:db8::7", 7107),
        ("::1", "::1", 7107),
        ("[::1]", "::1", 7107),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80),
    ],
)
def test_a_port_is_told_apart_from_an_address(text, host, port):
    assert read(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        *("", "a b", ":80", "host:", "host:0", "host:65536", "host:-1", "host:x"),
        *("a:b:c", "1:2:3", "[host]:80", "[]", "[::1]80", "[::1", "::1]:80", "h/80"),
    ],
)
def test_what_is_neither_is_told_in_one_line(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must be HOST, HOST:PORT or"):
        read(text)
