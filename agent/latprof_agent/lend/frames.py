"""A recording on its way from the host that lends it to the one that asked.

Frames on a connection that both ends have agreed on: u8 kind, u32 length, body.

    WAIT    no body: it is recorded, or read, or others are before this client
    DATA    the next bytes of the recording
    END     u8 how it ended, u64 bytes of the recording; nothing follows

All numbers are big endian. Nothing of a frame names a file, or is shown.
"""

from __future__ import annotations

import math
import os
import select
import struct
import time
from collections.abc import Callable
from enum import IntEnum
from functools import partial

from latprof_analysis.text import counted

from latprof_agent.errors import LendError

# That nothing may come, or may be taken, for so long; and that all of it may take.
SILENT_SECONDS = 30.0
LEND_SECONDS = 120.0  # of one, from its turn on
FETCH_SECONDS = 300.0  # with those before it
WAIT_SECONDS = 1.0  # between words that say that more will come

_HEADER = struct.Struct(">BI")
_END = struct.Struct(">BQ")
_MOST_BODY = 1 << 18
_MOST_HELD = 1 << 16  # before anything is asked for
_LOOK_SECONDS = 0.2


class Kind(IntEnum):
    """What a frame is. The values are on the wire."""

    WAIT = 0
    DATA = 1
    END = 2


class Ending(IntEnum):
    """How it ended. The values are on the wire."""

    WHOLE = 0
    TOO_LARGE = 1
    TOO_LATE = 2
    FAILED = 3


WAIT = _HEADER.pack(Kind.WAIT, 0)
_WHY = {
    Ending.TOO_LATE: "to read its recording took it too long; start it anew before "
    "the run",
    Ending.FAILED: "it could not read its recording",
}


class TooLarge(Exception):
    """More bytes than the client takes, or than are lent."""


class Outlet:
    """The lending end.

    Parameters
    ----------
    send : callable
        Sends all of the bytes, and may wait. Its OSError reaches whoever writes.
    most_bytes : int
        Of the recording.
    rate_bps : int or None
        Bits per second, of all frames together.
    """

    def __init__(
        self,
        send: Callable[[bytes], object],
        most_bytes: int,
        rate_bps: int | None = None,
    ) -> None:
        self._send_all, self._most = send, most_bytes
        self._bytes_per_second = rate_bps / 8 if rate_bps else 0.0
        self._began, self._said = time.monotonic(), -math.inf
        self._sent = 0

    def write(self, data: bytes) -> None:
        """Send the next bytes of the recording; raises TooLarge."""
        if self._sent + len(data) > self._most:
            raise TooLarge
        for at in range(0, len(data), _MOST_BODY):
            self._send(Kind.DATA, data[at : at + _MOST_BODY])
        self._sent += len(data)
        while self._is_early():
            time.sleep(_LOOK_SECONDS)
            self.wait()

    def _is_early(self) -> bool:
        most = (time.monotonic() - self._began) * self._bytes_per_second
        return bool(self._bytes_per_second) and self._sent > most

    def wait(self) -> None:
        """Say that more will come, where nothing was said for a while."""
        if time.monotonic() - self._said > WAIT_SECONDS:
            self._send(Kind.WAIT, b"")

    def end(self, how: Ending) -> None:
        """Say that this was all; the client then closes."""
        self._send(Kind.END, _END.pack(how, self._sent))

    def _send(self, kind: Kind, body: bytes) -> None:
        self._send_all(_HEADER.pack(kind, len(body)) + body)
        self._said = time.monotonic()


class Inlet:
    """The taking end, which believes nothing that comes."""

    def __init__(self, descriptor: int, silent_seconds: float | None = None) -> None:
        """`descriptor` is a socket or a pipe; nothing may come for so long."""
        self._descriptor = descriptor
        self._silent = silent_seconds or SILENT_SECONDS
        self._held = b""
        self.taken = 0
        self.ended = False

    def heard(self) -> bool:
        """Take in what came, where nothing is taken yet; whether more will come."""
        while len(self._held) < _MOST_HELD and self._is_ready(0):
            if not self._read():
                break
        heard = self._held.startswith(WAIT)
        while self._held.startswith(WAIT):
            self._held = self._held[len(WAIT) :]
        return heard

    @property
    def is_foreign(self) -> bool:
        """Whether what came, where nothing is taken yet, is of another program."""
        return not WAIT.startswith(self._held[: len(WAIT)])

    def take(
        self,
        write: Callable[[bytes], object],
        most_bytes: int,
        look: Callable[[int], None] = lambda _taken: None,
    ) -> None:
        """Take all of it; raises LendError where it does not come whole.

        `look` is called meanwhile, with the bytes that came; it may raise.
        """
        until = time.monotonic() + FETCH_SECONDS
        exactly = partial(self._exactly, look, until)
        while True:
            kind, length = _HEADER.unpack(exactly(_HEADER.size))
            if kind == Kind.WAIT and not length:
                continue
            if kind == Kind.END and length == _END.size:
                how, sent = _END.unpack(exactly(length))
                self._end(how, sent, most_bytes)
                return
            if kind != Kind.DATA or not 0 < length <= _MOST_BODY:
                raise LendError("what it sent is no recording")
            if self.taken + length > most_bytes:
                raise LendError(
                    f"it sent more than the {counted(most_bytes, 'byte')} that were "
                    "asked for"
                )
            write(exactly(length))
            self.taken += length

    def _end(self, how: int, sent: int, most_bytes: int) -> None:
        if how == Ending.TOO_LARGE:
            raise LendError(
                f"it has more than {counted(most_bytes, 'byte')} of this host, or than "
                "its --lend-bytes; raise --responder-bytes or that, or give a shorter "
                "--duration"
            )
        if how in _WHY:
            raise LendError(_WHY[Ending(how)])
        if how != Ending.WHOLE or sent != self.taken:
            raise LendError("what it sent is not whole")

    def _exactly(self, look: Callable[[int], None], until: float, size: int) -> bytes:
        """Wait for so many bytes, but neither long for the next, nor for all."""
        silent = time.monotonic() + self._silent
        while len(self._held) < size:
            look(self.taken)
            now = time.monotonic()
            if now > silent:
                raise LendError(f"nothing came for {self._silent:g} s")
            if now > until:
                raise LendError(f"it took longer than {FETCH_SECONDS:g} s")
            if not self._is_ready(_LOOK_SECONDS):
                continue
            if not self._read():
                raise LendError(
                    f"the connection broke off after {counted(self.taken, 'byte')}"
                )
            silent = time.monotonic() + self._silent
        found, self._held = self._held[:size], self._held[size:]
        return found

    def _is_ready(self, seconds: float) -> bool:
        return bool(select.select([self._descriptor], [], [], seconds)[0])

    def _read(self) -> bool:
        """Hold what came; whether it was anything."""
        try:
            part = os.read(self._descriptor, _MOST_BODY)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise LendError(f"the connection broke off: {why}") from error
        self._held += part
        self.ended = not part
        return bool(part)
