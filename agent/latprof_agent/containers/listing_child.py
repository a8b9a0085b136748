"""A child that may open the runtime's socket, and gives its parent lists.

Whoever may write to that socket can be root by it: so the agent, which serves pages,
cannot. The child takes one byte, "list", and answers with names; it ends with us.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from contextlib import suppress

from latprof_analysis.calling_user import User

from latprof_agent.containers.container import Container
from latprof_agent.containers.runtime import ANSWER_SECONDS, KNOWN, List
from latprof_agent.errors import ContainerError
from latprof_agent.privileges import CAP_DAC_OVERRIDE, serve_apart

_LIST = b"l"
_LENGTH = struct.Struct("=I")
_MOST_BYTES = 32 << 20
_SECONDS = ANSWER_SECONDS * len(KNOWN) + 1


class ListingChild:
    """To be made first, by a process of one thread that holds nothing yet."""

    def __init__(self, user: User, ask: List) -> None:
        self._ours, self.pid = serve_apart(
            user, (CAP_DAC_OVERRIDE,), lambda asked: _answer(asked, ask)
        )
        self._ours.settimeout(_SECONDS)

    def list_containers(self) -> list[Container]:
        """Have it ask the runtime; raises ContainerError."""
        try:
            self._ours.sendall(_LIST)
            (length,) = _LENGTH.unpack(self._receive(_LENGTH.size))
            if length > _MOST_BYTES:
                raise ValueError("it says too much")
            found = json.loads(self._receive(length))
        except (OSError, ValueError) as error:
            # an answer may come later, to another question
            self._ours.close()
            raise ContainerError(
                f"what asks the runtime does not answer: {error}; start again"
            ) from error
        if isinstance(found, str):
            raise ContainerError(found)
        return [Container(*map(str, fields)) for fields in found]

    def close(self) -> None:
        """End the child."""
        self._ours.close()
        os.waitpid(self.pid, 0)

    def _receive(self, length: int) -> bytes:
        found = bytearray()
        while len(found) < length:
            came = self._ours.recv(length - len(found))
            if not came:
                raise ConnectionResetError("it has ended")
            found += came
        return bytes(found)


def _answer(asked: socket.socket, ask: List) -> None:
    """Live as the child: answer until nobody can ask any more."""
    while asked.recv(1):
        try:
            said: object = ask()
        except ContainerError as error:
            said = str(error)
        text = json.dumps(said).encode()
        with suppress(OSError):
            asked.sendall(_LENGTH.pack(len(text)) + text)
