"""Expected failures: each text is one line for the user.

LatprofError     exit status 1
└─ UsageError    a value that cannot be used, exit status 2

What the system refuses (`REFUSALS`) becomes one, too, with what to do about it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from latprof_analysis.text import printable

REFUSALS = (OSError, MemoryError, RuntimeError)

_NO_THREAD = "can't start new thread"  # Python's words, of a RuntimeError
_REMEDIES = {
    errno.EPERM: "run as root with all capabilities, outside of a user namespace and "
    "of a filter of system calls (seccomp)",
    errno.EACCES: "see its permissions, or run as root with all capabilities",
    errno.EROFS: "mount that file system for writing",
    errno.EMFILE: "raise `ulimit -n`",
    errno.ENFILE: "close files, or raise `sysctl fs.file-max`",
    errno.ENOMEM: "free some memory, or raise `ulimit -v`",
    errno.ENOBUFS: "free some memory",
    errno.EAGAIN: "raise `ulimit -u`, or pids.max of the control group",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "raise `ulimit -f`",
}


class LatprofError(Exception):
    """An expected failure: its text is one line for the user."""

    exit_code = 1

    def __str__(self) -> str:
        return printable(super().__str__())


class UsageError(LatprofError):
    """A value that cannot be used."""

    exit_code = 2


def remedy(number: int | None, otherwise: str) -> str:
    """Say what to do about an errno; `otherwise` where that depends on the call."""
    return _REMEDIES.get(number or 0, otherwise)


def refused(
    what: str, error: Exception, otherwise: str = "see there, and try again"
) -> LatprofError:
    """Make one line of a refusal by the system; raises what is a bug as it is.

    Examples
    --------
    >>> print(refused("cannot go on", OSError(errno.EROFS, "Read-only", "/proc/x")))
    cannot go on: /proc/x: Read-only file system; mount that file system for writing
    """
    number, where = errno.ENOMEM, ""
    if isinstance(error, OSError):
        number = error.errno or 0
        # an error without a name is of the folder we are in
        name = error.filename or ("." if number == errno.ENOENT else "")
        where = f"{name}: " if name else ""
    elif not isinstance(error, MemoryError):
        if _NO_THREAD not in str(error):
            raise error
        number, where = errno.EAGAIN, "starting a thread: "
    why = os.strerror(number) if number else " ".join(str(error).split())
    return LatprofError(f"{what}: {where}{why}; {remedy(number, otherwise)}")


@contextmanager
def refusals_in_one_line(what: str) -> Iterator[None]:
    """Raise what the system refuses in the block as LatprofError; bugs as they are."""
    try:
        yield
    except REFUSALS as error:
        raise refused(what, error) from error
