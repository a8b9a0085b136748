"""HOST[:PORT], as options of several workloads have it."""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Callable

HostPort = tuple[str, int]

_IN_BRACKETS = re.compile(r"\[([^\[\]]*)\](?::([0-9]{1,5}))?")
_NAMED = re.compile(r"([\w.-]+)(?::([0-9]{1,5}))?")


def host_and_port(default_port: int) -> Callable[[str], HostPort]:
    """Make an argparse type: a name or an IPv4 address, or an IPv6 address.

    IPv6 stands in brackets, or bare where it has the default port.
    """

    def convert(text: str) -> HostPort:
        host, port = _split(text)
        number = int(port or default_port)
        if not host or not 1 <= number <= 65535:
            raise argparse.ArgumentTypeError(
                f"must be HOST, HOST:PORT or [IPV6]:PORT, got {text!r}"
            )
        return host, number

    return convert


def _split(text: str) -> tuple[str, str | None]:
    """Return a host and the digits of its port, if any; no host where it is none."""
    if found := _IN_BRACKETS.fullmatch(text):
        return (found[1] if _is_ipv6(found[1]) else ""), found[2]
    if text.count(":") > 1:
        return (text if _is_ipv6(text) else ""), None
    found = _NAMED.fullmatch(text)
    return (found[1], found[2]) if found else ("", None)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
