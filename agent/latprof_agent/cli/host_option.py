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


_SSH = "ssh:"
_USER = re.compile(r"\w[\w.-]*")
_GIVEN_TO_SSH = re.compile(r"[\w.:][\w.:%-]*")  # whose configuration may have a shell


def ssh_hosts(text: str) -> tuple[tuple[str, str], ...]:
    """Read ssh:[USER@]HOST[:PORT],...: what ssh is given, and digits of a port.

    What begins with a dash would be an option of ssh's.
    """
    if not text.startswith(_SSH):
        raise argparse.ArgumentTypeError(f"must be ssh:HOST,..., got {text!r}")
    found = [_ssh_host(part.strip()) for part in text[len(_SSH) :].split(",")]
    if twice := next((one for one in found if found.count(one) > 1), None):
        raise argparse.ArgumentTypeError(f"must name each host once, got {twice[0]!r}")
    return tuple(found)


def _ssh_host(text: str) -> tuple[str, str]:
    user, at, place = text.rpartition("@")
    host, port = _split(place)
    if (
        not _GIVEN_TO_SSH.fullmatch(host)
        or (at and not _USER.fullmatch(user))
        or not 1 <= int(port or 22) <= 65535
    ):
        raise argparse.ArgumentTypeError(
            f"must be [USER@]HOST or [USER@]HOST:PORT, got {text!r}"
        )
    return f"{user}{at}{host}", port or ""


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
