"""Files of processes that can name code: where it is, and which function that is.

Asks `files_helper`, a program, which opens and reads them; nothing of theirs is ever a
descriptor of this process, and nothing is waited for longer than some seconds.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from latprof_agent import privileges
from latprof_agent.kernel_text import lines_of
from latprof_agent.process_table import stat_fields
from latprof_agent.symbols import files_helper
from latprof_agent.symbols.files_helper import DROP, LOOK, NAME, QUESTION
from latprof_agent.symbols.images import NOWHERE, Place

LOOK_SECONDS = 2.0  # for a process; the more often in vain, the less
NAME_SECONDS = 3.0  # for a file
_REMEMBERED_SECONDS = 120.0
_PENALTY_SECONDS = 60.0
_NUMBERS = 1 << 16  # that one look may give
_MOST_ANSWER_BYTES = 16 << 20
_END_SECONDS = 1.0

Images = dict[int, list[int]]  # by its number in samples: addresses


class Function(NamedTuple):
    """What was found at a place; see `symbol_tables.Found`."""

    name: str
    begin: int
    call: int | None
    framed: bool
    callee: str
    first: int
    behind: int


@dataclass
class _File:
    key: tuple[int, ...]
    user: int  # whose process has it
    map_bytes: int | None  # of a JIT's map; None: it is an object file
    handle: int | None  # the helper's number; None: it is closed


class Files:
    """Numbers files that can name places; each has one number, open or closed."""

    def __init__(self) -> None:
        self.has_bcc: bool | None = None  # None: nothing was named yet
        self._helper: _Helper | None = None
        self._spent = 0.0  # by helpers that have ended
        self._lock = threading.Lock()  # of the helper, and of what it has open
        self._files: dict[int, _File] = {}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._count = 0  # of numbers that were given
        self._next = 0  # of the helper's
        self._in_vain: deque[float] = deque()  # when a process was waited for
        self._again_at: dict[int, float] = {}  # by user: no more questions until then

    def begin(self) -> None:
        """Start the helper, so that it takes no CPU from what is measured later."""
        with self._lock, suppress(OSError):  # another look tries again
            self._running()

    def look(self, pid: int, images: Images) -> dict[int, list[tuple[int, Any]]]:
        """Find where addresses of a process are: of each a Place, or None.

        By image, of those that it runs now. Raises OSError, ValueError.
        """
        user = _user_of(pid)
        with self._lock:
            request = {
                "pid": pid,
                "images": {str(number): images[number] for number in images},
                "known": [
                    (file.key, file.handle)
                    for file in self._files.values()
                    if file.handle is not None
                ],
            }
            self._next += _NUMBERS
            answer = self._ask_look(user, request)
            numbers = [
                self._number(handle, key, size, user)
                for handle, key, size in answer["files"]
            ]
        return {
            int(image): [(int(at), _place(place, numbers)) for at, place in places]
            for image, places in answer["places"].items()
        }

    def _ask_look(self, user: int, request: dict[str, Any]) -> dict[str, Any]:
        now = time.monotonic()
        while self._in_vain and self._in_vain[0] < now - _REMEMBERED_SECONDS:
            self._in_vain.popleft()
        until = now + LOOK_SECONDS / (1 + len(self._in_vain))
        try:
            return self._ask(self._running(), (LOOK, self._next, user), request, until)
        except TimeoutError:
            self._in_vain.append(now)
            raise

    def _ask(
        self,
        helper: _Helper,
        question: tuple[bytes, int, int],
        request: dict[str, Any],
        until: float,
    ) -> dict[str, Any]:
        """Ask, but nothing about a user who has kept us waiting for too long.

        Root has no reason to, and many processes.
        """
        user, now = question[2], time.monotonic()
        if self._again_at.get(user, now) > now:
            raise PermissionError(f"files of user {user} take too long")
        try:
            return helper.ask(*question, request, until)
        except TimeoutError:
            if user:
                self._again_at[user] = now + _PENALTY_SECONDS
            raise

    def _running(self) -> _Helper:
        if self._helper and not self._helper.runs:
            self._end()
        self._helper = self._helper or _Helper()
        return self._helper

    def _end(self) -> None:
        """End the helper, and what it had open with it."""
        if self._helper:
            self._spent += self._helper.cpu_seconds
            self._helper.close()
        self._helper = None
        for file in self._files.values():
            file.handle = None

    def _number(
        self, handle: int, key: list[int] | None, map_bytes: int | None, user: int
    ) -> int:
        if handle == NOWHERE or key is None:
            return NOWHERE
        number = self._numbers.setdefault(tuple(key), self._count)
        self._count = max(self._count, number + 1)
        self._files[number] = _File(tuple(key), user, map_bytes, handle)
        return number

    def size(self, number: int) -> int:
        """Bytes of a file."""
        return self._files[number].key[2]

    def name(self, number: int, wanted: list[int], until: float) -> dict[int, Function]:
        """Find functions at places of a file; raises OSError, ValueError."""
        with self._lock:
            file, helper = self._files[number], self._running()
        if file.handle is None:
            raise FileNotFoundError(number)
        request = {"size": file.map_bytes, "wanted": wanted}
        until = min(until, time.monotonic() + NAME_SECONDS)
        question = NAME, file.handle, file.user
        answer = self._ask(helper, question, request, until)
        self.has_bcc = bool(answer["bcc"])
        return {
            int(at): Function(
                *(str(name), int(begin), None if call is None else int(call)),
                bool(framed),
                str(callee),
                *(int(first), int(behind)),
            )
            for at, (name, begin, call, framed, callee, first, behind) in answer[
                "found"
            ]
        }

    def close(self, number: int) -> None:
        """Close a file; its number stays its own."""
        with self._lock:
            file = self._files[number]
            handle, file.handle = file.handle, None
            if self._helper and handle is not None:
                with suppress(OSError):
                    self._helper.drop(handle)

    def forget(self, kept: Iterable[int]) -> None:
        """Give the numbers of closed files away, but for these."""
        with self._lock:
            used = {*kept}
            self._files = {
                number: file
                for number, file in self._files.items()
                if number in used or file.handle is not None
            }
            self._numbers = {file.key: n for n, file in self._files.items()}

    @property
    def cpu_seconds(self) -> float:
        """What the helper and its children have spent so far."""
        helper = self._helper
        return self._spent + (helper.cpu_seconds if helper else 0.0)

    def finish(self) -> None:
        """End the helper; it may be asked again."""
        with self._lock:
            self._end()


def _place(place: list[Any] | None, numbers: list[int]) -> Place | None:
    """A place with the number that its file has here."""
    if not place:
        return None
    file, at, shown, call, first, behind = place
    number = NOWHERE if file == NOWHERE else numbers[file]
    return Place(number, int(at), str(shown), call, int(first), int(behind))


def _user_of(pid: int) -> int:
    """Whose process it is: who started it, also where it has others' rights."""
    for line in lines_of(Path(f"/proc/{pid}/status")):
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    raise ProcessLookupError(pid)


