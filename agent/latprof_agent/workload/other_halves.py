"""What other hosts recorded of a run, taken in when it is over.

What comes is checked by a program without rights, and kept beside this host's own
recording under a name of ours.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from latprof_analysis.extras import need_extra
from latprof_analysis.text import counted

from latprof_agent.errors import LatprofError, LendError
from latprof_agent.sinks.run_files import RunFolder
from latprof_agent.sinks.summary import OTHER_RECORDINGS
from latprof_agent.workload.lender import start_lending
from latprof_agent.workload.workload import Look, OtherEnd

_MOST_OF_FREE = 2  # no more than one of so many parts of what is free on the disk
_CHECK_SECONDS = 120.0
_MOST_REASON = 500  # bytes
_LOOK_SECONDS = 0.2


def fetch_halves(
    ends: Sequence[OtherEnd], folder: RunFolder, most_bytes: int, mode: int, look: Look
) -> dict[str, list[dict[str, Any]]]:
    """Ask each of them for at most so much.

    Returns
    -------
    dict of list of dict
        Parts of run.json, those in OTHER_RECORDINGS. Of each host which one it is;
        ``file`` in the folder and its ``bytes``, or None, and ``why`` it was not had,
        else None.
    """
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in OTHER_RECORDINGS}
    numbers: Counter[str] = Counter()
    for end in ends:
        numbers[end.kind] += 1
        number = f"-{numbers[end.kind]}" if len(ends) > 1 or end.numbered else ""
        file = f"{end.kind}{number}.arrows.zst"
        try:
            need_extra("analysis", "reading what it recorded")
            with folder.whole_file(file, mode) as whole:
                end.fetch(_room_checked(whole), most_bytes, look)
                whole.flush()
                _check(whole, look)
                had = {"file": file, "bytes": whole.tell(), "why": None}
        except LatprofError as error:
            had = {"file": None, "bytes": None, "why": str(error)}
        found[f"{end.kind}_recording"].append({**end.described(), **had})
    return found


def _room_checked(file: BinaryIO) -> Callable[[bytes], object]:
    """Write, but leave room on the disk for what this run itself still writes."""
    room = os.fstatvfs(file.fileno())
    most = room.f_bavail * room.f_frsize // _MOST_OF_FREE

    def write(data: bytes) -> None:
        if file.tell() + len(data) > most:
            raise LendError(
                f"it takes more than half of what is free on the disk "
                f"({counted(2 * most, 'byte')}); free some"
            )
        file.write(data)

    return write


def _check(file: BinaryIO, look: Look) -> None:
    """Have all of it read, by who has no rights; raises LendError."""
    read = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        process = start_lending({"file": read}, stdout=subprocess.PIPE)
    finally:
        os.close(read)
    until = time.monotonic() + _CHECK_SECONDS
    try:
        assert process.stdout
        while not select.select([process.stdout], [], [], _LOOK_SECONDS)[0]:
            look(file.tell())
            if time.monotonic() > until:
                raise LendError("to read what it sent takes too long")
        why = process.stdout.read(_MOST_REASON).decode("utf-8", "replace")
        if process.wait(_CHECK_SECONDS):
            why = "it takes too much memory, or time"
    finally:
        process.kill()
        process.communicate()
    if why:
        raise LendError(f"what it sent cannot be read: {why}")
