"""By which names pages may be asked for.

The page of another site can have that site's name lead to an address of this host (DNS
rebinding). A browser then gives our answers to that page, as its own; it says the
site's name in Host. What is no name of ours is refused therefore. An address is no
name that could lead elsewhere, so any is right: that of a NAT in front of us, too.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path

from latprof_agent.service.web.request import Refusal, Request

_LOCAL = "localhost"


class Hosts:
    """The names of this host, and those of the configuration."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    def check(self, request: Request) -> None:
        """Raise Refusal where a request is for another host."""
        host = request.host
        # before HTTP/1.1 there were neither names nor browsers that are still used
        if host is None or host in self._names or _is_local(host) or _is_address(host):
            return
        raise Refusal(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"{host} is no name of this host; if it is one, put "
            f'hosts = ["{host}"] into the configuration',
        )


def _is_local(host: str) -> bool:
    return host == _LOCAL or host.endswith(f".{_LOCAL}")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def own_names(
    name: str | None = None, file: Path = Path("/etc/hosts")
) -> Iterator[str]:
    """Name this host: as itself does, and as /etc/hosts has it beside that.

    DNS is not asked: the name that it gives may be another's.
    """
    own = (name or socket.gethostname()).lower()
    yield own
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.lower().split("\n"):
        _, *names = line.partition("#")[0].split() or [""]
        if own in names:
            yield from names