class _Helper:
    """The program; it may be slow, break, or say nonsense."""

    def __init__(self) -> None:
        self._ours, its = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._ours.settimeout(_END_SECONDS)
        with its, privileges.handed_on(privileges.CAP_PERFMON):
            self._process = subprocess.Popen(
                [sys.executable, "-ISu", files_helper.__file__, str(its.fileno())],
                pass_fds=(its.fileno(),),
                env={"PATH": os.defpath, "DEBUGINFOD_URLS": ""},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    @property
    def cpu_seconds(self) -> float:
        """Of it, and of its children that have ended."""
        fields = stat_fields(self._process.pid)
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def ask(
        self,
        what: bytes,
        number: int,
        user: int,
        request: dict[str, Any],
        until: float,
    ) -> dict[str, Any]:
        """Have a question answered; raises OSError, ValueError."""
        ours, its = socket.socketpair()
        with ours:
            with its:
                words = QUESTION.pack(what, number, user)
                socket.send_fds(self._ours, [words], [its.fileno()])
            ours.settimeout(max(until - time.monotonic(), 0.001))
            ours.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(_line(ours, until))
        if not isinstance(answer, dict):
            raise ValueError("the answer is none")
        return answer

    def drop(self, number: int) -> None:
        self._ours.sendall(QUESTION.pack(DROP, number, 0))

    def close(self) -> None:
        """End it; one that cannot end is left behind."""
        self._ours.close()  # at which it ends what it has begun
        for _ in range(2):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
                return
            self._process.kill()


def _line(asked: socket.socket, until: float) -> bytes:
    kept = bytearray()
    while not kept.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0 or len(kept) > _MOST_ANSWER_BYTES:
            raise TimeoutError("no answer in time")
        asked.settimeout(left)
        more = asked.recv(1 << 20)
        if not more:
            raise ConnectionResetError("no answer")
        kept += more
    return bytes(kept)
