"""Requests and answers of HTTP, as far as scrapers need them."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

MOST_HEADER_BYTES = 8192
_END = b"\r\n\r\n"
_VERSIONS = ("HTTP/1.0", "HTTP/1.1")
_AUTHORITY = re.compile(
    r"(?P<host>[A-Za-z0-9._-]+|\[[A-Fa-f0-9:.]+(%[A-Za-z0-9._~%-]+)?\])(:\d*)?"
)


class Refusal(Exception):
    """A request that is answered by its status, and the reason where there is one."""

    def __init__(self, status: HTTPStatus, why: str = "", **headers: str) -> None:
        super().__init__(f"{status.phrase}: {why}" if why else status.phrase)
        self.status = status
        self.headers = {name.replace("_", "-"): text for name, text in headers.items()}


@dataclass(frozen=True)
class Request:
    """A request without a body; names of headers in small letters."""

    method: str
    host: str | None  # whom it is for: "localhost", "::1"; HTTP/1.0 need not say so
    path: str
    headers: dict[str, str]
    address: str  # whose
    keep: bool  # the connection
    query: str = ""  # of the path

    def accepts_gzip(self) -> bool:
        """Whether its sender reads a compressed body."""
        offered = self.headers.get("accept-encoding", "").replace(" ", "").split(",")
        return "gzip" in {e.partition(";")[0] for e in offered if ";q=0" not in e}


@dataclass(frozen=True)
class Answer:
    """What goes back."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, refusal: Refusal) -> Answer:
        """Say why a request is refused."""
        text = f"{refusal.status.value} {refusal}\n"
        return cls(text.encode(), status=refusal.status, headers=refusal.headers)

    def head(self, *, keep: bool) -> bytes:
        """Write status and headers."""
        headers = {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body)),
            "Connection": "keep-alive" if keep else "close",
            "X-Content-Type-Options": "nosniff",
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {text}" for name, text in headers.items()]
        return "\r\n".join(lines).encode() + _END


async def read_request(
    reader: asyncio.StreamReader, begun: bytes, address: str
) -> Request | None:
    """Read one of which some is there; None where the connection ends. Raises Refusal.

    `reader` has a limit of MOST_HEADER_BYTES.
    """
    try:
        text = begun + await reader.readuntil(_END)
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError as error:
        raise Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from error
    first, *lines = text.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, target, version = _first_line(first)
    headers = _headers(lines)
    path, host = _whereto(target, version, headers.get("host"))
    body = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    closing = headers.get("connection", "").lower()
    return Request(
        method,
        host,
        path,
        headers,
        address,
        # a body is never read, so nothing can come after it
        not body and version == "HTTP/1.1" and closing != "close",
        target.partition("?")[2],
    )


def _first_line(line: str) -> tuple[str, str, str]:
    words = line.split(" ")
    if len(words) != 3 or not all(words):
        raise Refusal(HTTPStatus.BAD_REQUEST)
    method, target, version = words
    if version not in _VERSIONS:
        raise Refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    if method not in ("GET", "HEAD"):
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, Allow="GET, HEAD")
    return method, target, version


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon or not name or name != name.strip():
            raise Refusal(HTTPStatus.BAD_REQUEST)
        name, text = name.lower(), text.strip()
        if name == "host" and name in headers:
            raise Refusal(HTTPStatus.BAD_REQUEST, "more than one Host")
        headers[name] = f"{headers[name]},{text}" if name in headers else text
    return headers


def _whereto(target: str, version: str, named: str | None) -> tuple[str, str | None]:
    """Path and host that are asked for: those of a whole URL go before the header."""
    if named is None and version != "HTTP/1.0":
        raise Refusal(HTTPStatus.BAD_REQUEST, "no Host")
    if target.startswith("/"):
        path, authority = target.partition("?")[0], named
    else:
        try:
            url = urlsplit(target)
        except ValueError as error:
            raise Refusal(HTTPStatus.BAD_REQUEST) from error
        if url.scheme not in ("http", "https"):
            raise Refusal(HTTPStatus.BAD_REQUEST)
        path, authority = url.path or "/", url.netloc
    return path, None if authority is None else host_of(authority)


def host_of(authority: str) -> str:
    """Find the host in HOST[:PORT], in the one form that we compare; raises Refusal.

    Examples
    --------
    >>> host_of("Node7.Example.org.:9989"), host_of("[::1]:9989")
    ('node7.example.org', '::1')
    """
    found = _AUTHORITY.fullmatch(authority)
    if not found:
        raise Refusal(HTTPStatus.BAD_REQUEST, "what Host says is no name or address")
    return found["host"].strip("[]").lower().removesuffix(".")
