"""Basic auth: who may read the metrics, by hashes of their passwords.

A hash is written as by passlib and others: $scrypt$ln=14,r=8,p=5$SALT$HASH. To check
one takes 0.2 s of CPU, so a right password is known again without it, and after a
wrong one no other of the same address is looked at for a second.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import math
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus

from latprof_agent.service.web.request import Refusal, Request

_LOG2_COST, _BLOCK, _PARALLEL = 14, 8, 5  # of OWASP's, the one of least memory
_DIGEST_BYTES = 32
_SALT_BYTES = 16
_FORM = re.compile(
    r"\$scrypt\$ln=(?P<ln>\d{1,2}),r=(?P<r>\d{1,2}),p=(?P<p>\d{1,2})"
    r"\$(?P<salt>[A-Za-z0-9+/]+)\$(?P<digest>[A-Za-z0-9+/]+)"
)
_MOST_MEMORY_BYTES = 1 << 27
_WAIT_SECONDS = 1.0
_MOST_ADDRESSES = 1024


@dataclass(frozen=True)
class PasswordHash:
    """What is known of one password."""

    log2_cost: int
    block: int
    parallel: int
    salt: bytes
    digest: bytes

    @classmethod
    def of(cls, password: str) -> PasswordHash:
        """Hash a password, with a salt of its own."""
        salt = os.urandom(_SALT_BYTES)
        made = cls(_LOG2_COST, _BLOCK, _PARALLEL, salt, bytes(_DIGEST_BYTES))
        return replace(made, digest=made._scrypt(password))

    @classmethod
    def read(cls, text: str) -> PasswordHash:
        """Read what `str` writes; raises ValueError."""
        found = _FORM.fullmatch(text)
        if not found:
            raise ValueError("must be a hash of `latprof agent --hash-password`")
        cost, block, parallel = (int(found[name]) for name in ("ln", "r", "p"))
        try:
            salt, digest = _decoded(found["salt"]), _decoded(found["digest"])
        except binascii.Error as error:
            raise ValueError("must be a whole hash") from error
        made = cls(cost, block, parallel, salt, digest)
        if 0 in (cost, block, parallel) or made._memory_bytes() > _MOST_MEMORY_BYTES:
            raise ValueError("must take up to 128 MiB of memory to check")
        return made

    def __str__(self) -> str:
        cost = f"ln={self.log2_cost},r={self.block},p={self.parallel}"
        return f"$scrypt${cost}${_encoded(self.salt)}${_encoded(self.digest)}"

    def fits(self, password: str) -> bool:
        """Whether it is the hash of this password; takes its time."""
        return hmac.compare_digest(self._scrypt(password), self.digest)

    def _memory_bytes(self) -> int:
        return 128 * self.block << self.log2_cost

    def _scrypt(self, password: str) -> bytes:
        return hashlib.scrypt(
            password.encode(),
            salt=self.salt,
            n=1 << self.log2_cost,
            r=self.block,
            p=self.parallel,
            maxmem=2 * self._memory_bytes(),
            dklen=len(self.digest),
        )


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


class Passwords:
    """Who may read; anyone where no user is named."""

    def __init__(self, users: Mapping[str, PasswordHash]) -> None:
        self._users = dict(users)
        self._key = os.urandom(32)
        self._known: set[bytes] = set()  # right ones, by a hash that is quick
        self._wrong: dict[str, float] = {}  # address -> when, the oldest first
        self._checking = asyncio.Lock()

    def __bool__(self) -> bool:
        """Whether one is asked for."""
        return bool(self._users)

    async def check(self, request: Request) -> None:
        """Raise Refusal where its sender may not read."""
        if not self._users:
            return
        given = request.headers.get("authorization", "")
        known = hmac.digest(self._key, given.encode("latin-1"), "sha256")
        if known in self._known:
            return
        self._expect_no_haste(request.address)
        user, password = _credentials(given)
        async with self._checking:  # one CPU at most
            hashed = self._users.get(user) or next(iter(self._users.values()))
            fits = await asyncio.to_thread(hashed.fits, password)
        if not (fits and user in self._users):
            self._note(request.address)
            raise unauthorized()
        self._known.add(known)

    def _expect_no_haste(self, address: str) -> None:
        if time.monotonic() < self._wrong.get(address, -math.inf) + _WAIT_SECONDS:
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, Retry_After="1")

    def _note(self, address: str) -> None:
        self._wrong.pop(address, None)
        self._wrong[address] = time.monotonic()
        if len(self._wrong) > _MOST_ADDRESSES:
            del self._wrong[next(iter(self._wrong))]


def unauthorized(why: str = "") -> Refusal:
    """Have a browser ask for name and password."""
    challenge = 'Basic realm="latprof"'
    return Refusal(HTTPStatus.UNAUTHORIZED, why, WWW_Authenticate=challenge)


def holds_token(request: Request, token: str) -> bool:
    """Whether its sender has the token: as a bearer, or as anybody's password."""
    given = request.headers.get("authorization", "")
    scheme, _, found = given.partition(" ")
    if scheme.lower() != "bearer":
        try:
            _, found = _credentials(given)
        except Refusal:
            return False
    return bool(token) and hmac.compare_digest(found.encode(), token.encode())


def _credentials(authorization: str) -> tuple[str, str]:
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "basic":
        raise unauthorized()
    try:
        user, colon, password = base64.b64decode(given).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise unauthorized() from error
    if not colon:
        raise unauthorized()
    return user, password
