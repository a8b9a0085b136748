"""Opens what belongs to others: regular files only, with their rights, and in time.

What stands at a path, and what a process has mapped, is its owner's choice: a device
that acts when it is opened, a FIFO that nobody writes to, a file with a lease, a file
of somebody else that was mounted there, a file system that never answers. So a file is
looked at before it is opened (O_PATH opens nothing), an open never waits for a lease or
a writer, and what may wait all the same is left to a process or a thread that may be
left behind (`watched_thread.Apart`). What processes have mapped, and what the agent
reads again at a signal, is opened here and nowhere else.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from pathlib import Path
from typing import NamedTuple

from latprof_agent.kernel_text import split_lines

ROOT = 0
_LOOKED_AT = os.O_PATH | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PR_SET_NO_NEW_PRIVS = 38
_CAP_VERSION = 0x20080522


def place_of(
    path: str | Path, folder: int | None = None, *, follow: bool = True
) -> int:
    """Find what stands at a path, without opening it; raises OSError."""
    flags = _LOOKED_AT if follow else _LOOKED_AT | os.O_NOFOLLOW
    return os.open(path, flags, dir_fd=folder)


def reopen(place: int) -> tuple[int, os.stat_result]:
    """Open for reading what a descriptor of `place_of` is, if it is a regular file.

    Raises OSError where it is none, or may not be read, or has a lease that would have
    to be waited for.
    """
    status = os.fstat(place)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return os.open(f"/proc/self/fd/{place}", _READ), status


def open_regular(path: str | Path) -> tuple[int, os.stat_result]:
    """Open a regular file for reading, or raise OSError."""
    place = place_of(path)
    try:
        return reopen(place)
    except OSError as error:
        error.filename = os.fspath(path)
        raise
    finally:
        os.close(place)


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Read a whole regular file; raises OSError, also where it is larger."""
    descriptor, _ = open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        found = file.read(most_bytes + 1)
    if len(found) > most_bytes:
        why = f"it is larger than {most_bytes} bytes"
        raise OSError(errno.EINVAL, why, os.fspath(path))
    return found


def fields_of(status: bytes) -> dict[bytes, bytes]:
    """Read /proc/PID/status; raises ValueError."""
    return dict(line.split(b":", 1) for line in split_lines(status))


class Rights(NamedTuple):
    """With which a process opens files."""

    user: int
    group: int
    groups: list[int]

    @classmethod
    def of(cls, status: bytes) -> Rights:
        """Read them from /proc/PID/status; raises ValueError."""
        fields = fields_of(status)
        try:
            user, group = (int(fields[name].split()[3]) for name in (b"Uid", b"Gid"))
            return cls(user, group, [int(one) for one in fields[b"Groups"].split()])
        except (KeyError, IndexError) as error:
            raise ValueError("this is no status of a process") from error

    def take(self) -> None:
        """Have these and no more, for good: no capabilities, and no way to any.

        Who is not root stays who he is. Of the whole process, which has one thread.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        if os.geteuid() == ROOT:
            os.setgroups(self.groups)
            os.setresgid(self.group, self.group, self.group)
            os.setresuid(self.user, self.user, self.user)
        header, none = struct.pack("=Ii", _CAP_VERSION, 0), bytes(24)
        if libc.capset(header, none) or libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


NOBODY = Rights(65534, 65534, [])
