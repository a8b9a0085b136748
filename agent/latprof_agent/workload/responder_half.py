"""What responders recorded of this host, asked for when the run is over.

The connection is that of `latprof-load fetch`: the same handshake, secret and limits as
a session's. What comes is checked by a program without rights, and kept beside this
host's own recording under a name of ours.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from latprof_analysis.text import counted

from latprof_agent.errors import LatprofError, LendError
from latprof_agent.executables import find_executable
from latprof_agent.lab.child import last_output, start
from latprof_agent.lend.frames import Inlet
from latprof_agent.sinks.run_files import TABLE_MODE, RunFolder
from latprof_agent.workload.lender import start_lending
from latprof_agent.workload.programs import STARTED, ending_words
from latprof_agent.workload.remote import secret_words
from latprof_agent.workload.workload import OtherEnd

_MOST_OF_FREE = 2  # no more than one of so many parts of what is free on the disk
_CHECK_SECONDS = 120.0
_MOST_REASON = 500  # characters
_LOOK_SECONDS = 0.2

Look = Callable[[int], None]  # with the bytes that came until now; may raise


def fetch_halves(
    responders: Sequence[OtherEnd],
    folder: RunFolder,
    since_ns: int,
    most_bytes: int,
    look: Look,
) -> list[dict[str, Any]]:
    """Ask each of them; what run.json says of it.

    Parameters
    ----------
    since_ns : int
        CLOCK_MONOTONIC, before the first session.
    most_bytes : int
        Of each recording.

    Returns
    -------
    list of dict
        For each its address and port; ``file`` in the folder and its ``bytes``, or
        None, and ``why`` it was not had, else None.
    """
    found = []
    for number, responder in enumerate(responders, 1):
        name = f"responder-{number}" if len(responders) > 1 else "responder"
        file = f"{name}.arrows.zst"
        said = {"address": responder.address, "port": responder.port}
        try:
            had = _fetch(responder, folder, file, since_ns, most_bytes, look)
            found.append({**said, "file": file, "bytes": had, "why": None})
        except LatprofError as error:
            found.append({**said, "file": None, "bytes": None, "why": str(error)})
    return found


def _fetch(
    responder: OtherEnd,
    folder: RunFolder,
    name: str,
    since_ns: int,
    most_bytes: int,
    look: Look,
) -> int:
    age_ns = time.monotonic_ns() - since_ns
    with (
        _agreed(responder, age_ns, most_bytes, look) as connection,
        folder.whole_file(name, TABLE_MODE) as file,
    ):
        inlet = Inlet(connection, most_bytes, look)
        inlet.take(_room_checked(file))
        file.flush()
        _check(file, look)
    return inlet.taken


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


def _agreed(
    responder: OtherEnd, age_ns: int, most_bytes: int, look: Look
) -> socket.socket:
    """Connect to it as a session does; raises LendError with the reason."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = [str(find_executable("latprof-load")), "fetch", "--die-with-parent"]
    words += ["--address", responder.address, "--port", str(responder.port)]
    words += secret_words(responder.secret_file)
    words += ["--hand-over", str(its.fileno()), "--since", str(age_ns)]
    words += ["--most-bytes", str(most_bytes)]
    with ours:
        with its:
            process = start(words, pass_fds=[its.fileno()], **STARTED)
        try:
            # its time is bounded: connecting, and the handshake
            while not select.select([ours], [], [], _LOOK_SECONDS)[0]:
                look(0)
            _, found, _, _ = socket.recv_fds(ours, 1, 1)
        except BaseException:
            process.kill()
            process.communicate()
            raise
    _, complaint = last_output(process)
    if not found:
        raise LendError(ending_words(complaint, "latprof-load fetch", process))
    return socket.socket(fileno=found[0])


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
