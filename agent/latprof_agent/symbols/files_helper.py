"""Opens and reads what processes have mapped, for the flight recorder. A program.

    asker --control--> we: keep files, and do nothing with them
    look: a child reads /proc/PID, takes the rights of that process, opens its files,
          leaves them with us, and says where code is
    name: a child takes the rights of nobody, reads symbols of a file

Each child answers on a socket that the asker sent along. It may wait for ever for a
file system of its owner's, also to close a file or to end: whoever asked does not, and
it is left behind. So no file is ever a descriptor of ours: it is kept on its way in a
socket, where a child gets one of its own, and whose end is no close.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:  # run by its path, isolated: our package is where we are
    sys.path.insert(0, str(Path(__file__).parents[2]))

from latprof_agent.foreign_files import NOBODY
from latprof_agent.symbols.elf_symbols import MOST_BYTES
from latprof_agent.symbols.images import NOWHERE, look
from latprof_agent.symbols.symbol_tables import LIBRARY, of_elf, of_map

QUESTION = struct.Struct("=cQI")  # what; the number of a file; whose
LOOK, NAME, DROP = b"l", b"n", b"d"
MOST_FILES = 256
_FILE = struct.Struct("=Q")  # its number, beside the socket that it is in
_MOST_CHILDREN, _MOST_OF_ONE = 64, 3  # of a user; that run, or were left behind
_CHILD_SECONDS = 120  # then it ends, if it can: so rarely is its user waited for
_CPU_SECONDS = 4  # more than anybody waits for
_SPARE_FILES = 32
_DATA_BYTES = 3 * MOST_BYTES  # of a child: with the copy of symbols 256 MiB
_FIRST_TO_GO = b"1000"


class _Helper:
    """Serves one asker until it closes the control socket."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._intake, self._left = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._files: dict[int, socket.socket] = {}
        self._children: dict[int, int] = {}  # by process: of which user
        self._bcc: ctypes.CDLL | None = None
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._room = max(min(MOST_FILES, soft - _SPARE_FILES), 0)

    def serve(self) -> None:
        """Answer until nobody asks any more."""
        while question := self._question():
            self._answer(*question)
        for child in self._children:
            os.kill(child, signal.SIGKILL)

    def _question(self) -> tuple[bytes, int, int, list[int]] | None:
        """Wait for one; what children left before it is taken in first."""
        while True:
            ready, _, _ = select.select([self._control, self._intake], (), ())
            if self._control in ready:
                words, asker, _, _ = socket.recv_fds(self._control, QUESTION.size, 1)
                self._take_in()
                return (*QUESTION.unpack(words), asker) if words else None
            self._take_in()

    def _take_in(self) -> None:
        """Keep what children have opened."""
        while select.select([self._intake], (), (), 0)[0]:
            words, found, _, _ = socket.recv_fds(self._intake, _FILE.size, 1)
            (number,) = _FILE.unpack(words)
            for descriptor in found:
                self._files[number] = socket.socket(fileno=descriptor)

    def _answer(self, what: bytes, number: int, user: int, askers: list[int]) -> None:
        """Have a child do it; without one the asker sees the end of its socket."""
        if what == DROP and (kept := self._files.pop(number, None)):
            kept.close()
        for descriptor in askers:
            with socket.socket(fileno=descriptor) as asker:
                if what == LOOK and self._may_start(user):
                    self._start(asker, user, partial(self._look, number))
                elif what == NAME and number in self._files and self._may_start(user):
                    self._load_bcc()
                    kept = self._files[number]
                    self._start(asker, user, partial(_name, self._bcc, kept))

    def _may_start(self, user: int) -> bool:
        """Whether there is no child too many, those that ended left out."""
        for child in [*self._children]:
            if os.waitpid(child, os.WNOHANG)[0]:
                del self._children[child]
        mine = Counter(self._children.values())[user]
        return mine < _MOST_OF_ONE and len(self._children) < _MOST_CHILDREN

    def _load_bcc(self) -> None:
        if not self._bcc:
            with suppress(OSError):
                self._bcc = ctypes.CDLL(LIBRARY)

    def _start(
        self,
        asker: socket.socket,
        user: int,
        answer: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        child = os.fork()
        if child:
            self._children[child] = user
            return
        try:
            signal.alarm(_CHILD_SECONDS)
            _bound(resource.RLIMIT_CPU, _CPU_SECONDS)
            self._control.close()
            request = json.loads(_line_of(asker))
            asker.sendall(json.dumps(answer(request)).encode() + b"\n")
            asker.close()
        finally:
            os._exit(0)  # what failed has no answer

    def _look(self, first: int, request: dict[str, Any]) -> dict[str, Any]:
        """Find addresses of a process; new files get numbers from `first` on."""
        places, files = look(request)
        known = {tuple(key): number for key, number in request["known"]}
        room = self._room - len(self._files)
        found: list[Any] = []
        for file in files:
            if file and tuple(file.key) not in known and room > 0:
                known[tuple(file.key)] = first
                self._leave(first, file.descriptor)
                first, room = first + 1, room - 1
            number = known.get(tuple(file.key), NOWHERE) if file else NOWHERE
            found.append([number, file and file.key, file and file.map_bytes])
        return {"places": places, "files": found}

    def _leave(self, number: int, descriptor: int) -> None:
        ours, its = socket.socketpair(type=socket.SOCK_DGRAM)
        socket.send_fds(ours, [b"f"], [descriptor])
        socket.send_fds(self._left, [_FILE.pack(number)], [its.fileno()])


def _name(
    bcc: ctypes.CDLL | None, kept: socket.socket, request: dict[str, Any]
) -> dict[str, Any]:
    """Say which functions code of a file is in."""
    descriptor = _kept_in(kept)
    with suppress(OSError):  # before there are no rights to
        ctypes.CDLL("libstdc++.so.6")
    NOBODY.take()
    size, wanted = request["size"], request["wanted"]
    if size is None:
        found, build_id = of_elf(bcc, descriptor, wanted)
    else:
        found, build_id = of_map(descriptor, size, wanted), ""
    return {
        "found": list(found.items()),
        "build_id": build_id,
        "bcc": bcc is not None,
    }


def _kept_in(kept: socket.socket) -> int:
    """Get the descriptor that is in a socket, and leave it there for others.

    socket.recv_fds() of Python 3.11 ignores its flags.
    """
    size = struct.calcsize("i")
    _, ((*_, found),), _, _ = kept.recvmsg(1, socket.CMSG_LEN(size), socket.MSG_PEEK)
    return int(struct.unpack("i", found)[0])


def _line_of(asker: socket.socket) -> bytes:
    with asker.makefile("rb") as lines:
        return lines.readline()


def _limit() -> None:
    """Take little memory of others', and be the first to go where it is short."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_bytes(_FIRST_TO_GO)
    for limit, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, _DATA_BYTES),
        (resource.RLIMIT_FSIZE, 2 * MOST_BYTES),
        (resource.RLIMIT_NOFILE, 2 * MOST_FILES),  # and of those in sockets
    ):
        _bound(limit, most)


def _bound(limit: int, most: int) -> None:
    _, hard = resource.getrlimit(limit)
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    with suppress(OSError):  # refused to some services
        resource.setrlimit(limit, (least, hard))


def main() -> None:
    """Serve on the socket whose descriptor is the argument."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever asks ends us
    _limit()
    _Helper(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
